"""tanh by way of the logistic function against torch's own."""

import pytest
import torch

from seq2seq.model.nonlinear import tanh, tanh_into


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_it_is_tanh_to_the_last_digit_of_one(dtype: torch.dtype) -> None:
    values = torch.linspace(-30, 30, 4001, dtype=torch.float64).to(dtype)
    expected = values.tanh()
    limit = 2 * torch.finfo(dtype).eps
    assert (tanh(values) - expected).abs().max() <= limit
    out = torch.empty_like(values)
    assert tanh_into(values, out) is out
    assert (out - expected).abs().max() <= limit
    assert tanh_into(values, values) is values
    assert torch.equal(values, out)


def test_its_gradient_is_that_of_tanh() -> None:
    values = torch.randn(7, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(tanh(values), values.tanh())
    assert torch.equal(tanh(values), tanh(values.detach()))
    assert torch.autograd.gradcheck(tanh, [values])
