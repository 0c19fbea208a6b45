"""Run folders, computed by torch: on a GPU, or where a model has no ONNX form."""

from collections.abc import Sequence
from pathlib import Path

import torch

from seq2seq.engines.torch.engine import TorchEngine
from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.inference.loaded_model import LoadedModel, ModelOptions
from seq2seq.inference.loaders.run_folders import model_of
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.graphs import check_runs
from seq2seq.runtime.device import choose_device
from seq2seq.runtime.errors import UserError, argument


def load_runs(paths: Sequence[Path], options: ModelOptions) -> LoadedModel:
    """Load run folders; raises UserError for a precision that the device lacks."""
    device = choose_device(options.device)
    _check_precision(paths, options, device)
    runs = [load_model(path, device) for path in paths]
    check_runs(runs)
    models = [run.model.half() if options.float16 else run.model for run in runs]
    engine = TorchEngine(models[0] if len(models) == 1 else Ensemble(models), device)
    return model_of(runs, engine, device, options)


def _check_precision(paths: Sequence[Path], options: ModelOptions, device: torch.device) -> None:
    if options.int8:
        text = f"torch computes {paths[0]}, as it has no ONNX form; remove the option"
        if device.type != "cpu":
            text = f"runs on the CPU only, not on {device}; add {argument('device', 'cpu')}"
        raise UserError(text, argument="int8", value=True)
    if options.float16 and device.type != "cuda":
        text = f"needs a CUDA GPU, not {device}; remove it"
        raise UserError(text, argument="float16", value=True)
