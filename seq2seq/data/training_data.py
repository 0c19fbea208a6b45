"""Training text with its vocabulary and token ids, cached on disk and memory-mapped.

FOLDER/NAME-OF-THE-FILES/
    text/           copy of the usable pairs, and counts of the pairs dropped
    vocabulary-*/   SentencePiece models trained under one `vocabulary` section of a config
    tokens-*/       token ids under one vocabulary, and the positions of their lines in the text

An entry is rebuilt if the files, the vocabulary or its own bytes have changed. The cache may be
deleted at any time. Memory use does not grow with the corpus.
"""

import hashlib
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import sentencepiece

from seq2seq.config.schema import ParallelFiles, VocabularyConfig
from seq2seq.data.batching import EncodedPairs, encode_pairs
from seq2seq.data.cache.arrays import copy_text, map_ids, map_text, write_ids
from seq2seq.data.cache.entries import MISSING, STALE, Entry, EntryCache, Facts
from seq2seq.data.cache.workers import encode_cached, train_cached
from seq2seq.data.corpus import (
    ParallelText,
    count_same,
    paths_of,
    read_pairs,
    source_name,
    usable,
)
from seq2seq.data.lines import checksum_of_file
from seq2seq.data.vocabulary import (
    Vocabularies,
    checksums_of,
    load_vocabularies,
    train_vocabularies,
)
from seq2seq.runtime.errors import UserError

FOLDER = ".token-cache"
_TEXT, _VOCABULARY, _TOKENS = "text", "vocabulary", "tokens"


class TrainingData:
    """Usable pairs of a training text, held in memory."""

    def __init__(self, text: ParallelText, blank: int, same: int, checksum: str) -> None:
        self.text = text
        self.blank = blank  # pairs dropped for a blank side
        self.same = same  # pairs with identical sides
        self.checksum = checksum
        self.notes: list[str] = []  # for the log

    def vocabularies(self, config: VocabularyConfig) -> Vocabularies:
        """Train vocabularies on the text; raises UserError as `train_vocabularies` does."""
        return train_vocabularies(config, self.text.src, self.text.tgt)

    def pairs(self, vocabularies: Vocabularies, max_length: int) -> EncodedPairs:
        """Return the token ids of the pairs, as `encode_pairs` does."""
        return encode_pairs(self.text.src, self.text.tgt, vocabularies, max_length)


@contextmanager
def training_data(files: ParallelFiles, run_dir: Path) -> Iterator[TrainingData]:
    """Read the training text of a run, using the cache.

    Files that can be read only once, such as pipes, are held in memory instead. Raises UserError as
    `iter_pairs` and `usable` do, and RunError if the cache cannot be written. A UserError, even one
    raised by the block, removes the entries built for it.
    """
    paths = paths_of(files).values()
    if not all(path.is_file() for path in paths) and all(path.exists() for path in paths):
        text, blank = usable(read_pairs(files))
        yield TrainingData(text, blank, count_same(text), checksum_of_text(text))
        return
    with closing(EntryCache(cache_of(run_dir) / _folder_name(files))) as cache:
        try:
            yield _CachedTrainingData(files, cache)
        except UserError:
            cache.discard_built()
            raise


def cache_of(run_dir: Path) -> Path:
    """Return the cache of a run: next to the run folder, or in it if only that is writable.

    Runs in the same folder share their cache.
    """
    parent = run_dir.absolute().parent
    nearest = next(each for each in (parent / FOLDER, *(parent / FOLDER).parents) if each.exists())
    return (parent if nearest.is_dir() and os.access(nearest, os.W_OK) else run_dir) / FOLDER


def checksum_of_text(text: ParallelText) -> str:
    """Return a checksum of the lines, independent of the files they come from."""
    return _hash([list(text.src), list(text.tgt)])


class _CachedTrainingData(TrainingData):
    """Usable pairs of a training text, mapped from the cache."""

    def __init__(self, files: ParallelFiles, cache: EntryCache) -> None:
        """Copy the text into the cache, unless it is there."""
        checksums = _checksums(files)
        self._cache = cache
        self._key: dict[str, Any] = {"files": checksums, "byteorder": sys.byteorder}

        def build(folder: Path) -> Facts:
            facts = copy_text(files, folder)
            if _checksums(files) != checksums:
                raise UserError(f"{source_name(files)}: changed while being read. Try again.")
            return facts

        entry = cache.entry(_TEXT, self._key, build)
        if entry.rebuilt == STALE:
            cache.remove(f"{_VOCABULARY}-*")
            cache.remove(f"{_TOKENS}-*")
        self._folder = entry.folder
        text = map_text(entry.folder, source_name(files))
        super().__init__(text, entry.facts["blank"], entry.facts["same"], _hash(checksums))
        self._note(entry)

    def vocabularies(self, config: VocabularyConfig) -> Vocabularies:
        """Train vocabularies on the text, or load those trained before."""
        settings = config.model_dump(exclude={"sampling"}, mode="json")

        def build(folder: Path) -> Facts:
            train_cached(self._folder, self.text, config, folder)
            return {}

        entry = self._entry(f"{_VOCABULARY}-{_hash(settings)}", {"config": settings}, build)
        return load_vocabularies(entry.folder, config.sampling)

    def pairs(self, vocabularies: Vocabularies, max_length: int) -> EncodedPairs:
        """Encode the text, or map what was encoded before."""
        settings = {"vocabulary": checksums_of(vocabularies), "max_length": max_length}

        def build(folder: Path) -> Facts:
            with closing(
                encode_cached(self._folder, self.text, vocabularies, max_length)
            ) as chunks:
                return write_ids(folder, self._folder, chunks, max(map(len, vocabularies)))

        entry = self._entry(f"{_TOKENS}-{_hash(settings)}", settings, build)
        return EncodedPairs(*map_ids(entry, self._folder), entry.facts["too_long"])

    def _entry(self, name: str, settings: Facts, build: Callable[[Path], Facts]) -> Entry:
        entry = self._cache.entry(name, {**self._key, **settings, **_versions()}, build)
        self._note(entry)
        return entry

    def _note(self, entry: Entry) -> None:
        if entry.rebuilt == MISSING:
            if entry.folder.name.startswith(_TOKENS):
                self.notes.append(f"training text and token ids are cached in {self._cache.folder}")
        elif entry.rebuilt is not None:
            self.notes.append(f"{entry.folder}: rebuilt because {entry.rebuilt}")


def _checksums(files: ParallelFiles) -> dict[str, str]:
    return {key: checksum_of_file(path) for key, path in paths_of(files).items()}


def _folder_name(files: ParallelFiles) -> str:
    """Return a recognisable folder name that is unique to these files."""
    paths = paths_of(files)
    unique = _hash({key: str(path.absolute()) for key, path in paths.items()})
    names = "-".join(re.sub(r"[^\w.]+", "_", path.name)[:40] for path in paths.values())
    return f"{names}-{unique}"


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _versions() -> dict[str, str]:
    """Return versions and conventions that determine the tokens, besides text and vocabulary."""
    return {
        "sentencepiece": sentencepiece.__version__,
        "unicode": unicodedata.unidata_version,
        "unknown": "an id for each word",
    }
