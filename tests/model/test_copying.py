"""Copying: the mixture of the paper written out in loops, over every decoder with attention."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_cases import (
    CASES,
    LENGTHS,
    SRC,
    TGT_IN,
    B,
    Case,
    R,
    S,
    T,
    V,
    close,
    copied_in_loops,
    make_copying_model,
    random_tensor,
)
from torch import Tensor, nn

from seq2seq.model.copying import Copying, CopyOutputs, first_positions
from seq2seq.model.seq2seq import Seq2Seq

ATTENTIONAL = [case for case in CASES if case.kind != "plain"]
K = 2
SHARED = SRC.clamp(max=V - 1)  # ids of a joint vocabulary


def copying() -> Copying:
    torch.manual_seed(1)
    return Copying(R).double()


@given(st.lists(st.lists(st.integers(0, 5), min_size=6, max_size=6), min_size=1, max_size=4))
def test_first_positions_are_those_of_the_same_id(rows: list[list[int]]) -> None:
    assert first_positions(torch.tensor(rows)).tolist() == [
        [row.index(each) for each in row] for row in rows
    ]


@pytest.mark.parametrize("case", ATTENTIONAL, ids=str)
def test_a_step_gives_the_mixture_of_the_paper(case: Case) -> None:
    model = make_copying_model(case)
    memory, state = model.start(model.encode(SHARED, LENGTHS))
    for t in range(T):
        step = model.step(TGT_IN[:, t], state, memory)
        state = step.state
        assert isinstance(step.outputs, CopyOutputs)
        expected = copied_in_loops(model, step.outputs.outputs, step.attention_weights, SHARED)
        close(model.project(step.outputs), expected)
        close(expected.logsumexp(-1), torch.zeros(B, dtype=torch.float64))


@pytest.mark.parametrize("case", ATTENTIONAL, ids=str)
def test_hypotheses_copy_from_their_own_sentence(case: Case) -> None:
    model, rows = make_copying_model(case), torch.arange(B).repeat_interleave(K)
    memory, state = model.start(model.encode(SHARED, LENGTHS))
    ids = torch.arange(B * K) % V
    together = model.step(ids, state.select(rows), memory)
    apart = model.step(ids, state.select(rows), memory.select(rows))
    close(model.project(together.outputs), model.project(apart.outputs))


def test_without_a_gate_for_copying_the_generator_is_all() -> None:
    layer = copying()
    with torch.no_grad():
        layer.gate.weight.zero_()
        layer.gate.bias.fill_(800.0)
    logits, copied = random_tensor(3, V, seed=1), mixture_of(layer)
    close(copied.mix(logits), logits.log_softmax(-1))
    with torch.no_grad():
        layer.gate.bias.fill_(-800.0)  # and without generating the source is all
    probs = mixture_of(layer).mix(logits).exp()
    close(probs.sum(-1), torch.ones(3, dtype=torch.float64))
    outside = torch.ones(3, V, dtype=torch.bool).scatter(1, mixture_of(layer).src, False)
    assert not probs[outside].any()


def mixture_of(layer: nn.Module) -> CopyOutputs:
    src = torch.randint(V, (3, S), generator=torch.Generator().manual_seed(4))
    weights = random_tensor(3, S, seed=3).softmax(-1)
    copied: CopyOutputs = layer(random_tensor(3, R, seed=2), weights, src, first_positions(src))
    return copied


def test_improbable_tokens_have_their_log_probability() -> None:
    """A token that cannot be copied has one even if its probability underflows."""
    logits = torch.zeros(1, V)
    logits[0, 0] = 500.0
    layer = copying().float()
    src = torch.tensor([[1, 1, 2]])
    copied = layer(torch.zeros(1, R), torch.tensor([[0.5, 0.5, 0.0]]), src, first_positions(src))
    log_probs = copied.mix(logits)[0]
    gate = layer.gate.bias.sigmoid()
    assert log_probs[3].item() == pytest.approx(-500 + gate.log().item())
    assert log_probs[1].item() == pytest.approx((1 - gate).log().item())
    assert log_probs[2].item() == pytest.approx(-500 + gate.log().item())  # attended by 0


def test_the_outputs_of_all_steps_are_those_without_copying() -> None:
    case = ATTENTIONAL[0]
    with_copying, without = make_copying_model(case), make_copying_model(case)
    without.copying = None
    assert isinstance(with_copying, Seq2Seq)
    outputs, weights = with_copying.unroll(SHARED, LENGTHS, TGT_IN)
    close(outputs, without(SHARED, LENGTHS, TGT_IN))
    assert isinstance(weights, Tensor)
    assert weights.shape == (B, T, S)
