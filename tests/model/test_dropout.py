"""Dropout: the rate, the mean, the generator that decides, and where it is off."""

import pytest
import torch
from model_cases import DEVICES

from seq2seq.model.dropout import Dropout


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_it_drops_at_its_rate_and_keeps_the_mean(rate: float, device: str) -> None:
    torch.manual_seed(1)
    outputs = Dropout(rate)(torch.ones(1000, 1001, device=device))
    kept = outputs[outputs != 0]
    assert abs(1 - kept.numel() / outputs.numel() - rate) < 1 / 512 + 3e-3
    assert torch.equal(kept, torch.full_like(kept, kept[0].item()))
    assert abs(outputs.double().mean().item() - 1) < 0.01


def test_every_element_is_decided_by_itself() -> None:
    torch.manual_seed(1)
    kept = (Dropout(0.5)(torch.ones(4096, 64)) != 0).double()
    correlation = torch.corrcoef(kept.t()) - torch.eye(64)  # 64 columns: eight random words a row
    assert correlation.abs().max() < 5 / 4096**0.5
    assert (kept.mean(0) - 0.5).abs().max() < 5 * 0.5 / 4096**0.5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_gradient_is_the_mask(dtype: torch.dtype, device: str) -> None:
    inputs = torch.ones(7, 13, dtype=dtype, device=device, requires_grad=True)
    outputs = Dropout(0.4)(inputs)
    outputs.sum().backward()
    assert outputs.dtype == dtype
    assert inputs.grad is not None
    assert torch.equal(inputs.grad, outputs.detach())


def test_the_seed_decides() -> None:
    inputs = torch.ones(40, 40)
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(Dropout(0.3)(inputs))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


@pytest.mark.parametrize(("rate", "training"), [(0.0, True), (0.5, False)])
def test_it_is_off_without_a_rate_or_a_training(rate: float, training: bool) -> None:
    inputs = torch.randn(5, 6)
    assert torch.equal(Dropout(rate).train(training)(inputs), inputs)


def test_a_rate_of_nearly_one_stays_finite() -> None:
    assert Dropout(0.9999)(torch.ones(100, 100)).isfinite().all()


def test_shapes_that_are_not_contiguous() -> None:
    inputs = torch.randn(6, 5, 4).transpose(0, 2)
    outputs = Dropout(0.5)(inputs)
    ratio = outputs / inputs
    assert outputs.shape == inputs.shape
    assert ((ratio == 0) | ((ratio - 2).abs() < 1e-5)).all()
