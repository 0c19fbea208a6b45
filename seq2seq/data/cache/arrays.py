"""Training text and its token ids as flat arrays in a cache entry.

Each side has a file of values (`text` or `ids`) and one of the `ends` of its lines in them; ids
also have their `lengths`. `rows` are the positions in the text of the pairs that have ids. The word
alignments of a text are written as ids are.
"""

import json
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from seq2seq.data import corpus as texts
from seq2seq.data.cache.entries import Counts, Entry
from seq2seq.data.corpus import ParallelText, Texts
from seq2seq.data.length_windows import VERSION, BatchDivision
from seq2seq.data.packed_sequences import (
    Chunk,
    Lengths,
    PackedIds,
    PackedLines,
    Selected,
    pack_ids,
)
from seq2seq.data.pharaoh import iter_linked_pairs
from seq2seq.runtime.console import hides_bars, one_line
from seq2seq.runtime.files import atomic_write

SIDES = ("src", "tgt")
TEXT_FILES = ("src.text", "src.ends", "tgt.text", "tgt.ends")  # their SHA-256 identify the text
LINKS = "links"
LINK_FILES = (f"{LINKS}.ids", f"{LINKS}.ends", f"{LINKS}.lengths")
DIVISIONS = "divisions.json"
_LINK_SIZE = 1 << 32  # links are integers of four bytes
_BLOCK_PAIRS = 10_000  # written at a time


def copy_text(files: Texts, folder: Path) -> Counts:
    """Copy the pairs with text on both sides; return the counts of pairs by kind.

    Of several corpora, those of each are counted, too. Raises UserError as `iter_pairs` does, and
    if no pair of a corpus has text on both sides.
    """
    counts = {"pairs": 0, "blank": 0, "same": 0}
    corpora, linked = texts.as_list(files), has_links(files)
    with (
        _Writer(folder, "src.text", "src.ends") as src_writer,
        _Writer(folder, "tgt.text", "tgt.ends") as tgt_writer,
        _Writer(folder, *(LINK_FILES if linked else ())) as link_writer,
        tqdm(
            desc=one_line(f"reading {texts.source_name(files)}"),
            unit=" pairs",
            leave=False,
            disable=hides_bars(),
        ) as bar,
    ):
        for number, corpus in enumerate(corpora, start=1):
            before, pairs = dict(counts), iter_linked_pairs(corpus)
            while block := list(islice(pairs, _BLOCK_PAIRS)):
                usable = [(pair, links) for pair, links in block if texts.has_text(*pair)]
                src, tgt = ([pair[side] for pair, _ in usable] for side in (0, 1))
                counts["pairs"] += len(usable)
                counts["blank"] += len(block) - len(usable)
                counts["same"] += sum(map(str.__eq__, src, tgt))
                src_writer.write(*_joined(src))
                tgt_writer.write(*_joined(tgt))
                if linked:
                    packed = pack_ids([links for _, links in usable])
                    link_writer.write(packed.ids, packed.lengths)
                bar.update(len(block))
            if counts["pairs"] == before["pairs"]:
                name = texts.source_name(corpus)
                raise texts.no_usable_pair(name, counts["blank"] - before["blank"])
            if len(corpora) > 1:
                counts[pairs_of_corpus(number)] = counts["pairs"] - before["pairs"]
    return counts


def has_links(files: Texts) -> bool:
    """Return whether a corpus has word alignments."""
    return any(texts.alignment_of(corpus) is not None for corpus in texts.as_list(files))


def pairs_of_corpus(number: int) -> str:
    """Return the name of the count of pairs of one of several corpora, from 1."""
    return f"pairs.{number}"


def open_text(entry: Entry, name: str) -> ParallelText:
    """Open the text of an entry; raises OSError."""
    src, tgt = (
        PackedLines(entry.array(f"{side}.text", np.uint8), entry.array(f"{side}.ends", np.int64))
        for side in SIDES
    )
    return ParallelText(src, tgt, name)


def open_links(entry: Entry) -> PackedIds:
    """Open the word alignments of an entry; raises OSError."""
    return _open_ids(entry, LINKS, _LINK_SIZE)


def write_ids(folder: Path, chunks: Iterable[Chunk], vocabulary_size: int) -> Counts:
    """Write the ids of a cached text and the rows of its pairs that have them."""
    kind, count = _ids_type(vocabulary_size), 0
    with (
        _Writer(folder, "src.ids", "src.ends", "src.lengths") as src_writer,
        _Writer(folder, "tgt.ids", "tgt.ends", "tgt.lengths") as tgt_writer,
        (folder / "rows").open("xb") as file,
    ):
        for _, rows, src, tgt in chunks:
            for writer, side in ((src_writer, src), (tgt_writer, tgt)):
                writer.write(side.ids.astype(kind), side.lengths)
            file.write(rows.tobytes())
            count += len(rows)
    return {"pairs": count}


def open_ids(
    entry: Entry, text: ParallelText, vocabulary_size: int
) -> tuple[Selected[str], Selected[str], PackedIds, PackedIds]:
    """Open the lines (source, target) and ids (source, target) of an entry; raises OSError."""
    rows = entry.array("rows", np.int64)
    src, tgt = (Selected(lines, rows) for lines in (text.src, text.tgt))
    src_ids, tgt_ids = (_open_ids(entry, side, vocabulary_size) for side in SIDES)
    return src, tgt, src_ids, tgt_ids


class StoredDivisions(dict[tuple[int, bool], BatchDivision]):
    """Divisions of pairs into batches, by batch_tokens and order: to count batches takes seconds.

    They are kept in the entry of the pairs' ids.
    """

    def __init__(self, entry: Entry) -> None:
        """Read those of earlier starts; if that fails, start without any."""
        super().__init__()
        self._path, self._origin = entry.path / DIVISIONS, [VERSION, np.__version__]
        with suppress(OSError, ValueError, TypeError, LookupError):
            *origin, rows = json.loads(self._path.read_bytes())
            if origin == self._origin:
                self.update(
                    {(tokens, by): BatchDivision(*division) for tokens, by, *division in rows}
                )

    def __setitem__(self, key: tuple[int, bool], division: BatchDivision) -> None:
        super().__setitem__(key, division)
        rows = [[*key, *division] for key, division in self.items()]
        with suppress(OSError):  # the next start counts again
            atomic_write(self._path, json.dumps([*self._origin, rows]).encode())


def _open_ids(entry: Entry, side: str, vocabulary_size: int) -> PackedIds:
    ids = entry.array(f"{side}.ids", _ids_type(vocabulary_size))
    ends = entry.array(f"{side}.ends", np.int64)
    return PackedIds(ids, ends, entry.array(f"{side}.lengths", np.uint32))


def _ids_type(vocabulary_size: int) -> type[np.uint16 | np.uint32]:
    return np.uint32 if vocabulary_size > 1 << 16 else np.uint16


class _Writer:
    """Files of one side of an entry: values, the ends of its lines and, for ids, their lengths."""

    def __init__(self, folder: Path, *names: str) -> None:
        self._end, self._stack = 0, ExitStack()  # which closes all files, even if one fails
        self._files = [self._stack.enter_context((folder / name).open("xb")) for name in names]

    def write(self, values: NDArray[Any], lengths: Lengths) -> None:
        """Append lines of the given lengths, whose values are concatenated."""
        ends = self._end + np.cumsum(lengths, dtype=np.int64)
        self._end += len(values)
        arrays: tuple[NDArray[Any], ...] = (values, ends, lengths)
        for file, array in zip(self._files, arrays, strict=False):
            file.write(array.tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _joined(lines: list[str]) -> tuple[NDArray[np.uint8], Lengths]:
    encoded = [line.encode() for line in lines]
    lengths = np.array([len(line) for line in encoded], np.uint32)
    return np.frombuffer(b"".join(encoded), np.uint8), lengths
