"""N-best lists: hypotheses of one text are merged, and a wider beam finds what is then missing."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from seq2seq.inference.interface import Hypothesis

MAX_WIDENING = 8  # factor on the beam size
MAX_BEAM = 512  # hypotheses of a widened beam, to bound its memory


class NBestEntry(NamedTuple):
    """One translation of an n-best list."""

    text: str
    score: float  # see `Translation`
    tokens: Sequence[str] = ()  # end-of-sentence included
    log_probs: Sequence[float] = ()  # one per token, nats; empty if not requested


class Candidate(NamedTuple):
    """A hypothesis and its text."""

    text: str
    hypothesis: Hypothesis


def merged(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the best hypothesis of each text, best first, of candidates that are best first.

    Other segmentations of a text into tokens are other hypotheses.
    """
    best: dict[str, Candidate] = {}
    for each in candidates:
        best.setdefault(each.text, each)
    return list(best.values())


def fill(
    lists: Sequence[list[Candidate]],
    n_best: int,
    beam_size: int,
    search: Callable[[list[int], int], Sequence[list[Candidate]]],
) -> None:
    """Extend lists of merged candidates, in place, until each has `n_best` texts.

    `search(numbers, size)` returns the candidates of these lists for a beam of `size`. The beam is
    doubled up to MAX_WIDENING times the size and MAX_BEAM; what it finds then enters the list only
    below its first entry, so that the best translation does not depend on `n_best`.
    """
    size = beam_size
    while size < MAX_WIDENING * beam_size and 2 * size <= MAX_BEAM:
        size *= 2
        short = [number for number, found in enumerate(lists) if len(found) < n_best]
        if not short:
            return
        for number, wider in zip(short, search(short, size), strict=True):
            first = lists[number][0]
            others = [each for each in wider if each.hypothesis.score <= first.hypothesis.score]
            rest = merged(sorted([*lists[number][1:], *others], key=_score, reverse=True))
            lists[number][1:] = [each for each in rest if each.text != first.text]


def _score(candidate: Candidate) -> float:
    return candidate.hypothesis.score
