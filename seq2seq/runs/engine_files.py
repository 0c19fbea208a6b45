"""Make the files of an engine from the best weights of a run, by torch."""

from contextlib import suppress
from pathlib import Path

import torch

from seq2seq.engines.onnx.files import GraphFiles, traced_graphs
from seq2seq.engines.onnx.trace import TraceError
from seq2seq.runs import tensor_file
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.engine_folder import store_graphs, stored_graphs
from seq2seq.runs.layout import BEST
from seq2seq.runtime.errors import UserError


def write(folder: Path) -> None:
    """Write the files of the best weights of a run, unless they are there.

    They are made again where they are needed if that is not possible, now or at all.
    """
    with suppress(TraceError, OSError, UserError):
        if stored_graphs(folder, checksum_of_best(folder)) is None:
            rebuild(folder)


def rebuild(folder: Path) -> GraphFiles:
    """Trace the graphs of a run, and write them if the folder can be written.

    Raises TraceError if the model has a part that cannot be traced, and UserError as `load_model`.
    """
    checksum = checksum_of_best(folder)
    graphs = traced_graphs(load_model(folder, torch.device("cpu")).model)
    with suppress(OSError):
        store_graphs(folder, checksum, graphs)
    return graphs


def checksum_of_best(folder: Path) -> str:
    """Return the checksum of the tensors of the best weights, as their header records it."""
    return str(tensor_file.read_header(folder / BEST)[0]["tensors"])
