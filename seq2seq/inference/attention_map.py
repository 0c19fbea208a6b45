"""Attention maps: the weights of a line, of its parts or of its heads, by tokens or by words.

`attention_table` shows them in HTML, `attention_figure` in a figure of matplotlib.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from unicodedata import east_asian_width

import numpy as np
from numpy.typing import NDArray

from seq2seq.engines.engine import Array
from seq2seq.inference.nbest import NBestEntry
from seq2seq.text.characters import EOS, SPACE


class AttentionMap(NamedTuple):
    """Attention weights of one sentence, or of one head, with its text.

    `weights` [T, S] has a row for each target token and a column for each source token, EOS
    included, and values in 0..1.
    """

    source: str
    translation: str
    src_tokens: list[str]
    tgt_tokens: list[str]
    weights: NDArray[np.floating]
    head: str = ""  # such as "head 1 of 4"; empty for the mean of the heads
    model: str = ""  # beside whose map another one is; empty for a map alone

    def headings(self) -> tuple[str, ...]:
        """Return source, translation, model and head, if any, safe for XML and for one line."""
        more_headings = filter(None, (legible(self.model), self.head))
        return legible(self.source), legible(self.translation), *more_headings


Heads = NDArray[np.float32] | None  # weights [M, T, S] of M heads


def part_maps(
    entry: NBestEntry, src_tokens: list[str], sources: Sequence[str] = ()
) -> Iterator[tuple[AttentionMap, Heads]]:
    """Yield the map of each part of a translation, none if it has no weights, and its heads.

    `sources` are the parts as the line has them; tokens spell texts that are not known.
    """
    blocks = entry.attention_blocks.blocks if entry.attention_blocks else ()
    heads = entry.head_blocks.blocks if entry.head_blocks else [None] * len(blocks)
    translations = entry.part_texts if len(blocks) > 1 else (entry.text,)
    row = column = 0
    for number, (block, of_heads) in enumerate(zip(blocks, heads, strict=True)):
        bottom = row + block.shape[0]
        right = column + block.shape[1]
        src = src_tokens[column:right]
        tgt = entry.tokens[row:bottom]
        source = sources[number] if len(sources) == len(blocks) else text_of(src)
        translation = translations[number] if translations else text_of(tgt)
        yield AttentionMap(source, translation, src, tgt, block), of_heads
        row = bottom
        column = right


def by_words(attention: AttentionMap) -> AttentionMap:
    """Merge the tokens of each word.

    The weight of a source word is the sum over its tokens, that of a target word the mean.
    """
    src, tgt = map(words_of_tokens, (attention.src_tokens, attention.tgt_tokens))
    weights = word_weights(attention.weights, attention)
    return attention._replace(src_tokens=src, tgt_tokens=tgt, weights=weights)


def word_weights(weights: NDArray[Any], attention: AttentionMap) -> NDArray[np.float64]:
    """Sum weights [..., T, S] over the tokens of source words; take the mean over target words."""
    columns = word_spans(attention.src_tokens)
    rows = word_spans(attention.tgt_tokens)
    sums = weights.astype(np.float64)
    for axis, spans in ((-1, columns), (-2, rows)):
        starts = np.array([span.start for span in spans], np.intp)
        sums = np.add.reduceat(sums, starts, axis=axis)
    merged: NDArray[np.float64] = sums / np.array([len(row) for row in rows])[:, None]
    return merged


def words_of_tokens(tokens: Sequence[str]) -> list[str]:
    """Return the text of each word of tokens."""
    return [joined(tokens[span.start : span.stop]) for span in word_spans(tokens)]


_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")
_HEX = re.compile("<0x|>")
MAX_BYTES = 4  # of a character
UNKNOWN_WORD = "<unk>"


def word_spans(tokens: Sequence[str]) -> list[range]:
    """Return the indices of each word's tokens; EOS and unknown words are words."""
    starts = [
        i
        for i, token in enumerate(tokens)
        if i == 0 or token.startswith(SPACE) or token in (EOS, UNKNOWN_WORD) or tokens[i - 1] == EOS
    ]
    return [range(*span) for span in pairwise([*starts, len(tokens)])]


def joined(tokens: Sequence[str]) -> str:
    """Return tokens as one text, in which those that spell bytes are decoded."""
    return _BYTES.sub(
        lambda match: bytes.fromhex(_HEX.sub("", match[0])).decode(errors="replace"),
        "".join(tokens),
    )


def text_of(tokens: Sequence[str]) -> str:
    """Return the text that tokens spell, without EOS."""
    return joined([token for token in tokens if token != EOS]).replace(SPACE, " ").strip()


def label_of(token: str) -> str:
    """Return a token without its word boundary; invisible or illegal characters as U+XXXX."""
    text = token.removeprefix(SPACE) or token
    categories = [unicodedata.category(character) for character in text]
    if all(category[0] in "CZ" for category in categories) or {"Cc", "Cs", "Cn"} & set(categories):
        return " ".join(f"U+{ord(character):04X}" for character in text)
    return text


def labels_of(tokens: Sequence[str]) -> list[str]:
    """Return the labels of tokens; each byte of a character has the character."""
    labels = list(map(label_of, tokens))
    for start in range(len(tokens)):
        for end in range(start + 1, min(len(tokens), start + MAX_BYTES) + 1):
            if not _BYTES.fullmatch(tokens[end - 1]):
                break
            character = joined(tokens[start:end])
            if len(character) == 1 and character != "\N{REPLACEMENT CHARACTER}":
                labels[start:end] = [label_of(character)] * (end - start)
                break
    return labels


def legible(text: str) -> str:
    """Return a text safe for XML and for one line: control characters become spaces."""
    return "".join(c if unicodedata.category(c) not in {"Cc", "Cs", "Cn"} else " " for c in text)


COVERED = 0.6  # maximum coverage of words in a run that is noted, on average
MISSING = 4.0  # least number of letters of such a run that would have to be attended to
NOTE = "hardly any attention, perhaps not translated: "


def notes_on_coverage(tokens: Sequence[str], weights: Array | None) -> list[str]:
    """Return a note on a run of source words that got hardly any attention [T, S], if there is one.

    Words count by their letters: short ones, such as articles, often have no translation of their
    own. Weights that sum to less than 1, as those of a window, are scaled.
    """
    if weights is None or not (total := float(weights.sum())):
        return []
    coverage = (weights.sum(axis=0) * (len(weights) / total)).tolist()
    worst = lacking = 0.0
    run = first = range(0)
    for span in word_spans(tokens):
        if tokens[span.start] == EOS:
            continue
        lack = COVERED - sum(coverage[span.start : span.stop])
        if lack > 0 or lacking > 0:
            text = "".join(tokens[span.start : span.stop])
            letters = sum(map(str.isalpha, joined([text]) if "<0x" in text else text))
            first = first if lacking > 0 else span
            lacking = max(0.0, lacking) + lack * letters
            if lacking > worst:
                worst = lacking
                run = range(first.start, span.stop)
    if worst < MISSING:
        return []
    return [NOTE + text_of(tokens[run.start : run.stop])]


def is_upright(label: str) -> bool:
    """Return whether the characters of a vertical label are upright, as in Chinese."""
    return all(east_asian_width(character) in "WF" for character in label)


def is_split(tokens: Sequence[str]) -> bool:
    """Return whether a word has several tokens, so that words are to be marked."""
    return len(word_spans(tokens)) < len(tokens)
