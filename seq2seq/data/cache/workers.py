"""Vocabulary training and encoding of a text in worker processes.

Short texts are encoded in this process. Results are files: a kill could cut short a result sent
through a pipe, and block its reader.
"""

import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def train_in_worker(
    text: ParallelText, config: VocabularyConfig, folder: Path, tags: Sequence[str] = ()
) -> None:
    """Train vocabularies on a text, and write them to a folder.

    A large text is left to a worker, at whose end the memory that SentencePiece takes is returned.
    Raises UserError as `train_vocabularies` does, and RunError if the worker is killed.
    """

    def train() -> None:
        save_vocabularies(train_vocabularies(config, text.src, text.tgt, tags), folder)

    if len(text) <= MAX_PAIRS_WITHOUT_WORKERS:
        train()
        return
    with _worker_pool(1, train) as pool:
        pool.submit(_call).result()


def encode_in_workers(
    text: ParallelText, vocabularies: Vocabularies, max_length: int, folder: Path
) -> Generator[Chunk]:
    """Encode a text, a large one in workers; yield its chunks in order.

    Workers leave their results in a temporary folder in `folder`. Raises RunError if one is killed.
    """

    def encode(start: int) -> Chunk:
        rows = slice(start, start + CHUNK_PAIRS)
        return encode_chunk(text.src[rows], text.tgt[rows], vocabularies, max_length, start)

    starts = range(0, len(text), CHUNK_PAIRS)
    with tqdm(
        desc="encoding", total=len(text), unit=" pairs", leave=False, disable=hides_bars()
    ) as bar:
        few = len(text) <= MAX_PAIRS_WITHOUT_WORKERS
        for chunk in map(encode, starts) if few else _encoded(encode, starts, folder):
            yield chunk
            bar.update(chunk.pairs)


def _encoded(encode: Callable[[int], Chunk], starts: range, folder: Path) -> Iterator[Chunk]:
    """Yield the chunks that workers encode, in order."""
    count = max(1, min(available_cores(), MAX_WORKERS, len(starts)))
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
def _worker_pool(count: int, work: Callable[..., Any]) -> Iterator[WorkerPool]:
    """Yield workers in which `_call` does the work."""
    try:
        with WorkerPool(count, _work.append, (work,)) as pool:
            yield pool
    except BrokenProcessPool:
        raise RunError(
            "A process that was preparing the training text was killed, perhaps because memory "
            "ran out. Start training again."
        ) from None


_work: list[Callable[..., Any]] = []  # one element in a worker


def _call(*arguments: object) -> Any:
    return _work[-1](*arguments)
