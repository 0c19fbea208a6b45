"""The fused loss against torch's cross-entropy, across chunk boundaries."""

import math

import pytest
import torch
from cases.models import CASES, DEVICES, R, V, close, make_model, random_tensor
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.data.padding import make_batch
from seq2seq.training import loss as loss_module
from seq2seq.training.loss import batch_loss, token_loss
from seq2seq.training.mixture_loss import LossWeights

CHUNK = 4
SMOOTHINGS = [0.0, 0.1, 0.75]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "CHUNK", CHUNK)
    monkeypatch.setattr(loss_module, "BLOCK", 2 * CHUNK)
    monkeypatch.setattr(loss_module, "GPU_CHUNK", CHUNK)


@pytest.fixture(params=["cpu", "cuda"])
def _chunks_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the chunk sizes of this type of device."""
    sizes = loss_module._chunk_and_block
    device = torch.device(request.param)
    monkeypatch.setattr(
        loss_module,
        "_chunk_and_block",
        lambda tokens, _, tokens_wanted: sizes(tokens, device, tokens_wanted),
    )


def objective(
    outputs: Tensor, projection: nn.Linear, tgt: Tensor, smoothing: float, consistency: float = 0.0
) -> Tensor:
    return token_loss(outputs, projection, tgt, LossWeights(smoothing, consistency)).objective


def make_inputs(rows: int, device: str = "cpu") -> tuple[Tensor, nn.Linear, Tensor]:
    projection = nn.Linear(R, V).double()
    for n, parameter in enumerate(projection.parameters()):
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(n))
    tgt = torch.randint(V, (rows,), generator=torch.Generator().manual_seed(3))
    outputs = random_tensor(rows, R, seed=4).detach().to(device).requires_grad_()
    return outputs, projection.to(device), tgt.to(device)


def plain_loss(
    outputs: Tensor, projection: nn.Linear, tgt: Tensor, label_smoothing: float
) -> Tensor:
    logits = projection(outputs)
    return F.cross_entropy(logits, tgt, reduction="sum", label_smoothing=label_smoothing)


def gradients(loss: Tensor, outputs: Tensor, projection: nn.Linear) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, [outputs, projection.weight, projection.bias])


def assert_same_with_gradients(
    loss: Tensor, expected: Tensor, outputs: Tensor, projection: nn.Linear
) -> None:
    close(loss, expected)
    actual_gradients, expected_gradients = (
        gradients(tested_loss, outputs, projection) for tested_loss in (loss, expected)
    )
    for left, right in zip(actual_gradients, expected_gradients, strict=True):
        close(left, right)


@pytest.mark.parametrize("tokens", [1, 2, 3, CHUNK, CHUNK + 1, 2 * CHUNK + 1, 3 * CHUNK - 1, 97])
def test_chunks_on_cuda_have_one_even_size(tokens: int) -> None:
    chunk, block = loss_module._chunk_and_block(tokens, torch.device("cuda"), True)
    assert chunk == block
    assert chunk % 2 == 0
    assert chunk <= CHUNK
    assert -(-tokens // chunk) == -(-tokens // CHUNK)


@pytest.mark.usefixtures("_chunks_of")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("rows", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 2])
def test_loss_and_gradients_equal_those_of_torch(rows: int, smoothing: float, device: str) -> None:
    outputs, projection, tgt = make_inputs(rows, device)
    loss = objective(outputs, projection, tgt, smoothing)
    expected = plain_loss(outputs, projection, tgt, smoothing)
    assert loss.shape == ()
    assert_same_with_gradients(loss, expected, outputs, projection)


@pytest.mark.usefixtures("_chunks_of")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("smoothing", "weight"), [(0.0, 0.0), (0.1, 0.0), (0.75, 3.0)])
@pytest.mark.parametrize("rows", [2, CHUNK, 3 * CHUNK + 2])
def test_the_likelihood_excludes_label_smoothing_and_consistency(
    rows: int, smoothing: float, weight: float, device: str
) -> None:
    outputs, projection, tgt = make_inputs(rows, device)
    nll = token_loss(outputs, projection, tgt, LossWeights(smoothing, weight)).nll
    close(nll, plain_loss(outputs, projection, tgt, 0.0))
    assert not nll.requires_grad


def test_loss_follows_its_formula() -> None:
    outputs, projection, tgt = make_inputs(3)
    expected = 0.0
    for logits, tgt_id in zip(projection(outputs).tolist(), tgt.tolist(), strict=True):
        normalizer = math.log(sum(math.exp(logit) for logit in logits))
        costs = [normalizer - logit for logit in logits]
        expected += 0.8 * costs[tgt_id] + 0.2 * sum(costs) / V
    assert objective(outputs, projection, tgt, 0.2).item() == pytest.approx(expected, abs=1e-12)


def test_gradients_equal_numerical_ones_for_any_upstream_gradient() -> None:
    outputs, projection, tgt = make_inputs(CHUNK + 2)
    names = [name for name, _ in projection.named_parameters()]

    class Projection(nn.Module):
        def __init__(self, weight: Tensor, bias: Tensor) -> None:
            super().__init__()
            self.tensors = {"weight": weight, "bias": bias}

        def __getattr__(self, name: str) -> Tensor:
            return self.__dict__["tensors"][name] if name in names else super().__getattr__(name)

    def run(outputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return objective(outputs, Projection(weight, bias), tgt, 0.1).square() / 7

    assert torch.autograd.gradcheck(run, (outputs, *projection.parameters()))


def plain_consistent_loss(
    outputs: Tensor, projection: nn.Linear, tgt: Tensor, smoothing: float, weight: float
) -> Tensor:
    """Return R-Drop's equation 4 for pairs of adjacent rows."""
    p, q = projection(outputs).log_softmax(-1).unflatten(0, (-1, 2)).unbind(1)
    divergence = F.kl_div(p, q, reduction="sum", log_target=True)
    divergence = divergence + F.kl_div(q, p, reduction="sum", log_target=True)
    return plain_loss(outputs, projection, tgt, smoothing) + weight / 2 * divergence


@pytest.mark.usefixtures("_chunks_of")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("weight", [0.5, 5.0])
@pytest.mark.parametrize("pairs", [1, CHUNK // 2, CHUNK // 2 + 1, 2 * CHUNK])
def test_consistency_and_gradients_equal_those_of_r_drop(
    pairs: int, weight: float, device: str
) -> None:
    outputs, projection, tgt = make_inputs(2 * pairs, device)
    loss = objective(outputs, projection, tgt, 0.1, weight)
    expected = plain_consistent_loss(outputs, projection, tgt, 0.1, weight)
    assert_same_with_gradients(loss, expected, outputs, projection)


def test_consistency_follows_its_formula() -> None:
    outputs, projection, tgt = make_inputs(2)
    p, q = projection(outputs).softmax(-1).tolist()
    expected = sum(
        3 / 2 * (a * math.log(a / b) + b * math.log(b / a)) for a, b in zip(p, q, strict=True)
    )
    loss = objective(outputs, projection, tgt, 0.0, 3.0) - objective(outputs, projection, tgt, 0)
    assert loss.item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_consistency_uses_two_passes_with_different_dropout(dropout: float) -> None:
    model = make_model(CASES[0], dropout).train()
    batch = make_batch([[4, 5, 6], [7, 8]], [[5, 6], [9, 4, 5, 7]])
    torch.manual_seed(2)
    loss, nll = batch_loss(model, batch, LossWeights(0.1, 2.0))
    if dropout == 0:
        close(loss, batch_loss(model, batch, LossWeights(0.1)).objective)
        close(nll, batch_loss(model, batch, LossWeights(0.1)).nll)
        return
    torch.manual_seed(2)
    twice = [
        tensor.repeat_interleave(2, 0) for tensor in (batch.src, batch.src_lengths, batch.tgt_in)
    ]
    first, second = model(*twice).unflatten(0, (-1, 2)).unbind(1)
    real = [tensor.flatten(0, 1)[batch.tgt_positions] for tensor in (first, second)]
    rows = torch.stack(real, 1).flatten(0, 1)
    tgt = batch.tgt_out.repeat_interleave(2)
    assert not torch.allclose(*real)
    close(loss, plain_consistent_loss(rows, model.projection, tgt, 0.1, 2.0) / 2)
    close(nll, plain_loss(rows, model.projection, tgt, 0.0) / 2)


def test_losses_of_parts_add_up_to_the_loss_of_the_batch() -> None:
    outputs, projection, tgt = make_inputs(11)
    total = objective(outputs, projection, tgt, 0.1)
    parts = [objective(outputs[at], projection, tgt[at], 0.1) for at in (slice(5), slice(5, 11))]
    assert_same_with_gradients(total, sum(parts), outputs, projection)


def test_loss_without_gradients_is_the_same() -> None:
    outputs, projection, tgt = make_inputs(CHUNK + 1)
    expected = objective(outputs, projection, tgt, 0.1)
    outputs_before = outputs.detach().clone()
    with torch.no_grad():
        loss = objective(outputs, projection, tgt, 0.1)
    assert torch.equal(loss, expected.detach())
    assert not loss.requires_grad
    assert torch.equal(outputs, outputs_before)


def test_loss_is_never_below_the_entropy_of_the_smoothed_target() -> None:
    projection = nn.Linear(V, V, bias=True).double()
    with torch.no_grad():
        projection.weight.copy_(torch.eye(V))
        projection.bias.zero_()
    smoothing = 0.1
    tgt = torch.arange(V)
    share = torch.full((V, V), smoothing / V, dtype=torch.float64)
    share[tgt, tgt] += 1 - smoothing
    best = objective(share.log(), projection, tgt, smoothing)
    close(best, -(share * share.log()).sum())
    worse = objective(share.log() * 1.1, projection, tgt, smoothing)
    assert worse > best


def test_no_rows_have_zero_loss_and_gradient() -> None:
    outputs, projection, tgt = make_inputs(0)
    loss = objective(outputs, projection, tgt, 0.1)
    assert loss.item() == 0
    assert not any(grad.any() for grad in gradients(loss, outputs, projection))


def test_logits_beyond_the_range_of_exp_stay_finite() -> None:
    outputs, projection, tgt = make_inputs(CHUNK + 1)
    scaled = (outputs.detach().float() * 1000).requires_grad_()
    loss = objective(scaled, projection.float(), tgt, 0.1)
    assert torch.isfinite(loss)
    assert all(torch.isfinite(grad).all() for grad in gradients(loss, scaled, projection))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("scale", [50.0, 1000.0, 1e8])
def test_a_diverged_model_has_the_same_loss_as_torch(
    scale: float, smoothing: float, device: str
) -> None:
    """Probabilities of the targets underflow."""
    outputs, projection, tgt = make_inputs(3 * CHUNK + 1, device)
    scaled = (outputs.detach().float() * scale).requires_grad_()
    loss = objective(scaled, projection.float(), tgt, smoothing)
    expected = plain_loss(scaled, projection, tgt, smoothing)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=0)
    assert loss > 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("already_rounded", [False, True])
def test_bf16_autocast_is_close_to_float32(already_rounded: bool, device: str) -> None:
    outputs, projection, tgt = make_inputs(3 * CHUNK + 1, device)
    outputs, projection = outputs.detach().float().requires_grad_(), projection.float()
    exact = plain_loss(outputs, projection, tgt, 0.1)
    exact_gradients = gradients(exact, outputs, projection)
    with torch.autocast(device, dtype=torch.bfloat16):
        loss_inputs = outputs.bfloat16() if already_rounded else outputs
        loss = objective(loss_inputs, projection, tgt, 0.1)
    assert loss.dtype == torch.float32
    assert 0 < abs(loss.item() / exact.item() - 1) < 0.01
    for left, right in zip(gradients(loss, outputs, projection), exact_gradients, strict=True):
        assert left.dtype == torch.float32
        assert (left - right).norm() < 0.02 * right.norm()
