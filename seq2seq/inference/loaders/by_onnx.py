"""Run folders, computed by ONNX Runtime on a CPU."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from seq2seq.engines.onnx.engine import OnnxEngine
from seq2seq.engines.onnx.network import Network, load_network
from seq2seq.inference.loaded_model import LoadedModel, ModelOptions
from seq2seq.inference.loaders.run_folders import model_of
from seq2seq.runs.graphs import check_runs, from_graphs
from seq2seq.runs.run_config import stored_run


def load_runs(paths: Sequence[Path], options: ModelOptions) -> LoadedModel | None:
    """Load run folders with their graphs; None if one of them cannot be traced."""
    runs = [stored_run(path) for path in paths]
    check_runs(runs)
    networks: list[Network] = []
    for run in runs:
        if (network := from_graphs(run, partial(load_network, int8=options.int8))) is None:
            return None
        networks.append(network)
    return model_of(runs, OnnxEngine(networks), "cpu", options)
