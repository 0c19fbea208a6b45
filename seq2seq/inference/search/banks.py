"""Candidates of a step divided among banks, each of which has met the same number of tokens.

Post & Vilar (2018), section 3, shared by the searches in torch and in NumPy.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from seq2seq.data.vocabulary.vocabulary import EOS_ID
from seq2seq.inference.search.lexical import Lexical, PhraseProgress


class Continuation(NamedTuple):
    """Continuation of a hypothesis by a token."""

    score: float  # log-probability of the extended hypothesis, nats
    parent: int
    token: int


def chosen_from_banks(
    candidates: Iterable[Continuation],
    lexical: Lexical,
    progress: Sequence[PhraseProgress],
    size: int,
    count: int,
) -> list[Continuation]:
    """Return `count` candidates: those that end, best first, then at most `size` that continue.

    They are divided among the banks of the phrases. Candidates that are missing are impossible.
    """
    chosen = _divide(_unique(candidates), lexical, progress, size)
    return chosen + [Continuation(-math.inf, 0, 0)] * (count - len(chosen))


def _unique(candidates: Iterable[Continuation]) -> list[Continuation]:
    """Return the possible candidates, one per parent and token, best first."""
    best = {
        (each.parent, each.token): each for each in sorted(candidates) if each.score > -math.inf
    }
    return sorted(best.values(), key=lambda each: (-each.score, each.parent, each.token))


def _divide(
    candidates: Sequence[Continuation],
    lexical: Lexical,
    progress: Sequence[PhraseProgress],
    size: int,
) -> list[Continuation]:
    """Return the candidates that end, and at most `size` others, divided among banks.

    A candidate ends if it is among the `size` best that meet all tokens. Shares that a bank does
    not use go to the banks that have met most.
    """
    total = lexical.total
    banks: list[list[Continuation]] = [[] for _ in range(total + 1)]
    complete: list[Continuation] = []
    for each in candidates:
        if each.token == EOS_ID:
            complete.append(each)
            continue
        met = lexical.met(lexical.after(progress[each.parent], each.token))
        banks[met].append(each)
        if met == total:
            complete.append(each)
    ended = [each for each in complete[:size] if each.token == EOS_ID]
    shares = [size // len(banks)] * len(banks)
    shares[-1] += size % len(banks)
    shares = [min(share, len(bank)) for share, bank in zip(shares, banks, strict=True)]
    for n in reversed(range(len(banks))):
        shares[n] += min(size - sum(shares), len(banks[n]) - shares[n])
    kept = [each for share, bank in zip(shares, banks, strict=True) for each in bank[:share]]
    return ended + sorted(kept, key=lambda each: (-each.score, each.parent, each.token))
