"""The number of CPU threads of a training: chosen once, by gradients that are timed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cases.trainings import stop_after

from seq2seq.__main__ import main
from seq2seq.config.schema import Config, load_config
from seq2seq.runs.layout import BEST, LOG
from seq2seq.runs.run_folder import read_progress
from seq2seq.runs.tensor_file import read_tensors
from seq2seq.training import threads
from seq2seq.training.clock import Clock
from seq2seq.training.loop import _SLOW, train
from seq2seq.training.step import compute_gradient

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")
Measure = Callable[[float, float], list[int]]


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    with threads.restored_threads():
        torch.set_num_threads(2)
        yield


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Let a gradient take these seconds, by one thread and by two; list the numbers of threads."""
    now = 0.0
    numbers = list[int]()

    def measure(seconds_alone: float, seconds_together: float) -> list[int]:
        def gradient(*arguments: Any) -> object:
            nonlocal now
            numbers.append(torch.get_num_threads())
            now += seconds_alone if numbers[-1] == 1 else seconds_together
            return compute_gradient(*arguments)

        monkeypatch.setattr(threads, "compute_gradient", gradient)
        monkeypatch.setattr(threads, "perf_counter", lambda: now)
        return numbers

    return measure


def interrupted(corpus: Path) -> Config:
    """Train half of a run; return its config."""
    config = load_config(corpus, ["training.max_steps=6"])
    stop_after(3, config)
    return config


def recorded(config: Config) -> int:
    state = read_progress(config)
    assert state is not None
    return state.counters.threads


@pytest.mark.parametrize(("seconds", "number"), [((1.0, 0.8), 2), ((1.0, 1.2), 1), ((1.0, 1.0), 1)])
def test_a_new_run_has_the_faster_number(
    small_corpus: Path, measured: Measure, seconds: tuple[float, float], number: int
) -> None:
    numbers = measured(*seconds)
    config = load_config(small_corpus, ["training.max_steps=3"])
    train(config, "cpu")
    assert numbers == [2, 1, 2, 1, 2]
    assert recorded(config) == number
    log = (config.run_dir / LOG).read_text("utf-8")
    assert f"{number} thread" in log
    assert f"a gradient takes one thread 1 s, 2 threads {seconds[1]:.2g} s" in log
    assert torch.get_num_threads() == 2


def test_the_choice_changes_no_weight(small_corpus: Path, measured: Measure) -> None:
    overrides = ["training.max_steps=4", "training.average=0.9"]
    timed = load_config(small_corpus, overrides)
    measured(1.0, 2.0)
    train(timed, "cpu")
    torch.set_num_threads(1)
    untimed = load_config(small_corpus, [*overrides, f"run_dir={small_corpus.parent}/usual"])
    train(untimed, "cpu")
    weights = [read_tensors(config.run_dir / BEST) for config in (timed, untimed)]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_a_resumed_run_repeats_the_number(
    small_corpus: Path, measured: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = measured(1.0, 2.0)
    config = interrupted(small_corpus)
    assert recorded(config) == 1
    numbers.clear()
    monkeypatch.setattr(threads, "choose_threads", lambda _: pytest.fail("chosen again"))
    train(config, "cpu", resume=True)
    assert recorded(config) == 1
    assert "last digits will differ" not in (config.run_dir / LOG).read_text("utf-8")


def test_the_user_decides(
    small_corpus: Path, measured: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = measured(1.0, 2.0)
    monkeypatch.setenv(threads.VARIABLE, "2")
    config = interrupted(small_corpus)
    assert recorded(config) == 2
    torch.set_num_threads(1)
    train(config, "cpu", resume=True)
    assert (recorded(config), numbers) == (1, [])
    text = "trained by 2 threads so far, by 1 now: last digits will differ"
    assert text in (config.run_dir / LOG).read_text("utf-8")


def test_runs_of_a_comparison_have_one_number(small_corpus: Path, measured: Measure) -> None:
    numbers = measured(1.0, 2.0)
    output = small_corpus.parent / "compared"
    words = ["compare", str(small_corpus), "training.max_steps=2", "--device", "cpu"]
    words += ["--output", str(output), "-b", "1"]
    assert main([*words, "--seeds", "1,2"]) == 0
    assert numbers == [2, 1, 2, 1, 2]  # once
    measured(2.0, 1.0)
    assert main([*words, "--seeds", "1,2,3"]) == 0
    assert numbers == [2, 1, 2, 1, 2]
    runs = sorted(path.parent for path in output.rglob("last.safetensors"))
    assert [recorded(load_config(run / "config.yaml")) for run in runs] == [1, 1, 1]


@pytest.mark.parametrize("command", ["train", "check"])
def test_an_option_decides(
    small_corpus: Path,
    measured: Measure,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    command: str,
    few_steps: None,  # noqa: ARG001
) -> None:
    numbers = measured(1.0, 0.5)
    monkeypatch.setenv(threads.VARIABLE, "")  # restored at the end
    monkeypatch.delenv(threads.VARIABLE)
    assert main([command, str(small_corpus), "training.max_steps=2", "--threads", "2"]) == 0
    assert numbers == []
    out, err = capfd.readouterr()
    assert "2 threads" in out + err


def test_a_forked_process_has_one_thread(
    small_corpus: Path, measured: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads of its parent do not exist in it: several would wait for ever."""
    numbers = measured(2.0, 1.0)
    config = interrupted(small_corpus)
    assert recorded(config) == 2
    numbers.clear()
    monkeypatch.setattr("seq2seq.runtime.device._is_forked", True)
    torch.set_num_threads(1)
    train(config, "cpu", resume=True)
    assert (recorded(config), numbers) == (1, [])


def test_training_that_becomes_slow_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    clock = Clock(0.0)
    is_noted = []
    for tokens in (100, 90, 34, 33, 5):
        clock.count(tokens)
        now += 1
        is_noted.append(clock.becomes_slow(clock.speed()))
    assert is_noted == [False, False, False, True, False]
    assert "OMP_NUM_THREADS=1" in _SLOW
