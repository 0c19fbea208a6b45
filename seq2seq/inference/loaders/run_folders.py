"""Run folders as a model, whatever engine computes them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seq2seq.engines.engine import Engine
from seq2seq.inference.loaded_model import LoadedModel, ModelOptions
from seq2seq.runs.run_config import StoredRun, overridden_decoding, with_joined_profile

if TYPE_CHECKING:
    import torch


def model_of(
    runs: Sequence[StoredRun], engine: Engine, device: "torch.device | str", options: ModelOptions
) -> LoadedModel:
    """Return a run or an ensemble, which has the config and the limits of its first run."""
    folders = [run.path.parent for run in runs]
    first = with_joined_profile(runs)
    return LoadedModel(
        engine=engine,
        vocabularies=first.vocabularies,
        limit=first.limit,
        decoding=overridden_decoding(folders[0], first.config, options.overrides),
        max_length=first.config.data.max_length,
        device=device,
        source=first.source,
    )
