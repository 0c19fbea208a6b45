"""Copying: the mixture of the paper written out in loops, over every decoder with attention."""

import pytest
import torch
from cases.models import (
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
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from seq2seq.model.copying import MIN_COPIED, Copying, CopyOutputs, continuation, first_positions
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.model.state import SourcePositions

ATTENTIONAL = [case for case in CASES if case.kind != "plain"]
K = 2
C = 3
SHARED = SRC.clamp(max=V - 1)  # ids of a joint vocabulary
COPIED_IN = torch.tensor(
    [[1, 7, 10, 9], [1, 5, 9, 5], [1, 8, 8, 4]]
)  # [B, T], mostly ids of SHARED


def copying() -> Copying:
    torch.manual_seed(1)
    layer = Copying(R, C).double()
    nn.init.normal_(layer.position_weight)
    return layer


@given(st.lists(st.lists(st.integers(0, 5), min_size=6, max_size=6), min_size=1, max_size=4))
def test_first_positions_are_those_of_the_first_equal_id(rows: list[list[int]]) -> None:
    assert first_positions(torch.tensor(rows)).tolist() == [
        [row.index(token_id) for token_id in row] for row in rows
    ]


@pytest.mark.parametrize("case", ATTENTIONAL, ids=str)
def test_a_step_gives_the_mixture_of_the_paper(case: Case) -> None:
    model = make_copying_model(case)
    memory, state = model.start(model.encode(SHARED, LENGTHS))
    log_probs = []
    outputs = []
    weights = []
    for ids in COPIED_IN.unbind(1):
        step = model.step(ids, state, memory)
        state = step.state
        assert isinstance(step.outputs, CopyOutputs)
        log_probs.append(model.project(step.outputs))
        outputs.append(step.outputs.outputs)
        weights.append(step.attention_weights)
    arguments = torch.stack(outputs, 1), torch.stack(weights, 1), memory.values, SHARED, COPIED_IN
    for b, arguments_of_row in enumerate(zip(*arguments, strict=True)):
        expected = copied_in_loops(model, *arguments_of_row)
        close(torch.stack(log_probs, 1)[b], expected)
        close(expected.logsumexp(-1), torch.zeros(T, dtype=torch.float64))


@pytest.mark.parametrize("case", ATTENTIONAL, ids=str)
def test_hypotheses_copy_from_their_own_sentence(case: Case) -> None:
    model = make_copying_model(case)
    rows = torch.arange(B).repeat_interleave(K)
    memory, state = model.start(model.encode(SHARED, LENGTHS))
    ids = torch.arange(B * K) % V
    shared_step = model.step(ids, state.select(rows), memory)
    separate_step = model.step(ids, state.select(rows), memory.select(rows))
    close(model.project(shared_step.outputs), model.project(separate_step.outputs))


def test_with_an_open_gate_only_the_generator_is_used() -> None:
    layer = copying()
    with torch.no_grad():
        layer.gate.weight.zero_()
        layer.gate.bias.fill_(800.0)
        layer.position_weight.zero_()
    logits = random_tensor(3, V, seed=1)
    copy_outputs = mixture_of(layer)
    close(copy_outputs.mix(logits), logits.log_softmax(-1))
    with torch.no_grad():
        layer.gate.bias.fill_(-800.0)  # now only the source is copied
    probs = mixture_of(layer).mix(logits).exp()
    close(probs.sum(-1), torch.ones(3, dtype=torch.float64))
    not_in_source = torch.ones(3, V, dtype=torch.bool).scatter(1, mixture_of(layer).src, False)
    assert not probs[not_in_source].any()


def mixture_of(layer: nn.Module) -> CopyOutputs:
    src = torch.randint(V, (3, S), generator=torch.Generator().manual_seed(4))
    weights = random_tensor(3, S, seed=3).softmax(-1)
    copy_outputs: CopyOutputs
    copy_outputs, _ = layer(random_tensor(3, R, seed=2), weights, *continuing_none(src))
    return copy_outputs


def continuing_none(src: Tensor) -> tuple[Tensor, SourcePositions]:
    """Return source positions without scores, and no position to continue."""
    scores = torch.zeros(*src.shape, 2)
    return scores[..., 0], SourcePositions(src, first_positions(src), scores)


def test_improbable_tokens_have_their_log_probability() -> None:
    """A token that cannot be copied has a log-probability even if its probability underflows."""
    logits = torch.zeros(1, V)
    logits[0, 0] = 500.0
    layer = copying().float()
    src = torch.tensor([[1, 1, 2]])
    weights = torch.tensor([[0.5, 0.5, 0.0]])
    copy_outputs, _ = layer(torch.zeros(1, R), weights, *continuing_none(src))
    log_probs = copy_outputs.mix(logits)[0]
    gate = layer.gate.bias.sigmoid()
    assert log_probs[3].item() == pytest.approx(-500 + gate.log().item())
    assert log_probs[1].item() == pytest.approx((1 - gate).log().item())
    assert log_probs[2].item() == pytest.approx(
        -500 + gate.log().item()
    )  # its attention weight is 0


def test_outputs_of_all_steps_equal_those_without_copying() -> None:
    case = ATTENTIONAL[0]
    with_copying = make_copying_model(case)
    without = make_copying_model(case)
    without.copying = None
    assert isinstance(with_copying, Seq2Seq)
    outputs, weights, *_ = with_copying.unroll(SHARED, LENGTHS, TGT_IN)
    close(outputs, without(SHARED, LENGTHS, TGT_IN))
    assert isinstance(weights, Tensor)
    assert weights.shape == (B, T, S)


def test_copying_continues_after_the_last_token() -> None:
    src = torch.tensor([[4, 6, 4, 7, 3], [4, 6, 4, 7, 3]])
    copy_probs = torch.tensor([[0.1, 0.2, 0.3, 0.1, 0.3], [0.5, 0.0, 0.0, 0.0, 0.5]])
    rows = continuation(copy_probs, torch.tensor([4, 9]), src)
    scale = 0.4 + MIN_COPIED
    torch.testing.assert_close(rows[0], torch.tensor([0, 0.1 / scale, 0, 0.3 / scale, 0]))
    assert not rows[1].any()  # the last token is not in the source


def test_a_name_with_repeated_tokens_is_copied_in_order() -> None:
    """Attention that always prefers the first token still copies all of them in order."""
    layer = Copying(R, C)
    with torch.no_grad():
        layer.gate.bias.fill_(-50.0)
        layer.continuation.bias.fill_(50.0)
    src = torch.tensor([[5, 6, 5, 6, 7, 5, 3]])
    _, positions = continuing_none(src)
    weights = torch.tensor([[0.7, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05]])
    shares = torch.zeros(1, 7)
    last = torch.tensor([1])
    ids = []
    for _ in range(7):
        following = continuation(shares, last, src)
        copy_outputs, shares = layer(torch.zeros(1, R), weights, following, positions)
        last = copy_outputs.mix(torch.zeros(1, V)).argmax(-1)
        ids.append(int(last))
    assert ids == src[0].tolist()


@pytest.mark.parametrize("case", ATTENTIONAL[:4], ids=str)
def test_unrolled_continuations_equal_those_of_the_steps(case: Case) -> None:
    model = make_copying_model(case)
    unrolled = model.unroll(SHARED, LENGTHS, COPIED_IN)
    memory, state = model.start(model.encode(SHARED, LENGTHS))
    assert unrolled.continued is not None
    for t, ids in enumerate(COPIED_IN.unbind(1)):
        assert state.copied is not None
        close(unrolled.continued[:, t], continuation(state.copied, ids, SHARED).detach())
        state = model.step(ids, state, memory).state
    assert unrolled.continued.any()
