"""Facts about a parallel text that a recipe depends on, counted in one pass."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from seq2seq.data.corpus import ParallelText, has_text, no_usable_pair
from seq2seq.data.source_profile import scripts_of

SAMPLE = 20_000  # pairs, chosen at random
_SEED = 1


class TextFacts(NamedTuple):
    """Size, length and scripts of a parallel text, source first."""

    pairs: int  # with text on both sides
    words: tuple[float, float]  # mean of a line, divided at white space
    scripts: tuple[str, str]  # that of most words, such as "LATIN"; "" without any
    characters: tuple[int, int, int]  # distinct ones of either side, and of both
    sample: ParallelText

    @property
    def same_script(self) -> bool:
        """Return whether both sides are written in one script."""
        return self.scripts[0] == self.scripts[1]


def measure_text(pairs: Iterable[tuple[str, str]], name: str) -> TextFacts:
    """Count a text, and choose a sample of at most SAMPLE pairs; memory does not grow with it.

    A pure function of the pairs. Raises UserError, naming the text, if no pair has text.
    """
    rng = random.Random(_SEED)
    sample: list[tuple[str, str]] = []
    alphabets: tuple[set[str], set[str]] = set(), set()
    count = lines = 0
    for pair in pairs:
        lines += 1
        if not has_text(*pair):
            continue
        count += 1
        for alphabet, text in zip(alphabets, pair, strict=True):
            alphabet.update(text)
        if len(sample) < SAMPLE:
            sample.append(pair)
        elif (place := rng.randrange(count)) < SAMPLE:  # algorithm R of Vitter (1985)
            sample[place] = pair
    if not sample:
        raise no_usable_pair(name, lines)
    src, tgt = ([pair[side] for pair in sample] for side in (0, 1))
    return TextFacts(
        count,
        (_mean_words(src), _mean_words(tgt)),
        (_main_script(src), _main_script(tgt)),
        (len(alphabets[0]), len(alphabets[1]), len(set.union(*alphabets))),
        ParallelText(src, tgt, name),
    )


def _mean_words(lines: list[str]) -> float:
    return sum(len(line.split()) for line in lines) / len(lines)


def _main_script(lines: list[str]) -> str:
    counts = Counter(script for line in lines for script in scripts_of(line))
    return max(counts, key=lambda script: (counts[script], script)) if counts else ""
