"""Run folders, computed by ONNX Runtime on a CPU."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from seq2seq.engines.onnx.engine import OnnxEngine
from seq2seq.engines.onnx.network import Network, load_network
from seq2seq.inference.loading import LoadedModel, ModelOptions
from seq2seq.runs.graphs import check_runs, from_graphs
from seq2seq.runs.run_config import overridden_decoding, stored_run, with_joined_profile


def load_runs(paths: Sequence[Path], options: ModelOptions) -> LoadedModel | None:
    """Load run folders with their graphs; None if one of them cannot be traced."""
    runs = [stored_run(path) for path in paths]
    check_runs(runs)
    networks: list[Network] = []
    for run in runs:
        if (network := from_graphs(run, partial(load_network, int8=options.int8))) is None:
            return None
        networks.append(network)
    engine = OnnxEngine(networks)
    first = with_joined_profile(runs)
    return LoadedModel(
        engine=engine,
        vocabularies=first.vocabularies,
        limit=first.limit,
        decoding=overridden_decoding(first.path.parent, first.config, options.overrides),
        max_length=first.config.data.max_length,
        device="cpu",
        source=first.source,
        name=", ".join(map(str, paths)),
    )
