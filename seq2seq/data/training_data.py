"""Vocabulary and ids of a training text, built once and mapped: memory does not grow with it.

FOLDER/NAME-OF-THE-FILES/
    text/           a plain copy of the usable pairs, and what was counted in them
    vocabulary-*/   the pieces learnt under one vocabulary section of a config
    tokens-*/       the ids under one vocabulary, and where their text lies

Each is built anew where the files, the vocabulary or its own bytes are not what they were. One
process at a time builds; all may read. Nothing else needs the folder: it may be deleted.
"""

import hashlib
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import sentencepiece

from seq2seq.config.schema import ParallelFiles, VocabularyConfig
from seq2seq.data.batching import EncodedPairs, encode_pairs
from seq2seq.data.cache.arrays import Files, copy_text, map_text
from seq2seq.data.cache.entries import (
    CHANGED,
    MISSING,
    Entry,
    Facts,
    Unusable,
    checksum_of_file,
    open_entry,
    read_entry,
    remove,
    remove_leftovers,
)
from seq2seq.data.cache.tokens import map_pairs, write_pairs
from seq2seq.data.cache.workers import MOST_HERE, encoded, learnt
from seq2seq.data.corpus import ParallelText, count_same, read_pairs, usable
from seq2seq.data.vocabulary import (
    Vocabularies,
    checksums_of,
    load_vocabularies,
    save_vocabularies,
    train_vocabularies,
)
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.locks import SharedLock

FOLDER = ".token-cache"
_LOCK, _TEXT, _VOCABULARY, _TOKENS = "lock", "text", "vocabulary", "tokens"


class TrainingData(Protocol):
    """A training text on its way to ids; `text` comes first."""

    blank: int  # pairs with a blank side, left out
    same: int  # pairs with the same text on both sides
    notes: list[str]
    checksum: str  # of all of it

    def text(self) -> ParallelText:
        """The usable pairs; raises UserError as `read_pairs` and `usable` do."""
        ...

    def vocabularies(self, config: VocabularyConfig) -> Vocabularies:
        """The pieces learnt from it; raises UserError as `train_vocabularies` does."""
        ...

    def pairs(self, vocabularies: Vocabularies, max_length: int) -> EncodedPairs:
        """Its ids, as `encode_pairs` gives them."""
        ...


@contextmanager
def training_data(given: ParallelFiles, run_dir: Path) -> Iterator[TrainingData]:
    """The training text of a run, through the cache; a refused one leaves nothing in it.

    What is no plain file, such as a pipe, can be read once only and is held in memory. Raises
    RunError where the cache cannot be written.
    """
    files = Files(given.src, given.tgt, given.tsv)
    paths = files.named().values()
    if not all(path.is_file() for path in paths) and all(path.exists() for path in paths):
        yield InMemory(files)
        return
    folder = cache_of(run_dir) / _name(files)
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    with _writing(folder):
        # The text may be no one else's to read.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = SharedLock(folder / _LOCK)
    with closing(lock):
        cached = Cached(files, folder, lock)
        try:
            yield cached
        except UserError:
            for path in cached.built:
                remove(path)
            if made:
                _take_back(made, lock)
            raise


def _take_back(made: Sequence[Path], lock: SharedLock) -> None:
    """Remove the folders made, the deepest first, if nothing came to lie there but the lock."""
    with suppress(OSError):
        lock.upgrade()
        if [each.name for each in made[0].iterdir()] == [_LOCK]:
            (made[0] / _LOCK).unlink()
            for each in made:
                each.rmdir()


def cache_of(run_dir: Path) -> Path:
    """Where the cache of a run lies: beside the run folder, shared with those beside it.

    Where nothing can be written there, inside it.
    """
    beside = run_dir.absolute().parent
    nearest = next(each for each in (beside / FOLDER, *(beside / FOLDER).parents) if each.exists())
    return (beside if nearest.is_dir() and os.access(nearest, os.W_OK) else run_dir) / FOLDER


class Cached:
    """Training data in a cache."""

    def __init__(self, files: Files, folder: Path, lock: SharedLock) -> None:
        self._files, self._folder, self._lock = files, folder, lock
        self._key: dict[str, Any] = {}
        self._text = ParallelText([], [])
        self.blank = self.same = 0
        self.notes: list[str] = []
        self.checksum = ""
        self.built: list[Path] = []

    def text(self) -> ParallelText:
        """Copy and map the text."""
        self._key = {"files": self._checksums(), "byteorder": sys.byteorder}
        self.checksum = _hash(self._key["files"])

        def build(folder: Path) -> Facts:
            facts = copy_text(self._files, folder)
            if self._checksums() != self._key["files"]:
                raise UserError(f"{self._files}: changed while being read; try again")
            return facts

        entry = self._open(_TEXT, self._key, build)
        if entry.built == CHANGED:
            for kind in (_VOCABULARY, _TOKENS):
                for path in self._folder.glob(f"{kind}-*"):
                    remove(path)
        self.blank, self.same = entry.facts["blank"], entry.facts["same"]
        self._text = map_text(entry.folder, str(self._files))
        return self._text

    def vocabularies(self, config: VocabularyConfig) -> Vocabularies:
        """Learn the pieces, or read those learnt before."""
        settings = config.model_dump(exclude={"sampling"}, mode="json")
        key = {**self._key, "config": settings, **_versions()}

        def build(folder: Path) -> Facts:
            save_vocabularies(self._learn(config), folder)
            return {}

        entry = self._open(f"{_VOCABULARY}-{_hash(settings)}", key, build)
        return load_vocabularies(entry.folder, config.sampling)

    def pairs(self, vocabularies: Vocabularies, max_length: int) -> EncodedPairs:
        """Encode the text, or map what was encoded before."""
        pieces = {"vocabulary": checksums_of(vocabularies), "max_length": max_length}
        key = {**self._key, **pieces, **_versions()}

        def build(folder: Path) -> Facts:
            chunks = encoded(self._folder / _TEXT, self._text, vocabularies, max_length)
            return write_pairs(folder, self._folder / _TEXT, chunks, max(map(len, vocabularies)))

        entry = self._open(f"{_TOKENS}-{_hash(pieces)}", key, build)
        return map_pairs(entry, self._folder / _TEXT)

    def _build_alone(self) -> None:
        if not self._lock.exclusive:
            self._lock.upgrade()
            if self._lock.exclusive:
                remove_leftovers(self._folder)

    def _learn(self, config: VocabularyConfig) -> Vocabularies:
        if len(self._text) <= MOST_HERE:
            return train_vocabularies(config, self._text.src, self._text.tgt)
        return learnt(self._folder / _TEXT, config)

    def _checksums(self) -> dict[str, str]:
        try:
            return {key: checksum_of_file(path) for key, path in self._files.named().items()}
        except OSError:
            usable(read_pairs(**self._files._asdict()))  # says what is wrong with them
            raise

    def _open(self, name: str, key: Facts, build: Callable[[Path], Facts]) -> Entry:
        folder = self._folder / name
        with _writing(folder):
            try:
                entry = Entry(folder, read_entry(folder, key), None)
            except (FileNotFoundError, Unusable):
                self._build_alone()
                entry = open_entry(folder, key, build)
        if entry.built:
            self.built.append(folder)
            if entry.built != MISSING:
                self.notes.append(f"{folder}: built anew, for {entry.built}")
            elif name.startswith(_TOKENS):
                self.notes.append(f"training text and its ids are kept in {self._folder}")
        return entry


class InMemory:
    """Training data that is read once and held in memory."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._text = ParallelText([], [])
        self.blank = self.same = 0
        self.notes: list[str] = []
        self.checksum = ""

    def text(self) -> ParallelText:
        """Read the text."""
        self._text, self.blank = usable(read_pairs(**self._files._asdict()))
        self.checksum = checksum_of_text(self._text)
        self.same = count_same(self._text)
        return self._text

    def vocabularies(self, config: VocabularyConfig) -> Vocabularies:
        """Learn the pieces."""
        return train_vocabularies(config, self._text.src, self._text.tgt)

    def pairs(self, vocabularies: Vocabularies, max_length: int) -> EncodedPairs:
        """Encode the text."""
        return encode_pairs(self._text.src, self._text.tgt, vocabularies, max_length)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{folder}: the token cache cannot be written ({error.strerror or error}); "
            "mend that, or set another run_dir: the cache lies beside it"
        ) from None


def _name(files: Files) -> str:
    """A folder's name that people recognise and no other files have."""
    paths = files.named()
    whole = _hash({key: str(path.absolute()) for key, path in paths.items()})
    shown = "-".join(re.sub(r"[^\w.]+", "_", path.name)[:40] for path in paths.values())
    return f"{shown}-{whole}"


def checksum_of_text(text: ParallelText) -> str:
    """Of its lines, whatever files they came from."""
    return _hash([list(text.src), list(text.tgt)])


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _versions() -> dict[str, str]:
    """Of what else decides into which pieces a text is cut."""
    return {
        "sentencepiece": sentencepiece.__version__,
        "unicode": unicodedata.unidata_version,
        "unknown": "an id for each word",
    }
