"""The LSTM on torch's own kernels: equal to steps, with the correct last cell under padding."""

from typing import Any

import pytest
import torch
from cases.models import DEVICES, B, Case, E, H, S, T, close, make_model, random_tensor, randomize
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from seq2seq.model import recurrent
from seq2seq.model.fused.lstm import run_library_lstm
from seq2seq.model.recurrent import LSTMLayer, RecurrentLayer

LENGTHS = (4, 2, 5)
PAD_MASK = torch.arange(S) >= torch.tensor(LENGTHS)[:, None]


def make_layer() -> LSTMLayer:
    layer = LSTMLayer(E, H)
    randomize(layer)
    return layer


def library(layer: LSTMLayer, inputs: Tensor, *state: Any) -> tuple[Tensor, Tensor]:
    return run_library_lstm((layer.input_weight, layer.hidden_weight, layer.bias), inputs, *state)


@pytest.mark.parametrize("device", DEVICES)
def test_values_and_gradients_equal_those_of_steps(device: str) -> None:
    """Compare each sentence alone, up to its own length."""
    layer = make_layer().to(device)
    inputs, hidden, cell = (
        random_tensor(B, *shape, seed=n).detach().to(device).requires_grad_()
        for n, shape in enumerate([(S, E), (H,), (H,)])
    )
    real = (~PAD_MASK).to(device)[:, :, None]
    factors = [random_tensor(B, *shape, seed=7).detach().to(device) for shape in ((S, H), (H,))]
    leaves = [inputs, hidden, cell, *layer.parameters()]

    hiddens, last = library(layer, inputs, (hidden, cell), PAD_MASK.to(device))
    gradients = torch.autograd.grad(
        (hiddens * real * factors[0]).sum() + (last * factors[1]).sum(), leaves
    )
    total = torch.zeros((), dtype=torch.float64, device=device)
    for b, length in enumerate(LENGTHS):
        h = hidden[b : b + 1]
        c = cell[b : b + 1]
        for t in range(length):
            h, c = layer.step(layer.gates(inputs[b : b + 1, t]), h, c)
            close(hiddens[b, t], h[0])
            total = total + (h[0] * factors[0][b, t]).sum()
        close(last[b], c[0])
        total = total + (c[0] * factors[1][b]).sum()
    expected = torch.autograd.grad(total, leaves)
    for left, right in zip(gradients, expected, strict=True):
        close(left, right)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_padding_leaves_the_cell_as_it_is(dtype: torch.dtype) -> None:
    """Bitwise, for any content and number of padded positions."""
    layer = make_layer().to(dtype)
    inputs = random_tensor(B, S, E, seed=2).detach().to(dtype)
    state = (torch.zeros(B, H, dtype=dtype), torch.zeros(B, H, dtype=dtype))
    with torch.no_grad():
        hiddens, last = library(layer, inputs, state, PAD_MASK)
        changed = inputs.masked_fill(PAD_MASK[:, :, None], 50)
        changed_hiddens, same = library(layer, changed, state, PAD_MASK)
        doubled = torch.cat([changed, changed], dim=1)
        mask = torch.cat([PAD_MASK, torch.ones_like(PAD_MASK)], dim=1)
        cell_of_doubled = library(layer, doubled, state, mask)[1]
    assert torch.equal(same, last)
    for b, length in enumerate(LENGTHS):
        assert torch.equal(changed_hiddens[b, :length], hiddens[b, :length])
    close(cell_of_doubled, last, 20 * torch.finfo(dtype).eps)  # products of another shape


def test_without_padding_the_last_cell_equals_that_of_the_last_position() -> None:
    layer = make_layer()
    inputs, hidden, cell = (
        random_tensor(B, *s, seed=n) for n, s in enumerate([(T, E), (H,), (H,)])
    )
    hiddens, cells = layer(inputs, hidden, cell)
    for hiddens_and_cell in (
        library(layer, inputs, (hidden, cell)),
        layer.run(inputs, (hidden, cell)),
    ):
        close(hiddens_and_cell[0], hiddens)
        close(hiddens_and_cell[1], cells[:, -1])


def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by each call of the library, which is used on any device."""
    call_marks: list[int] = []

    def counted(*arguments: Any) -> tuple[Tensor, Tensor]:
        call_marks.append(1)
        return run_library_lstm(*arguments)

    monkeypatch.setattr(recurrent, "run_library_lstm", counted)
    monkeypatch.setattr(recurrent, "use_library", lambda _: True)
    return call_marks


@pytest.mark.parametrize(
    ("case", "count"),
    [
        (Case("bahdanau", "additive", False, 2), 4),  # the encoder's layers and directions
        (Case("luong", "general", True, 2), 4),
        (Case("luong", "general", False, 2), 6),
        (Case("plain", "", False, 2), 6),
        (Case("gnmt", "additive", False, 2), 6),
        (Case("plain", "", False, 2, unit="normed"), 0),
        (Case("plain", "", False, 1, unit="gru"), 0),
    ],
    ids=str,
)
def test_the_library_runs_layers_without_feedback(
    monkeypatch: pytest.MonkeyPatch, case: Case, count: int
) -> None:
    library_calls = calls(monkeypatch)
    src = torch.tensor([[3, 7, 2], [5, 2, 0]])
    tgt = torch.tensor([[1, 4], [1, 9]])
    model = make_model(case)
    lengths = torch.tensor([3, 2])
    by_library = model(src, lengths, tgt)
    assert len(library_calls) == count
    monkeypatch.setattr(LSTMLayer, "run", RecurrentLayer.run)
    close(model(src, lengths, tgt), by_library)
    assert len(library_calls) == count


def test_the_cpu_does_not_use_the_library() -> None:
    """CPU results stay bitwise the same; a fake CUDA tensor needs no device."""
    layer = make_layer()
    inputs = random_tensor(B, T, E, seed=1)
    state = (torch.zeros(B, H).double(),) * 2
    hiddens, cells = layer(inputs, *state)
    hiddens_and_cells = layer.run(inputs, state)
    assert torch.equal(hiddens_and_cells[0], hiddens)
    assert torch.equal(hiddens_and_cells[1], cells[:, -1])
    with FakeTensorMode():
        on_cuda = torch.empty(B, T, E, device="cuda")
    assert recurrent.use_library(on_cuda)
    assert not recurrent.use_library(inputs)


def test_mixed_precision_returns_the_cell_in_float32() -> None:
    layer = LSTMLayer(E, H)
    inputs = torch.randn(B, T, E)
    state = layer.zero_state(B)
    expected, _ = library(layer, inputs, state)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hiddens, cell = library(layer, inputs, state)
        (hiddens.sum() + cell.sum()).backward()
    assert layer.bias.grad is not None
    assert layer.bias.grad.dtype == torch.float32
    assert (hiddens.dtype, cell.dtype) == (torch.bfloat16, torch.float32)
    close(hiddens.float(), expected, 0.05)
