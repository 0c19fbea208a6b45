"""Word alignments from attention, in Pharaoh form, and their error rate against gold alignments."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from seq2seq.analysis.attention.maps import AttentionMap, by_words
from seq2seq.data.lines import read_lines
from seq2seq.data.pharaoh import LINK
from seq2seq.inference.token_labels import EOS
from seq2seq.runtime.errors import UserError

Links = frozenset[tuple[int, int]]  # indices of a source and a target word, from 0


class GoldLine(NamedTuple):
    """Gold alignment of a sentence; sure links are possible, too."""

    sure: Links
    possible: Links


def align(attention: AttentionMap) -> Links:
    """Align each target word with the source word of the highest weight, EOS left out.

    The weight of a source word is the sum over its tokens, that of a target word the mean.
    """
    merged = by_words(attention)
    sources = [index for index, token in enumerate(merged.src_tokens) if token != EOS]
    links = set()
    for row, token in enumerate(merged.tgt_tokens):
        if token != EOS and sources:
            weights = merged.weights[row]
            links.add((max(sources, key=lambda column: weights[column]), row))
    return frozenset(links)


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
