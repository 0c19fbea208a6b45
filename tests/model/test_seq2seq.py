"""The complete network: its calls agree with one another, and padding has no effect."""

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
    make_model,
    stepped,
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_equals_stacked_steps_in_values_and_gradients(case: Case) -> None:
    model = make_model(case)
    parameters = dict(model.named_parameters())
    results = []
    for outputs in (model(SRC, LENGTHS, TGT_IN), stepped(model, TGT_IN)):
        scalar = model.project(outputs).log_softmax(-1)[..., 3].square().sum()
        results.append((outputs, torch.autograd.grad(scalar, list(parameters.values()))))
    (outputs, gradients), (expected, expected_gradients) = results
    assert outputs.shape == (B, T, R)
    close(outputs, expected)
    for left, right in zip(gradients, expected_gradients, strict=True):
        close(left, right, 1e-9)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_padding_of_the_source_has_no_effect(case: Case) -> None:
    model = make_model(case)
    expected = model(SRC, LENGTHS, TGT_IN)
    padded = torch.arange(S) >= LENGTHS[:, None]
    close(model(SRC.masked_fill(padded, 11), LENGTHS, TGT_IN), expected, 1e-12)
    with_padding = torch.cat([SRC, torch.full((B, 2), 6)], dim=1)
    close(model(with_padding, LENGTHS, TGT_IN), expected, 1e-12)
    for row, length in enumerate(LENGTHS.tolist()):
        rows = slice(row, row + 1)
        close(model(SRC[rows, :length], LENGTHS[rows], TGT_IN[rows])[0], expected[row])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_padding_of_the_target_has_no_effect_on_earlier_positions(case: Case) -> None:
    model = make_model(case)
    changed_tgt = TGT_IN.clone()
    changed_tgt[:, -1] = 8
    expected = model(SRC, LENGTHS, TGT_IN)
    changed = model(SRC, LENGTHS, changed_tgt)
    assert torch.equal(changed[:, :-1], expected[:, :-1])
    assert not torch.allclose(changed[:, -1], expected[:, -1])


def test_project_is_the_projection_of_any_shape() -> None:
    model = make_model(CASES[0])
    outputs = model(SRC, LENGTHS, TGT_IN)
    logits = model.project(outputs)
    assert logits.shape == (B, T, V)
    expected = outputs @ model.projection.weight.t() + model.projection.bias
    close(logits, expected)
    close(model.project(outputs[:, 1]), expected[:, 1])


def test_embed_returns_target_embeddings_with_dropout_only_in_training() -> None:
    model = make_model(CASES[0], dropout=0.5)
    rows = model.tgt_embedding.weight[TGT_IN]
    assert torch.equal(model.eval().embed(TGT_IN), rows)
    torch.manual_seed(1)
    embedded = model.train().embed(TGT_IN)
    is_zero = embedded == 0
    assert 0.2 < is_zero.double().mean() < 0.8
    close(embedded[~is_zero], 2 * rows[~is_zero])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_model_holds_no_state_between_calls(case: Case) -> None:
    model = make_model(case)
    first_values = {name: value.clone() for name, value in model.state_dict().items()}
    expected = model(SRC, LENGTHS, TGT_IN)
    stepped(model, TGT_IN[:, :2])
    model(SRC.flip(0), LENGTHS.flip(0), TGT_IN)
    assert torch.equal(model(SRC, LENGTHS, TGT_IN), expected)
    assert all(torch.equal(value, first_values[name]) for name, value in model.state_dict().items())
