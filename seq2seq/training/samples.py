"""Sample translations: a few fixed validation sentences, to see a model learn."""

from collections.abc import Sequence
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
        return [
            f"{name:<12} {_shortened(text)}" for name, text in zip(names, self[1:], strict=True)
        ]


def _shortened(text: object) -> str:
    line = str(text)
    return line if len(line) <= _MAX_SHOWN else f"{line[:_MAX_SHOWN]}..."


def sample_rows(valid: ParallelText) -> list[int]:
    """Return the rows of the sentences to show, evenly spaced among those with text.

    They are a function of the validation text alone, so that every validation shows the same.
    """
    filled = [n for n, pair in enumerate(zip(valid.src, valid.tgt, strict=True)) if has_text(*pair)]
    count = min(SAMPLES_SHOWN, len(filled))
    return [filled[len(filled) * (2 * n + 1) // (2 * count)] for n in range(count)]


def samples_of(valid: ParallelText, hypotheses: Sequence[str]) -> list[Sample]:
    """Return the sample translations among those of the complete validation text."""
    return [
        Sample(row + 1, valid.src[row], valid.tgt[row], hypotheses[row])
        for row in sample_rows(valid)
    ]
