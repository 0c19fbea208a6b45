"""Load run folders for translation: by ONNX Runtime on a CPU, without torch, or by torch."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seq2seq.config.schema import Config
from seq2seq.data.source_profile import LengthLimit
from seq2seq.data.vocabulary.vocabulary import Vocabularies, checksums_of
from seq2seq.engines.engine import Engine
from seq2seq.engines.onnx.checks import GraphError, check_graphs
from seq2seq.engines.onnx.engine import OnnxEngine
from seq2seq.engines.onnx.files import GraphFiles, load_network
from seq2seq.inference.loaded_model import AnyLoaded, ModelOptions, check_ensemble
from seq2seq.runs import run_config, tensor_file
from seq2seq.runs.engine_folder import stored_graphs
from seq2seq.runs.layout import BEST, CONFIG, ENGINE, VOCABULARY, with_recovery_hint
from seq2seq.runs.provenance import check_model_keys, recorded_vocabularies
from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import UserError, argument, needs_train

if TYPE_CHECKING:
    import torch


class StoredRun(NamedTuple):
    """A run folder, but for its weights."""

    config: Config
    vocabularies: Vocabularies
    limit: LengthLimit
    checksum: str  # SHA-256 of the weights


def stored_run(folder: Path) -> StoredRun:
    """Read a run folder without its weights; raises UserError as `load_model` does."""
    config, path = run_config.read_config(folder), folder / BEST
    run_config.check_exists(path)
    with with_recovery_hint(path):
        header, _ = tensor_file.read_header(path)
        limit = tensor_file.read_dataclass(LengthLimit, header, "limit", path)
        check_model_keys(path, header, config, folder / CONFIG)
        vocabularies = recorded_vocabularies(path, header, folder / VOCABULARY)
    return StoredRun(config, vocabularies, limit, str(header["tensors"]))


def check_fit(paths: Sequence[Path], runs: Iterable[tuple[Config, Vocabularies]]) -> None:
    """Raise UserError for runs that form no ensemble."""
    described = [
        (checksums_of(vocabularies), config.data.direction) for config, vocabularies in runs
    ]
    for path, (checksums, direction) in zip(paths, described, strict=True):
        same = checksums == described[0][0]
        check_ensemble(path, paths[0], same, direction, described[0][1])


def graphs_of(path: Path, run: StoredRun) -> GraphFiles | None:
    """Return the graphs of a run, traced from its weights if its folder has no valid ones.

    None, with a note, if the model has a part that cannot be traced.
    """
    graphs = stored_graphs(path, run.checksum)
    with suppress(GraphError):
        if graphs is not None:
            check_graphs(*graphs, len(run.vocabularies.tgt))
            return graphs
    with needs_train(f"{path}: has no {ENGINE} folder of its weights, and making it"):
        from seq2seq.engines.onnx.trace import TraceError
        from seq2seq.runs import engine_files
    try:
        return engine_files.rebuild(path)
    except TraceError as error:
        logger.info(f"note: {path}: has no ONNX form ({error}); torch computes it")
        return None


def load_stored(
    kind: type[AnyLoaded], paths: Sequence[Path], options: ModelOptions
) -> AnyLoaded | None:
    """Return run folders as a model of ONNX Runtime; None if one of them cannot be traced."""
    runs = [stored_run(path) for path in paths]
    check_fit(paths, [run[:2] for run in runs])
    networks = []
    for path, run in zip(paths, runs, strict=True):
        if (graphs := graphs_of(path, run)) is None:
            return None
        networks.append(load_network(graphs, len(run.vocabularies.tgt), options.int8))
    return _loaded(kind, paths, OnnxEngine(networks), runs[0], options)


def load_by_torch(kind: type[AnyLoaded], paths: Sequence[Path], options: ModelOptions) -> AnyLoaded:
    """Return run folders as a model of torch."""
    from seq2seq.engines.torch.ensemble import Ensemble
    from seq2seq.engines.torch.graphs import engine_for
    from seq2seq.runs.checkpoint import load_model
    from seq2seq.runtime.device import choose_device

    device = choose_device(options.device)
    _check_computed(paths[0], device, options)
    runs = [load_model(path, device) for path in paths]
    models = [run.model.half() if options.float16 else run.model for run in runs]
    check_fit(paths, [(run.config, run.vocabularies) for run in runs])
    first, vocabularies = runs[0], runs[0].vocabularies
    engine = engine_for(models[0] if len(models) == 1 else Ensemble(models), device)
    loaded = _loaded(
        kind, paths, engine, StoredRun(first.config, vocabularies, first.limit, ""), options
    )
    loaded.device = device
    return loaded


def _check_computed(path: Path, device: "torch.device", options: ModelOptions) -> None:
    """Raise UserError for options that torch does not compute on the device."""
    if options.int8 and device.type != "cpu":
        text = f"runs on the CPU only, not on {device}; add {argument('device', 'cpu')}"
        raise UserError(text, argument="int8", value=True)
    if options.int8:
        text = f"torch computes {path}, as it has no ONNX form; remove the option"
        raise UserError(text, argument="int8", value=True)
    if options.float16 and device.type != "cuda":
        text = f"needs a CUDA GPU, not {device}; remove it"
        raise UserError(text, argument="float16", value=True)


def _loaded(
    kind: type[AnyLoaded],
    paths: Sequence[Path],
    engine: Engine,
    run: StoredRun,
    options: ModelOptions,
) -> AnyLoaded:
    """Return an engine with all else of the first run."""
    return kind(
        engine=engine,
        vocabularies=run.vocabularies,
        limit=run.limit,
        decoding=run_config.overridden_decoding(paths[0], run.config, options.overrides),
        max_length=run.config.data.max_length,
        device="cpu",
        source=run_config.read_source_profile(paths[0]),
        name=", ".join(map(str, paths)),
    )
