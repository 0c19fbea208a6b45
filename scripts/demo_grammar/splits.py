"""Draws distinct sentence pairs from a grammar and deals them out to train, valid and test."""

import unicodedata
from collections.abc import Callable, Iterator
from itertools import islice
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
    """Call `sentence` until every split is full; see `distinct_pairs`."""
    rng = Random(seed)
    pairs = list(islice(distinct_pairs(sentence, rng, kept_out), sum(sizes.values())))
    rng.shuffle(pairs)  # late draws are the rarer ones: every split gets its share of them
    remaining = iter(pairs)
    return {name: [next(remaining) for _ in range(size)] for name, size in sizes.items()}


def draw_by_length(
    sentence: Callable[[Random], Pair],
    sizes: dict[str, int],
    seed: int,
    kept_out: tuple[str, ...],
    most_learnt: int,
    most_tested: int,
) -> Splits:
    """Splits whose sources have `most_learnt` words at most, but a test set of all lengths alike.

    It has as many sources of 1 to 5 words as of 6 to 10 and so on, up to `most_tested`; both limits
    are multiples of five.
    """
    rng = Random(seed)
    by_five: list[list[Pair]] = [[] for _ in range(most_tested // 5)]
    learnt, each = by_five[: most_learnt // 5], sizes["test"] // len(by_five)
    pairs = distinct_pairs(sentence, rng, kept_out, 2 * most_tested)
    while min(map(len, by_five)) < each or sum(map(len, learnt)) < sum(sizes.values()):
        pair = next(pairs)
        words = len(pair[0].split())
        if words <= most_tested:
            by_five[(words - 1) // 5].append(pair)
    for five in by_five:
        rng.shuffle(five)
    test = [pair for five in by_five for pair in five[:each]]
    rest = [pair for five in learnt for pair in five[each:]]
    rng.shuffle(rest)
    remaining = iter(rest)
    splits = {
        name: [next(remaining) for _ in range(size)]
        for name, size in sizes.items()
        if name != "test"
    }
    return {**splits, "test": test}


def distinct_pairs(
    sentence: Callable[[Random], Pair],
    rng: Random,
    kept_out: tuple[str, ...],
    max_words: int = MAX_WORDS,
) -> Iterator[Pair]:
    """Pairs of which no folded sentence occurs twice on either side, without end.

    A pair is drawn again if a side is too short, too long or known, so that each source has one
    target, each target one source, and no split shares a sentence with another; or if a folded
    side holds one of the fragments `kept_out`, on which a trained model is to be shown.
    """
    known_src: set[str] = set()
    known_tgt: set[str] = set()
    while True:
        src, tgt = (unicodedata.normalize("NFC", side) for side in sentence(rng))
        if not all(MIN_WORDS <= len(side.split()) <= max_words for side in (src, tgt)):
            continue
        if folded(src) in known_src or folded(tgt) in known_tgt:
            continue
        if any(fragment in folded(side) for fragment in kept_out for side in (src, tgt)):
            continue
        known_src.add(folded(src))
        known_tgt.add(folded(tgt))
        yield src, tgt
