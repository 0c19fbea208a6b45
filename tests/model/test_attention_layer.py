"""Coverage against its equation in loops: scores depend on earlier attention weights."""

import math

import pytest
import torch
from cases.models import (
    SRC_LENGTHS,
    A,
    B,
    Case,
    H,
    S,
    T,
    close,
    embedded_targets,
    encoder_output,
    make_decoder,
    one_step,
    random_tensor,
)

from seq2seq.model.attention import AdditiveScore
from seq2seq.model.attention_layer import Coverage

KINDS = [Case("bahdanau", "coverage", False, 1), Case("luong", "coverage", True, 1)]


@pytest.mark.parametrize("case", KINDS, ids=str)
def test_scores_depend_on_all_earlier_attention(case: Case) -> None:
    """`e_s = v . tanh(W q + U h_s + w c_s)`, `c_s = a_1s + ... + a_{t-1,s}`: See et al. (2017)."""
    decoder = make_decoder(case)
    embedded = embedded_targets()
    parameters = {name: value.tolist() for name, value in decoder.named_parameters()}
    v = parameters["score.energy.weight"][0]
    w = parameters["coverage.weight"]
    memory, state = decoder.start(encoder_output(1))
    covered = [[0.0] * S for _ in range(B)]
    for t in range(T):
        step = one_step(decoder, embedded[:, t], state, memory)
        asking = (state if case.kind == "bahdanau" else step.state).hidden[:, 0].tolist()
        for b, length in enumerate(SRC_LENGTHS):
            scores = []
            for s in range(length):
                h = memory.values[b, s].tolist()
                total = 0.0
                for a in range(A):
                    inner = w[a] * covered[b][s]
                    for n in range(H):
                        inner += parameters["score.query_projection.weight"][a][n] * asking[b][n]
                        inner += parameters["score.key_projection.weight"][a][n] * h[n]
                    total += v[a] * math.tanh(inner)
                scores.append(math.exp(total))
            weights = [score / sum(scores) for score in scores] + [0.0] * (S - length)
            close(step.attention_weights[b], torch.tensor(weights, dtype=torch.float64))
            covered[b] = [c + x for c, x in zip(covered[b], weights, strict=True)]
        close(step.state.coverage, torch.tensor(covered, dtype=torch.float64))
        state = step.state


def test_coverage_has_no_effect_at_initialisation() -> None:
    keys = random_tensor(B, S, A, seed=1)
    coverage = random_tensor(B, 2, S, seed=2)
    score = AdditiveScore(H, H, A).double()
    query = random_tensor(B, 2, H, seed=3)
    close(score(query, Coverage(A).double()(keys, coverage)), score(query, keys))


def test_gradients_equal_numerical_derivatives() -> None:
    module = Coverage(A).double()
    keys = random_tensor(B, S, A, seed=1)
    coverage = random_tensor(B, 2, S, seed=2)
    assert torch.autograd.gradcheck(lambda k, c, _: module(k, c), (keys, coverage, module.weight))


@pytest.mark.parametrize("case", KINDS, ids=str)
def test_hypotheses_carry_their_own_coverage(case: Case) -> None:
    """A selected hypothesis keeps its own coverage."""
    decoder = make_decoder(case)
    memory, state = decoder.start(encoder_output(1))
    copies = torch.arange(B).repeat_interleave(2)
    state = one_step(decoder, random_tensor(2 * B, 8, seed=1), state.select(copies), memory).state
    rows = torch.tensor([1, 1, 2, 3, 5, 4])
    embedded = random_tensor(2 * B, 8, seed=2)
    step = one_step(decoder, embedded, state.select(rows), memory)
    for n, row in enumerate(rows.tolist()):
        single_step = one_step(
            decoder,
            embedded[n : n + 1],
            state.select(torch.tensor([row])),
            memory.select(torch.tensor([row // 2])),
        )
        close(step.attention_weights[n], single_step.attention_weights[0])
        close(step.state.coverage[n], single_step.state.coverage[0])
