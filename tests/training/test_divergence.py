"""Divergence: skipped batches are logged, training rolls back, and ends if that does not help."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cases.tiers import one_quick
from torch import Tensor

from seq2seq.__main__ import main
from seq2seq.config.schema import Config, load_config
from seq2seq.data.padding import Batch
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.layout import BEST, LAST, LOG, METRICS
from seq2seq.runtime.errors import RunError
from seq2seq.training import step as step_module
from seq2seq.training import validation
from seq2seq.training.loop import Interrupted, train
from seq2seq.training.loss import Losses, batch_loss
from seq2seq.training.session import TrainingSession

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")


def configured(corpus: Path, *overrides: str, run: str = "run") -> Config:
    short = ("decoding.max_length=5", "training.max_epochs=null", "training.log_every=5")
    return load_config(corpus, [*short, f"run_dir={corpus.parent / run}", *overrides])


class Spoiler:
    """Injects a non-finite loss at chosen steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, when: Callable[[int, float], bool]) -> None:
        self.when, self.step, self.rate = when, 0, 0.0
        monkeypatch.setattr(step_module, "batch_loss", self.loss)
        monkeypatch.setattr("seq2seq.training.loop.train_step", self.train_step)

    def train_step(
        self, run: TrainingSession, batches: list[Batch], rate: float
    ) -> step_module.StepResult:
        self.step, self.rate = run.progress.step, rate
        return step_module.train_step(run, batches, rate)

    def loss(self, model: Seq2Seq, batch: Batch, *weights: float) -> Losses:
        loss = batch_loss(model, batch, *weights)
        spoiled = model.training and self.when(self.step, self.rate)
        return Losses(loss.objective * torch.nan, loss.nll) if spoiled else loss


def test_the_log_names_the_skipped_batches(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spoiler(monkeypatch, lambda step, _: step in (2, 4, 7))
    run = train(configured(small_corpus, "training.max_steps=9"), "cpu")
    log = (run / LOG).read_text()
    for step in (2, 4, 7):
        assert f"step {step} skipped: non-finite loss or gradient (" in log
    assert log.count("pairs, the first: '") == 3
    assert "NaN" not in (run / METRICS).read_text()


@pytest.mark.thorough
def test_many_skipped_steps_are_counted(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spoiler(monkeypatch, lambda step, _: step < 6)
    run = train(configured(small_corpus, "training.max_steps=7"), "cpu")
    log = (run / LOG).read_text()
    assert log.count(" skipped: non-finite") == 3
    assert "2 more skipped up to step 5" in log
    assert "all steps skipped" in log


@pytest.mark.thorough
def test_skipped_steps_are_logged_after_an_interruption(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiler = Spoiler(monkeypatch, lambda step, _: step == 2)
    config = configured(small_corpus, "training.max_steps=6")
    monkeypatch.setattr("seq2seq.training.loop.stop_signals", stops_at(spoiler, 3))
    with pytest.raises(Interrupted):
        train(config, "cpu")
    assert "skipped: non-finite" not in (config.run_dir / LOG).read_text()
    monkeypatch.undo()
    run = train(config, "cpu", resume=True)
    assert "step 2 skipped: non-finite" in (run / LOG).read_text()


@pytest.mark.thorough
def test_a_shorter_logging_interval_does_not_blame_other_steps(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiler = Spoiler(monkeypatch, lambda step, _: step == 2)
    config = configured(small_corpus, "training.max_steps=9", "training.log_every=100")
    monkeypatch.setattr("seq2seq.training.loop.stop_signals", stops_at(spoiler, 7))
    with pytest.raises(Interrupted):
        train(config, "cpu")
    monkeypatch.undo()
    often = configured(small_corpus, "training.max_steps=9", "training.log_every=3")
    log = (train(often, "cpu", resume=True) / LOG).read_text()
    assert log.count(" skipped: non-finite") == 1
    assert "step 2 skipped: non-finite" in log


@pytest.mark.thorough
def test_skipped_batches_of_an_earlier_epoch_are_named(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spoiler(monkeypatch, lambda step, _: step in (2, 3))
    batches_of_runs = []
    for log_every in (1, 1000):
        settings = ("training.max_epochs=2", f"training.log_every={log_every}")
        log = (
            train(configured(small_corpus, *settings, run=f"by-{log_every}"), "cpu") / LOG
        ).read_text()
        lines = (line for line in log.splitlines() if " skipped: non-finite" in line)
        batches_of_runs.append([line.partition("step ")[2] for line in lines])
    assert len(batches_of_runs[0]) == 2
    assert all("pairs, the first: '" in line for line in batches_of_runs[0])
    assert batches_of_runs[0] == batches_of_runs[1]


def stops_at(spoiler: Spoiler, step: int) -> Callable[[], "Stops"]:
    return lambda: Stops(spoiler, step)


class Stops(list[int]):
    """A signal that arrives once a step has been taken."""

    def __init__(self, spoiler: Spoiler, step: int) -> None:
        super().__init__([15])
        self.spoiler, self.at = spoiler, step

    def __enter__(self) -> "Stops":
        return self

    def __exit__(self, *error: object) -> None: ...

    def __bool__(self) -> bool:
        return self.spoiler.step >= self.at


def test_ten_consecutive_skipped_steps_roll_back_with_half_the_rate(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: dict[int, list[float]] = {}

    def breaks_at_the_full_rate(step: int, rate: float) -> bool:
        rates.setdefault(step, []).append(rate)
        return step > 6 and rate > 0.7e-3

    Spoiler(monkeypatch, breaks_at_the_full_rate)
    limits = ("training.max_steps=25", "training.validate_every=6", "training.accumulate=1")
    run = train(configured(small_corpus, *limits, "training.learning_rate=1e-3"), "cpu")
    log = (run / LOG).read_text()
    assert "consecutive steps skipped: back" in log
    assert "back to step 18, with 0.5 of the learning rate" in log
    lines = map(json.loads, (run / METRICS).read_text().splitlines())
    steps = [line["step"] for line in lines if "learning_rate" in line]
    assert steps == [5, 10, 15, 20, 25]  # metrics reported after step 18 are removed
    assert rates[19] == [1e-3, 0.5e-3]
    assert rates[25] == [0.5e-3]


@pytest.mark.thorough
def test_a_run_that_rolling_back_does_not_help_ends_with_one_line(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spoiler(monkeypatch, lambda step, _: step > 3)
    config = configured(small_corpus, "training.max_steps=60", "training.validate_every=3")
    with pytest.raises(
        RunError, match=r"step \d+: \d+ consecutive steps skipped, also at 0\.125 of"
    ):
        train(config, "cpu")
    assert (config.run_dir / LAST).exists()
    assert all(weight.isfinite().all() for weight in _weights(config.run_dir / LAST))


def _weights(path: Path) -> list[Tensor]:
    from safetensors.torch import load_file

    return [tensor for name, tensor in load_file(path).items() if name.startswith("weights.")]


@pytest.mark.thorough
def test_training_rolls_back_to_the_start_before_the_first_validation(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spoiler(monkeypatch, lambda step, rate: step > 1 and rate > 0.7e-3)
    limits = ("training.max_steps=17", "training.validate_every=50", "training.learning_rate=1e-3")
    run = train(configured(small_corpus, *limits), "cpu")
    assert "back to step 0, with 0.5 of the learning rate" in (run / LOG).read_text()


@one_quick("validate_every", [1, 4])
def test_a_huge_learning_rate_ends_training_with_one_line(
    small_corpus: Path, capsys: pytest.CaptureFixture[str], validate_every: int
) -> None:
    """Its losses are non-finite, or finite numbers of thirty digits."""
    run = small_corpus.parent / "run"
    settings = ("training.learning_rate=1e30", "training.max_steps=80", "training.max_epochs=null")
    often = (
        f"training.validate_every={validate_every}",
        "training.log_every=4",
        "decoding.max_length=5",
    )
    assert main(["train", str(small_corpus), *settings, *often, "--device=cpu"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(
        r"seq2seq: error: step \d+: the (training|validation) loss is .*, also at 0\.125 of the "
        r"learning rate\. Lower training\.learning_rate or training\.clip_norm",
        error,
    )
    for line in (run / METRICS).read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    assert not (run / BEST).exists()
    assert all(weight.isfinite().all() for weight in _weights(run / LAST))


def test_a_non_finite_validation_loss_is_never_the_best(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiler = Spoiler(monkeypatch, lambda *_: False)
    real = validation.valid_loss

    def spoiled(session: TrainingSession) -> float:
        return math.nan if spoiler.step == 6 and spoiler.rate > 0.7e-3 else real(session)

    monkeypatch.setattr(validation, "valid_loss", spoiled)
    limits = ("training.max_steps=9", "training.validate_every=3", "training.learning_rate=1e-3")
    run = train(configured(small_corpus, *limits), "cpu")
    log = (run / LOG).read_text()
    assert "step 6: the validation loss is not finite: back to step 3, with 0.5 of the" in log
    lines = map(json.loads, (run / METRICS).read_text().splitlines())
    assert [line["step"] for line in lines if "valid_loss" in line] == [3, 6, 9]


@one_quick("fault", ["loss", "weight"], quick=1)
def test_a_training_that_ends_diverged_keeps_its_best_weights(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    spoiler = Spoiler(monkeypatch, lambda *_: False)
    real = validation.valid_loss

    def spoiled(session: TrainingSession) -> float:
        if spoiler.step < 7:
            return real(session)
        if fault == "loss":
            return 1e9
        with torch.no_grad():
            next(session.model.parameters()).view(-1)[0] = math.inf
        return 0.001

    monkeypatch.setattr(validation, "valid_loss", spoiled)
    config = configured(small_corpus, "training.max_steps=7", "training.validate_every=3")
    with pytest.raises(RunError) as error:
        train(config, "cpu")
    fault_text = {"loss": "the validation loss is 1e+09 nats a token", "weight": "is not finite"}[
        fault
    ]
    (line,) = str(error.value).splitlines()
    assert line.startswith("step 7: ")
    assert fault_text in line
    kept_steps = [3, 6]
    assert any(
        line.endswith(f"{config.run_dir / BEST} has the weights of step {n}") for n in kept_steps
    )
    load_model(config.run_dir, torch.device("cpu"))
