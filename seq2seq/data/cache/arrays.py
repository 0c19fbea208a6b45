"""Training text and its token ids as flat arrays in a cache entry: streamed to disk, then read.

Each side has a file of values (`text` or `ids`) and one of the `ends` of its lines in them; ids
also have their `lengths`. `rows` are the positions in the text of the pairs that have ids. The word
alignments of a text are written as ids are.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from seq2seq.data.array_file import ArrayFile
from seq2seq.data.cache.entries import Entry
from seq2seq.data.corpus import (
    ParallelText,
    Texts,
    alignment_of,
    as_list,
    has_text,
    iter_pairs,
    no_usable_pair,
    source_name,
)
from seq2seq.data.packed_sequences import (
    Chunk,
    Lengths,
    PackedIds,
    PackedLines,
    Selected,
    pack_ids,
)
from seq2seq.data.pharaoh import Pair, aligned_pairs
from seq2seq.runtime.console import hides_bars, one_line
from seq2seq.runtime.folders import PrivateFolder

if TYPE_CHECKING:
    from seq2seq.config.corpora import ParallelFiles

SIDES = ("src", "tgt")
TEXT_FILES = ("src.text", "src.ends", "tgt.text", "tgt.ends")  # their SHA-256 identify the text
LINKS = "links"
LINK_FILES = (f"{LINKS}.ids", f"{LINKS}.ends", f"{LINKS}.lengths")
_LINK_SIZE = 1 << 32  # links are integers of four bytes
Counts = dict[str, int]
Number = TypeVar("Number", bound=np.generic)
_BLOCK_PAIRS = 10_000  # written at a time


def copy_text(files: Texts, folder: PrivateFolder) -> Counts:
    """Copy the pairs with text on both sides; return the counts of pairs by kind.

    Of several corpora, those of each are counted, too. Raises UserError as `iter_pairs` does, and
    if no pair of a corpus has text on both sides.
    """
    facts = {"pairs": 0, "blank": 0, "same": 0}
    corpora = as_list(files)
    with (
        _Writer(folder, "src.text", "src.ends") as src_writer,
        _Writer(folder, "tgt.text", "tgt.ends") as tgt_writer,
        _Writer(folder, *(LINK_FILES if has_links(files) else ())) as link_writer,
        tqdm(
            desc=one_line(f"reading {source_name(files)}"),
            unit=" pairs",
            leave=False,
            disable=hides_bars(),
        ) as bar,
    ):
        for number, corpus in enumerate(corpora, start=1):
            before, pairs = dict(facts), iter_linked_pairs(corpus)
            while block := list(islice(pairs, _BLOCK_PAIRS)):
                kept, links = _split([each for each in block if has_text(*each[0])])
                facts["pairs"] += len(kept)
                facts["blank"] += len(block) - len(kept)
                facts["same"] += sum(src == tgt for src, tgt in kept)
                src_writer.write(*_joined([src for src, _ in kept]))
                tgt_writer.write(*_joined([tgt for _, tgt in kept]))
                if has_links(files):
                    packed = pack_ids(links)
                    link_writer.write(np.asarray(packed.ids), np.asarray(packed.lengths))
                bar.update(len(block))
            if facts["pairs"] == before["pairs"]:
                raise no_usable_pair(source_name(corpus), facts["blank"] - before["blank"])
            if len(corpora) > 1:
                facts[pairs_of_corpus(number)] = facts["pairs"] - before["pairs"]
    return facts


def has_links(files: Texts) -> bool:
    """Return whether a corpus has word alignments."""
    return any(alignment_of(corpus) is not None for corpus in as_list(files))


def iter_linked_pairs(corpus: "ParallelFiles") -> Iterator[tuple[tuple[str, str], list[int]]]:
    """Yield each pair of a corpus with its word alignment, empty without a file of alignments.

    Raises UserError as `iter_pairs` and `aligned_pairs` do.
    """
    pairs, path = iter_pairs(corpus), alignment_of(corpus)
    if path is None:
        return ((pair, []) for pair in pairs)
    return aligned_pairs(pairs, path, source_name(corpus), corpus.tag is not None)


def _split(linked: Sequence[tuple[Pair, list[int]]]) -> tuple[list[Pair], list[list[int]]]:
    return [pair for pair, _ in linked], [links for _, links in linked]


def pairs_of_corpus(number: int) -> str:
    """Return the name of the count of pairs of one of several corpora, from 1."""
    return f"pairs.{number}"


def open_text(entry: Entry, name: str) -> ParallelText:
    """Open the text of an entry; raises OSError."""
    src, tgt = (PackedLines(*text_arrays(entry, side)) for side in SIDES)
    return ParallelText(src, tgt, name)


def link_arrays(
    entry: Entry,
) -> tuple[ArrayFile[Any], ArrayFile[np.int64], ArrayFile[np.uint32]]:
    """Open the word alignments of an entry, the ends of each pair's and lengths; raises OSError."""
    return ids_arrays(entry, LINKS, _LINK_SIZE)


def write_ids(folder: PrivateFolder, chunks: Iterable[Chunk], vocabulary_size: int) -> Counts:
    """Write the ids of a cached text and the rows of its pairs that have them."""
    kind, count = ids_type(vocabulary_size), 0
    with (
        _Writer(folder, "src.ids", "src.ends", "src.lengths") as src_writer,
        _Writer(folder, "tgt.ids", "tgt.ends", "tgt.lengths") as tgt_writer,
        folder.create("rows") as file,
    ):
        for _, rows, src, tgt in chunks:
            for writer, side in ((src_writer, src), (tgt_writer, tgt)):
                writer.write(np.asarray(side.ids, kind), np.asarray(side.lengths))
            file.write(rows.tobytes())
            count += len(rows)
    return {"pairs": count}


def open_ids(
    entry: Entry, text: ParallelText, vocabulary_size: int
) -> tuple[Selected[str], Selected[str], PackedIds, PackedIds]:
    """Open the lines (source, target) and ids (source, target) of an entry; raises OSError."""
    rows = array_of(entry, "rows", np.int64)
    src, tgt = (Selected(side, rows) for side in (text.src, text.tgt))
    src_ids, tgt_ids = (PackedIds(*ids_arrays(entry, side, vocabulary_size)) for side in SIDES)
    return src, tgt, src_ids, tgt_ids


def text_arrays(entry: Entry, side: str) -> tuple[ArrayFile[np.uint8], ArrayFile[np.int64]]:
    """Open the text of a side and the ends of its lines; raises OSError."""
    text = array_of(entry, f"{side}.text", np.uint8)
    return text, array_of(entry, f"{side}.ends", np.int64)


def ids_arrays(
    entry: Entry, side: str, vocabulary_size: int
) -> tuple[ArrayFile[Any], ArrayFile[np.int64], ArrayFile[np.uint32]]:
    """Open the ids of a side, the ends of its sequences and their lengths; raises OSError."""
    return (
        array_of(entry, f"{side}.ids", ids_type(vocabulary_size)),
        array_of(entry, f"{side}.ends", np.int64),
        array_of(entry, f"{side}.lengths", np.uint32),
    )


def array_of(entry: Entry, name: str, kind: type[Number]) -> ArrayFile[Number]:
    """Open an array of an entry; raises OSError."""
    folder = entry.folder
    return ArrayFile(folder.open(name), kind, folder.path / name, entry.checks(name))


def ids_type(vocabulary_size: int) -> type[np.uint16 | np.uint32]:
    """Return the type of ids in files."""
    return np.uint32 if vocabulary_size > 1 << 16 else np.uint16


class _Writer:
    """Files of one side of an entry: values, the ends of its lines and, for ids, their lengths."""

    def __init__(self, folder: PrivateFolder, *names: str) -> None:
        self._end, self._stack = 0, ExitStack()  # which closes all files, even if one fails
        self._files = [self._stack.enter_context(folder.create(name)) for name in names]

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
