"""Coverage loss against the paper's sum written out in loops, alone and in a batch."""

import pytest
import torch
from model_cases import CASES, Case, close, make_model, random_tensor

from seq2seq.data.batching import Batch, make_batch
from seq2seq.model.decoder import stack_steps
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.training.loss import batch_loss, coverage_losses

COVERED = [case for case in CASES if case.score == "coverage"]
SOURCES, TARGETS = [[4, 5, 4, 6], [7, 8], [9, 9, 9]], [[5, 4, 10], [9, 4, 5, 7], [9]]


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
    model, batch = make_model(case), make_batch(SOURCES, TARGETS)
    loss, nll = batch_loss(model, batch, 0.1, 0.0, 0.7)
    without = batch_loss(model, batch, 0.1)
    expected = without.objective + 0.7 * expected_of(model, batch)
    close(loss, expected)
    close(nll, without.nll)
    close(
        batch_loss(model, batch, 0.1, 2.0, 0.7).objective, expected
    )  # two equal passes, without dropout
    leaves = list(model.parameters())
    for left, right in zip(
        *(torch.autograd.grad(each, leaves) for each in (loss, expected)), strict=True
    ):
        close(left, right)
