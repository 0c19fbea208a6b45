"""The graphs of a model as two ONNX files; a file of a stranger is checked before it is used."""

from typing import TYPE_CHECKING, NamedTuple

import onnx

from seq2seq.engines.onnx.checks import GraphError, check_graphs
from seq2seq.engines.onnx.graph import Graph
from seq2seq.engines.onnx.int8 import quantize_graphs
from seq2seq.engines.onnx.network import Network

if TYPE_CHECKING:
    from seq2seq.model.seq2seq import Seq2Seq


class GraphFiles(NamedTuple):
    """The files of both graphs."""

    encoder: bytes
    decoder: bytes


def traced_graphs(model: "Seq2Seq") -> GraphFiles:
    """Return the graphs of a model in float32; raises TraceError."""
    from seq2seq.engines.onnx.trace import trace

    return GraphFiles(*(graph.content() for graph in trace(model)))


def quantized(graphs: GraphFiles) -> GraphFiles:
    """Return the graphs with products in int8."""
    encoder, decoder = (Graph.of(onnx.load_from_string(content).graph) for content in graphs)
    quantize_graphs(encoder, decoder)
    return GraphFiles(encoder.content(), decoder.content())


def load_network(graphs: GraphFiles, vocabulary_size: int, int8: bool) -> Network:
    """Prepare graphs that are not trusted, in int8 if that is asked for.

    Raises GraphError if they are not those of a model with this vocabulary.
    """
    check_graphs(*graphs, vocabulary_size)
    try:
        network = Network(*(quantized(graphs) if int8 else graphs))
        _ = network.outputs  # prepares the decoder, too
    except Exception as error:  # ONNX Runtime has its own classes
        raise GraphError("ONNX Runtime refuses the graphs") from error
    return network
