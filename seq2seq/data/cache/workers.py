"""Vocabulary training and encoding of a cached text in worker processes.

Short texts are encoded in this process: a worker takes a second to start. Importing this module is
what a worker spends most of that time on, so it must not import torch.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection
from types import ModuleType
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.lib.format import read_array, write_array
from tqdm import tqdm

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.cache.arrays import open_text
from seq2seq.data.cache.entries import Entry, EntryAddress, reopen_entry
from seq2seq.data.corpus import ParallelText
from seq2seq.data.packed_sequences import Chunk, PackedIds, encode_chunk
from seq2seq.data.vocabulary.files import checksums_of, read_vocabularies, write_vocabularies
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.runtime.console import hides_bars
from seq2seq.runtime.errors import RunError
from seq2seq.runtime.folders import Address, PrivateFolder
from seq2seq.runtime.workers import available_cores

MAX_PAIRS_WITHOUT_WORKERS = 50_000
MAX_WORKERS = 16
CHUNK_PAIRS = 5_000  # encoded by one call
_QUEUED_PER_WORKER = 2  # chunks, so that workers do not wait for this process
Result = TypeVar("Result")


class Work(NamedTuple):
    """Text to encode, in an open entry, and the folder of the models and the results."""

    text: EntryAddress
    shared: Address
    models: tuple[str, ...]  # their names
    max_length: int


def train_cached(
    entry: Entry,
    text: ParallelText,
    config: VocabularyConfig,
    models: PrivateFolder,
    tags: Sequence[str] = (),
) -> None:
    """Train vocabularies on the text cached in an entry, and write them in `models`.

    A large text is left to a worker, at whose end the memory that SentencePiece takes is returned.
    Raises UserError as `train_vocabularies` does, and RunError if the worker is killed.
    """
    if len(text) <= MAX_PAIRS_WITHOUT_WORKERS:
        write_vocabularies(train_vocabularies(config, text.src, text.tgt, tags), models)
        return
    with _worker_pool(1) as pool:
        _submit(pool, _train, entry.address, config, models.address, tags).result()


def encode_cached(
    cache: PrivateFolder,
    entry: Entry,
    text: ParallelText,
    vocabularies: Vocabularies,
    max_length: int,
) -> Generator[Chunk]:
    """Encode the text cached in an entry, a large one in workers; yield its chunks in order.

    Workers leave their results in a temporary folder in `cache`. Raises RunError if one is killed.
    """
    bounds = [(n, min(n + CHUNK_PAIRS, len(text))) for n in range(0, len(text), CHUNK_PAIRS)]
    with tqdm(
        desc="encoding", total=len(text), unit=" pairs", leave=False, disable=hides_bars()
    ) as bar:
        chunks = (
            (_encode(text, vocabularies, max_length, *each) for each in bounds)
            if len(text) <= MAX_PAIRS_WITHOUT_WORKERS
            else _encode_in_workers(cache, entry, vocabularies, max_length, bounds)
        )
        for chunk in chunks:
            yield chunk
            bar.update(chunk.pairs)


def _encode_in_workers(
    cache: PrivateFolder,
    entry: Entry,
    vocabularies: Vocabularies,
    max_length: int,
    bounds: list[tuple[int, int]],
) -> Iterator[Chunk]:
    count = max(1, min(available_cores(), MAX_WORKERS, len(bounds)))
    with cache.temporary("encoding") as shared, _worker_pool(count) as pool:
        write_vocabularies(vocabularies, shared)
        names = tuple(checksums_of(vocabularies))
        work = Work(entry.address, shared.address, names, max_length)
        pending: deque[Future[str]] = deque()
        for start, end in bounds:
            pending.append(_submit(pool, _encode_range, work, start, end))
            if len(pending) == _QUEUED_PER_WORKER * count:
                yield _take(shared, pending.popleft().result())
        while pending:
            yield _take(shared, pending.popleft().result())


def _take(shared: PrivateFolder, name: str) -> Chunk:
    """Load a chunk that a worker saved, and delete its file."""
    with os.fdopen(shared.open(name), "rb") as file:
        pairs, rows, *sides = (read_array(file, allow_pickle=False) for _ in range(8))
    shared.remove(name)
    return Chunk(int(pairs), rows, PackedIds(*sides[:3]), PackedIds(*sides[3:]))


# ------------------------------------------------------------------------------------- the workers


@contextmanager
def _worker_pool(count: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool whose workers end with the block or with this process, even if it is killed."""
    spawn = multiprocessing.get_context("spawn")  # a fork may inherit locks held by other threads
    lifeline, held = spawn.Pipe(duplex=False)
    with lifeline, held, ProcessPoolExecutor(count, spawn, _start_worker, (lifeline,)) as pool:
        try:
            yield pool
        except BrokenProcessPool:
            raise RunError(
                "A process that was preparing the training text was killed, perhaps because memory "
                "ran out. Start training again."
            ) from None
        except BaseException:
            held.close()  # end the workers now, not after the calls they are busy with
            raise


def _submit(
    pool: ProcessPoolExecutor, call: Callable[..., Result], *arguments: object
) -> Future[Result]:
    """Submit a call, for which the pool may start a worker.

    A new worker inherits a blocked SIGINT: only this process reacts to Ctrl-C. The worker does not
    import `__main__`, as spawned processes usually do: it may be unguarded, or not a file.
    """
    main, blocked = sys.modules["__main__"], hasattr(signal, "pthread_sigmask")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if blocked else set()
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        return pool.submit(call, *arguments)
    finally:
        sys.modules["__main__"] = main
        if blocked:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # may raise KeyboardInterrupt


def _start_worker(lifeline: Connection) -> None:
    """Ignore Ctrl-C, and end this worker once its parent has closed the lifeline or died."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        with suppress(EOFError, OSError):
            lifeline.recv_bytes()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


# Results are files: a kill could cut short a result sent through a pipe, and block its reader.


def _train(
    entry: EntryAddress, config: VocabularyConfig, models: Address, tags: Sequence[str]
) -> None:
    text = open_text(reopen_entry(entry), str(entry.folder.path))
    vocabularies = train_vocabularies(config, text.src, text.tgt, tags)
    write_vocabularies(vocabularies, PrivateFolder.reopen(models))


def _encode_range(work: Work, start: int, end: int) -> str:
    shared, text, vocabularies = _loaded(work)
    pairs, rows, src, tgt = _encode(text, vocabularies, work.max_length, start, end)
    sides = (array for side in (src, tgt) for array in (side.ids, side.ends, side.lengths))
    with shared.create(f"{start}.npy") as file:
        for array in (np.asarray(pairs), rows, *sides):
            write_array(file, np.asarray(array), allow_pickle=False)
    return f"{start}.npy"


@cache
def _loaded(work: Work) -> tuple[PrivateFolder, ParallelText, Vocabularies]:
    text = open_text(reopen_entry(work.text), str(work.text.folder.path))
    shared = PrivateFolder.reopen(work.shared)
    return shared, text, read_vocabularies(shared, work.models)


def _encode(
    text: ParallelText, vocabularies: Vocabularies, max_length: int, start: int, end: int
) -> Chunk:
    return encode_chunk(text.src[start:end], text.tgt[start:end], vocabularies, max_length, start)
