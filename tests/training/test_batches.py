"""Batches made ahead in workers: the same as without, whatever happens to a worker."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch import Tensor

from seq2seq.config.schema import load_config
from seq2seq.data.batching import EpochOrder
from seq2seq.runs.layout import BEST, LOG, METRICS
from seq2seq.runtime.device import choose_device
from seq2seq.training import batches as module
from seq2seq.training.batches import StepBatches
from seq2seq.training.loop import train
from seq2seq.training.preparation import prepare
from seq2seq.training.session import TrainingSession

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")

SAMPLED = ("vocabulary.sampling=0.3", "training.batch_tokens=90", "training.accumulate=2")


def session_with(corpus: Path, workers: int, *overrides: str) -> TrainingSession:
    folder = f"run_dir={corpus.parent / f'workers-{workers}'}"
    config = load_config(corpus, (folder, f"training.batch_workers={workers}", *overrides))
    return prepare(config, choose_device("cpu"))[0]


def made(session: TrainingSession, batches: StepBatches, first: int = 0) -> Iterator[list[Tensor]]:
    config = session.config
    order = EpochOrder(session.data.train, config.training.batch_tokens, config.seed, 0)
    starts = range(first, len(order), config.training.accumulate)
    for step in batches.of_steps(order, starts):
        yield [part.clone() for batch in step for part in batch if part is not None]


def equal(left_steps: list[list[Tensor]], right_steps: list[list[Tensor]]) -> bool:
    steps = zip(left_steps, right_steps, strict=True)
    return all(a.equal(b) for left, right in steps for a, b in zip(left, right, strict=True))


def test_any_number_of_workers_makes_the_same_batches(small_corpus: Path) -> None:
    session = session_with(small_corpus, 0, *SAMPLED)
    with StepBatches(session) as batches:
        expected = list(made(session, batches))
    assert len(expected) > 9
    for workers in (1, 2, 7):
        session = session_with(small_corpus, workers, *SAMPLED)
        with StepBatches(session) as batches:
            assert equal(list(made(session, batches)), expected)
            stopped = made(session, batches)  # as by a roll back
            assert equal([next(stopped), next(stopped)], expected[:2])
            stopped.close()
            assert equal(list(made(session, batches, first=6)), expected[3:])
            assert batches.note is None


def workers_of(batches: StepBatches) -> list[int]:
    assert batches._pool is not None
    return list(batches._pool._processes)


def exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def kill(batches: StepBatches) -> None:
    os.kill(workers_of(batches)[0], signal.SIGKILL)


@pytest.mark.parametrize("at", [0, 3])
def test_a_killed_worker_costs_no_batch(small_corpus: Path, at: int) -> None:
    small = *SAMPLED, "training.batch_tokens=25"  # more steps than the other worker makes meanwhile
    session = session_with(small_corpus, 2, *small)
    with StepBatches(session_with(small_corpus, 0, *small)) as batches:
        expected = list(made(session, batches))
    assert len(expected) > 30
    results = []
    with StepBatches(session) as batches:
        for number, step in enumerate(made(session, batches)):
            results.append(step)
            if number == at:
                processes = workers_of(batches)
                kill(batches)
        assert equal(results, expected)
        assert not any(exists(process) for process in processes)
        assert batches.note is not None
        assert "killed or ran out of memory" in batches.note


@pytest.mark.thorough
def test_a_step_that_does_not_fit_shared_memory_is_made_here(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StepBatches(session_with(small_corpus, 0, *SAMPLED)) as batches:
        expected = list(made(session_with(small_corpus, 0, *SAMPLED), batches))
    monkeypatch.setattr(module, "_slot_bytes", lambda _: 64)
    session = session_with(small_corpus, 1, *SAMPLED)
    with StepBatches(session) as batches:
        assert equal(list(made(session, batches)), expected)
        assert batches.note is None


def test_workers_leave_signals_to_the_main_process_and_end_with_it(small_corpus: Path) -> None:
    session = session_with(small_corpus, 2, *SAMPLED)
    with StepBatches(session) as batches:
        steps = made(session, batches)
        next(steps)
        processes = workers_of(batches)
        for process in processes:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(process, number)
        assert len(list(steps)) > 5
        assert batches.note is None
    assert not any(exists(process) for process in processes)


@pytest.mark.thorough
def test_a_training_with_workers_is_the_same_and_logs_a_lost_one(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    lost: Callable[[StepBatches], None] | None = kill
    of_steps = StepBatches.of_steps

    def killing(self: StepBatches, *arguments: object) -> Iterator[object]:
        nonlocal lost
        for step in of_steps(self, *arguments):  # type: ignore[arg-type]
            yield step
            if lost is not None:
                lost(self)
                lost = None

    for workers in (0, 2):
        folder = small_corpus.parent / f"run-{workers}"
        overrides = (
            f"run_dir={folder}",
            f"training.batch_workers={workers}",
            "training.max_epochs=1",
        )
        config = load_config(small_corpus, (*overrides, *SAMPLED))
        if workers:
            monkeypatch.setattr(StepBatches, "of_steps", killing)
        train(config, "cpu", quiet=True)
        runs.append(folder)
    assert (runs[0] / METRICS).read_text() == (runs[1] / METRICS).read_text()
    assert "warning: a process that made batches was killed" in (runs[1] / LOG).read_text()
    assert (runs[0] / BEST).stat().st_size == (runs[1] / BEST).stat().st_size
