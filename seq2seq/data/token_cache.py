"""Cache entries: folders of files that are built once and then mapped into memory.

The manifest of an entry has its key, which says what it was built from, counts, and the size and
SHA-256 of each file. An entry is built under a temporary name, synced and renamed. It is rebuilt if
its key or a file differs, or if it belongs to another user. Of large files, the size is compared,
and the SHA-256 if a run is resumed.

Training text and its token ids are flat arrays: each side has a file of values (`text` or `ids`)
and one of the `ends` of its lines in them; ids also have their `lengths`. `rows` are the positions
in the text of the pairs that have ids. The word alignments of a text are written as ids are.
"""

import hashlib
import json
import mmap
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from seq2seq.config.corpora import ParallelFiles
from seq2seq.data import corpus as texts
from seq2seq.data.corpus import ParallelText, Texts
from seq2seq.data.length_windows import VERSION, BatchDivision
from seq2seq.data.packed_sequences import Chunk, Lengths, PackedIds, PackedLines, Selected, pack_ids
from seq2seq.data.pharaoh import iter_linked_pairs
from seq2seq.runtime import locks, process_group
from seq2seq.runtime.console import one_line, progress_bar
from seq2seq.runtime.files import PART_SUFFIX, atomic_write, sync, sync_folder, write_errors

SIDES = ("src", "tgt")
TEXT_FILES = ("src.text", "src.ends", "tgt.text", "tgt.ends")  # their SHA-256 identify the text
LINKS = "links"
LINK_FILES = (f"{LINKS}.ids", f"{LINKS}.ends", f"{LINKS}.lengths")
DIVISIONS = "divisions.json"
_LINK_SIZE = 1 << 32  # links are integers of four bytes
_BLOCK_PAIRS = 10_000  # written at a time
MANIFEST = "manifest.json"
FORMAT = 4  # incremented when the content for a key changes, as by what counts as blank
MISSING = "it does not exist"
STALE = "the text or the settings behind it have changed"
UNRECORDED = "it is not what the run was trained on"
SMALL_FILE = 1 << 24  # bytes up to which a file is verified at each start
_PLACE = "in the token cache (SEQ2SEQ_CACHE sets another place)"  # in messages

Key = Mapping[str, Any]
Counts = dict[str, int]
Number = TypeVar("Number", bound=np.generic)


class Unusable(Exception):
    """An entry that must be rebuilt; the message says why."""


class Entry(NamedTuple):
    """A complete entry."""

    path: Path
    counts: Counts
    files: dict[str, list[Any]]  # size and SHA-256 by name
    rebuilt: str | None = None  # the reason for building it now; None if it is reused

    @property
    def digest(self) -> str:
        """SHA-256 of the content, whatever it was built from."""
        content = json.dumps([self.counts, self.files], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def array(self, name: str, kind: type[Number]) -> NDArray[Number]:
        """Map a file into memory; it stays readable if the entry is replaced. Raises OSError."""
        with (self.path / name).open("rb") as file:
            if not self.files[name][0]:  # which cannot be mapped
                return np.empty(0, kind)
            content = mmap.mmap(file.fileno(), self.files[name][0], access=mmap.ACCESS_READ)
        return np.frombuffer(content, kind)


class EntryCache:
    """The cache entries of one text, in a folder that is private to the user."""

    def __init__(self, root: Path, name: str) -> None:
        """Make the folder `name` in the cache `root`; raises RunError if that fails."""
        self.path = root / name
        self.built: list[str] = []  # names of entries
        self._made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        with write_errors(f"{self.path}, {_PLACE}"):
            root.parent.mkdir(parents=True, exist_ok=True)
            if is_foreign(self.path):
                self._remove(self.path)
            for folder in (root, self.path):
                folder.mkdir(0o700, exist_ok=True)
                with suppress(OSError):  # not supported by some file systems
                    folder.chmod(0o700)

    def load(
        self, name: str, key: Key, build: Callable[[Path], Counts], recorded: str | None = None
    ) -> Entry:
        """Open the entry with this key, or let `build` fill a new folder if it cannot be used.

        With a `recorded` digest it has to have that, and large files are read. One process at a
        time. Raises RunError if the entry cannot be written.
        """
        path = self.path / name
        with write_errors(f"{path}, {_PLACE}"), closing(locks.FolderLock(self.path, wait=True)):
            try:
                return _read(path, key, recorded)
            except Unusable as unusable:
                reason = str(unusable)
            for part in self.path.glob(f"*{PART_SUFFIX}"):  # left by killed processes
                self._remove(part)
            entry = self._build(path, key, build)
            self.built.append(name)
            return entry._replace(rebuilt=reason)

    def remove_others(self, text: str) -> None:
        """Delete the entries that were built from another text than the one with this digest."""
        for path in self.path.glob(f"*-*/{MANIFEST}"):
            with suppress(OSError, ValueError, TypeError, LookupError):
                if json.loads(path.read_bytes())["key"]["text"] == text:
                    continue
            self._remove(path.parent)

    def discard_built(self) -> None:
        """Delete what was built here, and the folders made for it if nothing else is in them."""
        for name in self.built:
            self._remove(self.path / name)
        with suppress(OSError):
            if self._made:
                (self.path / locks.LOCK).unlink(missing_ok=True)
            for path in self._made:
                path.rmdir()

    def _build(self, path: Path, key: Key, build: Callable[[Path], Counts]) -> Entry:
        part = Path(tempfile.mkdtemp(PART_SUFFIX, f"{path.name}.", self.path))
        try:
            counts = build(part)
            files = dict[str, list[Any]]()
            for path_of_file in sorted(part.iterdir()):
                with path_of_file.open("rb+") as file:
                    sync(file)
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                files[path_of_file.name] = [path_of_file.stat().st_size, digest]
            manifest = {"format": FORMAT, "key": key, "counts": counts, "files": files}
            atomic_write(part / MANIFEST, json.dumps(manifest, indent=1).encode())
            self._remove(path)
            part.rename(path)
            sync_folder(self.path)
        except BaseException:
            self._remove(part)
            raise
        return Entry(path, counts, files)

    def _remove(self, path: Path) -> None:
        """Delete a file or a folder; one of another user is at least moved out of the way."""
        with suppress(FileNotFoundError):
            if path.suffix != PART_SUFFIX:
                aside = f"{path.name}.{secrets.token_hex(4)}{PART_SUFFIX}"
                path = path.rename(path.with_name(aside))
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def is_foreign(path: Path) -> bool:
    """Return whether a file or folder exists and belongs to another user."""
    try:
        return path.lstat().st_uid != os.geteuid()
    except FileNotFoundError:
        return False


def _read(path: Path, key: Key, recorded: str | None) -> Entry:
    """Open an entry; raises Unusable if it must be rebuilt."""
    if not os.path.lexists(path):
        raise Unusable(MISSING)
    if is_foreign(path):
        raise Unusable("it belongs to another user")
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        if manifest["format"] != FORMAT or manifest["key"] != key:
            raise Unusable(STALE)
        entry = Entry(path, dict(manifest["counts"]), dict(manifest["files"]))
        sizes = {name: int(size) for name, (size, _) in entry.files.items()}
    except (OSError, ValueError, TypeError, LookupError):
        raise Unusable(f"{MANIFEST} is missing or damaged") from None
    for name, size in sizes.items():
        if not (path / name).is_file() or (path / name).stat().st_size != size:
            raise Unusable(f"{name} is missing or of another size")
        if size <= SMALL_FILE or (recorded is not None and process_group.is_main_process()):
            with (path / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != entry.files[name][1]:
                    raise Unusable(f"{name} is damaged")
    if recorded not in (None, entry.digest):
        raise Unusable(UNRECORDED)
    return entry


def copy_text(files: Texts, folder: Path) -> Counts:
    """Copy the pairs with text on both sides; return the counts of pairs, of several corpora too.

    Raises UserError as `iter_pairs` does, and if no pair of a corpus has text on both sides.
    """
    counts = {"pairs": 0, "blank": 0, "same": 0}
    corpora = texts.as_list(files)
    linked = has_links(corpora)
    with (
        _Writer(folder, "src.text", "src.ends") as src_writer,
        _Writer(folder, "tgt.text", "tgt.ends") as tgt_writer,
        _Writer(folder, *(LINK_FILES if linked else ())) as link_writer,
        progress_bar(one_line(f"reading {texts.source_name(files)}"), " pairs") as bar,
    ):
        for number, corpus in enumerate(corpora, start=1):
            earlier_counts, pairs = dict(counts), iter_linked_pairs(corpus)
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
            if counts["pairs"] == earlier_counts["pairs"]:
                name = texts.source_name(corpus)
                raise texts.no_usable_pair(name, counts["blank"] - earlier_counts["blank"])
            if len(corpora) > 1:
                counts[f"pairs.{number}"] = counts["pairs"] - earlier_counts["pairs"]
    return counts


def has_links(corpora: Iterable[ParallelFiles]) -> bool:
    """Return whether a corpus has word alignments."""
    return any("alignment" in corpus.paths for corpus in corpora)


def open_text(entry: Entry, name: str) -> ParallelText:
    """Open the text of an entry; raises OSError."""
    src, tgt = (
        PackedLines(entry.array(f"{side}.text", np.uint8), entry.array(f"{side}.ends", np.int64))
        for side in SIDES
    )
    return ParallelText(src, tgt, name)


def write_ids(folder: Path, chunks: Iterable[Chunk], vocabulary_size: int) -> Counts:
    """Write the ids of a cached text and the rows of its pairs that have them."""
    kind, count = _ids_type(vocabulary_size), 0
    with (
        _Writer(folder, "src.ids", "src.ends", "src.lengths") as src_writer,
        _Writer(folder, "tgt.ids", "tgt.ends", "tgt.lengths") as tgt_writer,
        (folder / "rows").open("xb") as file,
    ):
        for _, rows, src, tgt in chunks:
            src_writer.write(src.ids.astype(kind), src.lengths)
            tgt_writer.write(tgt.ids.astype(kind), tgt.lengths)
            file.write(rows.tobytes())
            count += len(rows)
    return {"pairs": count}


def open_ids(
    entry: Entry, text: ParallelText, vocabulary_size: int
) -> tuple[Selected[str], Selected[str], PackedIds, PackedIds]:
    """Open the lines (source, target) and ids (source, target) of an entry; raises OSError."""
    rows = entry.array("rows", np.int64)
    src, tgt = (Selected(lines, rows) for lines in (text.src, text.tgt))
    src_ids, tgt_ids = (open_side(entry, side, vocabulary_size) for side in SIDES)
    return src, tgt, src_ids, tgt_ids


class StoredDivisions(dict[tuple[int, bool], BatchDivision]):
    """Divisions of pairs into batches, kept beside the ids: to count batches takes seconds."""

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


def open_side(entry: Entry, side: str, vocabulary_size: int = _LINK_SIZE) -> PackedIds:
    """Open the ids of a side, or the word alignments, of an entry; raises OSError."""
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
