"""Products, scaled embedding, dropout, and sigmoid and tanh against torch's own."""

from typing import Any

import pytest
import torch
from cases.models import DEVICES
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from seq2seq.model.layers import (
    PRODUCT_ROWS,
    Dropout,
    Linear,
    ScaledEmbedding,
    activate_gates_,
    linear,
    tanh,
    tanh_into,
    weight_gradient,
)

V = 11
E = 7
IDS = torch.tensor([[3, 10, 0, 3], [1, 1, 2, 9], [4, 5, 6, 7]])

# ----------------------------------------------------------------------------------------- products


class ProductSizes(TorchDispatchMode):
    """Record the sizes of matrix products in half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            left, right = args[-2:]
            if left.dtype == torch.bfloat16:
                self.sizes.add((*left.shape, right.shape[1]))
        return function(*args, **(kwargs or {}))


def half_precision(enabled: bool = True) -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)


def whole_numbers(*shape: int, share: float = 1.0) -> torch.Tensor:
    """Return numbers -1, 0 and 1, of which at most this share is not zero.

    Sums of at most 256 products of them are exact in every format and order of summation, so that
    all processors compute the same.
    """
    return torch.randint(-1, 2, shape) * (torch.rand(shape) < share).float()


@pytest.mark.parametrize("positions", [(3, 5), (1, PRODUCT_ROWS), (29, 13), (31, 40)])
@pytest.mark.parametrize("enabled", [False, True])
def test_a_linear_layer_equals_torchs(positions: tuple[int, int], enabled: bool) -> None:
    torch.manual_seed(1)
    layer = Linear(6, 10)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(whole_numbers(*parameter.shape))
    inputs = whole_numbers(*positions, 6).requires_grad_()
    grad = whole_numbers(*positions, 10, share=0.2)
    assert grad.abs().sum((0, 1)).max() < 256
    results = []
    for function in (layer, lambda tensor: F.linear(tensor, layer.weight, layer.bias)):
        with half_precision(enabled):
            product = function(inputs)
        tensors = [inputs, layer.weight, layer.bias]
        gradients = torch.autograd.grad(product, tensors, grad.to(product))
        results.append([product, *gradients])
    for actual, expected in zip(*results, strict=True):
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected)


def test_products_of_many_rows_recur_in_few_sizes() -> None:
    """oneDNN compiles a kernel for each size."""
    weight = torch.randn(10, 6, requires_grad=True)
    with ProductSizes() as products:
        for rows in range(PRODUCT_ROWS + 1, 2 * PRODUCT_ROWS, 7):
            with half_precision():
                product = linear(torch.randn(rows, 1, 6, requires_grad=True), weight)
            product.sum().backward()
            weight_gradient(product.detach(), torch.randn(rows, 1, 6, dtype=product.dtype))
    row_count = 2 * PRODUCT_ROWS
    assert products.sizes == {(row_count, 6, 10), (row_count, 10, 6), (10, row_count, 6)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("positions", [(3, 5), (29, 13)])
def test_the_gradient_of_a_weight_is_the_sum_over_positions(
    dtype: torch.dtype, positions: tuple[int, int]
) -> None:
    torch.manual_seed(1)
    grads = whole_numbers(*positions, 10, share=0.5)
    inputs = whole_numbers(*positions, 6)
    assert grads.abs().sum((0, 1)).max() < 256
    expected = torch.einsum("tbo,tbi->oi", grads, inputs)
    gradient = weight_gradient(grads.to(dtype), inputs.to(dtype))
    assert torch.equal(gradient, expected.to(dtype))


# ---------------------------------------------------------------------------------------- embedding


def test_a_row_is_scaled_by_the_root_of_its_size_and_so_is_its_gradient() -> None:
    torch.manual_seed(1)
    embedding = ScaledEmbedding(V, E).double()
    plain = nn.Embedding(V, E, _weight=embedding.weight.detach().clone())
    scaled = embedding(IDS)
    expected = plain(IDS) * E**0.5
    assert torch.equal(scaled, expected)
    for result in (scaled, expected):
        result.square().sum().backward()
    torch.testing.assert_close(embedding.weight.grad, plain.weight.grad)


def test_initial_embeddings_have_unit_variance_and_rows_of_unit_norm() -> None:
    torch.manual_seed(1)
    embedding = ScaledEmbedding(500, 64)
    embedded = embedding(torch.arange(500))
    assert embedded.std().item() == pytest.approx(1, rel=0.02)
    assert embedding.weight.norm(dim=1).mean().item() == pytest.approx(1, rel=0.02)


# ----------------------------------------------------------------------------------------- dropout


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_it_drops_at_its_rate_and_keeps_the_mean(rate: float, device: str) -> None:
    torch.manual_seed(1)
    outputs = Dropout(rate)(torch.ones(1000, 1001, device=device))
    nonzero = outputs[outputs != 0]
    assert abs(1 - nonzero.numel() / outputs.numel() - rate) < 1 / 512 + 3e-3
    assert torch.equal(nonzero, torch.full_like(nonzero, nonzero[0].item()))
    assert abs(outputs.double().mean().item() - 1) < 0.01


def test_elements_are_dropped_independently() -> None:
    torch.manual_seed(1)
    is_nonzero = (Dropout(0.5)(torch.ones(4096, 64)) != 0).double()
    correlation = torch.corrcoef(is_nonzero.t()) - torch.eye(
        64
    )  # 64 columns: eight random words per row
    assert correlation.abs().max() < 5 / 4096**0.5
    assert (is_nonzero.mean(0) - 0.5).abs().max() < 5 * 0.5 / 4096**0.5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_gradient_is_the_mask(dtype: torch.dtype, device: str) -> None:
    inputs = torch.ones(7, 13, dtype=dtype, device=device, requires_grad=True)
    outputs = Dropout(0.4)(inputs)
    outputs.sum().backward()
    assert outputs.dtype == dtype
    assert inputs.grad is not None
    assert torch.equal(inputs.grad, outputs.detach())


def test_the_mask_depends_on_the_seed() -> None:
    inputs = torch.ones(40, 40)
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(Dropout(0.3)(inputs))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


@pytest.mark.parametrize(("rate", "training"), [(0.0, True), (0.5, False)])
def test_dropout_is_off_at_rate_zero_and_in_evaluation(rate: float, training: bool) -> None:
    inputs = torch.randn(5, 6)
    assert torch.equal(Dropout(rate).train(training)(inputs), inputs)


def test_outputs_are_finite_at_a_rate_of_nearly_one() -> None:
    assert Dropout(0.9999)(torch.ones(100, 100)).isfinite().all()


@pytest.mark.parametrize("rate", [0.001, 0.999, 1.0])
def test_extreme_rates_are_exact(rate: float) -> None:
    torch.manual_seed(1)
    outputs = Dropout(rate)(torch.ones(1000, 1001))
    nonzero = outputs[outputs != 0]
    assert abs(1 - nonzero.numel() / outputs.numel() - rate) <= 5 * (rate * (1 - rate) / 1e6) ** 0.5
    torch.testing.assert_close(nonzero, torch.full_like(nonzero, 1 / max(1 - rate, 1e-9)))


def test_inputs_need_not_be_contiguous() -> None:
    inputs = torch.randn(6, 5, 4).transpose(0, 2)
    outputs = Dropout(0.5)(inputs)
    ratio = outputs / inputs
    assert outputs.shape == inputs.shape
    assert ((ratio == 0) | ((ratio - 2).abs() < 1e-5)).all()


# ----------------------------------------------------------------------------------- sigmoid, tanh


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_it_is_tanh_up_to_rounding(dtype: torch.dtype) -> None:
    values = torch.linspace(-30, 30, 4001, dtype=torch.float64).to(dtype)
    expected = values.tanh()
    limit = 2 * torch.finfo(dtype).eps
    assert (tanh(values) - expected).abs().max() <= limit
    out = torch.empty_like(values)
    assert tanh_into(values, out) is out
    assert (out - expected).abs().max() <= limit
    assert tanh_into(values, values) is values
    assert torch.equal(values, out)


def test_its_gradient_equals_that_of_tanh() -> None:
    values = torch.randn(7, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(tanh(values), values.tanh())
    assert torch.equal(tanh(values), tanh(values.detach()))
    assert torch.autograd.gradcheck(tanh, [values])


@pytest.mark.parametrize("size", [3, 25, 32, 100])
def test_gates_are_logistic_and_candidates_are_tanh(size: int) -> None:
    gates = 3 * torch.randn(7, 4 * size)
    expected = torch.cat([gates[:, :-size].sigmoid(), gates[:, -size:].tanh()], dim=1)
    activate_gates_(gates, size)
    torch.testing.assert_close(gates, expected)
