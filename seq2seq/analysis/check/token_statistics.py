"""What parallel text is like once it is cut into pieces: lengths, and what is unknown."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from seq2seq.analysis.check.data_statistics import Lengths, measure
from seq2seq.data.batching import Ids
from seq2seq.data.corpus import ParallelText
from seq2seq.data.vocabulary import UNK_ID, Vocabularies, Vocabulary


class SidePieces(NamedTuple):
    """One side of a parallel text under its vocabulary."""

    lengths: Lengths
    unknown: float  # share of the pieces that the vocabulary lacks, 0 to 1
    spelt: float  # share of the pieces that are single bytes of a character it lacks


class TextPieces(NamedTuple):
    """A parallel text under its vocabularies."""

    too_long: list[int]  # lines, from 1, with more pieces on a side than training takes
    src: SidePieces
    tgt: SidePieces


def examine_pieces(text: ParallelText, vocabularies: Vocabularies, max_length: int) -> TextPieces:
    """Cut a text, blank lines included, into pieces and look at them."""
    src, tgt = vocabularies.src.encode(text.src), vocabularies.tgt.encode(text.tgt)
    lengths = [max(map(len, pair)) for pair in zip(src, tgt, strict=True)]
    return TextPieces(
        [number for number, length in enumerate(lengths, start=1) if length > max_length],
        _side(src, vocabularies.src),
        _side(tgt, vocabularies.tgt),
    )


def _side(lines: Sequence[Ids], vocabulary: Vocabulary) -> SidePieces:
    pieces = vocabulary.pieces(range(len(vocabulary)))
    bytes_ = {i for i, piece in enumerate(pieces) if re.fullmatch("<0x[0-9A-F]{2}>", piece)}
    total = max(1, sum(map(len, lines)))
    return SidePieces(
        measure([len(ids) for ids in lines]),
        sum(ids.count(UNK_ID) for ids in lines) / total,
        sum(i in bytes_ for ids in lines for i in ids) / total,
    )
