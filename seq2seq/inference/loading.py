"""Load models for translation: run folders and exported folders.

On a CPU both are computed by ONNX Runtime, without torch.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from seq2seq.engines.onnx.checks import GraphError
from seq2seq.engines.onnx.engine import OnnxEngine
from seq2seq.engines.onnx.files import GraphFiles, load_network
from seq2seq.engines.onnx.network import Network
from seq2seq.inference.loaded_model import AnyLoaded, ModelOptions, check_ensemble
from seq2seq.runs.engine_folder import (
    DESCRIPTION,
    Description,
    is_export,
    overridden,
    read_description,
    read_graph,
    read_vocabularies,
)
from seq2seq.runtime import argument_types
from seq2seq.runtime.errors import UserError, argument, needs_train, suggest_file

# devices of the drivers without which torch has no GPU: CUDA, ROCm, CUDA in WSL, Jetson
_GPU_DRIVERS = [Path("/dev", name) for name in ("nvidiactl", "kfd", "dxg", "nvhost-gpu")]


def load_folders(
    kind: type[AnyLoaded], runs: Sequence[Path | str], options: ModelOptions
) -> AnyLoaded:
    """Return run folders or exported folders as a model of this kind; see `Translator.load`."""
    if not runs:
        raise TypeError("runs: name at least one run folder, Translator.load('runs/my-run')")
    paths = [argument_types.path(run, "runs") for run in runs]
    options = replace(options, device=argument_types.device_name(options.device))
    exported = [path for path in paths if is_export(path)]
    if exported and len(exported) < len(paths):
        raise UserError(
            f"{exported[0]}: is an exported model, which forms ensembles with other exported "
            "models only; give the run folders of all"
        )
    on_cpu = bool(exported) or is_cpu(options.device)
    if options.float16 and on_cpu:
        text = f"needs a CUDA GPU; remove it, or use {argument('int8', True)} on a CPU"
        raise UserError(text, argument="float16", value=True)
    if exported:
        return _load_exports(kind, paths, options)
    with _needs_train(paths[0]):
        from seq2seq.inference import run_loading
    if on_cpu:
        loaded = run_loading.load_stored(kind, paths, options)
        if loaded is not None:
            return loaded
    with _needs_train(paths[0]):
        return run_loading.load_by_torch(kind, paths, options)


def is_cpu(device: str) -> bool:
    """Return whether a model runs on the CPU; torch is imported only if there may be a GPU."""
    if device == "auto" and "torch" not in sys.modules:
        return not any(driver.exists() for driver in _GPU_DRIVERS)
    if device != "auto":
        return device == "cpu"
    from seq2seq.runtime.device import choose_device

    return choose_device(device).type == "cpu"


def _load_exports(
    kind: type[AnyLoaded], folders: Sequence[Path], options: ModelOptions
) -> AnyLoaded:
    """Return exported folders as a model of this kind.

    Raises UserError for options that they do not have, and for folders that are damaged or do not
    fit together.
    """
    if options.device not in ("auto", "cpu"):
        text = "an exported model runs on the CPU; use the run folder, or cpu"
        raise UserError(text, argument="device", value=options.device)
    described = [read_description(folder) for folder in folders]
    first = described[0]
    for folder, description in zip(folders, described, strict=True):
        same = description.vocabularies == first.vocabularies
        check_ensemble(folder, folders[0], same, description.direction, first.direction)
    decoding = overridden(first, options.overrides)
    vocabularies = read_vocabularies(folders[0], first)
    networks = [
        network
        for folder, description in zip(folders, described, strict=True)
        for network in _networks(folder, description, len(vocabularies.tgt), options.int8)
    ]
    return kind(
        engine=OnnxEngine(networks),
        vocabularies=vocabularies,
        limit=first.limit,
        decoding=decoding,
        max_length=first.max_length,
        device="cpu",
        source=first.source,
        name=", ".join(map(str, folders)),
    )


def _networks(
    folder: Path, description: Description, vocabulary_size: int, int8: bool
) -> list[Network]:
    networks = []
    for names in description.models:
        sums = description.sha256
        graphs = GraphFiles(*(read_graph(folder, name, sums.get(name)) for name in names))
        try:
            quantize = int8 and not description.int8
            networks.append(load_network(graphs, vocabulary_size, quantize))
        except GraphError as error:
            raise UserError(
                f"{folder}: {names.encoder} and {names.decoder} cannot be used: {error}; "
                "export the run again"
            ) from None
    return networks


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
        with needs_train(f"{folder}: has no {DESCRIPTION}, and a run folder"):
            yield
    except UserError:
        if folder.is_dir():
            raise
        raise UserError(f"{folder}: no such folder{suggest_file(folder)}") from None
