"""Cached text cut into pieces by several processes, which a small text does not need."""

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tqdm import tqdm

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.cache import worker as cache_worker
from seq2seq.data.cache.worker import Chunk, as_text, encode_range, from_text, job_of, receive
from seq2seq.data.corpus import ParallelText
from seq2seq.data.vocabulary import Vocabularies, models_of, vocabularies_of
from seq2seq.runtime.errors import RunError, UserError

MOST_HERE = 50_000  # pairs that this process does alone: others take a second to begin
MOST_PROCESSES = 16
_PAIRS = 5_000  # of a chunk
_AHEAD = 2  # chunks asked of each process before its first answer is read


def encoded(
    folder: Path, text: ParallelText, vocabularies: Vocabularies, max_length: int
) -> Iterator[tuple[int, int, Chunk]]:
    """The chunks of a cached text, in order, with the ranges they are of."""
    ranges = [(n, min(n + _PAIRS, len(text))) for n in range(0, len(text), _PAIRS)]
    with tqdm(
        desc="cutting into pieces", total=len(text), unit=" pairs", leave=False, disable=None
    ) as bar:
        if len(text) <= MOST_HERE:
            chunks: Iterator[Chunk] = (
                encode_range(text, vocabularies, max_length, *each) for each in ranges
            )
        else:
            models = as_text(models_of(vocabularies))
            chunks = _asked(job_of(folder, models=models, max_length=max_length), ranges)
        for (start, end), chunk in zip(ranges, chunks, strict=True):
            yield start, end, chunk
            bar.update(end - start)


def learnt(folder: Path, config: VocabularyConfig) -> Vocabularies:
    """Learn a vocabulary from a cached text in a process of its own, whose memory goes with it.

    Raises UserError as `train_vocabularies` does.
    """
    with _workers(1) as (worker,):
        asked, answers = _pipes(worker)
        asked.write(job_of(folder, learn=config.model_dump(mode="json")))
        asked.flush()
        line = answers.readline()
    if not line:
        raise _lost()
    answer = json.loads(line)
    if "mistake" in answer:
        raise UserError(answer["mistake"])
    return vocabularies_of(from_text(answer["models"]), config.sampling)


def _asked(job: bytes, ranges: list[tuple[int, int]]) -> Iterator[Chunk]:
    """The chunk of each range; the processes take turns, and some chunks wait in their pipes."""
    count = max(1, min(_cores(), MOST_PROCESSES, len(ranges)))
    with _workers(count) as workers:
        try:
            for worker in workers:
                _pipes(worker)[0].write(job)
            waiting: deque[subprocess.Popen[bytes]] = deque()
            for n, (start, end) in enumerate(ranges):
                asked, _ = _pipes(workers[n % count])
                asked.write(f"{start} {end}\n".encode())
                asked.flush()
                waiting.append(workers[n % count])
                if len(waiting) == _AHEAD * count:
                    yield receive(_pipes(waiting.popleft())[1])
            for worker in waiting:
                yield receive(_pipes(worker)[1])
        except (EOFError, BrokenPipeError):
            raise _lost() from None


@contextmanager
def _workers(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that end with the block, or with this process."""
    package = str(Path(cache_worker.__file__).parents[3])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    workers = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", cache_worker.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the process that asks
        )
        for _ in range(count)
    ]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            with suppress(BrokenPipeError), worker:
                pass  # wait for it, and close the pipes


def _pipes(worker: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    return worker.stdin, worker.stdout


def _lost() -> RunError:
    return RunError(
        "a process that was preparing the training text ended early, perhaps for want of memory; "
        "train again"
    )


def _cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
