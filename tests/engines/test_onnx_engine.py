"""Argmax of exact logits, found from approximate ones, and the mean of several networks."""

import numpy as np
import pytest
from numpy.typing import NDArray

from seq2seq.engines.engine import Rows
from seq2seq.engines.onnx.engine import _mean, topk_graph
from seq2seq.engines.onnx.network import ApproximateProjection, HostStep, session

Floats = NDArray[np.float32]
BOUND = 1.0  # the largest absolute output, as after a tanh
STEP = BOUND / 127


def approximate_logits(projection: ApproximateProjection, outputs: Floats) -> Floats:
    """Return the logits [N, V] as ONNX Runtime computes them from rounded outputs [N, R]."""
    rounded = np.rint(outputs / STEP).clip(-128, 127)
    return (rounded @ projection.integers.T) * (STEP * projection.scales) + projection.bias


@pytest.mark.parametrize("seed", range(5))
def test_the_argmax_is_exact_where_approximate_logits_err(seed: int) -> None:
    generator = np.random.default_rng(seed)
    outputs = generator.uniform(-BOUND, BOUND, (200, 24)).astype(np.float32)
    # Tokens in groups that differ by less than the rounding, so that int8 ranks them at random.
    groups = generator.normal(size=(40, 1, 24))
    weight = (groups + 0.002 * generator.normal(size=(40, 5, 24))).reshape(200, 24)
    weight = weight.astype(np.float32)
    bias = generator.normal(size=200).astype(np.float32) * np.float32(0.01)
    projection = ApproximateProjection(weight, bias, STEP)
    assert projection.is_bounded
    logits = approximate_logits(projection, outputs).astype(np.float32)
    logits[:, :7] = -np.inf  # ruled out
    exact = (outputs[:, None] * weight[None]).sum(axis=2) + bias
    exact[:, :7] = -np.inf
    errors = np.abs(logits[:, 7:] - exact[:, 7:]).max(axis=1)
    norms = np.sqrt(np.square(outputs).sum(axis=1))
    assert (errors <= projection.fixed + norms * projection.per_norm).all()
    best = exact.argmax(axis=1)
    assert (logits.argmax(axis=1) != best).mean() > 0.1
    tokens, values = projection.argmax(logits, outputs)
    assert tokens.tolist() == best.tolist()
    assert np.array_equal(values, exact.max(axis=1))


def test_a_row_that_is_no_number_has_no_maximum() -> None:
    projection = ApproximateProjection(np.eye(3, dtype=np.float32), np.zeros(3, np.float32), STEP)
    outputs = np.array([[0, 1, 0], [np.nan, 0, 0]], np.float32)
    tokens, values = projection.argmax(outputs.copy(), outputs)
    assert tokens[0] == 1
    assert values[0] == 1
    assert np.isnan(values[1])


def test_weights_without_a_bound_are_recognised() -> None:
    weight = np.full((2, 2), 3e38, np.float32)
    assert not ApproximateProjection(weight, np.zeros(2, np.float32), STEP).is_bounded


def test_an_ensemble_has_the_mean_probability_and_shows_any_undefined_row() -> None:
    probabilities = np.array([[[0.2, 0.8], [0.5, 0.5]], [[0.6, 0.4], [0.1, 0.9]]])
    undefined = np.array([[False, False], [False, True]])
    steps = [
        HostStep(Rows(None, None, 2), np.log(values).astype(np.float32), undefined=rows)
        for values, rows in zip(probabilities, undefined, strict=True)
    ]
    mean = _mean(steps)
    np.testing.assert_allclose(np.exp(mean.values), probabilities.mean(axis=0), rtol=1e-6)
    assert mean.undefined.tolist() == [False, True]


@pytest.mark.parametrize("size", [7, 128, 640, 1283, 4000])
@pytest.mark.parametrize("hypotheses", [1, 5])
@pytest.mark.parametrize("count", [1, 7])
def test_the_best_sums_are_those_of_sorting_all(size: int, hypotheses: int, count: int) -> None:
    generator = np.random.default_rng(size)
    values = generator.normal(size=(6, hypotheses, size)).astype(np.float32)
    scores = generator.normal(size=(6, hypotheses)).astype(np.float32)
    values[0, :, : size // 2 - 3] = -np.inf
    scores[1, 1:] = -np.inf
    inputs = {"log_probs": values.reshape(-1, size), "scores": scores, "count": np.array([count])}
    best, places = session(topk_graph(size).content()).run(None, inputs)
    sums = (values + scores[:, :, None]).reshape(6, -1)
    assert np.array_equal(best, -np.sort(-sums, axis=1)[:, :count])
    assert np.array_equal(np.take_along_axis(sums, places, 1), best)
