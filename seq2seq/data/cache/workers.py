"""Vocabulary training and encoding of a text in worker processes.

Short texts are encoded in this process. Results are files: a kill could cut short a result sent
through a pipe, and block its reader.
"""

import tempfile
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.corpus import ParallelText
from seq2seq.data.packed_sequences import Chunk, PackedIds, encode_chunk
from seq2seq.data.vocabulary.files import save_vocabularies
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.runtime.console import hides_bars
from seq2seq.runtime.errors import RunError
from seq2seq.runtime.files import PART_SUFFIX
from seq2seq.runtime.workers import WorkerPool, available_cores

MAX_PAIRS_WITHOUT_WORKERS = 50_000
MAX_WORKERS = 16
CHUNK_PAIRS = 5_000  # encoded by one call
_QUEUED_PER_WORKER = 2  # chunks, so that workers do not wait for this process


class Work(NamedTuple):
    """Text of a worker, and what to do with it."""

    text: ParallelText
    folder: Path  # for the results
    vocabularies: Vocabularies | None = None
    max_length: int = 0
    config: VocabularyConfig | None = None  # to train vocabularies
    tags: Sequence[str] = ()


def train_in_worker(
    text: ParallelText, config: VocabularyConfig, folder: Path, tags: Sequence[str] = ()
) -> None:
    """Train vocabularies on a text, and write them to a folder.

    A large text is left to a worker, at whose end the memory that SentencePiece takes is returned.
    Raises UserError as `train_vocabularies` does, and RunError if the worker is killed.
    """
    work = Work(text, folder, config=config, tags=tags)
    if len(text) <= MAX_PAIRS_WITHOUT_WORKERS:
        _start(work)
        _train()
        return
    with _worker_pool(1, work) as pool:
        pool.submit(_train).result()


def encode_in_workers(
    text: ParallelText, vocabularies: Vocabularies, max_length: int, folder: Path
) -> Generator[Chunk]:
    """Encode a text, a large one in workers; yield its chunks in order.

    Workers leave their results in a temporary folder in `folder`. Raises RunError if one is killed.
    """
    starts = range(0, len(text), CHUNK_PAIRS)
    with (
        tempfile.TemporaryDirectory(PART_SUFFIX, "encoding.", folder) as results,
        tqdm(
            desc="encoding", total=len(text), unit=" pairs", leave=False, disable=hides_bars()
        ) as bar,
    ):
        work = Work(text, Path(results), vocabularies, max_length)
        for chunk in _chunks(work, starts):
            yield chunk
            bar.update(chunk.pairs)


def _chunks(work: Work, starts: range) -> Iterator[Chunk]:
    if len(work.text) <= MAX_PAIRS_WITHOUT_WORKERS:
        yield from (_encode(work, start) for start in starts)
        return
    count = max(1, min(available_cores(), MAX_WORKERS, len(starts)))
    with _worker_pool(count, work) as pool:
        pending: deque[Future[Path]] = deque()
        for start in starts:
            pending.append(pool.submit(_encode_to_file, start))
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
def _worker_pool(count: int, work: Work) -> Iterator[WorkerPool]:
    try:
        with WorkerPool(count, _start, (work,)) as pool:
            yield pool
    except BrokenProcessPool:
        raise RunError(
            "A process that was preparing the training text was killed, perhaps because memory "
            "ran out. Start training again."
        ) from None


# ------------------------------------------------------------------------------------- the workers

_work: list[Work] = []  # one element in a worker


def _start(work: Work) -> None:
    _work[:] = [work]


def _train() -> None:
    (work,) = _work
    assert work.config is not None
    trained = train_vocabularies(work.config, work.text.src, work.text.tgt, work.tags)
    save_vocabularies(trained, work.folder)


def _encode_to_file(start: int) -> Path:
    (work,) = _work
    pairs, rows, src, tgt = _encode(work, start)
    path = work.folder / f"{start}.npy"
    with path.open("xb") as file:
        for array in (pairs, rows, src.ids, src.ends, src.lengths, tgt.ids, tgt.ends, tgt.lengths):
            np.save(file, array, allow_pickle=False)
    return path


def _encode(work: Work, start: int) -> Chunk:
    text, end = work.text, start + CHUNK_PAIRS
    assert work.vocabularies is not None
    return encode_chunk(
        text.src[start:end], text.tgt[start:end], work.vocabularies, work.max_length, start
    )
