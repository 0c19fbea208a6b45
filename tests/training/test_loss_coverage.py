"""Coverage loss against the paper's sum written out in loops, alone and in a batch."""

from typing import Any

import pytest
import torch
from cases.models import CASES, Case, close, make_model, random_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from seq2seq.data.padding import Batch, make_batch
from seq2seq.model.decoder import stack_steps
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.training.loss import batch_loss, coverage_losses, sums_by_product
from seq2seq.training.mixture_loss import LossWeights

COVERED = [case for case in CASES if case.score == "coverage"]
SOURCES = [[4, 5, 4, 6], [7, 8], [9, 9, 9]]
TARGETS = [[5, 4, 10], [9, 4, 5, 7], [9]]


def in_loops(rows: torch.Tensor) -> list[torch.Tensor]:
    """Return the loss of each step of one sentence with attention weights [T, S]."""
    coverage = [torch.zeros((), dtype=rows.dtype) for _ in range(rows.shape[1])]
    losses = []
    for weights in rows:
        losses.append(sum(min(a, c) for a, c in zip(weights, coverage, strict=True)))
        coverage = [c + a for a, c in zip(weights, coverage, strict=True)]
    return losses


def test_the_loss_is_the_overlap_with_earlier_attention() -> None:
    weights = random_tensor(3, 5, 4, seed=1).softmax(-1)
    losses = coverage_losses(weights)
    close(losses, torch.stack([torch.stack(in_loops(rows)) for rows in weights]))
    assert not losses[:, 0].any()
    same = torch.eye(4, dtype=torch.float64)[None, [0, 1, 1, 0]]
    close(coverage_losses(same), torch.tensor([[0, 0, 1, 1]], dtype=torch.float64))


def test_sums_over_earlier_steps_by_a_product() -> None:
    weights = random_tensor(3, 5, 4, seed=1).float().softmax(-1)
    expected = weights.cumsum(1) - weights
    with torch.autocast("cpu", dtype=torch.bfloat16):  # not computed in bf16
        torch.testing.assert_close(sums_by_product(weights), expected)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_results_that_must_be_reproducible_need_no_cumulative_sum_on_cuda(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch refuses it there: it is not deterministic."""
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    with FakeTensorMode(), Operators() as operators:
        losses = coverage_losses(torch.empty(3, 5, 4, device=device))
    assert losses.shape == (3, 5)
    assert losses.device.type == device
    assert ("cumsum" in operators.names) == (device == "cpu")


class Operators(TorchDispatchMode):
    """Records the names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.__name__.partition(".")[0])
        return func(*args, **(kwargs or {}))


def expected_of(model: Seq2Seq, batch: Batch) -> torch.Tensor:
    """Return the summed loss of all real target positions, by stacked steps."""
    memory, state = model.start(model.encode(batch.src, batch.src_lengths))
    steps = stack_steps(model.decoder, model.embed(batch.tgt_in), state, memory)
    weights = steps.attention_weights
    assert weights is not None
    losses = torch.stack([torch.stack(in_loops(rows)) for rows in weights])
    return losses.flatten()[batch.tgt_positions].sum()


@pytest.mark.parametrize("case", [*COVERED, Case("luong", "general", True, 1)], ids=str)
def test_the_loss_of_a_batch_is_the_sum_over_its_tokens(case: Case) -> None:
    """Attention weights of the fused paths count as well, also without a coverage score."""
    model = make_model(case)
    batch = make_batch(SOURCES, TARGETS)
    loss, nll = batch_loss(model, batch, LossWeights(0.1, 0.0, 0.7))
    without = batch_loss(model, batch, LossWeights(0.1))
    expected = without.objective + 0.7 * expected_of(model, batch)
    close(loss, expected)
    close(nll, without.nll)
    close(
        batch_loss(model, batch, LossWeights(0.1, 2.0, 0.7)).objective, expected
    )  # two equal passes, without dropout
    leaves = list(model.parameters())
    for left, right in zip(
        *(torch.autograd.grad(tested_loss, leaves) for tested_loss in (loss, expected)), strict=True
    ):
        close(left, right)
