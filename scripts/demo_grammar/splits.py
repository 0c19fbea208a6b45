"""Draws distinct sentence pairs from a grammar and deals them out to train, valid and test."""

import unicodedata
from collections.abc import Callable
from random import Random

Pair = tuple[str, str]
Splits = dict[str, list[Pair]]

MIN_WORDS = 3
MAX_WORDS = 30


def folded(text: str) -> str:
    """The text without case, punctuation or surplus white space: equal folds are one sentence."""
    kept = (c for c in text.casefold() if not unicodedata.category(c).startswith("P"))
    return " ".join("".join(kept).split())


def is_negated(en: str) -> bool:
    """Whether an English clause says no: a grammar joins by "but" only one that does to one not."""
    return any(word in en.split() for word in ("not", "never", "no"))


def draw_splits(
    sentence: Callable[[Random], Pair], sizes: dict[str, int], seed: int, kept_out: tuple[str, ...]
) -> Splits:
    """Call `sentence` until every split is full; no folded sentence occurs twice on either side.

    A pair is drawn again if a side is too short, too long or known, so that each source has one
    target, each target one source, and no split shares a sentence with another; or if a folded
    side holds one of the fragments `kept_out`, on which a trained model is to be shown.
    """
    rng = Random(seed)
    known_src: set[str] = set()
    known_tgt: set[str] = set()
    pairs: list[Pair] = []
    while len(pairs) < sum(sizes.values()):
        src, tgt = (unicodedata.normalize("NFC", side) for side in sentence(rng))
        if not all(MIN_WORDS <= len(side.split()) <= MAX_WORDS for side in (src, tgt)):
            continue
        if folded(src) in known_src or folded(tgt) in known_tgt:
            continue
        if any(fragment in folded(side) for fragment in kept_out for side in (src, tgt)):
            continue
        known_src.add(folded(src))
        known_tgt.add(folded(tgt))
        pairs.append((src, tgt))
    rng.shuffle(pairs)  # late draws are the rarer ones: every split gets its share of them
    remaining = iter(pairs)
    return {name: [next(remaining) for _ in range(size)] for name, size in sizes.items()}
