"""Exact resume: a run that was stopped ends bitwise as an uninterrupted one."""

import os
import shutil
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from cases.tiers import one_quick
from cases.trainings import (
    after_steps,
    assert_same_run,
    configured,
    interrupt,
    lines_of,
    log_of,
    state_of,
    steps_of,
    stop_after,
    trained,
    validations,
)

from seq2seq.data.padding import Batch
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs import graphs
from seq2seq.runs.layout import BEST, CONFIG, LAST, METRICS, snapshots
from seq2seq.runs.training_state import OpenFolder, read_state
from seq2seq.training import batches as batches_module
from seq2seq.training import loop as training
from seq2seq.training import step as step_module
from seq2seq.training import stopping
from seq2seq.training.clock import Clock
from seq2seq.training.loop import Interrupted, train
from seq2seq.training.loss import Losses, batch_loss
from seq2seq.training.preparation import prepare
from seq2seq.training.reporting import Reporter
from seq2seq.training.session import TrainingSession

pytestmark = pytest.mark.usefixtures("no_engine", "no_tensorboard", "short_sentences")


CPU = torch.device("cpu")


EVENTFUL = (
    "vocabulary.sampling=0.3",
    "model.decoder=luong",
    "model.layers=2",
    "model.score=coverage",
    "model.window=local_p",
    "training.scheduled_sampling={inverse_sigmoid: 5}",
    "training.losses.consistency=1",
    "training.average=0.9",
    "training.validate_every=4",
    "training.keep=2",
    "training.patience=3",
    "training.decay=cosine",
    "training.warmup_steps=3",
    "training.accumulate=2",
    "training.max_epochs=2",
    "decoding.max_length=5",
    "data.max_length=13",
    "training.batch_tokens=150",
)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A folder for the run that all interrupted runs are compared with."""
    return {"folder": tmp_path_factory.mktemp("uninterrupted")}


@pytest.fixture
def uninterrupted_run(small_corpus: Path, uninterrupted: dict[str, Any]) -> Path:
    folder: Path = uninterrupted["folder"]
    if not (folder / BEST).exists():
        shutil.copytree(
            trained(small_corpus, *EVENTFUL, run="uninterrupted"), folder, dirs_exist_ok=True
        )
        assert len(snapshots(folder)) == 2
    return folder


def test_the_same_config_gives_the_same_run(small_corpus: Path, uninterrupted_run: Path) -> None:
    again = trained(small_corpus, *EVENTFUL, run="again")
    assert_same_run(again, uninterrupted_run)


@pytest.mark.thorough
def test_another_process_gives_the_same_run(small_corpus: Path) -> None:
    """Python hashes strings differently in each process: no order may depend on it."""
    settings = ("decoding.max_length=5", "training.max_steps=4", "training.max_minutes=9")
    run = trained(small_corpus, *EVENTFUL, *settings)
    other_run = small_corpus.parent / "other"
    command = ["train", str(small_corpus), *EVENTFUL, *settings, f"run_dir={other_run}"]
    subprocess.run(
        [sys.executable, "-m", "seq2seq", *command, "--device", "cpu"],
        check=True,
        capture_output=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "1"},
    )
    assert_same_run(other_run, run)


@one_quick("at", [1, 4, "end of an epoch", "last"], quick=1)
def test_a_resumed_run_ends_as_an_uninterrupted_one(
    small_corpus: Path, uninterrupted_run: Path, at: int | str
) -> None:
    steps = steps_of(uninterrupted_run)
    names = {"end of an epoch": steps // 2, "last": steps}
    stop = at if isinstance(at, int) else names[at]
    config = configured(small_corpus, *EVENTFUL)
    assert stop_after(stop, config).signal_number == signal.SIGTERM
    assert steps_of(config.run_dir) == stop
    assert f"Stopped at step {stop}, saved." in log_of(config.run_dir)
    train(config, "cpu", resume=True)
    assert f"resumed at step {stop}, epoch" in log_of(config.run_dir)
    assert_same_run(config.run_dir, uninterrupted_run)


@pytest.mark.thorough
def test_an_interruption_after_the_last_step_is_not_lost(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is complete, but a caller that trains several runs must not start another."""
    validate = training.validate

    def interrupted(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        validate(*arguments)

    monkeypatch.setattr(training, "validate", interrupted)
    config = configured(small_corpus, "training.max_steps=3")
    with pytest.raises(Interrupted) as caught:
        train(config, "cpu")
    assert (caught.value.signal_number, caught.value.done) == (signal.SIGTERM, True)
    assert "Best validation BLEU" in log_of(config.run_dir)
    monkeypatch.undo()
    train(config, "cpu", resume=True)
    assert "Training has already finished (" in log_of(config.run_dir)


@pytest.mark.thorough
def test_a_run_interrupted_at_every_second_step_ends_as_an_uninterrupted_one(
    small_corpus: Path, uninterrupted_run: Path
) -> None:
    config = configured(small_corpus, *EVENTFUL)
    for turn in range(3):
        stopped = stop_after(2, config, signal.SIGINT, resume=turn > 0)
        assert stopped.signal_number == signal.SIGINT
        assert steps_of(config.run_dir) == 2 * turn + 2
    train(config, "cpu", resume=True)
    assert_same_run(config.run_dir, uninterrupted_run)


@pytest.mark.thorough
def test_checkpoints_of_later_steps_are_removed_and_saved_again(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate a kill between a validation and the checkpoint after it."""
    limits = ("training.max_steps=6", "training.validate_every=2", "training.keep=2")
    complete = trained(small_corpus, *limits, run="complete")
    config = configured(small_corpus, *limits)
    saves = count(1)

    def save(run: TrainingSession, reporter: Reporter, clock: Clock) -> None:
        if next(saves) == 2:
            raise OSError("killed")
        save_state(run, reporter, clock)

    save_state = training.save
    with monkeypatch.context() as patched:
        patched.setattr(training, "save", save)
        with pytest.raises(OSError, match="killed"):
            train(config, "cpu")
    assert [path.name for path in snapshots(config.run_dir)] == [
        "step-2.safetensors",
        "step-4.safetensors",
    ]
    assert steps_of(config.run_dir) == 2
    prepare(config, CPU, OpenFolder(None, read_state(config.run_dir)))
    assert [path.name for path in snapshots(config.run_dir)] == ["step-2.safetensors"]
    train(config, "cpu", resume=True)
    assert_same_run(config.run_dir, complete)
    assert [path.name for path in snapshots(complete)] == [
        "step-4.safetensors",
        "step-6.safetensors",
    ]


def test_resuming_repeats_no_work(small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position is computed: no earlier batch is made, and no earlier epoch is ordered."""
    limits = ("training.batch_tokens=220", "training.validate_every=50", "training.max_epochs=9")
    config = configured(small_corpus, *limits)
    stop_after(20, config)
    position = state_of(config.run_dir / LAST)[0]["progress"]
    assert position["epoch"] >= 1
    assert position["batch"] >= 1
    made_batches: list[list[int]] = []
    ordered_epochs: list[int] = []
    make = batches_module.batch_of
    order = training.EpochOrder

    def noted_make(run: TrainingSession, rows: Any, seed: int) -> Batch:
        made_batches.append([*map(int, rows)])
        return make(run, rows, seed)

    def noted_order(pairs: Any, tokens: int, seed: int, epoch: int) -> Any:
        ordered_epochs.append(epoch)
        return order(pairs, tokens, seed, epoch)

    monkeypatch.setattr(batches_module, "batch_of", noted_make)
    monkeypatch.setattr(training, "EpochOrder", noted_order)
    monkeypatch.setattr(stopping, "EpochOrder", noted_order)
    stop_after(2, config, resume=True)
    run = prepare(config, CPU, OpenFolder(None, read_state(config.run_dir)))[0]
    batches = order(run.data.train, 220, config.seed, position["epoch"])
    assert made_batches == [[*map(int, rows)] for rows in batches[position["batch"] :][:2]]
    assert ordered_epochs == [0, position["epoch"]]  # epoch 0 is ordered for its length


@pytest.mark.thorough
def test_a_killed_run_resumes_from_its_last_saved_state(
    small_corpus: Path, uninterrupted_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_cut() -> None:
        raise MemoryError

    config = configured(small_corpus, *EVENTFUL, "training.log_every=1")
    with monkeypatch.context() as patched:
        patched.setattr(training, "train_step", after_steps(7, power_cut))
        with pytest.raises(MemoryError):
            train(config, "cpu")
    assert steps_of(config.run_dir) == 4  # the last validation
    assert lines_of(config.run_dir / METRICS)[-1]["step"] == 6
    with (config.run_dir / METRICS).open("a", encoding="utf-8") as file:
        file.write('{"step": 5, "train_lo')
    train(config, "cpu", resume=True)
    metrics = lines_of(config.run_dir / METRICS)
    assert [line["step"] for line in metrics if "train_loss" in line] == list(
        range(1, steps_of(uninterrupted_run) + 1)
    )
    assert validations(config.run_dir) == validations(uninterrupted_run)
    assert (config.run_dir / BEST).read_bytes() == (uninterrupted_run / BEST).read_bytes()
    (counters, tensors), (expected_counters, expected_tensors) = (
        state_of(run / LAST) for run in (config.run_dir, uninterrupted_run)
    )
    assert all(torch.equal(tensors[name], tensor) for name, tensor in expected_tensors.items())
    assert counters["progress"]["tokens"] == expected_counters["progress"]["tokens"]


@pytest.mark.thorough
def test_a_finished_run_can_be_extended(small_corpus: Path) -> None:
    long = trained(small_corpus, "training.max_epochs=3", run="long")
    short = trained(small_corpus, "training.max_epochs=2", run="short")
    train(configured(small_corpus, "training.max_epochs=3", run="short"), "cpu", resume=True)
    assert_same_run(short, long)


def test_resuming_a_finished_run_changes_nothing(small_corpus: Path) -> None:
    run = trained(small_corpus)
    contents_before = {name: (run / name).read_bytes() for name in (METRICS, BEST, CONFIG)}
    tensors = state_of(run / LAST)[1]
    train(configured(small_corpus), "cpu", resume=True)
    assert "Training has already finished (training.max_epochs=2 reached). To train" in log_of(run)
    assert "To train further, pass resume=True and increase training.max_epochs." in log_of(run)
    assert {name: (run / name).read_bytes() for name in contents_before} == contents_before
    assert all(
        torch.equal(tensors[name], tensor) for name, tensor in state_of(run / LAST)[1].items()
    )


def test_the_signal_handlers_are_restored(small_corpus: Path) -> None:
    handlers_before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    stop_after(1, configured(small_corpus))
    assert [
        signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    ] == handlers_before


def test_a_closed_terminal_stops_a_run_as_ctrl_c_does_unless_nohup_is_used(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler_before = signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # the tests themselves may be under nohup
    try:
        stopped = stop_after(2, configured(small_corpus), signal.SIGHUP)
        assert stopped.signal_number == signal.SIGHUP
        assert steps_of(small_corpus.parent / "run") == 2
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        monkeypatch.setattr(training, "train_step", after_steps(2, interrupt(signal.SIGHUP)))
        assert steps_of(trained(small_corpus, "training.max_steps=3", run="other")) == 3
    finally:
        signal.signal(signal.SIGHUP, handler_before)


def test_a_second_ctrl_c_does_not_wait(small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice() -> None:
        interrupt(signal.SIGINT)()
        interrupt(signal.SIGINT)()

    monkeypatch.setattr(training, "train_step", after_steps(2, twice))
    with pytest.raises(KeyboardInterrupt):
        trained(small_corpus)


def test_a_signal_while_the_engine_is_written_ends_a_finished_run(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's memory has been given back, and the state was saved."""
    monkeypatch.setattr(graphs, "store_engine", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Interrupted) as stopped:
        trained(small_corpus, "training.max_steps=2")
    assert stopped.value.done
    assert stopped.value.signal_number == signal.SIGTERM
    assert steps_of(small_corpus.parent / "run") == 2


def test_a_run_that_ran_out_of_memory_resumes_exactly(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out_once() -> None:
        failures = iter(["can't allocate memory"])

        def loss(model: Seq2Seq, batch: Batch, *weights: float) -> Losses:
            if message := next(failures, None):
                raise RuntimeError(message)
            return batch_loss(model, batch, *weights)

        monkeypatch.setattr(step_module, "batch_loss", loss)

    run_out_once()
    complete = trained(
        small_corpus, "training.max_steps=4", "training.max_epochs=null", run="complete"
    )
    run_out_once()
    run = trained(small_corpus, "training.max_steps=2", "training.max_epochs=null")
    monkeypatch.setattr(step_module, "batch_loss", batch_loss)
    config = configured(small_corpus, "training.max_steps=4", "training.max_epochs=null")
    train(config, "cpu", resume=True)
    tensors = state_of(complete / LAST)[1]
    assert all(
        torch.equal(tensor, tensors[name]) for name, tensor in state_of(run / LAST)[1].items()
    )
