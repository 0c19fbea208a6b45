"""Training of one run of a comparison, and the failures that lie in its config."""

from seq2seq.config.schema import Config
from seq2seq.runs.run_folder import holds_run
from seq2seq.runtime import errors

UNSUITABLE = 3  # exit code of a process whose run failed by its config


def train_run(config: Config, device: str) -> str | None:
    """Train a run, or resume it; return why it failed if that lies in its config.

    Raises RunError, or the error, for another failure.
    """
    from seq2seq.training import loop

    try:
        with errors.argument_spelled("resume", "the same command"):
            loop.train(config, device, resume=holds_run(config.run_dir))
    except (errors.UserError, errors.RunError, MemoryError, RuntimeError) as error:
        return _reason(error, config)
    return None


def _reason(error: Exception, config: Config) -> str:
    """Return why a run failed if that lies in its config; raise RunError, or the error, if not."""
    if isinstance(error, errors.UnsuitableRun):
        return " ".join(error.lines)
    if isinstance(error, errors.ReportedError):
        raise errors.RunError(f"{config.name}: {error.lines[0]}", *error.lines[1:]) from None
    if errors.is_out_of_memory(error):
        return "out of memory; reduce training.batch_tokens or the size of the model"
    raise error
