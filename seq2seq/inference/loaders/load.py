"""Loading of models: which engine computes them.

On a CPU run folders and exported folders are computed by ONNX Runtime, without torch; an exported
folder needs no config. So what loads them is imported only when it does.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from seq2seq.inference.loaded_model import LoadedModel, ModelOptions
from seq2seq.model.trusted_scores import trusted_scores
from seq2seq.runs import layout
from seq2seq.runs.engine_folder import is_export, read_description
from seq2seq.runs.packaged_models import model_folder, packaged_hint
from seq2seq.runtime.errors import UserError, argument, needs_train, suggest_file


def load(runs: Sequence[Path | str], options: ModelOptions) -> LoadedModel:
    """Load run folders or exported folders; see `Translator.load`."""
    if not runs:
        raise TypeError("runs: name at least one run folder, Translator.load('runs/my-run')")
    paths = [model_folder(run) for run in runs]
    options = replace(options, device=str(options.device))
    exported = [path for path in paths if is_export(path)]
    if exported and len(exported) < len(paths):
        text = "is an exported model, which forms ensembles with other exported models only"
        raise UserError(f"{exported[0]}: {text}; give the run folders of all")
    on_cpu = bool(exported) or is_cpu(options.device)
    if options.float16 and on_cpu:
        text = f"needs a CUDA GPU; remove it, or use {argument('int8', True)} on a CPU"
        raise UserError(text, argument="float16", value=True)
    loaded = _load_exported(paths, options) if exported else _load_runs(paths, options, on_cpu)
    return replace(loaded, name=", ".join(map(str, runs)))


def _load_exported(paths: Sequence[Path], options: ModelOptions) -> LoadedModel:
    from seq2seq.inference.loaders.exported import load_exported

    return load_exported(paths, options)


def _load_runs(paths: Sequence[Path], options: ModelOptions, on_cpu: bool) -> LoadedModel:
    """Load run folders; torch computes those that have no ONNX form."""
    with _needs_train(paths[0]):
        from seq2seq.inference.loaders import by_onnx
    with trusted_scores(options.scores):
        model = by_onnx.load_runs(paths, options) if on_cpu else None
        return _load_by_torch(paths, options) if model is None else model


def _load_by_torch(paths: Sequence[Path], options: ModelOptions) -> LoadedModel:
    with _needs_train(paths[0]):
        from seq2seq.inference.loaders import by_torch
    return by_torch.load_runs(paths, options)


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


def languages_of(model: Path | str) -> tuple[str, str]:
    """Return the codes of the source and target language of a run folder or an exported model."""
    folder = model_folder(model)
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
        hint = suggest_file(folder) or packaged_hint()
        raise UserError(f"{folder}: no such folder{hint}") from None
