"""tanh by way of the logistic function against torch's own."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from seq2seq.model.fused.lstm import activate
from seq2seq.model.layers import sigmoid_, tanh, tanh_into


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


# ------------------------------------------------------------------------------------------ company


@pytest.fixture(params=[1, 2, 3, 6, 7])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def cell_of(gates: Tensor) -> Tensor:
    size = gates.shape[1] // 4
    hidden, cell = torch.empty(2, len(gates), size)
    activate(gates, gates[:, :size].sin(), hidden, cell)
    return torch.cat([hidden, cell], dim=1)


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": sigmoid_,
    "part of rows": lambda rows: sigmoid_(rows[:, : rows.shape[1] // 4 * 3]),
    "more dimensions": lambda rows: sigmoid_(rows.view(4, -1, rows.shape[1])).view_as(rows),
    "tanh": tanh,
    "tanh over out": lambda rows: tanh_into(rows, torch.empty_like(rows)),
    "cell": cell_of,
}


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("rows", [64, 256, 320])
@pytest.mark.parametrize("width", [128, 256, 512, 640, 2048])
def test_a_row_has_the_same_bits_wherever_it_stands(name: str, rows: int, width: int) -> None:
    """Where torch's threads part within a vector, numbers beside have other bits."""
    row = 3 * torch.randn(width, generator=torch.Generator().manual_seed(1))
    found = WAYS[name](row.repeat(rows, 1))
    assert torch.equal(found, found[:1].expand_as(found))
    alone = WAYS[name](row.repeat(4, 1))
    assert torch.equal(found[:4], alone)


def test_the_logistic_function_is_torch_s() -> None:
    for shape in ((0, 64), (7, 5), (400, 96), (33, 2048), (3, 40_000)):
        values = torch.randn(shape)
        expected = values.sigmoid()
        assert sigmoid_(values) is values
        torch.testing.assert_close(values, expected)
