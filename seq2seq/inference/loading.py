"""Models for translation, loaded from run folders and exported folders.

On a CPU both are computed by ONNX Runtime, without torch; an exported folder needs no config.
"""

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from seq2seq.config.search_options import Decoding
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.vocabulary.vocabulary import Vocabularies, load_vocabularies
from seq2seq.engines.engine import Engine, GraphFiles
from seq2seq.model.trusted_scores import trusted_scores
from seq2seq.runs import engine_folder, layout
from seq2seq.runs.engine_folder import Description, is_export, read_description
from seq2seq.runtime.errors import RunError, UserError, argument, needs_train, suggest_file
from seq2seq.text.joined_profile import joined
from seq2seq.text.source_profile import NO_PROFILE, SourceProfile

if TYPE_CHECKING:
    import torch

    from seq2seq.engines.onnx.network import Network
    from seq2seq.runs.run_config import StoredRun


@dataclass(frozen=True)
class ModelOptions:
    """Device and numbers with which a model is loaded; see `Translator.load`."""

    device: str = "auto"
    int8: bool = False
    float16: bool = False
    overrides: Iterable[str] = ()  # in the config's section `decoding`
    scores: Iterable[str | type] = ()  # outside of the package, that may be imported


DEFAULT_OPTIONS = ModelOptions()


@dataclass(eq=False)
class LoadedModel:
    """A trained model, or an ensemble, with its vocabularies and the settings of its config."""

    engine: Engine
    vocabularies: Vocabularies
    limit: LengthLimit
    decoding: Decoding
    max_length: int  # lines of more tokens are split
    device: "torch.device | str"  # "cpu" for ONNX Runtime
    source: SourceProfile = NO_PROFILE  # lines are compared with the training text
    name: str = "model"  # the run folders, for messages

    @classmethod
    def load_with(cls, runs: Sequence[Path | str], options: ModelOptions) -> Self:
        """Load run folders or exported folders; see `Translator.load`."""
        if not runs:
            raise TypeError("runs: name at least one run folder, Translator.load('runs/my-run')")
        paths = [Path(run) for run in runs]
        options = replace(options, device=str(options.device))
        exported = [path for path in paths if is_export(path)]
        if exported and len(exported) < len(paths):
            text = "is an exported model, which forms ensembles with other exported models only"
            raise UserError(f"{exported[0]}: {text}; give the run folders of all")
        on_cpu = bool(exported) or is_cpu(options.device)
        if options.float16 and on_cpu:
            text = f"needs a CUDA GPU; remove it, or use {argument('int8', True)} on a CPU"
            raise UserError(text, argument="float16", value=True)
        if exported:
            parts = _exports(paths, options)
        else:
            with _needs_train(paths[0]):
                from seq2seq.runs import graphs  # noqa: F401
            with trusted_scores(options.scores):
                parts = (_stored(paths, options) if on_cpu else None) or _by_torch(paths, options)
        return cls(**{"device": "cpu", "name": ", ".join(map(str, paths)), **parts})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.device})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle or copy the translator with its weights, without what it has cached."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def no_translation(loaded: LoadedModel, source: Sequence[int], fault: str) -> RunError:
    """Return the error of a model that gives a source no translation."""
    text = loaded.vocabularies.src.decode(source)[:60]
    return RunError(f"{loaded.name}: {fault}, for the text {text!r}; use another model")


# devices of the drivers without which torch has no GPU: CUDA, ROCm, CUDA in WSL, Jetson
_GPU_DRIVERS = [Path("/dev", name) for name in ("nvidiactl", "kfd", "dxg", "nvhost-gpu")]


def is_cpu(device: str) -> bool:
    """Return whether a model runs on the CPU; torch is imported only if there may be a GPU."""
    if device == "auto" and "torch" not in sys.modules:
        return not any(driver.exists() for driver in _GPU_DRIVERS)
    if device != "auto":
        return device == "cpu"
    from seq2seq.runtime.device import choose_device

    return choose_device(device).type == "cpu"


def _exports(folders: Sequence[Path], options: ModelOptions) -> dict[str, Any]:
    """Return the fields of exported folders; raises UserError if they do not fit together."""
    from seq2seq.engines.onnx.engine import OnnxEngine

    if options.device not in ("auto", "cpu"):
        text = "an exported model runs on the CPU; use the run folder, or cpu"
        raise UserError(text, argument="device", value=options.device)
    described = [read_description(folder) for folder in folders]
    first = described[0]
    shared = [(model.vocabularies, " to ".join(model.languages)) for model in described]
    engine_folder.check_fit(folders, shared)
    vocabularies = load_vocabularies(folders[0] / layout.VOCABULARY, checksums=first.vocabularies)
    networks: list[Network] = []
    for folder, description in zip(folders, described, strict=True):
        networks += _networks(folder, description, len(vocabularies.tgt), options.int8)
    return {
        "engine": OnnxEngine(networks),
        "vocabularies": vocabularies,
        "limit": reduce(LengthLimit.joined, (model.limit for model in described)),
        "decoding": engine_folder.overridden(first.decoding, options.overrides),
        "max_length": first.max_length,
        "source": joined(model.source for model in described),
    }


def _networks(folder: Path, description: Description, size: int, int8: bool) -> "Iterator[Network]":
    from seq2seq.engines.onnx.checks import GraphError, check_graphs
    from seq2seq.engines.onnx.network import load_network

    sums, read = description.sha256, partial(engine_folder.read_graph, folder)
    for names in description.models:
        files = (names[part] for part in GraphFiles._fields)
        graphs = GraphFiles(*(read(name, sums.get(name)) for name in files))
        try:
            check_graphs(*graphs, size)
            yield load_network(graphs, int8 and not description.int8)
        except GraphError as error:
            text = f"{' and '.join(names.values())} cannot be used: {error}"
            raise UserError(f"{folder}: {text}; export the run again") from None


def _stored(paths: Sequence[Path], options: ModelOptions) -> dict[str, Any] | None:
    """Return the fields of run folders with their graphs; None if one of them cannot be traced."""
    from seq2seq.engines.onnx.engine import OnnxEngine
    from seq2seq.engines.onnx.network import load_network
    from seq2seq.runs.graphs import check_runs, from_graphs
    from seq2seq.runs.run_config import stored_run, with_joined_profile

    runs = [stored_run(path) for path in paths]
    check_runs(runs)
    networks = []
    for run in runs:
        if (network := from_graphs(run, partial(load_network, int8=options.int8))) is None:
            return None
        networks.append(network)
    return {"engine": OnnxEngine(networks), **_of_run(with_joined_profile(runs), options)}


def _by_torch(paths: Sequence[Path], options: ModelOptions) -> dict[str, Any]:
    with _needs_train(paths[0]):
        from seq2seq.engines.torch.engine import TorchEngine
        from seq2seq.engines.torch.ensemble import Ensemble
        from seq2seq.runs.checkpoint import load_model
        from seq2seq.runs.graphs import check_runs
        from seq2seq.runs.run_config import with_joined_profile
        from seq2seq.runtime.device import choose_device

    device = choose_device(options.device)
    if options.int8:
        text = f"torch computes {paths[0]}, as it has no ONNX form; remove the option"
        if device.type != "cpu":
            text = f"runs on the CPU only, not on {device}; add {argument('device', 'cpu')}"
        raise UserError(text, argument="int8", value=True)
    if options.float16 and device.type != "cuda":
        text = f"needs a CUDA GPU, not {device}; remove it"
        raise UserError(text, argument="float16", value=True)
    runs = [load_model(path, device) for path in paths]
    check_runs(runs)
    models = [run.model.half() if options.float16 else run.model for run in runs]
    engine = TorchEngine(models[0] if len(models) == 1 else Ensemble(models), device)
    return {"engine": engine, "device": device, **_of_run(with_joined_profile(runs), options)}


def _of_run(run: "StoredRun", options: ModelOptions) -> dict[str, Any]:
    from seq2seq.runs.run_config import overridden_decoding

    return {
        "vocabularies": run.vocabularies,
        "limit": run.limit,
        "decoding": overridden_decoding(run.path.parent, run.config, options.overrides),
        "max_length": run.config.data.max_length,
        "source": run.source,
    }


def languages_of(folder: Path) -> tuple[str, str]:
    """Return the codes of the source and target language of a run folder or an exported model."""
    if is_export(folder):
        return read_description(folder).languages
    with _needs_train(folder):
        from seq2seq.runs.run_config import read_config
    data = read_config(folder).data
    return data.src_lang, data.tgt_lang


@contextmanager
def _needs_train(folder: Path) -> Iterator[None]:
    """Convert a failed import for a folder that is no exported model into a UserError."""
    try:
        with needs_train(f"{folder}: has no {layout.DESCRIPTION}, and a run folder"):
            yield
    except UserError:
        if folder.is_dir():
            raise
        raise UserError(f"{folder}: no such folder{suggest_file(folder)}") from None
