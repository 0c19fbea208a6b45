"""Word vector files: both headers, words of the vocabulary only, errors reported by line."""

import gzip
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from seq2seq.data.word_vectors import read_word_vectors
from seq2seq.runtime.errors import UserError

WORDS = {"cat": 4, "dog": 5, "caf\u00e9": 7, "cat.": 8}
ROWS = ["cat 1 2 3", "unknown 9 9 9", "caf\u00e9 -0.5 1e-2 0", "cat 7 7 7"]


def write(folder: Path, lines: list[str], name: str = "x.vec", end: str = "\n") -> Path:
    path = folder / name
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def refusal(path: Path, words: dict[str, int] = WORDS) -> str:
    with pytest.raises(UserError) as caught:
        read_word_vectors(path, words, 3)
    return str(caught.value).replace(f"{path}:", "")


@pytest.mark.parametrize(
    "lines",
    [
        ["4 3", *ROWS],  # word2vec, fastText
        ROWS,  # GloVe
        ["4 3", *(f"{row} " for row in ROWS)],  # fastText ends lines with a space
        ["\ufeff4 3", *(unicodedata.normalize("NFD", row) for row in ROWS)],
        ["5 3", *ROWS, ". . . 1 2 3"],  # a word with spaces, as in GloVe's largest file
    ],
    ids=["header", "no header", "spaces", "mark and NFD", "words with spaces"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_vectors_of_the_vocabulary_are_read(tmp_path: Path, lines: list[str], end: str) -> None:
    found = read_word_vectors(write(tmp_path, lines, end=end), WORDS, 3)
    assert found.ids == [4, 7]
    assert found.rows.dtype == np.float32
    np.testing.assert_allclose(found.rows, [[1, 2, 3], [-0.5, 0.01, 0]], rtol=1e-6)
    assert found.note().endswith("vectors of 2 of 4 words (50.0%); the others start at random")


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.vec.gz"
    path.write_bytes(gzip.compress("\n".join(ROWS).encode()))
    assert read_word_vectors(path, WORDS, 3).ids == [4, 7]


def test_vectors_are_scaled_to_the_norm_of_random_embeddings(tmp_path: Path) -> None:
    found = read_word_vectors(write(tmp_path, ROWS), WORDS, 3)
    scaled = found.scaled()
    assert (scaled**2).sum(1).mean() == pytest.approx(1)
    np.testing.assert_allclose(scaled * found.rows[0, 0], found.rows * scaled[0, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["4 300", "cat 1 2 3 4"],
            "2: has 4 numbers after the word, but model.embedding_size is 3",
        ),
        (
            ["cat 1 2 3 4"],
            "1: has 4 numbers after the word, but model.embedding_size is 3; expected",
        ),
        (["2 3", "dog 1 2 x", "a 1 2 3"], "2: could not convert string to float: b'x'; expected "),
        (["2 3", "dog 1 nan 3", "a 1 2 3"], "2: has a number that is not finite"),
        (["dog 1e39 1 1"], "1: has a number that is not finite"),
        (["Cat 1 2 3"], " has none of the 4 words of the vocabulary. Give a file of this "),
    ],
)
def test_malformed_files_are_refused_by_line(
    tmp_path: Path, lines: list[str], message: str
) -> None:
    assert refusal(write(tmp_path, lines)).startswith(message)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, ROWS, "cc.en.vec")
    message = refusal(tmp_path / "cc.en.ve")
    assert "cc.en.ve" in message
