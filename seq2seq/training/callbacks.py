"""Callbacks of `train`: reports of a training to the program that runs it."""

from collections.abc import Iterable, Mapping, Sequence

from seq2seq.training.samples import Sample


class Callback:
    """Base of callbacks: each method does nothing until a subclass overrides it.

    The main process calls them, in the thread of `train`, before training continues. An exception
    in one of them ends the training; `resume=True` continues it from the last saved state.
    """

    def on_step(self, step: int, last_step: int | None) -> None:
        """Report an optimizer step; `last_step` is None if only time or patience end training."""

    def on_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Report figures by their names in `metrics.jsonl` and `timing.jsonl`.

        Those of training come every `training.log_every` steps, such as `train_loss` (nats a token)
        and then `seconds`; those of validation at each validation, such as `valid_bleu`.
        """

    def on_samples(self, step: int, samples: Sequence[Sample]) -> None:
        """Report the sample translations of a validation."""

    def on_log(self, text: str) -> None:
        """Report a line of `train.log`, without its time."""

    def on_roll_back(self, step: int) -> None:
        """Report the return to the state saved at `step`: later figures and samples are void."""


def check_callbacks(callbacks: Iterable[Callback]) -> list[Callback]:
    """Return the callbacks; raise TypeError for anything else, such as a function."""
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
        raise TypeError(f"callbacks: must be a list of Callback, not {type(callbacks).__name__}")
    checked = list(callbacks)
    for number, callback in enumerate(checked):
        if not isinstance(callback, Callback):
            raise TypeError(
                f"callbacks[{number}]: must be an instance of a subclass of "
                f"seq2seq.training.callbacks.Callback, not {callback!r:.60}"
            )
    return checked
