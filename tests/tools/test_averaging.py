"""Checkpoint averaging: the mean of the weights."""

import math

import torch

from seq2seq.tools.averaging import average_weights


def test_the_mean_equals_that_of_exact_numbers() -> None:
    generator = torch.Generator().manual_seed(1)
    sets = [
        {
            "a": torch.randn(3, 4, generator=generator),
            "b": 1e-7 * torch.randn(5, generator=generator),
        }
        for _ in range(7)
    ]
    sets[2]["a"] *= 1e6
    for name, average in average_weights(sets).items():
        assert average.dtype == torch.float32
        for n, value in enumerate(average.flatten().tolist()):
            exact = math.fsum(weights[name].flatten()[n].item() for weights in sets) / len(sets)
            assert value == torch.tensor(exact, dtype=torch.float64).float().item()


def test_the_mean_of_identical_weights_is_identical() -> None:
    weights = {"a": torch.randn(9, 11), "b": torch.randn(3).double().float()}
    mean = average_weights([weights] * 3)
    assert mean.keys() == weights.keys()
    assert all(torch.equal(mean[name], weights[name]) for name in weights)


def test_averaging_does_not_change_the_inputs() -> None:
    sets = [{"a": torch.full((2,), float(n), dtype=torch.float64)} for n in range(3)]
    assert average_weights(sets)["a"].tolist() == [1, 1]
    assert [weights["a"].tolist() for weights in sets] == [[0, 0], [1, 1], [2, 2]]
