"""Training text with its vocabulary and token ids, cached on disk and read on demand.

.token-cache/NAME-OF-THE-FILES/
    text/           copy of the usable pairs, and counts of the pairs dropped
    vocabulary-*/   SentencePiece models trained under one `vocabulary` section of a config
    tokens-*/       token ids under one vocabulary, and the positions of their lines in the text

An entry is rebuilt if the files or the vocabulary have changed, and on resume if it is not what the
run was trained on. The cache may be deleted at any time; other users can neither read nor write it.
Memory use does not grow with the corpus.
"""

import hashlib
import json
import os
import re
import sys
import tempfile
import unicodedata
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from seq2seq.config.schema import ParallelFiles, VocabularyConfig
from seq2seq.data import corpus as texts
from seq2seq.data import token_cache
from seq2seq.data.batching import EncodedPairs, Share, ends_of, shares
from seq2seq.data.corpus import ParallelText, Texts
from seq2seq.data.packed_sequences import Chunk, PackedIds, Selected, encode_chunk
from seq2seq.data.token_cache import MISSING, STALE, Counts, Entry, EntryCache, is_foreign
from seq2seq.data.vocabulary import training, vocabulary
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.runtime import console, workers
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.files import PART_SUFFIX, check_paths
from seq2seq.text import text_files

FOLDER = ".token-cache"
PLACE = "SEQ2SEQ_CACHE"  # environment variable
_NAMED_FILES = 4  # in the name of a folder
_TEXT, _VOCABULARY, _TOKENS = "text", "vocabulary", "tokens"
RECORDED_TEXT = "text.train"  # key of the text's checksum in a run's record of its data
_DIGESTS = {_TEXT: "cache.text", _TOKENS: "cache.tokens"}  # keys in a run's record of its data
MAX_PAIRS_WITHOUT_WORKERS = 50_000
MAX_WORKERS = 16
CHUNK_PAIRS = 5_000  # encoded by one call
_QUEUED_PER_WORKER = 2  # chunks, so that workers do not wait for this process
_VERSIONS = {  # that determine the tokens, besides text and vocabulary
    "sentencepiece": sentencepiece.__version__,
    "unicode": unicodedata.unidata_version,
    "unknown": "an id for each word",
}


@contextmanager
def training_data(
    files: Texts, run_dir: Path, digests: Mapping[str, str] | None = None
) -> Iterator["TrainingData"]:
    """Read the training text of a run, using the cache.

    `digests` are those that a run to resume has recorded of its cache entries, whose files are then
    verified; others are rebuilt. Raises UserError as `iter_pairs` and `usable` do, and RunError if
    the cache cannot be written. A UserError, even of the block, removes what was built for it.
    """
    check_regular(files)
    place = cache_of(run_dir)
    cache = EntryCache(place, _folder_name(files))
    try:
        data = TrainingData(files, cache, digests or {})
        if place == run_dir / FOLDER and is_foreign(shared := run_dir.absolute().parent / FOLDER):
            data.notes.append(f"note: {shared} belongs to another user and is not used")
        yield data
    except UserError:
        cache.discard_built()
        raise


def check_regular(files: Texts) -> None:
    """Raise UserError for a training file that is missing, or can be read only once."""
    for path in texts.paths_of(files).values():
        check_paths(path)
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UserError(f"{path}: is not a regular file; write the training text to one")


def _statuses(files: Texts) -> dict[str, list[int]]:
    """Return what changes with a file's content: inode, size, and times of the last changes."""
    statuses = {}
    for name, path in texts.paths_of(files).items():
        with text_files.opening_errors(path):
            status = path.stat()
        statuses[name] = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    return statuses


def cache_of(run_dir: Path) -> Path:
    """Return the cache of a run: next to the run folder, or in it if another is not usable.

    SEQ2SEQ_CACHE names another parent folder; raises UserError if that cannot be used.
    """
    if not (parent := os.environ.get(PLACE)):
        shared = run_dir.absolute().parent / FOLDER
        return shared if _is_usable(shared) else run_dir / FOLDER
    chosen = Path(parent).absolute() / FOLDER
    check_paths(chosen)
    if not _is_usable(chosen):
        text = f"{PLACE}: {chosen} cannot be written or belongs to another user."
        raise UserError(f"{text} Name another folder")
    return chosen


def _is_usable(cache: Path) -> bool:
    """Return whether a cache is the user's own or can be made."""
    nearest = next(path for path in (cache, *cache.parents) if path.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK) and not is_foreign(cache)


class TrainingData:
    """Usable pairs of a training text, read from the cache."""

    def __init__(self, files: Texts, cache: EntryCache, recorded: Mapping[str, str]) -> None:
        """Copy the text into the cache, unless it is there."""
        self._cache, self._recorded = cache, recorded
        statuses = _statuses(files)

        def build(folder: Path) -> Counts:
            counts = token_cache.copy_text(files, folder)
            if _statuses(files) != statuses:
                raise UserError(f"{texts.source_name(files)}: changed while being read. Try again.")
            return counts

        key = {"files": statuses, **_reading(files), "byteorder": sys.byteorder}
        entry = cache.load(_TEXT, key, build, recorded.get(_DIGESTS[_TEXT]))
        if entry.rebuilt == STALE:
            cache.remove_others(entry.digest)
        self._entry, counts, corpora = entry, entry.counts, texts.as_list(files)
        self._has_links = token_cache.has_links(files)
        self.text = token_cache.open_text(entry, texts.source_name(files))
        self._sizes = [counts["pairs"]]  # by corpus, one after another in the text
        if len(corpora) > 1:
            self._sizes = [counts[f"pairs.{n + 1}"] for n in range(len(corpora))]
        self.blank = counts["blank"]  # pairs dropped for a blank side
        self.same = counts["same"]  # pairs with identical sides
        names = (*token_cache.TEXT_FILES, *(token_cache.LINK_FILES[:2] if self._has_links else ()))
        checksums = [entry.files[name][1] for name in names]
        self.checksum = texts.combined_checksum(checksums, self._sizes)
        self._weights = [getattr(corpus, "weight", 1.0) for corpus in corpora]
        self.tags = tuple(dict.fromkeys(corpus.tag for corpus in corpora if corpus.tag))
        self.digests: dict[str, str] = {}  # SHA-256 of the cached text and tokens, to be recorded
        self.notes = _corpus_notes(corpora, self._sizes, self._weights)  # for the log
        self._record(_TEXT, entry)

    def vocabularies(self, config: VocabularyConfig) -> Vocabularies:
        """Train vocabularies on the text as `train_vocabularies` does, or load earlier ones."""
        settings = config.model_dump(exclude={"sampling"}, mode="json")

        def build(folder: Path) -> Counts:
            train_in_worker(self.text, config, folder, self.tags)
            return {}

        if self.tags:
            settings["tags"] = list(self.tags)
        if config.model:
            settings["model"] = training.checksums_of_models(config)
        if config.listed_names is not None:
            settings["names"]["list"] = training.checksum_of_names(config.listed_names)
        entry = self._load(_VOCABULARY, {"config": settings}, build)
        vocabularies = vocabulary.load_vocabularies(entry.path, config.sampling)
        self.notes += training.vocabulary_notes(config, vocabularies)
        return vocabularies

    def pairs(self, vocabularies: Vocabularies, max_length: int) -> EncodedPairs:
        """Encode the text as `encode_pairs` does, or open what was encoded before."""
        size = max(map(len, vocabularies[:2]))

        def build(folder: Path) -> Counts:
            place = self._cache.path
            with closing(encode_in_workers(self.text, vocabularies, max_length, place)) as chunks:
                return token_cache.write_ids(folder, chunks, size)

        settings = {"vocabulary": vocabulary.checksums_of(vocabularies), "max_length": max_length}
        entry = self._load(_TOKENS, settings, build)
        src_texts, tgt_texts, src, tgt = token_cache.open_ids(entry, self.text, size)
        too_long, rows = len(self.text) - len(src_texts), src_texts.rows
        parts: tuple[Share, ...] = ()
        if len(self._sizes) > 1:
            parts = shares(ends_of(rows, self._sizes), self._weights)
        links: Selected[list[int]] | None = None
        if self._has_links:
            links = Selected(token_cache.open_side(self._entry, token_cache.LINKS), rows)
        divisions = token_cache.StoredDivisions(entry)
        return EncodedPairs(src_texts, tgt_texts, src, tgt, too_long, parts, links, divisions)

    def _load(
        self, kind: str, settings: Mapping[str, Any], build: Callable[[Path], Counts]
    ) -> Entry:
        """Load the entry of this text and these settings, built from this very copy of the text."""
        key = {"text": self._entry.digest, **settings, **_VERSIONS}
        recorded = self._recorded.get(_DIGESTS.get(kind, ""))
        entry = self._cache.load(f"{kind}-{_hash(settings)}", key, build, recorded)
        self._record(kind, entry)
        return entry

    def _record(self, kind: str, entry: Entry) -> None:
        """Keep the digest of an entry, and note if it was built or is not what was recorded."""
        if kind == _TOKENS and entry.rebuilt == MISSING:
            self.notes.append(f"training text and token ids are cached in {self._cache.path}")
        elif entry.rebuilt not in (None, MISSING):
            self.notes.append(f"{entry.path}: rebuilt because {entry.rebuilt}")
        if name := _DIGESTS.get(kind):
            self.digests[name] = entry.digest
            same_text = kind == _TEXT and self._recorded.get(RECORDED_TEXT) == self.checksum
            if self._recorded.get(name, entry.digest) != entry.digest and not same_text:
                self.notes.append(f"warning: {entry.path} differs from what the run was trained on")


def _reading(files: Texts) -> dict[str, Any]:
    """Return the settings of each corpus, besides its files, that determine the text."""
    settings = [[corpus.columns, corpus.tag] for corpus in texts.as_list(files)]
    return {"reading": settings} if any(map(any, settings)) else {}


def _corpus_notes(
    corpora: Sequence[ParallelFiles], sizes: Sequence[int], weights: Sequence[float]
) -> list[str]:
    """Describe each of several corpora, and a tag."""
    notes = []
    for number, (corpus, size, weight) in enumerate(zip(corpora, sizes, weights, strict=True), 1):
        name = f"training corpus {number}" if len(corpora) > 1 else "training text"
        tag = f", tag {corpus.tag}" if corpus.tag else ""
        used, share = size * weight / max(weights), ""  # pairs in an epoch
        if len(set(weights)) > 1:
            number_used = "fewer than one" if used < 1 else f"about {used:,.0f}"
            number_used = "all" if weight == max(weights) else number_used
            share = f", {number_used} in each epoch (weight {weight:g})"
        if len(corpora) > 1 or tag:
            warning = "warning: " * (used < 1)
            source = texts.source_name(corpus)
            notes.append(f"{warning}{name}, {source}: {size:,} pairs{share}{tag}")
    return notes


def _folder_name(files: Texts) -> str:
    """Return a recognisable folder name that is unique to these files."""
    paths = texts.paths_of(files)
    unique = _hash({key: str(path.absolute()) for key, path in paths.items()} | _reading(files))
    named = list(paths.values())[:_NAMED_FILES]
    names = [re.sub(r"[^\w.]+", "_", path.name).encode()[:40] for path in named]
    return "-".join([*(name.decode(errors="ignore") for name in names), unique])


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def train_in_worker(
    text: ParallelText, config: VocabularyConfig, folder: Path, tags: Sequence[str] = ()
) -> None:
    """Write vocabularies of a text to a folder; a worker gives SentencePiece's memory back.

    Raises UserError as `train_vocabularies` does, and RunError if the worker is killed.
    """

    def train() -> None:
        vocabulary.save_vocabularies(train_vocabularies(config, text.src, text.tgt, tags), folder)

    if len(text) <= MAX_PAIRS_WITHOUT_WORKERS:
        train()
        return
    with _worker_pool(1, train) as pool:
        pool.submit(_call).result()


def encode_in_workers(
    text: ParallelText, vocabularies: Vocabularies, max_length: int, folder: Path
) -> Generator[Chunk]:
    """Yield the chunks of a text; workers encode a large one. Raises RunError if one is killed."""

    def encode(start: int) -> Chunk:
        rows = slice(start, start + CHUNK_PAIRS)
        return encode_chunk(text.src[rows], text.tgt[rows], vocabularies, max_length, start)

    starts = range(0, len(text), CHUNK_PAIRS)
    with console.progress_bar("encoding", " pairs", len(text)) as bar:
        few = len(text) <= MAX_PAIRS_WITHOUT_WORKERS
        for chunk in map(encode, starts) if few else _encoded(encode, starts, folder):
            yield chunk
            bar.update(chunk.pairs)


def _encoded(encode: Callable[[int], Chunk], starts: range, folder: Path) -> Iterator[Chunk]:
    """Yield the chunks that workers encode, in order.

    Results are files: a kill could cut short one sent through a pipe, and block its reader.
    """
    count = max(1, min(workers.available_cores(), MAX_WORKERS, len(starts)))
    with tempfile.TemporaryDirectory(PART_SUFFIX, "encoding.", folder) as results:

        def save(start: int) -> Path:
            path, (pairs, rows, *sides) = Path(results, f"{start}.npy"), encode(start)
            with path.open("xb") as file:
                for array in (pairs, rows, *(a for s in sides for a in (s.ids, s.ends, s.lengths))):
                    np.save(file, array, allow_pickle=False)
            return path

        with _worker_pool(count, save) as pool:
            pending: deque[Future[Path]] = deque()
            for start in starts:
                pending.append(pool.submit(_call, start))
                if len(pending) == _QUEUED_PER_WORKER * count:
                    yield _take(pending.popleft().result())
            while pending:
                yield _take(pending.popleft().result())


def _take(path: Path) -> Chunk:
    """Load a chunk that a worker saved, and delete its file."""
    with path.open("rb") as file:
        pairs, rows, *sides = (np.load(file, allow_pickle=False) for _ in range(8))
    path.unlink()
    return Chunk(int(pairs), rows, PackedIds(*sides[:3]), PackedIds(*sides[3:]))


@contextmanager
def _worker_pool(count: int, work: Callable[..., Any]) -> Iterator[ProcessPoolExecutor]:
    """Yield workers in which `_call` does the work."""
    try:
        with workers.worker_pool(count, _work.append, (work,)) as pool:
            yield pool
    except BrokenProcessPool:
        reason = "A process that was preparing the training text was killed,"
        raise RunError(f"{reason} perhaps because memory ran out. Start training again.") from None


_work: list[Callable[..., Any]] = []  # one element in a worker


def _call(*arguments: object) -> Any:
    return _work[-1](*arguments)
