"""`training.save_every`: states within an epoch, from which a killed run resumes exactly."""

import time
from pathlib import Path
from typing import Any

import pytest
from cases.stopped_trainings import train_until_killed

from seq2seq.config.schema import Config, load_config
from seq2seq.runs import tensor_file
from seq2seq.runs.layout import BEST, LAST, LOG, METRICS
from seq2seq.training import loop
from seq2seq.training.loop import train
from seq2seq.training.session import TrainingSession

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")

SETTINGS = (
    "decoding.max_length=5",
    "vocabulary.sampling=0.3",
    "training.max_epochs=2",
    "training.batch_tokens=220",
    "training.accumulate=2",
    "training.average=0.9",
    "training.log_every=4",
)
ALWAYS = "training.save_every=1e-9"  # after each step


def configured(corpus: Path, run: str, *overrides: str) -> Config:
    return load_config(corpus, [*SETTINGS, f"run_dir={corpus.parent / run}", *overrides])


def saved_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the step of each saved state."""
    steps: list[int] = []
    save = TrainingSession.save_state

    def noted(session: TrainingSession) -> None:
        steps.append(session.progress.step)
        save(session)

    monkeypatch.setattr(TrainingSession, "save_state", noted)
    return steps


@pytest.mark.thorough
def test_a_run_killed_in_the_middle_of_an_epoch_resumes_exactly(small_corpus: Path) -> None:
    """The kills precede the first validation, so that no validation has saved a state."""
    complete = train(configured(small_corpus, "complete"), "cpu")
    run = small_corpus.parent / "run"
    expected_header, expected_tensors = tensor_file.read_file(complete / LAST)
    validation = expected_header["progress"]["best_step"]
    for killed_in in (3, 4):
        assert killed_in < validation
        train_until_killed(configured(small_corpus, "run", ALWAYS), killed_in)
        assert tensor_file.read_header(run / LAST)[0]["progress"]["step"] == killed_in - 1
    train(configured(small_corpus, "run"), "cpu", resume=True)
    log = (run / LOG).read_text()
    assert [f"resumed at step {step}, epoch 1" in log for step in (2, 3)] == [True, True]
    for name in (METRICS, BEST):
        assert (run / name).read_bytes() == (complete / name).read_bytes()
    header, resumed_tensors = tensor_file.read_file(run / LAST)
    assert header["progress"] == expected_header["progress"]
    assert resumed_tensors.keys() == expected_tensors.keys()
    assert all(resumed_tensors[name].equal(expected_tensors[name]) for name in resumed_tensors)


@pytest.mark.thorough
def test_states_are_saved_by_the_clock(small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state is saved once the interval since the last save, also of a validation, has passed."""
    now = [0.0]
    start = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: start + 60 * now[0])
    step = loop.train_step

    def one_minute(*arguments: Any) -> Any:
        now[0] += 1
        return step(*arguments)

    monkeypatch.setattr(loop, "train_step", one_minute)
    steps = saved_steps(monkeypatch)
    limits = ("training.max_steps=13", "training.validate_every=7", "training.max_epochs=null")
    train(configured(small_corpus, "run", *limits, "training.save_every=3"), "cpu")
    assert steps == [0, 3, 6, 7, 10, 13, 13]  # 13: by the clock, and at the end
    del steps[:]
    train(configured(small_corpus, "other", *limits), "cpu")
    assert steps == [0, 7, 13]
    assert (small_corpus.parent / "run" / METRICS).read_bytes() == (
        small_corpus.parent / "other" / METRICS
    ).read_bytes()


@pytest.mark.thorough
def test_no_state_is_saved_while_steps_are_skipped(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training rolls back to the saved state, which should precede the skipped steps."""
    step = loop.train_step

    def skipped(session: TrainingSession, *arguments: Any) -> Any:
        result = step(session, *arguments)
        if session.progress.step in (3, 4):
            result.skipped.fill_(True)
        return result

    monkeypatch.setattr(loop, "train_step", skipped)
    steps = saved_steps(monkeypatch)
    limits = ("training.max_steps=7", "training.log_every=1", "training.validate_every=50")
    train(configured(small_corpus, "run", *limits, "training.max_epochs=null", ALWAYS), "cpu")
    assert steps == [0, 1, 2, 5, 6, 7, 7]
