"""Word alignments from attention, in Pharaoh form, and their error rate against gold alignments."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seq2seq.analysis.attention.maps import AttentionMap, by_words
from seq2seq.analysis.attention.text_words import in_text_words
from seq2seq.data.lines import read_lines
from seq2seq.data.pharaoh import LINK
from seq2seq.runtime.errors import UserError

Links = frozenset[tuple[int, int]]  # indices of a source and a target word, from 0


class GoldLine(NamedTuple):
    """Gold alignment of a sentence; sure links are possible, too."""

    sure: Links
    possible: Links


def align(attention: AttentionMap) -> Links:
    """Align each word of the translation with the source word of the highest weight.

    The weight of a source word is the sum over its tokens, that of a target word the mean. Words
    are those of the text, as `words_of` returns them, in however many parts it was translated.
    """
    merged = by_words(attention)
    columns = in_text_words(merged.src_tokens, attention.source)
    rows = in_text_words(merged.tgt_tokens, attention.translation)
    sources, targets = columns.any(axis=0), rows.any(axis=0)
    if not sources.any():
        return frozenset()
    means = rows / np.maximum(rows.sum(axis=0), 1)
    weights = np.where(sources, means.T @ merged.weights @ columns, -1)
    best = weights.argmax(axis=1).tolist()
    return frozenset((best[target], target) for target in np.flatnonzero(targets).tolist())


def pharaoh(links: Links) -> str:
    """Format links as `0-0 1-2`: source word, target word, in the order of the target."""
    ordered = sorted(links, key=lambda link: (link[1], link[0]))
    return " ".join(f"{source}-{target}" for source, target in ordered)


def read_gold(path: Path) -> list[GoldLine]:
    """Read gold alignments: `0-0` is a sure link, `0?1` or `0p1` a possible one.

    Raises UserError for anything else.
    """
    found = []
    for number, line in enumerate(read_lines(path), start=1):
        sure, possible = set(), set()
        for word in line.split():
            link = LINK.fullmatch(word)
            if link is None:
                raise UserError(
                    f"{path}:{number}: {word[:40]!r} is no link such as 0-0, 0?1 or 0p1"
                )
            pair = int(link[1]), int(link[3])
            possible.add(pair)
            if link[2] == "-":
                sure.add(pair)
        found.append(GoldLine(frozenset(sure), frozenset(possible)))
    return found


def alignment_error_rate(links: Sequence[Links], gold: Sequence[GoldLine]) -> float:
    """Return the alignment error rate of Och and Ney (2003), in 0..1.

    AER = 1 - (|A & S| + |A & P|) / (|A| + |S|), summed over sentences, with links A, sure gold
    links S and possible ones P; 0 without any link.
    """
    hits = total = 0
    for found, (sure, possible) in zip(links, gold, strict=True):
        hits += len(found & sure) + len(found & possible)
        total += len(found) + len(sure)
    return 1 - hits / total if total else 0.0
