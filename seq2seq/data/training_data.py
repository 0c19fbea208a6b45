"""Training text with its vocabulary and token ids, cached on disk and read on demand.

.token-cache/NAME-OF-THE-FILES/
    text/           copy of the usable pairs, and counts of the pairs dropped
    vocabulary-*/   SentencePiece models trained under one `vocabulary` section of a config
    tokens-*/       token ids under one vocabulary, and the positions of their lines in the text

An entry is rebuilt if the files, the vocabulary or its own bytes have changed, and on resume if it
is not what the run was trained on. The cache may be deleted at any time; others can neither read
nor write it. Memory use does not grow with the corpus.
"""

import hashlib
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sentencepiece

from seq2seq.config.schema import ParallelFiles, VocabularyConfig
from seq2seq.data.batching import EncodedPairs, encode_pairs
from seq2seq.data.cache.arrays import (
    LINK_FILES,
    TEXT_FILES,
    copy_text,
    has_links,
    link_arrays,
    pairs_of_corpus,
    write_ids,
)
from seq2seq.data.cache.divisions import StoredDivisions
from seq2seq.data.cache.entries import MISSING, STALE, Entry, EntryCache, Facts
from seq2seq.data.cache.sources import SourceChecksums
from seq2seq.data.cache.verification import read_ids, read_models, read_text
from seq2seq.data.cache.workers import encode_cached, train_cached
from seq2seq.data.corpus import (
    ParallelText,
    Texts,
    as_list,
    checksum_of_text,
    combined_checksum,
    count_same,
    joined,
    paths_of,
    read_pairs,
    source_name,
    usable,
)
from seq2seq.data.corpus_sampling import Share, ends_of, shares
from seq2seq.data.natural_language import sampled
from seq2seq.data.packed_sequences import PackedIds, Selected
from seq2seq.data.vocabulary.existing import checksums_of_models
from seq2seq.data.vocabulary.files import checksums_of
from seq2seq.data.vocabulary.training import train_vocabularies, vocabulary_notes
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import check_paths
from seq2seq.runtime.folders import PrivateFolder, is_foreign

FOLDER = ".token-cache"
PLACE = "SEQ2SEQ_CACHE"  # environment variable
T = TypeVar("T")
_NAMED_FILES = 4  # in the name of a folder
_TEXT, _VOCABULARY, _TOKENS = "text", "vocabulary", "tokens"
RECORDED_TEXT = "text.train"  # key of the text's checksum in a run's record of its data
_DIGESTS = {_TEXT: "cache.text", _TOKENS: "cache.tokens"}  # keys in a run's record of its data


class TrainingData:
    """Usable pairs of a training text, held in memory."""

    def __init__(
        self,
        files: Texts,
        text: ParallelText,
        sizes: Sequence[int],
        blank: int,
        same: int,
        checksum: str,
    ) -> None:
        self.text = text
        self._names = [source_name(corpus) for corpus in as_list(files)]
        self._sizes = sizes  # pairs of each corpus, one after another in the text
        self._weights = [getattr(corpus, "weight", 1.0) for corpus in as_list(files)]
        self.tags = tuple(dict.fromkeys(each.tag for each in as_list(files) if each.tag))
        self.blank = blank  # pairs dropped for a blank side
        self.same = same  # pairs with identical sides
        self.checksum = checksum  # as `checksum_of_text` returns it for the pairs
        self.digests: dict[str, str] = {}  # SHA-256 of the cached text and tokens, to be recorded
        self.notes = _corpus_notes(as_list(files), sizes, self._weights)  # for the log

    def samples(self) -> Iterator[ParallelText]:
        """Yield some pairs of each corpus."""
        end = 0
        for name, size in zip(self._names, self._sizes, strict=True):
            start, end = end, end + size
            yield sampled(self.text, start, end, name)

    def vocabularies(self, config: VocabularyConfig) -> Vocabularies:
        """Train vocabularies on the text; raises UserError as `train_vocabularies` does."""
        vocabularies = train_vocabularies(config, self.text.src, self.text.tgt, self.tags)
        self.notes += vocabulary_notes(config, vocabularies)
        return vocabularies

    def pairs(self, vocabularies: Vocabularies, max_length: int) -> EncodedPairs:
        """Return the token ids of the pairs, as `encode_pairs` does."""
        sides = self.text.src, self.text.tgt
        return encode_pairs(*sides, vocabularies, max_length, self._sizes, self._weights)


@contextmanager
def training_data(
    files: Texts, run_dir: Path, digests: Mapping[str, str] | None = None
) -> Iterator[TrainingData]:
    """Read the training text of a run, using the cache.

    `digests` are those that a run to resume has recorded of its cache entries; others are rebuilt.
    Files that can be read only once, such as pipes, are held in memory instead. Raises UserError as
    `iter_pairs` and `usable` do, and RunError if the cache cannot be written. A UserError, even one
    raised by the block, removes the entries built for it.
    """
    paths = paths_of(files).values()
    if not all(path.is_file() for path in paths) and all(path.exists() for path in paths):
        if has_links(files):
            raise UserError("data.train.alignment: needs regular files, which can be read twice")
        texts, blanks = zip(*(usable(read_pairs(each)) for each in as_list(files)), strict=True)
        text, sizes = joined(texts), [len(each) for each in texts]
        counts = sum(blanks), count_same(text)
        yield TrainingData(files, text, sizes, *counts, checksum_of_text(text, sizes))
        return
    place = cache_of(run_dir)
    with closing(EntryCache(place, _folder_name(files))) as cache:
        try:
            data = _CachedTrainingData(files, cache, digests or {})
            if place == run_dir / FOLDER and is_foreign(shared := _shared_cache(run_dir)):
                data.notes.append(f"note: {shared} belongs to another user and is not used")
            yield data
        except UserError:
            cache.discard_built()
            raise


def cache_of(run_dir: Path) -> Path:
    """Return the cache of a run: next to the run folder, or in it if only that is writable.

    Runs in the same folder share their cache, but not with other users: if another user's cache is
    next to the run folder, that of the run is in it. The environment variable SEQ2SEQ_CACHE names
    another parent folder. Raises UserError if that one cannot be used.
    """
    if not (parent := os.environ.get(PLACE)):
        shared = _shared_cache(run_dir)
        return shared if _is_usable(shared) else run_dir / FOLDER
    chosen = Path(parent).absolute() / FOLDER
    check_paths(chosen)
    if not _is_usable(chosen):
        raise UserError(
            f"{PLACE}: {chosen} cannot be written or belongs to another user. Name another folder"
        )
    return chosen


def _is_usable(cache: Path) -> bool:
    """Return whether a cache is the user's own or can be made."""
    nearest = next(each for each in (cache, *cache.parents) if each.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK) and not is_foreign(cache)


def _shared_cache(run_dir: Path) -> Path:
    return run_dir.absolute().parent / FOLDER


class _CachedTrainingData(TrainingData):
    """Usable pairs of a training text, read from the cache."""

    def __init__(self, files: Texts, cache: EntryCache, digests: Mapping[str, str]) -> None:
        """Copy the text into the cache, unless it is there."""
        sources = SourceChecksums(paths_of(files), cache.folder, _TEXT)
        self._cache, self._recorded = cache, digests
        self._key: dict[str, Any] = {"files": sources.values, "byteorder": sys.byteorder}
        name, corpora = source_name(files), as_list(files)
        if reading := _reading(files):
            self._key |= reading

        def build(folder: PrivateFolder) -> Facts:
            facts = copy_text(files, folder)
            if not sources.are_confirmed():
                raise UserError(f"{name}: changed while being read. Try again.")
            return facts

        loaded = cache.load(
            _TEXT,
            self._key,
            build,
            lambda entry: read_text(entry, files),
            digests.get(_DIGESTS[_TEXT]),
            blockwise=True,
        )
        if loaded.rebuilt == STALE:
            cache.remove(f"{_VOCABULARY}-")
            cache.remove(f"{_TOKENS}-")
        self._entry, facts = loaded.entry, loaded.entry.facts
        text, sizes = loaded.content, [facts["pairs"]]
        if len(corpora) > 1:
            sizes = [facts[pairs_of_corpus(n)] for n in range(1, len(corpora) + 1)]
        counts = facts["blank"], facts["same"]
        names = (*TEXT_FILES, *LINK_FILES[:2]) if has_links(files) else TEXT_FILES
        digests_of_text = [loaded.entry.files[name][1] for name in names]
        self._has_links = has_links(files)
        super().__init__(files, text, sizes, *counts, combined_checksum(digests_of_text, sizes))
        if not cache.private:
            self.notes.append(
                f"note: {cache.folder.path}: the file system keeps permissions of other users, who "
                "may read the training text there"
            )
        sources.record(loaded.entry.folder)
        self._record(_TEXT, loaded.entry, loaded.rebuilt)

    def vocabularies(self, config: VocabularyConfig) -> Vocabularies:
        """Train vocabularies on the text, or load those trained before."""
        settings = config.model_dump(exclude={"sampling"}, mode="json")

        def build(folder: PrivateFolder) -> Facts:
            train_cached(self._entry, self.text, config, folder, self.tags)
            return {}

        if self.tags:
            settings["tags"] = list(self.tags)
        if config.model:
            settings["model"] = checksums_of_models(config)
        vocabularies, _ = self._load(
            _VOCABULARY, {"config": settings}, build, lambda entry: read_models(entry, config)
        )
        self.notes += vocabulary_notes(config, vocabularies)
        return vocabularies

    def pairs(self, vocabularies: Vocabularies, max_length: int) -> EncodedPairs:
        """Encode the text, or open what was encoded before."""
        settings = {"vocabulary": checksums_of(vocabularies), "max_length": max_length}

        def build(folder: PrivateFolder) -> Facts:
            place = self._cache.folder, self._entry
            with closing(encode_cached(*place, self.text, vocabularies, max_length)) as chunks:
                return write_ids(folder, chunks, max(map(len, vocabularies[:2])))

        opened, entry = self._load(
            _TOKENS,
            settings,
            build,
            lambda entry: read_ids(entry, self.text, vocabularies, max_length),
        )
        kept, too_long = opened[0], len(self.text) - len(opened[0])
        parts: tuple[Share, ...] = ()
        if len(self._sizes) > 1:
            parts = shares(ends_of(kept.rows, self._sizes), self._weights)
        links = None
        if self._has_links:
            links = Selected(PackedIds(*link_arrays(self._entry)), kept.rows)
        return EncodedPairs(*opened, too_long, parts, links, StoredDivisions(entry))

    def _load(
        self,
        kind: str,
        settings: Mapping[str, Any],
        build: Callable[[PrivateFolder], Facts],
        read: Callable[[Entry], T],
    ) -> tuple[T, Entry]:
        """Load the entry of this text and these settings, built from this very copy of the text."""
        key = {**self._key, "text": self._entry.digest, **settings, **_versions()}
        name, digest = f"{kind}-{_hash(settings)}", self._recorded.get(_DIGESTS.get(kind, ""))
        blockwise = kind == _TOKENS  # models are small
        loaded = self._cache.load(name, key, build, read, digest, blockwise)
        self._record(kind, loaded.entry, loaded.rebuilt)
        return loaded.content, loaded.entry

    def _record(self, kind: str, entry: Entry, rebuilt: str | None) -> None:
        """Keep the digest of an entry, and note if it was built or is not what was recorded."""
        if kind == _TOKENS and rebuilt == MISSING:
            folder = self._cache.folder.path
            self.notes.append(f"training text and token ids are cached in {folder}")
        elif rebuilt not in (None, MISSING):
            self.notes.append(f"{entry.folder.path}: rebuilt because {rebuilt}")
        if name := _DIGESTS.get(kind):
            self.digests[name] = entry.digest
            same_text = kind == _TEXT and self._recorded.get(RECORDED_TEXT) == self.checksum
            if self._recorded.get(name, entry.digest) != entry.digest and not same_text:
                self.notes.append(
                    f"warning: {entry.folder.path} differs from what the run was trained on, "
                    "although it was built from the same files; was another version of seq2seq or "
                    "SentencePiece in use?"
                )


def _reading(files: Texts) -> dict[str, Any]:
    """Return the settings of each corpus, besides its files, that determine the text."""
    settings = [[corpus.columns, corpus.tag] for corpus in as_list(files)]
    return {"reading": settings} if any(map(any, settings)) else {}


def _corpus_notes(
    corpora: Sequence[ParallelFiles], sizes: Sequence[int], weights: Sequence[float]
) -> list[str]:
    """Describe each of several corpora, and a tag."""
    notes = []
    for number, (corpus, size, weight) in enumerate(zip(corpora, sizes, weights, strict=True), 1):
        name = f"training corpus {number}" if len(corpora) > 1 else "training text"
        tag = f", tag {corpus.tag}" if corpus.tag else ""
        fraction = weight / max(weights)
        used = "all" if fraction == 1 else f"about {fraction * size:,.0f}"
        share = f", {used} in each epoch (weight {weight:g})" if len(set(weights)) > 1 else ""
        if len(corpora) > 1 or tag:
            notes.append(f"{name}, {source_name(corpus)}: {size:,} pairs{share}{tag}")
    return notes


def _folder_name(files: Texts) -> str:
    """Return a recognisable folder name that is unique to these files."""
    paths = paths_of(files)
    unique = _hash({key: str(path.absolute()) for key, path in paths.items()} | _reading(files))
    shown = list(paths.values())[:_NAMED_FILES]
    names = [re.sub(r"[^\w.]+", "_", path.name).encode()[:40] for path in shown]
    return "-".join([*(name.decode(errors="ignore") for name in names), unique])


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _versions() -> dict[str, str]:
    """Return versions and conventions that determine the tokens, besides text and vocabulary."""
    return {
        "sentencepiece": sentencepiece.__version__,
        "unicode": unicodedata.unidata_version,
        "unknown": "an id for each word",
    }
