"""Callbacks of `train`: reports of a training to the program that runs it, with samples.

Samples are translations of a few fixed validation sentences, to see a model learn.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from seq2seq.data.corpus import ParallelText, has_text

SAMPLES_SHOWN = 3
_MAX_SHOWN = 200  # characters of a text in the log


class Sample(NamedTuple):
    """A validation sentence, its reference and its greedy translation."""

    line: int  # number of the line in the validation text, from 1
    source: str
    reference: str
    translation: str

    def rows(self) -> list[str]:
        """Return source, reference and translation, one below the other."""
        names = f"line {self.line}", "reference", "translation"
        texts = self.source, self.reference, self.translation
        return [
            f"{name:<12} {text[:_MAX_SHOWN]}{'...' * (len(text) > _MAX_SHOWN)}"
            for name, text in zip(names, texts, strict=True)
        ]


def sample_rows(valid: ParallelText) -> list[int]:
    """Return the rows to show at every validation, evenly spaced among those with text."""
    rows_with_text = [
        n for n, pair in enumerate(zip(valid.src, valid.tgt, strict=True)) if has_text(*pair)
    ]
    count = min(SAMPLES_SHOWN, len(rows_with_text))
    return [rows_with_text[len(rows_with_text) * (2 * n + 1) // (2 * count)] for n in range(count)]


def samples_of(valid: ParallelText, hypotheses: Sequence[str]) -> list[Sample]:
    """Return the sample translations among those of the complete validation text."""
    return [
        Sample(row + 1, valid.src[row], valid.tgt[row], hypotheses[row])
        for row in sample_rows(valid)
    ]


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
