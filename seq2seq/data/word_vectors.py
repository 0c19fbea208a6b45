"""Pretrained word vectors: files in the text form of word2vec and fastText."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seq2seq.data.lines import iter_raw_lines, strip_line
from seq2seq.runtime.errors import UserError

_HEADER = re.compile(rb"[0-9]+ [0-9]+")
_FORM = "expected the text form of word2vec or fastText (.vec), not a binary file"


class WordVectors(NamedTuple):
    """Vectors of the words of a vocabulary that a file has."""

    path: Path
    ids: list[int]
    rows: npt.NDArray[np.float32]  # [len(ids), E]
    words: int  # number of words in the vocabulary

    def note(self) -> str:
        """Return how many of the vocabulary's words were found, for the log."""
        share = len(self.ids) / self.words
        return (
            f"{self.path}: vectors of {len(self.ids):,} of {self.words:,} words ({share:.1%}); "
            "the others start at random"
        )

    def scaled(self) -> npt.NDArray[np.float32]:
        """Return the rows times one factor, after which their mean squared length is 1.

        Random embeddings have this length, too (`ScaledEmbedding`).
        """
        length = float(np.sqrt((self.rows.astype(np.float64) ** 2).sum(1).mean()))
        return self.rows / np.float32(length) if length else self.rows


def read_word_vectors(path: Path, words: Mapping[str, int], size: int) -> WordVectors:
    """Read the vectors of `words`, given their ids; `size` numbers each.

    A line has a word and its numbers, separated by spaces; the first line may have the count of
    lines and the size instead. Of lines of the same word the first counts. Raises UserError, with
    the line, for another size, a word without numbers, or if no word is found.
    """
    vectors: dict[int, npt.NDArray[np.float32]] = {}
    for number, line in enumerate(iter_raw_lines(path), start=1):
        content = strip_line(line, number == 1).rstrip(b" ")
        if number == 1 and _HEADER.fullmatch(content):
            continue
        text, _, numbers = content.partition(b" ")
        count = numbers.count(b" ") + bool(numbers)
        if number <= 2 and count != size:
            raise UserError(
                f"{path}:{number}: has {count} numbers after the word, but "
                f"model.embedding_size is {size}; {_FORM}"
            )
        word = unicodedata.normalize("NFC", text.decode(errors="replace"))
        ident = words.get(word)
        if ident is not None and count == size and ident not in vectors:
            vectors[ident] = _vector(numbers.split(b" "), f"{path}:{number}")
    if not vectors:
        raise UserError(
            f"{path}: has none of the {len(words):,} words of the vocabulary. Give a file of this "
            "language, in the case of the text"
        )
    rows = np.stack(list(vectors.values()))
    return WordVectors(path, list(vectors), rows, len(words))


def _vector(numbers: Sequence[bytes], place: str) -> npt.NDArray[np.float32]:
    try:
        row = np.array([float(number) for number in numbers])
    except ValueError as error:
        raise UserError(f"{place}: {error}; {_FORM}") from None
    if not (np.abs(row) <= np.finfo(np.float32).max).all():
        raise UserError(f"{place}: has a number that is not finite in float32")
    return row.astype(np.float32)
