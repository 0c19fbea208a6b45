"""Loss with copying and its gradients against the mixture written out in loops."""

import pytest
import torch
from cases.models import (
    CASES,
    Case,
    R,
    V,
    close,
    copied_in_loops,
    make_copying_model,
    random_tensor,
)
from cases.tiers import one_quick
from torch import Tensor, nn

from seq2seq.data.padding import Batch, make_batch
from seq2seq.model.copying import Copying, CopyOutputs, first_positions
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.model.state import SourcePositions
from seq2seq.training import loss as loss_module
from seq2seq.training.loss import batch_loss, token_loss
from seq2seq.training.mixture_loss import LossWeights

ATTENTIONAL = [case for case in CASES if case.kind != "plain"]
SOURCES = [[4, 5, 4, 6], [7, 8], [9, 9, 9]]
TARGETS = [[5, 4, 10], [9, 4, 5, 7], [9]]
CHUNK = 4


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "CHUNK", CHUNK)
    monkeypatch.setattr(loss_module, "BLOCK", 2 * CHUNK)


def loss_in_loops(model: Seq2Seq, batch: Batch, smoothing: float) -> Tensor:
    """Return the cross-entropy of the mixture with the smoothed target."""
    outputs, weights, *_ = model.unroll(batch.src, batch.src_lengths, batch.tgt_in)
    assert weights is not None
    values = model.start(model.encode(batch.src, batch.src_lengths))[0].values
    tensors = outputs, weights, values, batch.src, batch.tgt_in
    by_sentence = [
        copied_in_loops(model, *tensors_of_sentence)
        for tensors_of_sentence in zip(*tensors, strict=True)
    ]
    width = outputs.shape[1]
    total = torch.zeros((), dtype=torch.float64)
    for position, tgt in zip(batch.tgt_positions.tolist(), batch.tgt_out.tolist(), strict=True):
        row, column = divmod(position, width)
        log_probs = by_sentence[row][column]
        total = total - (1 - smoothing) * log_probs[tgt] - smoothing * log_probs.mean()
    return total


@one_quick("smoothing", [0.0, 0.1], quick=1)
@one_quick("case", ATTENTIONAL, ids=str, quick=range(0, len(ATTENTIONAL), 3))
def test_loss_and_gradients_equal_those_of_loops(case: Case, smoothing: float) -> None:
    model = make_copying_model(case)
    batch = make_batch(SOURCES, TARGETS)
    loss, nll = batch_loss(model, batch, LossWeights(smoothing))
    expected = loss_in_loops(model, batch, smoothing)
    close(loss, expected)
    close(nll, loss_in_loops(model, batch, 0.0).detach())
    parameters = dict(model.named_parameters())
    actual_gradients, expected_gradients = (
        torch.autograd.grad(
            tested_loss, list(parameters.values()), allow_unused=True, materialize_grads=True
        )
        for tested_loss in (loss, expected)
    )
    for left, right in zip(actual_gradients, expected_gradients, strict=True):
        close(left, right)
    layers = ("gate.weight", "gate.bias", "continuation.weight", "continuation.bias")
    assert parameters.keys() >= {f"copying.{name}" for name in (*layers, "position_weight")}


def mixture(rows: int) -> tuple[nn.Linear, Copying, Tensor, CopyOutputs]:
    """Return projection, copy layer, scores of source positions and the resulting outputs."""
    torch.manual_seed(2)
    projection = nn.Linear(R, V).double()
    layer = Copying(R, 3).double()
    src = torch.randint(V, (rows, 6)).view(-1, 2, 6)[:, :1].expand(-1, 2, -1).reshape(rows, 6)
    scores = random_tensor(rows, 6, seed=5)
    outputs = random_tensor(rows, R, seed=6)
    return projection, layer, scores, copied_from(layer, outputs, scores, src)


def copied_from(layer: Copying, outputs: Tensor, scores: Tensor, src: Tensor) -> CopyOutputs:
    """Return the mixture for outputs [N, R], scores and source ids [N, 6]; some copies continue."""
    continued = scores.detach().roll(1, 1).softmax(-1)
    positions = SourcePositions(
        src, first_positions(src), scores.detach()[..., None].repeat(1, 1, 2)
    )
    copy_outputs: CopyOutputs
    copy_outputs, _ = layer(outputs, scores.softmax(-1), continued, positions)
    return copy_outputs


def test_loss_without_gradients_is_the_same() -> None:
    model = make_copying_model(ATTENTIONAL[0])
    batch = make_batch(SOURCES, TARGETS)
    expected = batch_loss(model, batch, LossWeights(0.1)).objective
    with torch.no_grad():
        assert torch.equal(batch_loss(model, batch, LossWeights(0.1)).objective, expected.detach())


def test_no_rows_have_zero_loss() -> None:
    projection, _, _, copy_outputs = mixture(2)
    empty = CopyOutputs(*(tensor[:0] for tensor in copy_outputs))
    loss = token_loss(
        empty, projection, torch.zeros(0, dtype=torch.long), LossWeights(0.1)
    ).objective
    assert loss.item() == 0
    loss.backward()


@pytest.mark.parametrize("scale", [1000.0, 1e8])
def test_a_diverged_model_has_a_finite_loss_and_gradient(scale: float) -> None:
    projection, layer, scores, _ = mixture(CHUNK + 2)
    projection, layer = projection.float(), layer.float()
    scores = (scores.detach().float() * scale).requires_grad_()
    outputs = (random_tensor(CHUNK + 2, R, seed=6).detach().float() * scale).requires_grad_()
    src = torch.arange(6).expand(CHUNK + 2, -1)
    copy_outputs = copied_from(layer, outputs, scores, src)
    loss = token_loss(copy_outputs, projection, torch.arange(CHUNK + 2), LossWeights(0.1)).objective
    assert torch.isfinite(loss)
    leaves = [outputs, scores, *projection.parameters(), *layer.gate.parameters()]
    assert all(torch.isfinite(gradient).all() for gradient in torch.autograd.grad(loss, leaves))


def test_bf16_autocast_is_close_to_float32() -> None:
    model = make_copying_model(Case("luong", "general", True, 1)).float()
    with torch.no_grad():
        for weight in model.parameters():
            weight.div_(4)
    batch = make_batch(SOURCES, TARGETS)
    exact = batch_loss(model, batch, LossWeights(0.1)).objective
    leaves = list(model.parameters())
    exact_gradients = torch.autograd.grad(exact, leaves)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = batch_loss(model, batch, LossWeights(0.1)).objective
    assert loss.dtype == torch.float32
    assert 0 < abs(loss.item() / exact.item() - 1) < 0.01
    for left, right in zip(torch.autograd.grad(loss, leaves), exact_gradients, strict=True):
        assert left.dtype == torch.float32
        assert (left - right).norm() <= 0.05 * right.norm() + 0.01
