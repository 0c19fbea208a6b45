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
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import sentencepiece

from seq2seq.config.schema import ParallelFiles, VocabularyConfig
from seq2seq.data import corpus as texts
from seq2seq.data import token_cache
from seq2seq.data.batching import EncodedPairs
from seq2seq.data.corpus import ParallelText, Texts
from seq2seq.data.corpus_weights import Share, ends_of, shares
from seq2seq.data.packed_sequences import Chunk, PackedIds, Selected, encode_chunk
from seq2seq.data.token_cache import MISSING, STALE, Counts, Entry, EntryCache, is_foreign
from seq2seq.data.vocabulary import training, vocabulary
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.runtime import console, workers
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.files import PART_SUFFIX, check_paths, check_regular_file
from seq2seq.text import text_files

FOLDER = ".token-cache"
PLACE = "SEQ2SEQ_CACHE"  # environment variable
_NAMED_FILES = 4  # in the name of a folder
_TEXT = "text"
_VOCABULARY = "vocabulary"
_TOKENS = "tokens"
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
def open_cache(files: Texts, run_dir: Path) -> Iterator[EntryCache]:
    """Open the cache of a training text. A UserError of the block removes what it has built.

    Raises UserError for files that can be read only once, and RunError if it cannot be written.
    """
    check_regular(files)
    cache = EntryCache(cache_of(run_dir), _folder_name(files))
    try:
        yield cache
    except UserError:
        cache.discard_built()
        raise


def check_regular(files: Texts) -> None:
    """Raise UserError for a training file that is missing, or can be read only once."""
    for path in texts.paths_of(files).values():
        check_paths(path)
        check_regular_file(path)


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
        shared_folder = run_dir.absolute().parent / FOLDER
        return shared_folder if _is_usable(shared_folder) else run_dir / FOLDER
    folder = Path(parent).absolute() / FOLDER
    check_paths(folder)
    if not _is_usable(folder):
        text = f"{PLACE}: {folder} cannot be written or belongs to another user."
        raise UserError(f"{text} Name another folder")
    return folder


def _is_usable(cache: Path) -> bool:
    """Return whether a cache is the user's own or can be made."""
    nearest = next(path for path in (cache, *cache.parents) if path.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK) and not is_foreign(cache)


@dataclass(frozen=True)
class CachedText:
    """The usable pairs of a training text, in the cache."""

    text: ParallelText
    corpora: tuple[ParallelFiles, ...]
    sizes: tuple[int, ...]  # pairs of each corpus, one after another in the text
    blank: int  # pairs dropped for a blank side
    same: int  # pairs with identical sides
    cache: EntryCache
    entry: Entry
    recorded: Mapping[str, str]  # what a run to resume has recorded of its data

    @property
    def weights(self) -> tuple[float, ...]:
        """Return the weight of each corpus."""
        return tuple(getattr(corpus, "weight", 1.0) for corpus in self.corpora)

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the tags of the corpora."""
        return tuple(dict.fromkeys(corpus.tag for corpus in self.corpora if corpus.tag))

    @property
    def has_links(self) -> bool:
        """Return whether the pairs are aligned."""
        return token_cache.has_links(self.corpora)

    @cached_property
    def checksum(self) -> str:
        """Return the checksum of the text, whatever files it is in."""
        names = (*token_cache.TEXT_FILES, *(token_cache.LINK_FILES[:2] if self.has_links else ()))
        return texts.combined_checksum([self.entry.files[name][1] for name in names], self.sizes)


class EncodedText(NamedTuple):
    """Token ids of a training text, and SHA-256 digests of the cache's entries, for the record."""

    pairs: EncodedPairs
    digests: dict[str, str]


def cached_text(
    files: Texts, cache: EntryCache, recorded: Mapping[str, str] = MappingProxyType({})
) -> tuple[CachedText, list[str]]:
    """Return the usable pairs of a text, copied into the cache unless they are there, and notes.

    `recorded`: what a run to resume has recorded of its data. Entries are then verified, and others
    rebuilt. Raises UserError as `iter_pairs` and `usable` do.
    """
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
    counts = entry.counts
    corpora = tuple(texts.as_list(files))
    sizes: tuple[int, ...] = (counts["pairs"],)
    if len(corpora) > 1:
        sizes = tuple(counts[f"pairs.{n + 1}"] for n in range(len(corpora)))
    pairs = token_cache.open_text(entry, texts.source_name(files))
    blank = counts["blank"]
    same = counts["same"]
    text = CachedText(pairs, corpora, sizes, blank, same, cache, entry, recorded)
    notes = [*_corpus_notes(corpora, sizes, text.weights), *_entry_notes(text, _TEXT, entry)]
    return text, notes


def cached_vocabularies(
    text: CachedText, config: VocabularyConfig
) -> tuple[Vocabularies, list[str]]:
    """Train vocabularies as `train_vocabularies` does, or load earlier ones; return notes, too."""
    settings = config.model_dump(exclude={"sampling"}, mode="json")

    def build(folder: Path) -> Counts:
        train_in_worker(text.text, config, folder, text.tags)
        return {}

    if text.tags:
        settings["tags"] = list(text.tags)
    if config.model:
        settings["model"] = training.checksums_of_models(config)
    if config.listed_names is not None:
        settings["names"]["list"] = training.checksum_of_names(config.listed_names)
    entry = _load(text, _VOCABULARY, {"config": settings}, build)
    vocabularies = vocabulary.load_vocabularies(entry.path, config.sampling)
    notes = training.vocabulary_notes(config, vocabularies)
    return vocabularies, [*_entry_notes(text, _VOCABULARY, entry), *notes]


def encoded_text(
    text: CachedText, vocabularies: Vocabularies, max_length: int
) -> tuple[EncodedText, list[str]]:
    """Encode a text as `encode_pairs` does, or open what was encoded before; and notes."""
    size = max(map(len, vocabularies[:2]))

    def build(folder: Path) -> Counts:
        place = text.cache.path
        with closing(encode_in_workers(text.text, vocabularies, max_length, place)) as chunks:
            return token_cache.write_ids(folder, chunks, size)

    settings = {"vocabulary": vocabulary.checksums_of(vocabularies), "max_length": max_length}
    entry = _load(text, _TOKENS, settings, build)
    src_texts, tgt_texts, src, tgt = token_cache.open_ids(entry, text.text, size)
    too_long = len(text.text) - len(src_texts)
    rows = src_texts.rows
    parts: tuple[Share, ...] = ()
    if len(text.sizes) > 1:
        parts = shares(ends_of(rows, text.sizes), text.weights)
    links: Selected[list[int]] | None = None
    if text.has_links:
        links = Selected(token_cache.open_side(text.entry, token_cache.LINKS), rows)
    divisions = token_cache.StoredDivisions(entry)
    pairs = EncodedPairs(src_texts, tgt_texts, src, tgt, too_long, parts, links, divisions)
    digests = {_DIGESTS[_TEXT]: text.entry.digest, _DIGESTS[_TOKENS]: entry.digest}
    return EncodedText(pairs, digests), _entry_notes(text, _TOKENS, entry)


def _load(
    text: CachedText, kind: str, settings: Mapping[str, Any], build: Callable[[Path], Counts]
) -> Entry:
    """Load the entry of this text and these settings, built from this very copy of the text."""
    key = {"text": text.entry.digest, **settings, **_VERSIONS}
    digest = text.recorded.get(_DIGESTS.get(kind, ""))
    return text.cache.load(f"{kind}-{_hash(settings)}", key, build, digest)


def _entry_notes(text: CachedText, kind: str, entry: Entry) -> list[str]:
    """Say if an entry was built or is not what was recorded."""
    notes = []
    if kind == _TOKENS and entry.rebuilt == MISSING:
        notes.append(f"training text and token ids are cached in {text.cache.path}")
    elif entry.rebuilt not in (None, MISSING):
        notes.append(f"{entry.path}: rebuilt because {entry.rebuilt}")
    if name := _DIGESTS.get(kind):
        is_same_text = kind == _TEXT and text.recorded.get(RECORDED_TEXT) == text.checksum
        if text.recorded.get(name, entry.digest) != entry.digest and not is_same_text:
            notes.append(f"warning: {entry.path} differs from what the run was trained on")
    return notes


def cache_notes(cache: EntryCache, run_dir: Path) -> list[str]:
    """Say if the cache is in the run folder, as that beside it belongs to another user."""
    shared_folder = run_dir.absolute().parent / FOLDER
    is_own = cache.path.parent == run_dir / FOLDER
    return [f"note: {shared_folder} belongs to another user and is not used"] * (
        is_own and is_foreign(shared_folder)
    )


def _reading(files: Texts) -> dict[str, Any]:
    """Return the settings of each corpus, besides its files, that determine the text."""
    settings = [[corpus.columns, corpus.tag] for corpus in texts.as_list(files)]
    return {"reading": settings} if any(map(any, settings)) else {}


def _corpus_notes(
    corpora: Sequence[ParallelFiles], sizes: Sequence[int], weights: Sequence[float]
) -> list[str]:
    """Describe each of several corpora, and a tag."""
    notes = []
    for place, (corpus, size, weight) in enumerate(zip(corpora, sizes, weights, strict=True), 1):
        name = f"training corpus {place}" if len(corpora) > 1 else "training text"
        tag = f", tag {corpus.tag}" if corpus.tag else ""
        pairs_in_epoch = size * weight / max(weights)
        share = ""
        if len(set(weights)) > 1:
            number = "fewer than one" if pairs_in_epoch < 1 else f"about {pairs_in_epoch:,.0f}"
            number = "all" if weight == max(weights) else number
            share = f", {number} in each epoch (weight {weight:g})"
        if len(corpora) > 1 or tag:
            warning = "warning: " if pairs_in_epoch < 1 else ""
            source = texts.source_name(corpus)
            notes.append(f"{warning}{name}, {source}: {size:,} pairs{share}{tag}")
    return notes


def _folder_name(files: Texts) -> str:
    """Return a recognisable folder name that is unique to these files."""
    paths = texts.paths_of(files)
    unique = _hash({key: str(path.absolute()) for key, path in paths.items()} | _reading(files))
    named_paths = list(paths.values())[:_NAMED_FILES]
    names = [re.sub(r"[^\w.]+", "_", path.name).encode()[:40] for path in named_paths]
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
        is_small = len(text) <= MAX_PAIRS_WITHOUT_WORKERS
        for chunk in map(encode, starts) if is_small else _encoded(encode, starts, folder):
            yield chunk
            bar.update(chunk.pairs)


def _encoded(encode: Callable[[int], Chunk], starts: range, folder: Path) -> Iterator[Chunk]:
    """Yield the chunks that workers encode, in order.

    Results are files: a kill could cut short one sent through a pipe, and block its reader.
    """
    count = max(1, min(workers.available_cores(), MAX_WORKERS, len(starts)))
    with tempfile.TemporaryDirectory(PART_SUFFIX, "encoding.", folder) as results:

        def save(start: int) -> Path:
            path = Path(results, f"{start}.npy")
            pairs, rows, *sides = encode(start)
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
