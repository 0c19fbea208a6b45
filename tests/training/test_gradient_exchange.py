"""Sums of gradients over ranks: buckets, their order, and overlap with the backward pass."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
import torch
from simulated_device import DEVICE, simulated
from torch import Tensor, nn

from seq2seq.runtime.process_group import ProcessGroup
from seq2seq.training.gradient_exchange import BUCKET_BYTES, GradientExchange, _buckets


class EqualRanks(ProcessGroup):
    """Group of two ranks with equal gradients; records the sizes of sums and other events."""

    def __init__(self) -> None:
        super().__init__(0, 2)
        self.events: list[object] = []

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        self.events.append(tensor.numel())

        def wait() -> None:
            self.events.append("wait")
            tensor.mul_(2)

        return wait


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 7))


def gradients_of(layers: nn.Module, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients of a loss summed over inputs, by autograd alone."""
    loss = sum(layers(each).square().sum() for each in inputs)
    assert isinstance(loss, Tensor)
    return list(torch.autograd.grad(loss, list(layers.parameters())))


def exchange_of(layers: nn.Module, group: ProcessGroup, max_bytes: int = 1) -> GradientExchange:
    return GradientExchange(layers.parameters(), group, max_bytes)


def test_sums_start_within_the_backward_pass_and_are_awaited_after_it() -> None:
    layers, group, input = network(), EqualRanks(), torch.randn(4, 2)
    exchange, expected = exchange_of(layers, group), gradients_of(layers, [input])
    first = next(layers.parameters())
    first.register_hook(lambda _: group.events.append("gradient of the first parameter"))
    exchange.expect_last_pass(True)
    layers(input).square().sum().backward()
    before = group.events[: group.events.index("gradient of the first parameter")]
    assert before[:4] == [7, 35, 5, 15]
    assert "wait" not in group.events
    (count,) = exchange.finish([torch.tensor(3.0)])
    assert count == 6
    sizes = [each for each in group.events if isinstance(each, int)]
    assert sizes == [7, 35, 5, 15, 3, 6, 1]
    for parameter, gradient in zip(layers.parameters(), expected, strict=True):
        assert torch.equal(parameter.grad, 2 * gradient)


def test_only_the_last_of_several_passes_exchanges_gradients() -> None:
    layers, group, inputs = network(), EqualRanks(), torch.randn(3, 4, 2).unbind()
    exchange, expected = exchange_of(layers, group, 100), gradients_of(layers, inputs)
    for number, each in enumerate(inputs):
        exchange.expect_last_pass(number == 2)
        assert group.events == []
        layers(each).square().sum().backward()
    assert group.events != []
    exchange.finish([torch.ones(2)])
    for parameter, gradient in zip(layers.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)


def test_a_repeated_pass_adds_to_sums_that_have_not_started() -> None:
    layers, group, input = network(), EqualRanks(), torch.randn(4, 2)
    exchange, expected = exchange_of(layers, group), gradients_of(layers, [input])

    def fail(_: Tensor) -> None:
        handle.remove()
        raise MemoryError

    handle = next(layers.parameters()).register_hook(fail)
    exchange.expect_last_pass(True)
    with pytest.raises(MemoryError):
        layers(input).square().sum().backward()
    started = list(group.events)
    assert started[:4] == [7, 35, 5, 15]
    layers.zero_grad()
    for number, half in enumerate(input.split(2)):
        exchange.expect_last_pass(number == 1)
        layers(half).square().sum().backward()
    exchange.finish([torch.ones(1)])
    assert [each for each in group.events if each != "wait"] == [7, 35, 5, 15, 3, 6, 1]
    for parameter, gradient in zip(layers.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)


def test_no_gradient_of_an_earlier_step_counts_as_complete() -> None:
    layers, group, inputs = network(), EqualRanks(), torch.randn(2, 4, 2).unbind()
    exchange = exchange_of(layers, group, 100)
    for input in inputs:
        layers.zero_grad()
        expected = gradients_of(layers, [input])
        exchange.expect_last_pass(True)
        layers(input).square().sum().backward()
        exchange.finish([torch.ones(1)])
        for parameter, gradient in zip(layers.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, 2 * gradient)


def test_a_rank_without_a_pass_starts_the_same_sums() -> None:
    layers, busy, idle = network(), EqualRanks(), EqualRanks()
    for group in (busy, idle):
        exchange = exchange_of(layers, group, 100)
        if group is busy:
            exchange.expect_last_pass(True)
            layers(torch.randn(4, 2)).square().sum().backward()
        exchange.finish([torch.zeros(3)])
        layers.zero_grad()
    assert [each for each in busy.events if each != "wait"] == [
        each for each in idle.events if each != "wait"
    ]


def test_a_parameter_without_gradient_adds_zeros() -> None:
    layers, group = network(), EqualRanks()
    exchange = exchange_of(layers, group, BUCKET_BYTES)
    layers[0].requires_grad_(False)
    exchange.expect_last_pass(True)
    layers(torch.randn(4, 2)).square().sum().backward()
    exchange.finish([torch.zeros(3)])
    assert not layers[0].weight.grad.any()
    assert layers[2].weight.grad.any()


def test_weights_used_twice_are_exchanged_once_complete() -> None:
    layer, group, input = nn.Linear(3, 3), EqualRanks(), torch.randn(2, 3)
    exchange = exchange_of(layer, group)
    expected = gradients_of(nn.Sequential(layer, layer), [input])
    exchange.expect_last_pass(True)
    layer(layer(input)).square().sum().backward()
    exchange.finish([torch.zeros(1)])
    for parameter, gradient in zip(layer.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)


@pytest.mark.parametrize("max_bytes", [1, 24, 100, 1 << 20])
def test_buckets_hold_all_parameters_in_order(max_bytes: int) -> None:
    parameters = list(network().parameters())
    buckets = _buckets(parameters, max_bytes)
    assert [each for bucket in buckets for each in bucket] == parameters
    for bucket in buckets:
        assert len(bucket) == 1 or sum(each.nbytes for each in bucket) <= max_bytes
    for bucket, following in pairwise(buckets):
        assert sum(each.nbytes for each in bucket) + following[0].nbytes > max_bytes


def test_the_host_reads_no_value_from_the_device() -> None:
    with simulated() as device:
        layers, group = network().to(DEVICE), EqualRanks()
        exchange = exchange_of(layers, group, 100)
        exchange.expect_last_pass(True)
        layers(torch.randn(4, 2, device=DEVICE)).square().sum().backward()
        exchange.finish([torch.ones(2, device=DEVICE)])
    assert device.reads == []
    assert all(each.grad.device == DEVICE for each in layers.parameters())
