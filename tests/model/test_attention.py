"""Each score against its equation and published numbers; attention never sees padding.

The additive numbers are those of DeepLearning.AI's lab "Basic Attention Operation" (Natural
Language Processing with Attention Models, week 1), those over four words of "The Attention
Mechanism from Scratch" (machinelearningmastery.com).
"""

import math

import numpy as np
import pytest
import torch
from cases.models import (
    HEADS,
    POSITIONS,
    SCORES,
    A,
    B,
    H,
    S,
    close,
    make_score,
    random_tensor,
    randomize,
)
from torch import Tensor, nn

from seq2seq.model.attention import (
    AdditiveScore,
    DotScore,
    LocationScore,
    MultiHeadScore,
    NormedAdditiveScore,
    ScaledDotScore,
    masked_attention,
)

K = 4
SINGLE = (*SCORES, "normed_additive", "location")  # all scores with a single head
PRINTED = 0.5e-8 * (1 + 1e-6)  # rounding error of eight printed decimals
PAD_MASK = torch.arange(S) >= torch.tensor([4, 2, 5])[:, None]


def nothing_padded(batch: int, length: int) -> Tensor:
    return torch.zeros(batch, length, dtype=torch.bool)


def load(layer: nn.Linear, weight: np.ndarray) -> None:
    """Give the layer this weight, stored as [inputs, outputs], and no bias."""
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight.astype(np.float64)).t())
        if layer.bias is not None:
            layer.bias.zero_()


@pytest.mark.approximate
def test_additive_attention_gives_the_published_scores_and_context() -> None:
    generator = np.random.RandomState(42)
    encoder_states = generator.randn(5, 16)
    decoder_state = generator.randn(1, 16)
    layer_1 = generator.randn(32, 10)
    layer_2 = generator.randn(10, 1)
    score = AdditiveScore(query_size=16, output_size=16, attention_size=10).double()
    load(score.key_projection, layer_1[:16])
    load(score.query_projection, layer_1[16:])
    load(score.energy, layer_2)

    keys, values = score.project(torch.from_numpy(encoder_states)[None])
    scores = score(torch.from_numpy(decoder_state)[None], keys)
    context, _ = masked_attention(scores, values, nothing_padded(1, 5))

    published = [4.35790943, 5.92373433, 4.18673175, 2.11437202, 0.95767155]
    close(scores[0, 0], torch.tensor(published, dtype=torch.float64), PRINTED)
    published = [
        *(-0.63514569, 0.04917298, -0.43930867, -0.9268003, 1.01903919, -0.43181409),
        *(0.13365099, -0.84746874, -0.37572203, 0.18279832, -0.90452701, 0.17872958),
        *(-0.58015282, -0.58294027, -0.75457577, 1.32985756),
    ]
    close(context[0, 0], torch.tensor(published, dtype=torch.float64), PRINTED)


@pytest.mark.approximate
def test_scaled_dot_attention_over_four_words_gives_the_published_outputs() -> None:
    words = torch.tensor([[[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]], dtype=torch.float64)
    generator = np.random.RandomState(42)
    score = ScaledDotScore(query_size=3, output_size=3, attention_size=3).double()
    for layer in (score.query_projection, score.key_projection, score.value_projection):
        load(layer, generator.randint(3, size=(3, 3)))

    keys, values = score.project(words)
    context, _ = masked_attention(score(words, keys), values, nothing_padded(1, 4))

    published = [
        [0.98522025, 1.74174051, 0.75652026],
        [0.90965265, 1.40965265, 0.5],
        [0.99851226, 1.75849334, 0.75998108],
        [0.99560386, 1.90407309, 0.90846923],
    ]
    close(context[0], torch.tensor(published, dtype=torch.float64), PRINTED)


@pytest.mark.approximate
def test_scaled_dot_attention_of_one_query_gives_the_published_scores_without_overflow() -> None:
    score = ScaledDotScore(query_size=10, output_size=10, attention_size=10).double()
    rows = np.arange(1, 11)[:, None] * np.ones((1, 10))
    for layer in (score.query_projection, score.key_projection, score.value_projection):
        load(layer, rows.T)
    query = torch.ones(1, 1, 10, dtype=torch.float64)
    outputs = torch.tensor([2, 3, 4], dtype=torch.float64)[None, :, None] * torch.ones(10)

    keys, values = score.project(outputs)
    scores = score(query, keys)
    context, weights = masked_attention(scores, values, nothing_padded(1, 3))

    tens = torch.arange(10, 101, 10, dtype=torch.float64)
    assert torch.equal(score.query_projection(query)[0, 0], tens)
    published = [24349.5379833, 36524.30697494, 48699.07596659]
    close(scores[0, 0], torch.tensor(published, dtype=torch.float64), PRINTED)
    assert torch.equal(weights[0, 0], torch.tensor([0, 0, 1], dtype=torch.float64))
    assert torch.equal(context[0, 0], 4 * tens)


def times(weight: Tensor, vector: list[float]) -> list[float]:
    """Return the product of a matrix and a vector, computed in loops."""
    return [sum(row[i] * vector[i] for i in range(len(vector))) for row in weight.detach().tolist()]


def plus(left: list[float], right: Tensor | list[float]) -> list[float]:
    addends = right.tolist() if isinstance(right, Tensor) else right
    return [a + b for a, b in zip(left, addends, strict=True)]


def dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def score_in_loops(name: str, module: nn.Module, q: list[float], h: list[float], s: int) -> float:
    """Return the score of one query and one encoder output, from the parameters by name."""
    parameters = dict(module.named_parameters())
    match name:
        case "normed_additive":
            v = parameters["energy.weight"][0].tolist()
            gain = parameters["gain"].item()
            energy = plus(
                times(parameters["query_projection.weight"], q), parameters["query_projection.bias"]
            )
            energy = plus(energy, times(parameters["key_projection.weight"], h))
            length = math.sqrt(sum(x * x for x in v))
            return dot([gain * x / length for x in v], [math.tanh(x) for x in energy])
        case "location":
            return times(parameters["positions.weight"], q)[s]
        case "additive":
            energy = plus(
                times(parameters["query_projection.weight"], q),
                times(parameters["key_projection.weight"], h),
            )
            return dot(parameters["energy.weight"][0].tolist(), [math.tanh(x) for x in energy])
        case "general":
            return dot(q, times(parameters["key_projection.weight"], h)) / math.sqrt(H)
        case "scaled_dot":
            query = plus(
                times(parameters["query_projection.weight"], q), parameters["query_projection.bias"]
            )
            key = plus(
                times(parameters["key_projection.weight"], h), parameters["key_projection.bias"]
            )
            return dot(query, key) / math.sqrt(A)
    return dot(q, h)


@pytest.mark.parametrize("name", SINGLE)
def test_scores_follow_their_equations(name: str) -> None:
    score = make_score(name)
    randomize(score)
    outputs = random_tensor(B, S, H, seed=1)
    queries = random_tensor(B, K, H, seed=2)
    expected = [
        [[score_in_loops(name, score, q, h, s) for s, h in enumerate(source)] for q in asked]
        for source, asked in zip(outputs.tolist(), queries.tolist(), strict=True)
    ]
    scores = score(queries, score.project(outputs)[0])
    close(scores, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("name", SINGLE)
def test_values_are_the_encoder_outputs_unless_they_are_learned(name: str) -> None:
    score = make_score(name)
    randomize(score)
    outputs = random_tensor(B, S, H, seed=1)
    values = score.project(outputs)[1]
    assert values.shape == (B, S, score.context_size)
    if name != "scaled_dot":
        assert values is outputs
        return
    parameters = dict(score.named_parameters())
    expected = [
        [
            plus(
                times(parameters["value_projection.weight"], h), parameters["value_projection.bias"]
            )
            for h in row
        ]
        for row in outputs.tolist()
    ]
    close(values, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("name", [*SCORES, "normed_additive"])
def test_weights_are_the_same_function_of_the_query(name: str) -> None:
    score = make_score(name)
    randomize(score)
    keys = score.project(random_tensor(B, S, H, seed=1))[0]
    queries = random_tensor(B, K, H, seed=2)
    score_weights = score.weights()
    projected = queries if score_weights.query is None else queries @ score_weights.query.t()
    if score_weights.bias is not None:
        projected = projected + score_weights.bias
    pairs = keys[:, None] + projected[:, :, None]  # [B, K, S, A]
    products = (keys[:, None] * projected[:, :, None]).sum(-1)
    expected = (
        products if score_weights.energy is None else (pairs.tanh() * score_weights.energy).sum(-1)
    )
    close(score(queries, keys), expected)


def test_each_head_equals_scaled_dot_attention_over_its_part() -> None:
    """Compare with attention over each part of the projections, concatenated."""
    multi_head = MultiHeadScore(H, H, HEADS * A, HEADS)
    randomize(multi_head)
    outputs = random_tensor(B, S, H, seed=1)
    queries = random_tensor(B, K, H, seed=2)
    keys, values = multi_head.project(outputs)
    context, weights = masked_attention(multi_head(queries, keys), values, PAD_MASK)
    contexts = []
    head_weights = []
    for head in range(HEADS):
        part = ScaledDotScore(H, H, A).double()
        rows = slice(head * A, (head + 1) * A)
        parameters = dict(multi_head.named_parameters())
        with torch.no_grad():
            for name, parameter in part.named_parameters():
                parameter.copy_(parameters[name][rows])
        keys, values = part.project(outputs)
        context_and_weights = masked_attention(part(queries, keys), values, PAD_MASK)
        contexts.append(context_and_weights[0])
        head_weights.append(context_and_weights[1])
    close(context, torch.cat(contexts, dim=-1))
    close(weights, sum(head_weights) / HEADS)
    assert multi_head.weights() is None


def test_one_head_equals_scaled_dot_attention() -> None:
    single_head = MultiHeadScore(H, H, A, 1)
    plain = ScaledDotScore(H, H, A)
    randomize(single_head)
    plain.double().load_state_dict(single_head.state_dict())
    outputs = random_tensor(B, S, H, seed=1)
    queries = random_tensor(B, K, H, seed=2)
    for left, right in zip(
        *(
            masked_attention(score(queries, score.project(outputs)[0]), outputs, PAD_MASK)
            for score in (single_head, plain)
        ),
        strict=True,
    ):
        close(left, right)


def test_heads_share_the_attention_size() -> None:
    with pytest.raises(ValueError, match="9 is not a multiple of 2 heads"):
        MultiHeadScore(H, H, 9, 2)


def test_normed_additive_is_initialised_as_additive() -> None:
    torch.manual_seed(1)
    normed = NormedAdditiveScore(H, H, A).double()
    outputs = random_tensor(B, S, H, seed=1)
    queries = random_tensor(B, K, H, seed=2)
    plain = AdditiveScore(H, H, A).double()
    parameters = normed.state_dict()
    plain.load_state_dict({name: parameters[name] for name in plain.state_dict()})
    expected = plain(queries, plain.project(outputs)[0])
    close(
        normed(queries, normed.project(outputs)[0]), expected, 1e-6
    )  # weights are initialised in float32


def test_the_norm_of_v_is_its_gain() -> None:
    score = NormedAdditiveScore(H, H, A)
    randomize(score)
    outputs = random_tensor(B, S, H, seed=1)
    queries = random_tensor(B, K, H, seed=2)
    first_scores = score(queries, score.project(outputs)[0])
    with torch.no_grad():
        score.energy.weight.mul_(7)
    close(score(queries, score.project(outputs)[0]), first_scores)
    with torch.no_grad():
        score.gain.mul_(3)
    close(score(queries, score.project(outputs)[0]), 3 * first_scores)


@pytest.mark.parametrize("beyond", [1, 4])
def test_location_ignores_words_beyond_its_last_position(beyond: int) -> None:
    score = LocationScore(H, H, POSITIONS)
    randomize(score)
    outputs = random_tensor(B, POSITIONS + beyond, H, seed=1)
    queries = random_tensor(B, K, H, seed=2)
    for padded in (0, beyond):  # positions beyond are words or padding
        pad_mask = torch.arange(POSITIONS + beyond) >= POSITIONS + beyond - padded
        keys, values = score.project(outputs)
        _, weights = masked_attention(score(queries, keys), values, pad_mask.expand(B, -1))
        expected = (queries @ score.positions.weight.t()).softmax(-1)
        close(weights[..., :POSITIONS], expected)
        assert not weights[..., POSITIONS:].any()


def test_a_window_beyond_the_last_position_does_not_divide_by_zero() -> None:
    score = LocationScore(H, H, 2)
    keys, values = score.double().project(random_tensor(B, S, H, seed=1))
    window_weights = (torch.arange(S) >= 3).double().expand(B, K, S)
    scores = score(random_tensor(B, K, H, seed=2), keys)
    _, weights = masked_attention(scores, values, nothing_padded(B, S), window_weights)
    close(weights.sum(-1), torch.ones(B, K, dtype=torch.float64))


def test_window_weights_mask_and_multiply() -> None:
    scores = random_tensor(B, K, S, seed=1)
    values = random_tensor(B, S, A, seed=2)
    window_weights = random_tensor(B, K, S, seed=3).detach().abs()
    window_weights[:, :, 1] = 0
    context, weights = masked_attention(scores, values, PAD_MASK, window_weights)
    for b, length in enumerate((4, 2, 5)):
        for k in range(K):
            seen = [s for s in range(length) if s != 1]
            total = sum(math.exp(scores[b, k, s].item()) for s in seen)
            shares = [0.0] * S
            for s in seen:
                shares[s] = (
                    math.exp(scores[b, k, s].item()) / total * window_weights[b, k, s].item()
                )
            close(weights[b, k], torch.tensor(shares, dtype=torch.float64))
            expected = [dot(shares, column) for column in values[b].t().tolist()]
            close(context[b, k], torch.tensor(expected, dtype=torch.float64))


def test_concat_equals_additive_with_the_halves_of_one_matrix() -> None:
    score = make_score("additive")
    randomize(score)
    outputs = random_tensor(B, S, H, seed=1)
    query = random_tensor(B, 1, H, seed=2)
    parameters = dict(score.named_parameters())
    matrix = torch.cat(
        [parameters["query_projection.weight"], parameters["key_projection.weight"]], dim=1
    )
    query_and_keys = torch.cat([query.expand(-1, S, -1), outputs], dim=-1)  # [q; h]
    expected = torch.tanh(query_and_keys @ matrix.t()) @ parameters["energy.weight"][0]
    close(score(query, score.project(outputs)[0])[:, 0], expected)


def test_dot_refuses_unequal_sizes() -> None:
    with pytest.raises(ValueError, match=f"equal sizes, got {H} and {A}"):
        DotScore(H, A)


def test_attend_averages_unpadded_values_by_the_softmax_of_their_scores() -> None:
    scores = random_tensor(B, K, S, seed=1)
    values = random_tensor(B, S, A, seed=2)
    context, weights = masked_attention(scores, values, PAD_MASK)
    for b, length in enumerate((4, 2, 5)):
        for k in range(K):
            exponents = [math.exp(x) for x in scores[b, k, :length].tolist()]
            shares = [x / sum(exponents) for x in exponents] + [0.0] * (S - length)
            columns = values[b].t().tolist()
            close(weights[b, k], torch.tensor(shares, dtype=torch.float64))
            expected = torch.tensor([dot(shares, column) for column in columns]).double()
            close(context[b, k], expected, 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_padding_has_no_weight_and_no_effect(dtype: torch.dtype) -> None:
    scores = random_tensor(B, K, S, seed=1).detach().to(dtype)
    values = random_tensor(B, S, A, seed=2).detach().to(dtype)
    context, weights = masked_attention(scores, values, PAD_MASK)
    padded = PAD_MASK[:, None].expand_as(weights)
    assert torch.count_nonzero(weights[padded]) == 0
    assert weights.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert context.dtype == dtype
    close(weights.sum(-1), torch.ones_like(weights[..., 0]), 1e-6)

    other_scores = scores.masked_fill(PAD_MASK[:, None], 1000.0)
    other_values = values.masked_fill(PAD_MASK[:, :, None], -1000.0)
    other_context, other_weights = masked_attention(other_scores, other_values, PAD_MASK)
    assert torch.equal(other_context, context)
    assert torch.equal(other_weights, weights)


def test_no_gradient_reaches_padding() -> None:
    scores = random_tensor(B, K, S, seed=1)
    values = random_tensor(B, S, A, seed=2)
    context, _ = masked_attention(scores, values, PAD_MASK)
    grad_scores, grad_values = torch.autograd.grad(context.square().sum(), (scores, values))
    assert torch.count_nonzero(grad_scores[PAD_MASK[:, None].expand_as(scores)]) == 0
    assert torch.count_nonzero(grad_values[PAD_MASK]) == 0
    assert grad_scores[~PAD_MASK[:, None].expand_as(scores)].all()
    assert torch.isfinite(grad_scores).all()


def test_a_half_precision_softmax_is_computed_in_float32() -> None:
    scores = (10 * random_tensor(B, K, S, seed=1)).detach().bfloat16()
    _, weights = masked_attention(scores, torch.zeros(B, S, A, dtype=torch.bfloat16), PAD_MASK)
    expected = scores.float().masked_fill(PAD_MASK[:, None], -torch.inf).softmax(-1)
    assert torch.equal(weights, expected)
