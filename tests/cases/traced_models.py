"""Graphs of the models of the cases, each traced once."""

import copy
import functools

from cases.models import Case, make_copying_model, make_model
from seq2seq.engines.engine import GraphFiles
from seq2seq.engines.onnx.graph import Graph
from seq2seq.engines.onnx.network import quantized
from seq2seq.engines.onnx.trace import trace


def traced(case: Case, copies: bool = False) -> tuple[Graph, Graph]:
    """Return the encoder and decoder of the model of a case, which a test may change."""
    return copy.deepcopy(_traced(case, copies))


@functools.cache
def _traced(case: Case, copies: bool) -> tuple[Graph, Graph]:
    model = make_copying_model(case) if copies else make_model(case)
    return trace(model.float().eval())


@functools.cache
def graph_files(case: Case, int8: bool = False) -> GraphFiles:
    """Return the files of the graphs of a case."""
    if int8:
        return quantized(graph_files(case))
    return GraphFiles(*(graph.content() for graph in _traced(case, copies=False)))
