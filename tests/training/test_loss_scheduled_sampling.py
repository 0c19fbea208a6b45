"""Scheduled sampling: schedules, random choices, and the loss against a loop over steps."""

import math

import pytest
import torch
from torch import Tensor

from seq2seq.config.schema import ModelConfig, TrainingConfig
from seq2seq.data.padding import Batch, make_batch
from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, PAD_ID
from seq2seq.model.builder import build_model
from seq2seq.model.seq2seq import Seq2Seq, evaluation_copy
from seq2seq.training.loss import batch_loss
from seq2seq.training.mixture_loss import LossWeights
from seq2seq.training.step import draw_references, sample_inputs, teacher_forcing_rate

V = 19
SRC = [[7, 9, 4], [5, 8, 8, 12, 6], [11], [4, 5]]
TGT = [[6, 5, 9, 11, 4, 7], [8], [13, 4, 12], [18, 17, 16, 15]]


def make_model(decoder: str, dropout: float = 0.0) -> Seq2Seq:
    """Return a model whose most probable tokens depend on its inputs."""
    torch.manual_seed(8)
    config = ModelConfig(decoder=decoder, embedding_size=8, hidden_size=12, dropout=dropout)
    model = build_model(config, V, V, joint=True).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
    return model


def batch() -> Batch:
    return make_batch(SRC, TGT)


def settings(**keys: object) -> TrainingConfig:
    return TrainingConfig.model_validate({"max_steps": 9, **keys})


# --------------------------------------------------------------------------------------- schedules


@pytest.mark.parametrize("k", [1, 7, 900])
@pytest.mark.parametrize("schedule", ["linear", "exponential", "inverse_sigmoid"])
def test_schedules_follow_their_formulas(schedule: str, k: int) -> None:
    config = settings(scheduled_sampling={schedule: k})
    shares = [teacher_forcing_rate(config, step) for step in range(1, 5 * k)]
    for i, share in enumerate(shares, start=1):
        expected = {
            "linear": max(0.0, 1 - i / k),
            "exponential": math.e ** (-i / k),
            "inverse_sigmoid": k / (k + math.exp(i / k)),
        }[schedule]
        assert share == pytest.approx(expected, rel=1e-12)
    assert shares == sorted(shares, reverse=True)
    assert all(0 <= share < 1 for share in shares)
    assert 0 <= teacher_forcing_rate(config, 10**9) < 1e-9  # and no overflow


def test_without_a_schedule_all_inputs_are_reference_tokens() -> None:
    assert teacher_forcing_rate(settings(), 10**6) == 1


# ----------------------------------------------------------------------------------------- choices


def sampled(model: Seq2Seq, references_batch: Batch, rate: float) -> Batch:
    references = draw_references(references_batch, rate)
    return sample_inputs(evaluation_copy(model), references_batch, references)


def test_full_teacher_forcing_draws_no_random_number_and_changes_nothing() -> None:
    model = make_model("luong")
    original = batch()
    rng_state = torch.get_rng_state()
    assert sampled(model, original, 1.0) is original
    assert torch.equal(torch.get_rng_state(), rng_state)
    sampled(model, original, 0.5)
    assert not torch.equal(torch.get_rng_state(), rng_state)


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "none"])
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_loss_and_gradient_equal_those_of_sampling_step_by_step(decoder: str, share: float) -> None:
    """The reference samples in its loop over steps, with one graph through all of them."""
    model = make_model(decoder).train()
    original = batch()
    torch.manual_seed(5)
    mixed = sampled(model, original, share)
    assert model.training
    total = batch_loss(model, mixed, LossWeights(0.1)).objective
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(total, parameters)

    torch.manual_seed(5)
    forced = torch.rand(original.tgt_in.shape) < share
    memory, state = model.start(model.encode(original.src, original.src_lengths))
    outputs: list[Tensor] = []
    for t, reference in enumerate(original.tgt_in.unbind(1)):
        ids = reference
        if t:
            logits = model.project(outputs[-1]).detach()
            logits[:, [PAD_ID, BOS_ID, EOS_ID]] = -torch.inf
            ids = torch.where(forced[:, t], reference, logits.argmax(-1))
        step = model.step(ids, state, memory)
        state = step.state
        outputs.append(step.outputs)
    log_probs = model.project(torch.stack(outputs, dim=1)).log_softmax(-1)
    real = log_probs.flatten(0, 1)[original.tgt_positions]
    target_log_probs = real[torch.arange(len(real)), original.tgt_out]
    expected = -(0.9 * target_log_probs + 0.1 * real.mean(-1)).sum()
    torch.testing.assert_close(total, expected)
    for left, right in zip(gradients, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-9)


def test_inputs_are_reference_tokens_at_the_given_rate() -> None:
    model = make_model("none")
    original = make_batch([[4, 5, 6]] * 50, [[7] * 40] * 50)
    torch.manual_seed(1)
    mixed = sampled(model, original, 0.7).tgt_in
    free_running = sampled(model, original, 0.0).tgt_in
    assert torch.equal(mixed[:, 0], original.tgt_in[:, 0])
    assert (free_running[:, 1:41] != 7).all()
    assert (mixed[:, 1:41] == 7).double().mean().item() == pytest.approx(0.7, abs=0.03)


def test_tokens_are_sampled_independently_and_determined_by_the_seed() -> None:
    model = make_model("luong", dropout=0.5)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(sampled(model, batch(), 0.5).tgt_in)
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    changed = results[0] != batch().tgt_in
    assert len({tuple(row.tolist()) for row in changed}) > 1


def test_special_tokens_are_never_sampled() -> None:
    model = make_model("bahdanau")
    with torch.no_grad():
        model.projection.bias[[PAD_ID, BOS_ID, EOS_ID]] += 100
    sampled_ids = sampled(model, batch(), 0.0).tgt_in[:, 1:]
    assert not torch.isin(sampled_ids, torch.tensor([PAD_ID, BOS_ID, EOS_ID])).any()
    assert len(sampled_ids.unique()) > 3
