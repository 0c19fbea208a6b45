"""Make the files of an engine from the best weights of a run, by torch."""

import copy
from contextlib import suppress
from pathlib import Path

import torch

from seq2seq.engines.onnx.files import Graphs, traced_graphs
from seq2seq.engines.onnx.trace import TraceError
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs import tensor_file
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.engine_folder import store_graphs
from seq2seq.runs.layout import BEST


def write(folder: Path, model: Seq2Seq) -> None:
    """Write the files of a model whose weights are the best of a run.

    They are made again where they are needed if that is not possible, now or at all.
    """
    with suppress(TraceError, OSError):
        store_graphs(folder, checksum_of_best(folder), _graphs(model))


def rebuild(folder: Path) -> Graphs:
    """Trace the graphs of a run, and write them if the folder can be written.

    Raises TraceError if the model has a part that cannot be traced, and UserError as `load_model`.
    """
    checksum = checksum_of_best(folder)
    graphs = _graphs(load_model(folder, torch.device("cpu"))[0])
    with suppress(OSError):
        store_graphs(folder, checksum, graphs)
    return graphs


def checksum_of_best(folder: Path) -> str:
    """Return the checksum of the tensors of the best weights, as their header records it."""
    return str(tensor_file.read_header(folder / BEST)[0]["tensors"])


def _graphs(model: Seq2Seq) -> Graphs:
    if next(model.parameters()).device.type != "cpu":
        model = copy.deepcopy(model).to("cpu")
    return traced_graphs(model)
