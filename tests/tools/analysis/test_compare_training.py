"""Runs of a comparison as processes: how many at once, and what a failure of one does."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from seq2seq.config.schema import Config, load_config
from seq2seq.runtime.errors import RunError
from seq2seq.tools.analysis.compare.single_run import UNSUITABLE
from seq2seq.tools.analysis.compare.training import train_all
from seq2seq.training.loop import Interrupted


class FakeCells:
    """Starts processes that end with the exit code of their run when they are polled twice."""

    def __init__(self, codes: dict[str, int]) -> None:
        self.codes = codes
        self.names: list[str] = []
        self.running: list[str] = []
        self.most = 0
        self.stopped: list[tuple[str, int]] = []

    def __call__(self, name: str, words: Sequence[str], jobs: int) -> "FakeCell":
        assert words[0] == "cell"
        assert load_config(words[1]).name == name
        if self.codes.get(name) == UNSUITABLE:
            Path(words[2]).write_text("step 2: diverged", encoding="utf-8")
        self.names.append(name)
        self.running.append(name)
        self.most = max(self.most, len(self.running))
        assert len(self.running) <= jobs
        return FakeCell(name, self)


class FakeCell:
    """A process of FakeCells."""

    def __init__(self, name: str, cells: FakeCells) -> None:
        self.name, self.cells, self.polls = name, cells, 0

    def poll(self) -> int | None:
        self.polls += 1
        if self.polls < 3 and not self.cells.stopped:
            return None
        if self.name in self.cells.running:
            self.cells.running.remove(self.name)
        return self.cells.codes.get(self.name, 0)

    def stop(self, number: int) -> None:
        self.cells.stopped.append((self.name, number))


@pytest.fixture
def configs(small_corpus: Path) -> list[Config]:
    config = load_config(small_corpus)
    folder = small_corpus.parent / "out"
    return [
        config.model_copy(update={"name": name, "run_dir": folder / name})
        for name in ("a-seed1", "b-seed1", "a-seed2", "b-seed2")
    ]


def test_as_many_runs_as_jobs_are_trained_at_once(configs: list[Config]) -> None:
    cells = FakeCells({})
    assert train_all(configs, {}, "cpu", 2, cells) == {}
    assert cells.names == [config.name for config in configs]
    assert cells.most == 2
    assert not cells.stopped


def test_a_run_that_fails_by_its_config_does_not_end_the_others(
    configs: list[Config], caplog: pytest.LogCaptureFixture
) -> None:
    cells = FakeCells({"b-seed1": UNSUITABLE})
    with caplog.at_level("INFO", logger="seq2seq"):
        failures = train_all(configs, {}, "cpu", 2, cells)
    assert failures == {configs[1].run_dir: "step 2: diverged"}
    assert len(cells.names) == 4
    assert "warning: b-seed1 failed: step 2: diverged" in caplog.messages


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (1, r"^b-seed1: failed \(exit code 1\), for the reason above. Once the reason is removed"),
        (-signal.SIGKILL, "^b-seed1: was killed; if memory was short, choose fewer jobs"),
    ],
)
def test_another_failure_stops_the_others_and_ends(
    configs: list[Config], code: int, message: str
) -> None:
    """As on a full disk, where all would fail: those that run save their states."""
    cells = FakeCells({"b-seed1": code})
    with pytest.raises(RunError, match=message):
        train_all(configs, {}, "cpu", 3, cells)
    assert cells.names == ["a-seed1", "b-seed1", "a-seed2"]


def test_a_signal_stops_all_once(configs: list[Config]) -> None:
    cells = FakeCells({})

    def start(name: str, words: Sequence[str], jobs: int) -> FakeCell:
        if len(cells.names) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return cells(name, words, jobs)

    with pytest.raises(Interrupted) as caught:
        train_all(configs, {}, "cpu", 2, start)
    assert caught.value.signal_number == signal.SIGTERM
    assert cells.stopped == [("a-seed1", signal.SIGTERM), ("b-seed1", signal.SIGTERM)]
