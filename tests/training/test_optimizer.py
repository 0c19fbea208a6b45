"""Learning-rate schedules, the moving average of the weights, and optimizer steps."""

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases.models import DEVICES
from torch import nn

from seq2seq.config.schema import ModelConfig, TrainingConfig
from seq2seq.model.builder import build_model
from seq2seq.training.loss import token_loss
from seq2seq.training.mixture_loss import LossWeights
from seq2seq.training.optimizer import (
    Optimizer,
    averaging_rate,
    end_of_decay,
    learning_rate,
    schedule_note,
    update_average,
)

PEAK = 0.002
WARMUP = 7
LAST = 40
DECAYS = ["constant", "inverse_sqrt", "linear", "cosine"]


def make_config(**keys: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({"max_steps": LAST, "learning_rate": PEAK} | keys)


def rates(decay: str, warmup: int = WARMUP, steps: int = LAST) -> list[float]:
    """Return the learning rates of steps 1 to `steps`."""
    config = make_config(decay=decay, warmup_steps=warmup)
    return [learning_rate(config, step, LAST) for step in range(1, steps + 1)]


@pytest.mark.parametrize("decay", DECAYS)
def test_warm_up_rises_linearly_to_the_peak(decay: str) -> None:
    rising = rates(decay)[:WARMUP]
    assert rising == pytest.approx([PEAK * step / WARMUP for step in range(1, WARMUP + 1)])


@pytest.mark.parametrize("decay", DECAYS)
def test_the_rate_peaks_at_the_end_of_the_warm_up_and_never_rises_again(decay: str) -> None:
    all_rates = rates(decay)
    assert max(all_rates) == pytest.approx(PEAK)
    assert all_rates[WARMUP - 1] == pytest.approx(PEAK)
    falling = all_rates[WARMUP - 1 :]
    pairs = itertools.pairwise(falling)
    if decay == "constant":
        assert falling == [PEAK] * len(falling)
    else:
        assert all(next_rate < rate for rate, next_rate in pairs)


@pytest.mark.parametrize("decay", DECAYS)
def test_the_schedule_has_no_jumps(decay: str) -> None:
    steepest = max(abs(next_rate - rate) for rate, next_rate in itertools.pairwise(rates(decay)))
    assert steepest <= PEAK / WARMUP * (1 + 1e-9)


@pytest.mark.parametrize("decay", ["linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, WARMUP])
def test_the_rate_is_positive_up_to_the_last_step_and_zero_after_it(
    decay: str, warmup: int
) -> None:
    all_rates = rates(decay, warmup, LAST + 5)
    assert all(rate > 0 for rate in all_rates[:LAST])
    assert all_rates[LAST:] == pytest.approx([0.0] * 5, abs=1e-18)
    assert all_rates[LAST - 1] < 0.05 * PEAK


def test_linear_decay_falls_by_equal_amounts() -> None:
    falling = rates("linear")[WARMUP - 1 :]
    amounts = [rate - next_rate for rate, next_rate in itertools.pairwise(falling)]
    assert amounts == pytest.approx([PEAK / (LAST + 1 - WARMUP)] * len(amounts))


def test_cosine_decay_is_symmetric_about_half_the_peak() -> None:
    falling = [*rates("cosine")[WARMUP - 1 :], 0.0]
    assert len(falling) % 2 == 1
    assert falling[len(falling) // 2] == pytest.approx(PEAK / 2)
    mirrored = [PEAK - rate for rate in reversed(falling)]
    assert falling == pytest.approx(mirrored, abs=1e-15)


@pytest.mark.parametrize("warmup", [0, WARMUP])
def test_inverse_sqrt_decay_halves_at_four_times_the_step(warmup: int) -> None:
    config = make_config(decay="inverse_sqrt", warmup_steps=warmup)
    first = max(warmup, 1)
    for factor, share in ((1, 1.0), (4, 0.5), (9, 1 / 3)):
        assert learning_rate(config, factor * first, None) == pytest.approx(share * PEAK)


@pytest.mark.parametrize("decay", DECAYS)
def test_without_warm_up_the_first_step_has_the_peak_rate(decay: str) -> None:
    assert rates(decay, warmup=0)[0] == PEAK
    assert rates(decay, warmup=0) == rates(decay, warmup=1)


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_a_training_of_one_step_has_the_peak_rate(decay: str) -> None:
    config = make_config(decay=decay, max_steps=1)
    assert learning_rate(config, 1, 1) == PEAK


@pytest.mark.parametrize("warmup", [0, 1, 10])
def test_inverse_sqrt_decay_without_warm_up_gives_a_warning(warmup: int) -> None:
    config = make_config(decay="inverse_sqrt", warmup_steps=warmup, max_steps=None, max_minutes=9)
    tenth = 100 * max(1, warmup)
    note = schedule_note(config, None)
    assert note == (
        f"training.decay: inverse_sqrt with training.warmup_steps {warmup} falls to a tenth of "
        f"training.learning_rate 0.002 by step {tenth:,}; set warmup_steps to some hundreds"
    )
    assert learning_rate(config, tenth, None) == pytest.approx(PEAK / 10)


@pytest.mark.parametrize("decay", ["linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, WARMUP])
def test_a_decay_by_time_equals_one_by_steps_at_constant_speed(decay: str, warmup: int) -> None:
    """The number of steps is estimated from the second step on, here at constant speed."""
    seconds = 0.3
    config = make_config(
        decay=decay, warmup_steps=warmup, max_steps=None, max_minutes=LAST * seconds / 60
    )
    for step in range(1, LAST + 1):
        end = end_of_decay(config, step, None, seconds * (step - 1))
        assert end is None if step == 1 else end == pytest.approx(LAST)
        assert learning_rate(config, step, end) == pytest.approx(learning_rate(config, step, LAST))


def test_the_end_of_a_decay_by_time_follows_the_speed() -> None:
    config = make_config(decay="linear", max_steps=None, max_minutes=10)
    assert end_of_decay(config, 101, None, 60.0) == 1000
    assert end_of_decay(config, 301, None, 300.0) == 600  # training has become slower
    assert end_of_decay(config, 900, None, 601.0) == 900  # past the limit
    assert 0 < learning_rate(config, 900, 900) < PEAK / 800
    assert end_of_decay(make_config(decay="linear", max_minutes=1), 30, LAST, 59.0) == LAST


@pytest.mark.parametrize("warmup", [0, WARMUP])
def test_plateaus_multiply_the_peak(warmup: int) -> None:
    config = make_config(decay={"plateau": 0.3}, patience=2, warmup_steps=warmup)
    assert learning_rate(config, 20, None) == PEAK
    assert learning_rate(config, 20, LAST, 2) == pytest.approx(PEAK * 0.09)
    if warmup:
        assert learning_rate(config, 1, LAST) == pytest.approx(PEAK / WARMUP)


@pytest.mark.parametrize("decay", DECAYS)
def test_a_warm_up_beyond_the_last_step_gives_a_warning(decay: str) -> None:
    config = make_config(decay=decay, warmup_steps=4 * LAST)
    note = schedule_note(config, LAST)
    assert note == (
        "training.warmup_steps: 160 is more than the 40 steps of this training, which ends at "
        "25% of training.learning_rate 0.002; lower it"
    )
    assert learning_rate(config, LAST, LAST) == pytest.approx(PEAK / 4)


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("warmup", [11, LAST])
def test_a_sound_schedule_gives_no_warning(decay: str, warmup: int) -> None:
    assert schedule_note(make_config(decay=decay, warmup_steps=warmup), LAST) is None
    if decay != "inverse_sqrt":
        assert schedule_note(make_config(decay=decay), LAST) is None


@pytest.mark.parametrize("decay", DECAYS)
def test_a_training_shorter_than_its_warm_up_only_rises(decay: str) -> None:
    all_rates = rates(decay, warmup=LAST + 10)
    assert all(next_rate > rate for rate, next_rate in itertools.pairwise(all_rates))
    assert all_rates[-1] < PEAK


def test_the_average_follows_its_formula() -> None:
    decay = 0.4
    generator = torch.Generator().manual_seed(1)
    history = [torch.randn(2, 3, generator=generator).double() for _ in range(9)]
    averages = [torch.zeros(2, 3).double(), torch.ones(5).double()]
    first, constant = averages
    expected = torch.zeros(2, 3).double()
    for step, weight in enumerate(history, start=1):
        rate = averaging_rate(decay, step)
        update_average(averages, [weight, torch.ones(5).double()], rate, torch.tensor(0.0))
        share = min(decay, (1 + step) / (10 + step))
        expected = share * expected + (1 - share) * weight
    assert averages[0] is first
    torch.testing.assert_close(first, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(constant, torch.ones(5).double(), rtol=0, atol=1e-12)


def test_the_average_has_a_short_memory_at_first_and_a_long_one_later() -> None:
    average = [torch.ones(1)]
    zero = [torch.zeros(1)]
    for step in range(1, 11):
        update_average(average, zero, averaging_rate(0.9999, step), torch.tensor(0.0))
    expected = math.prod((1 + step) / (10 + step) for step in range(1, 11))
    assert average[0].item() == pytest.approx(expected, rel=1e-5)
    update_average(average, zero, averaging_rate(0.9999, 10**6), torch.tensor(0.0))
    assert average[0].item() == pytest.approx(0.9999 * expected, rel=1e-5)


def test_the_average_requires_no_gradient() -> None:
    weight = nn.Parameter(torch.randn(3, generator=torch.Generator().manual_seed(1)))
    average = torch.zeros(3)
    update_average([average], [weight], averaging_rate(0.5, 1), torch.tensor(0.0))
    assert not average.requires_grad
    assert average.any()


RULES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


def weights_of(seed: int) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(size, generator=generator)) for size in ((5, 3), (4,), ())]


@pytest.mark.parametrize("weight_decay", [0.0, 0.25])
@pytest.mark.parametrize("name", list(RULES))
@pytest.mark.parametrize("device", DEVICES)
def test_steps_equal_those_of_torchs_optimizer(device: str, name: str, weight_decay: float) -> None:
    """Gradients are divided and missing for some parameters, and the rate changes at each step."""
    ours, theirs = (
        [nn.Parameter(weight.detach().to(device)) for weight in weights_of(1)] for _ in "ab"
    )
    optimizer = Optimizer(make_config(optimizer={name: weight_decay}), ours)
    reference = RULES[name](theirs, lr=1.0, weight_decay=weight_decay, foreach=False)
    generator = torch.Generator().manual_seed(2)
    for step in range(1, 6):
        rate = 0.1 / step
        divisor = 1.0 + step
        for number, (mine, torchs) in enumerate(zip(ours, theirs, strict=True)):
            gradient = torch.randn(mine.shape, generator=generator).to(device)
            mine.grad = None if number == step % 3 else gradient.clone()
            torchs.grad = None if number == step % 3 else gradient / divisor
        reference.param_groups[0]["lr"] = rate
        reference.step()
        optimizer.step(rate, torch.tensor(divisor, device=device))
    for mine, torchs in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, torchs)
        moments = reference.state[torchs] if name != "sgd" else {}
        assert set(optimizer.state[mine]) == set(moments)
        for key, value in moments.items():
            torch.testing.assert_close(optimizer.state[mine][key].cpu(), value.cpu())


@pytest.mark.parametrize("name", list(RULES))
def test_an_optimizer_uses_the_learning_rate_it_is_given(name: str) -> None:
    """Without a gradient, weight decay alone moves a weight: with Adam by a full step."""
    weight = nn.Parameter(torch.tensor([2.0]))
    optimizer = Optimizer(make_config(optimizer={name: 0.5}), [weight])
    weight.grad = torch.zeros(1)
    optimizer.step(0.125)
    moved = {"adam": 0.125, "adamw": 0.125 * 0.5 * 2, "sgd": 0.125 * 0.5 * 2}[name]
    assert 2 - weight.item() == pytest.approx(moved)


@pytest.mark.parametrize("name", list(RULES))
@pytest.mark.parametrize("device", DEVICES)
def test_a_skipped_step_changes_nothing(device: str, name: str) -> None:
    weights = [nn.Parameter(weight.detach().to(device)) for weight in weights_of(1)]
    optimizer = Optimizer(make_config(optimizer={name: 0.25}), weights)

    def step(gradient: float, skipped: float) -> list[torch.Tensor]:
        for weight in weights:
            weight.grad = torch.full_like(weight, gradient)
        optimizer.step(0.5, None, torch.tensor(skipped, device=device))
        moments = [value for state in optimizer.state.values() for value in state.values()]
        return [tensor.detach().clone() for tensor in (*weights, *moments)]

    tensors_before = step(1.0, 0.0)
    assert all(map(torch.equal, step(math.nan, 1.0), tensors_before))
    assert not any(map(torch.equal, step(2.0, 0.0)[:3], tensors_before))


def test_zero_grad_removes_the_gradients() -> None:
    weights = weights_of(1)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    Optimizer(make_config(), weights).zero_grad()
    assert [weight.grad for weight in weights] == [None] * 3


@pytest.mark.thorough
def test_a_step_does_not_import_the_compiler() -> None:
    """torch's own optimizers import it, which costs a second and 75 MB."""
    code = """
import sys, torch
from seq2seq.config.schema import TrainingConfig
from seq2seq.training.optimizer import Optimizer
weight = torch.nn.Parameter(torch.ones(2))
weight.grad = torch.ones(2)
Optimizer(TrainingConfig(max_steps=1), [weight]).step(0.5)
print(weight.tolist(), "torch._dynamo" in sys.modules)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.endswith("] False\n")


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "none"])
@pytest.mark.parametrize("device", DEVICES)
def test_training_steps_lower_the_loss(device: str, decoder: str, precision: str) -> None:
    torch.manual_seed(1)
    config = ModelConfig(decoder=decoder, embedding_size=8, hidden_size=12, dropout=0.1)
    model = build_model(config, 13, 11, joint=False).to(device).train()
    optimizer = Optimizer(make_config(), model.parameters())
    src = torch.tensor([[3, 7, 12, 9, 2], [5, 2, 0, 0, 0], [8, 8, 4, 2, 0]], device=device)
    lengths = torch.tensor([5, 2, 4], device=device)
    tgt_in = torch.tensor([[1, 4, 10, 6], [1, 9, 9, 3], [1, 5, 7, 8]], device=device)
    tgt_out = torch.tensor([[4, 10, 6, 2], [9, 9, 3, 2], [5, 7, 8, 2]], device=device)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
            outputs = model(src, lengths, tgt_in)
            flat = outputs.flatten(0, 1)
            tgt = tgt_out.flatten()
            loss = token_loss(flat, model.projection, tgt, LossWeights(0.0)).objective
        loss.backward()
        assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
        optimizer.step(0.02)
        losses.append(loss.item())
    assert losses[-1] < losses[0]
