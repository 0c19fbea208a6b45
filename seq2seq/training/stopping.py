"""When a training ends, and whether one in a run folder has."""

import re

from seq2seq.config.schema import Config, TrainingConfig
from seq2seq.runs.checkpoint import BEST, Progress
from seq2seq.runs.tensor_file import header_errors, read_dataclass
from seq2seq.runs.training_state import check_last


def why_stop(settings: TrainingConfig, progress: Progress, seconds: float) -> str | None:
    """Why training ends here, after so many seconds, if it does."""
    if settings.max_steps is not None and progress.step >= settings.max_steps:
        return f"update {progress.step} of training.max_steps {settings.max_steps}"
    if settings.max_epochs is not None and progress.epoch >= settings.max_epochs:
        return f"epoch {progress.epoch} of training.max_epochs {settings.max_epochs}"
    if settings.max_minutes is not None and seconds >= 60 * settings.max_minutes:
        return f"training.max_minutes {settings.max_minutes:g} are over"
    if settings.patience is not None and progress.validations_since_best >= settings.patience:
        return (
            f"no better BLEU in {progress.validations_since_best} validations (training.patience)"
        )
    return None


def nothing_left(config: Config, reason: str) -> str:
    """What to say where a run that goes on has reached its end already, and how to move that."""
    (key,) = re.findall(r"training\.\w+", reason)
    falling = config.training.decay in ("linear", "cosine")
    if falling and key in ("training.max_epochs", "training.max_steps"):
        remedy = f"training.decay {config.training.decay} ends there: a longer one is a new run"
    else:
        remedy = f"to train on, give --resume and a larger {key}"
    return f"Already at the end: {reason}. Nothing is left to train; {remedy}."


def trained_so_far(config: Config) -> tuple[Progress, float] | None:
    """Where the run of a config stands and how many seconds it took; None: nothing was saved yet.

    Raises DamagedFile with the way out.
    """
    last = check_last(config.run_dir)
    if last is None:
        return None
    path, header = last
    progress = read_dataclass(Progress, header, "progress", path)
    with header_errors(path):
        return progress, float(header["seconds"])


def has_ended(config: Config) -> bool:
    """Whether the run of a config was trained to its end, and validated there."""
    found = trained_so_far(config)
    if found is None or not (config.run_dir / BEST).exists():
        return False
    progress, seconds = found
    validated = progress.validated_step == progress.step
    return validated and why_stop(config.training, progress, seconds) is not None
