"""Word alignments from attention, in Pharaoh form, and their error rate against gold alignments."""

import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.pharaoh import LINK
from seq2seq.data.vocabulary.vocabulary import words_of
from seq2seq.inference.attention_map import AttentionMap, by_words
from seq2seq.runtime.errors import UserError
from seq2seq.text.characters import EOS, SPACE
from seq2seq.text.text_files import read_lines

_FINAL_MARKS = ".!?\u0964\u3002"  # may be added to a part that has none

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
    sources = columns.any(axis=0)
    targets = rows.any(axis=0)
    if not sources.any():
        return frozenset()
    means = rows / np.maximum(rows.sum(axis=0), 1)
    weights = np.where(sources, means.T @ merged.weights @ columns, -1)
    best = weights.argmax(axis=1).tolist()
    return frozenset((best[target], target) for target in np.flatnonzero(targets).tolist())


def pharaoh(links: Links) -> str:
    """Format links as `0-0 1-2`: source word, target word, in the order of the target."""
    sorted_links = sorted(links, key=lambda link: (link[1], link[0]))
    return " ".join(f"{source}-{target}" for source, target in sorted_links)


def read_gold(path: Path) -> list[GoldLine]:
    """Read gold links, sure `0-0` or possible `0?1`, `0p1`; raises UserError for anything else."""
    gold = []
    for number, line in enumerate(read_lines(path), start=1):
        sure = set()
        possible = set()
        for word in line.split():
            link = LINK.fullmatch(word)
            if link is None:
                text = f"{word[:40]!r} is no link such as 0-0, 0?1 or 0p1"
                raise UserError(f"{path}:{number}: {text}")
            pair = int(link[1]), int(link[3])
            possible.add(pair)
            if link[2] == "-":
                sure.add(pair)
        gold.append(GoldLine(frozenset(sure), frozenset(possible)))
    return gold


def alignment_error_rate(links: Sequence[Links], gold: Sequence[GoldLine]) -> float:
    """Return `1 - (|A & S| + |A & P|) / (|A| + |S|)`, in 0..1 (Och and Ney, 2003).

    Summed over sentences, with links A, sure gold links S and possible ones P; 0 without any link.
    """
    hits = total = 0
    for guess, (sure, possible) in zip(links, gold, strict=True):
        hits += len(guess & sure) + len(guess & possible)
        total += len(guess) + len(sure)
    return 1 - hits / total if total else 0.0


def in_text_words(tokens: Sequence[str], text: str) -> NDArray[np.float64]:
    """Return a matrix [N, W]: 1 if words of tokens (N, in order) are in words of the text (W).

    EOS, and what the text does not contain, such as the tag of a later part, is in no word.
    """
    words = words_of(text)
    rows = [row for row, token in enumerate(tokens) if token != EOS]
    matrix = np.zeros((len(tokens), len(words)))
    if len(rows) == len(words):
        matrix[rows, range(len(words))] = 1
        return matrix
    keys = [_key(tokens[row]) for row in rows], [_key(word) for word in words]
    for kind, first, last, start, end in SequenceMatcher(None, *keys, False).get_opcodes():
        block = np.ix_(rows[first:last], range(start, end))
        if kind == "equal":
            matrix[block] = np.eye(end - start)
        elif kind == "replace":
            matrix[block] = _overlap(keys[0][first:last], keys[1][start:end])
    return matrix


def _key(word: str) -> str:
    """Return a word as both sides of a comparison have it, whatever a model normalizes."""
    text = "".join(unicodedata.normalize("NFKC", word).casefold().replace(SPACE, " ").split())
    return text.rstrip(_FINAL_MARKS) or text


def _overlap(left: Sequence[str], right: Sequence[str]) -> NDArray[np.bool_]:
    """Return a matrix [L, R]: whether, by share of the text, a word has the other's middle."""
    starts, ends = _shares(left)[:, :, None]
    right_starts, right_ends = _shares(right)
    middle = (starts + ends) / 2
    right_middle = (right_starts + right_ends) / 2
    overlaps = (right_starts <= middle) & (middle < right_ends)
    overlapping: NDArray[np.bool_] = overlaps | ((starts <= right_middle) & (right_middle < ends))
    return overlapping


def _shares(words: Sequence[str]) -> NDArray[np.float64]:
    """Return where each word starts and ends [2, N], in 0..1."""
    ends = list(accumulate((max(1, len(word)) for word in words), initial=0))
    shares: NDArray[np.float64] = np.array(list(pairwise(ends))).T / ends[-1]
    return shares
