"""Steps of a prepared training: gradients, losses, averages."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from cases.stopped_trainings import take_step
from cases.trainings import configured, lines_of, log_of, state_of, trained
from torch import Tensor

from seq2seq.data.batching import EpochOrder
from seq2seq.data.padding import Batch, make_batch
from seq2seq.model.seq2seq import named_weights
from seq2seq.runs.layout import BEST, LAST, METRICS
from seq2seq.training import loop as training
from seq2seq.training.loss import batch_loss
from seq2seq.training.mixture_loss import LossWeights
from seq2seq.training.preparation import prepare
from seq2seq.training.session import TrainingSession
from seq2seq.training.step import StepResult, train_step

pytestmark = pytest.mark.usefixtures("no_engine", "no_tensorboard", "short_sentences")


CPU = torch.device("cpu")


def prepared(corpus: Path, *overrides: str, run: str = "run") -> TrainingSession:
    plain = ["model.dropout=0", "training.clip_norm=1e9", "training.label_smoothing=0"]
    config = configured(corpus, *plain, *overrides, run=run)
    return prepare(config, CPU)[0]


def some_batch(run: TrainingSession, rows: range) -> Batch:
    return make_batch([run.data.train.src[i] for i in rows], [run.data.train.tgt[i] for i in rows])


def gradients(run: TrainingSession) -> dict[str, Tensor]:
    return {
        name: weight.grad.clone()
        for name, weight in run.model.named_parameters()
        if weight.grad is not None
    }


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_two_accumulated_batches_have_the_gradient_of_one_double_batch(
    small_corpus: Path, smoothing: float
) -> None:
    parts, double = (
        prepared(small_corpus, f"training.label_smoothing={smoothing}", run=name)
        for name in ("parts", "double")
    )
    tokens_of_parts = take_step(
        parts, [some_batch(parts, range(5)), some_batch(parts, range(5, 18))], 1e-3
    )
    tokens_of_double = take_step(double, [some_batch(double, range(18))], 1e-3)
    assert tokens_of_parts == tokens_of_double
    torch.testing.assert_close(
        parts.progress.losses, double.progress.losses, rtol=1e-6, atol=0
    )  # sums of float32
    expected = gradients(double)
    assert len(expected) == len(named_weights(double.model))
    for name, gradient in gradients(parts).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_accumulated_batches_are_one_step(small_corpus: Path) -> None:
    single = trained(small_corpus, "training.max_epochs=1", run="single")
    double = trained(small_corpus, "training.max_epochs=1", "training.accumulate=2", run="double")
    single_progress, double_progress = (
        state_of(run / LAST)[0]["progress"] for run in (single, double)
    )
    assert double_progress["step"] == -(-single_progress["step"] // 2)
    assert double_progress["tokens"] == single_progress["tokens"]


@pytest.mark.parametrize("limit", [0.01, 0.1])
def test_the_gradient_norm_is_at_most_clip_norm(small_corpus: Path, limit: float) -> None:
    unclipped, clipped = (
        prepared(small_corpus, f"training.clip_norm={norm}", run=str(norm)) for norm in (1e9, limit)
    )
    for run in (unclipped, clipped):
        take_step(run, [some_batch(run, range(9))], 1e-3)
    full_norm = math.sqrt(
        sum(float(gradient.square().sum()) for gradient in gradients(unclipped).values())
    )
    assert full_norm > 0.2
    for name, gradient in gradients(clipped).items():
        torch.testing.assert_close(gradient, gradients(unclipped)[name] * limit / full_norm)


@pytest.mark.thorough
def test_the_losses_of_training_and_validation_are_comparable(small_corpus: Path) -> None:
    """Both are equal on the training text, without dropout, at a learning rate near zero."""
    same = [f"data.valid.{side}={small_corpus.parent}/train.{side}" for side in ("src", "tgt")]
    same += ["data.max_length=100", "training.max_epochs=1"]
    still = ("model.dropout=0", "training.learning_rate=1e-12", "training.label_smoothing=0.3")
    config = configured(small_corpus, *same, *still)
    steps = len(EpochOrder(prepare(config, CPU)[0].data.train, config.training.batch_tokens, 1, 0))
    run = trained(small_corpus, *same, *still, f"training.log_every={steps}", run="comparable")
    train_line, valid_line = lines_of(run / METRICS)[:2]
    assert train_line["train_loss"] == pytest.approx(valid_line["valid_loss"], rel=1e-5)
    assert train_line["train_objective"] != pytest.approx(valid_line["valid_loss"], rel=1e-4)
    assert f"loss {train_line['train_loss']:.2f}, objective " in log_of(run)


def test_label_smoothing_adds_the_mean_loss_of_all_tokens(small_corpus: Path) -> None:
    run = prepared(small_corpus)
    batch = some_batch(run, range(7))
    with torch.no_grad():
        log_probs = run.model.project(run.model(*batch[:3])).log_softmax(-1).flatten(0, 1)
    log_probs = log_probs[batch.tgt_positions]
    plain = -log_probs.gather(1, batch.tgt_out[:, None]).sum()
    even = -log_probs.mean(dim=1).sum()
    for share in (0.0, 0.3):
        loss = batch_loss(run.model, batch, LossWeights(share))
        torch.testing.assert_close(loss.objective.detach(), (1 - share) * plain + share * even)
        torch.testing.assert_close(loss.nll, plain)


@pytest.mark.thorough
def test_the_average_follows_the_weights(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: dict[str, Tensor] = {}

    def step(run: TrainingSession, batches: Sequence[Batch], rate: float) -> StepResult:
        if not followed:
            followed.update({n: w.double() for n, w in named_weights(run.model).items()})
        result = train_step(run, batches, rate)
        decay = min(0.6, (1 + run.progress.step) / (10 + run.progress.step))
        for name, weight in named_weights(run.model).items():
            followed[name] = decay * followed[name] + (1 - decay) * weight.double()
        return result

    monkeypatch.setattr(training, "train_step", step)
    limits = ("training.max_steps=15", "training.validate_every=15")
    run = trained(small_corpus, "training.average=0.6", *limits)
    _, last = state_of(run / LAST)
    _, best = state_of(run / BEST)
    for name, average in followed.items():
        torch.testing.assert_close(last[f"averages.{name}"].double(), average, rtol=1e-4, atol=1e-6)
        assert torch.equal(best[name], last[f"averages.{name}"])  # search uses the averages
    assert not all(torch.equal(last[f"weights.{name}"], best[name]) for name in best)
