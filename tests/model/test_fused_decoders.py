"""Every decoder's fast path against stacked steps: values and gradients, on any device."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases.models import (
    CASES,
    DEVICES,
    ONE_OF_EACH,
    SRC_LENGTHS,
    A,
    B,
    Case,
    H,
    R,
    S,
    T,
    close,
    embedded_targets,
    encoder_output,
    layer_class,
    make_decoder,
    one_step,
    random_tensor,
)
from cases.tiers import one_quick
from torch import Tensor, nn

from seq2seq.model.attention import AdditiveScore
from seq2seq.model.decoder import (
    Decoder,
    DecoderState,
    Memory,
    layer_inputs,
    stack_steps,
    step_layers,
)
from seq2seq.model.fused.attention import ScoreWeights
from seq2seq.model.fused.decoders import unroll_bahdanau, unroll_luong
from seq2seq.model.fused.lstm import LayerInputs, LSTMSteps
from seq2seq.model.layers import Dropout
from seq2seq.model.state import EncoderOutput, Unrolled

Unroll = Callable[[Decoder, Tensor, DecoderState, Memory], Unrolled]
ONE_LAYER = [case for case in CASES if case.num_layers == 1]


def fast(decoder: Decoder, embedded: Tensor, state: DecoderState, memory: Memory) -> Unrolled:
    return decoder(embedded, state, memory)


def values_and_gradients(
    unroll: Unroll,
    decoder: Decoder,
    embedded: Tensor,
    encoded: EncoderOutput,
    autocast: bool = False,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return outputs and attention weights, and the gradients of a scalar that depends on each."""
    with torch.autocast(embedded.device.type, dtype=torch.bfloat16, enabled=autocast):
        memory, state = decoder.start(encoded)
        unrolled = unroll(decoder, embedded, state, memory)
    parts = [part.flatten(1) for part in unrolled if part is not None]
    outputs = torch.cat(parts, dim=1)
    factors = random_tensor(*outputs.shape, seed=9).detach().to(outputs)
    inputs = dict(decoder.named_parameters())
    inputs |= {"embedded": embedded, "outputs": encoded.outputs}
    inputs |= {"hidden": encoded.hidden, "cell": encoded.cell}
    gradients = torch.autograd.grad(
        (outputs * factors).sum(), list(inputs.values()), allow_unused=True, materialize_grads=True
    )
    return outputs, dict(zip(inputs, gradients, strict=True))


def moved(encoded: EncoderOutput, device: str, dtype: torch.dtype) -> EncoderOutput:
    """Return the encoder's output as new leaf tensors on a device."""
    floats = [part.detach().to(device, dtype).requires_grad_() for part in encoded[:3]]
    return EncoderOutput(*floats, encoded.pad_mask.to(device))


def check_fast_path(
    decoder: Decoder, embedded: Tensor, encoded: EncoderOutput
) -> tuple[Tensor, dict[str, Tensor]]:
    """Check the fast path against stacked steps; return its outputs and gradients."""
    (outputs, gradients), (expected, expected_gradients) = (
        values_and_gradients(unroll, decoder, embedded, encoded) for unroll in (fast, stack_steps)
    )
    close(outputs, expected)
    for name, gradient in gradients.items():
        close(gradient, expected_gradients[name])
    return outputs, gradients


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_fast_path_equals_stacked_steps(case: Case, device: str) -> None:
    decoder = make_decoder(case).to(device)
    encoded = moved(encoder_output(case.num_layers), device, torch.float64)
    embedded = embedded_targets().detach().to(device).requires_grad_()
    outputs, gradients = check_fast_path(decoder, embedded, encoded)
    assert outputs.shape == (B, T * R + (0 if case.kind == "plain" else T * S))
    without_gradient = {name for name, gradient in gradients.items() if not gradient.any()}
    ignored = {"outputs"} if case.kind == "plain" else set()
    if case.kind == "bahdanau" or not layer_class(case).has_cell:
        ignored.add("cell")
    assert without_gradient == ignored


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_state_is_continued(case: Case) -> None:
    """From the state after a step, with all that it carries: values and gradients."""
    decoder = make_decoder(case)

    def second(unroll: Unroll) -> Unroll:
        def run(decoder: Decoder, embedded: Tensor, state: DecoderState, memory: Memory) -> Any:
            step = one_step(decoder, embedded[:, 0], state, memory)
            return unroll(decoder, embedded[:, 1:], step.state, memory)

        return run

    arguments = decoder, embedded_targets(), encoder_output(case.num_layers)
    (outputs, gradients), (expected, expected_gradients) = (
        values_and_gradients(second(unroll), *arguments) for unroll in (fast, stack_steps)
    )
    close(outputs, expected)
    for name, gradient in gradients.items():
        close(gradient, expected_gradients[name])


THREE_LAYERS = [Case("bahdanau", "additive", False, 3), Case("luong", "general", True, 3)]


class FixedScaling(nn.Module):
    """Replacement for dropout that scales each unit by its own factor, the same in all steps."""

    p = 0.5

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * torch.linspace(0.2, 1.5, inputs.shape[-1]).to(inputs)


RESIDUAL = [*THREE_LAYERS, Case("luong", "dot", False, 3), Case("plain", "", False, 3)]
RESIDUAL += [Case("bahdanau", "coverage", False, 2), Case("luong", "additive", True, 2, "local_m")]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", RESIDUAL, ids=str)
def test_residual_layers_equal_those_of_loops(case: Case, device: str) -> None:
    """Each layer but the lowest adds its input, before dropout, to its hidden state."""
    decoder = make_decoder(case).to(device).train()
    decoder.dropout, decoder.layers.residual = FixedScaling(), True
    encoded = moved(encoder_output(case.num_layers), device, torch.float64)
    embedded = embedded_targets().detach().to(device).requires_grad_()
    outputs, _ = check_fast_path(decoder, embedded, encoded)
    decoder.layers.residual = False
    memory, state = decoder.start(encoded)
    plain = fast(decoder, embedded, state, memory).outputs.flatten(1)
    assert not torch.allclose(plain, outputs[:, : T * R])
    gates = decoder.layers.bottom.gates(embedded[:, 0])
    states = list(zip(state.hidden.unbind(1), state.cell.unbind(1), strict=True))
    output = torch.zeros(())
    hiddens = []
    for level, (layer, (hidden, cell)) in enumerate(zip(decoder.layers, states, strict=True)):
        if level:
            gates = layer.gates(decoder.dropout(output))
        hidden, _ = layer.step(gates, hidden, cell)
        output = hidden + output if level else hidden
        hiddens.append(hidden)
    decoder.layers.residual = True
    inputs = decoder.layers.bottom.gates(embedded[:, 0])
    top, hidden, _ = step_layers(decoder.layers, inputs, state, decoder.dropout)
    close(top, output)
    close(hidden, torch.stack(hiddens, 1))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", THREE_LAYERS, ids=str)
def test_upper_layers_read_the_one_below_under_dropout(case: Case, device: str) -> None:
    decoder = make_decoder(case).to(device).train()
    decoder.dropout = FixedScaling()
    encoded = moved(encoder_output(case.num_layers), device, torch.float64)
    embedded = embedded_targets().detach().to(device).requires_grad_()
    check_fast_path(decoder, embedded, encoded)


@pytest.mark.parametrize("case", [*THREE_LAYERS, Case("luong", "general", False, 1)], ids=str)
def test_activations_are_freed_as_soon_as_they_are_unreferenced(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reference cycle keeps them until Python's garbage collector runs."""
    references = []

    set_up = LSTMSteps.__init__

    def set_up_and_record(self: LSTMSteps, *arguments: Any) -> None:
        set_up(self, *arguments)
        references.append(weakref.ref(self.activations))

    monkeypatch.setattr(LSTMSteps, "__init__", set_up_and_record)
    decoder = make_decoder(case)
    embedded = embedded_targets()
    memory, state = decoder.start(encoder_output(case.num_layers))
    gc.disable()
    try:
        outputs = decoder(embedded, state, memory).outputs
        assert [reference() is None for reference in references] == [False] * case.num_layers
        loss = outputs.sum()
        del outputs
        loss.backward()  # frees the activations although the loss is still referenced
        assert [reference() is None for reference in references] == [True] * case.num_layers
        assert loss.isfinite()
    finally:
        gc.enable()


def test_upper_layers_draw_dropout_for_each_step_and_only_in_training() -> None:
    decoder = make_decoder(Case("luong", "general", True, 3)).double()
    decoder.dropout = Dropout(0.5)
    _, state = decoder.start(encoder_output(3))
    weight = decoder.input_feed_gates.weight
    arguments = (decoder.layers, weight, state, 6, decoder.dropout)
    lowest, first, second = (layer.mask for layer in layer_inputs(*arguments))
    assert lowest is None
    assert first is not None
    assert second is not None
    assert first.shape == (6, B, H)
    assert set(first.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[:, 0], first[:, 1])
    decoder.eval()
    assert [layer.mask for layer in layer_inputs(*arguments)] == [None] * 3


@pytest.mark.parametrize("lengths", [(5, 5, 5), (1, 5, 1), (3,)], ids=str)
@pytest.mark.parametrize("case", ONE_LAYER, ids=str)
def test_fast_path_equals_stacked_steps_at_any_source_lengths(
    case: Case, lengths: tuple[int, ...]
) -> None:
    decoder = make_decoder(case)
    embedded = embedded_targets(len(lengths))
    encoded = encoder_output(1, lengths)
    check_fast_path(decoder, embedded, encoded)


@pytest.mark.parametrize("case", ONE_LAYER, ids=str)
def test_one_target_position_equals_one_step(case: Case) -> None:
    decoder = make_decoder(case)
    embedded = embedded_targets()[:, :1]
    memory, state = decoder.start(encoder_output(1))
    expected = one_step(decoder, embedded[:, 0], state, memory).outputs
    close(decoder(embedded, state, memory).outputs, expected[:, None])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_do_not_depend_on_later_targets(case: Case) -> None:
    decoder = make_decoder(case)
    embedded = embedded_targets()
    memory, state = decoder.start(encoder_output(case.num_layers))
    expected = decoder(embedded, state, memory).outputs
    close(decoder(embedded[:, :2], state, memory).outputs, expected[:, :2])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_padded_encoder_outputs_have_no_effect_and_no_gradient(case: Case) -> None:
    decoder = make_decoder(case)
    embedded = embedded_targets()
    encoded = encoder_output(case.num_layers)
    other_padding = encoded._replace(
        outputs=encoded.outputs.detach()
        .masked_fill(encoded.pad_mask[:, :, None], 50.0)
        .requires_grad_()
    )
    (outputs, gradients), (changed, changed_gradients) = (
        values_and_gradients(fast, decoder, embedded, encoder_outputs)
        for encoder_outputs in (encoded, other_padding)
    )
    assert torch.equal(outputs, changed)
    for name, gradient in gradients.items():
        close(gradient, changed_gradients[name], 1e-12)
    assert not gradients["outputs"][encoded.pad_mask].any()


@pytest.mark.parametrize("case", ONE_LAYER, ids=str)
def test_a_sentence_alone_has_the_outputs_that_it_has_in_a_batch(case: Case) -> None:
    decoder = make_decoder(case)
    embedded = embedded_targets()
    encoded = encoder_output(1)
    memory, state = decoder.start(encoded)
    batch_outputs = decoder(embedded, state, memory).outputs
    for row, length in enumerate(SRC_LENGTHS):
        outputs, *final_states = (part[row : row + 1] for part in encoded[:4])
        hidden, cell, pad_mask = final_states
        single = EncoderOutput(outputs[:, :length], hidden, cell, pad_mask[:, :length])
        memory, state = decoder.start(single)
        close(decoder(embedded[row : row + 1], state, memory).outputs[0], batch_outputs[row])


@pytest.mark.parametrize("case", ONE_LAYER, ids=str)
def test_a_second_backward_pass_gives_the_same_gradients(case: Case) -> None:
    decoder = make_decoder(case)
    embedded = embedded_targets()
    memory, state = decoder.start(encoder_output(1))
    scalar = decoder(embedded, state, memory).outputs.square().sum()
    leaves = [embedded, *decoder.parameters()]
    options = {"allow_unused": True, "materialize_grads": True}
    first = torch.autograd.grad(scalar, leaves, retain_graph=True, **options)
    for left, right in zip(first, torch.autograd.grad(scalar, leaves, **options), strict=True):
        assert torch.equal(left, right)


def memory_tensors(key_size: int, context_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return keys, values, and the mask to add to scores, for two sentences of 3 and 2 words."""
    mask = torch.zeros(2, 3, dtype=torch.float64)
    mask[1, 2] = -torch.inf
    keys = random_tensor(2, 3, key_size, seed=1)
    return keys, random_tensor(2, 3, context_size, seed=2), mask


def score_tensors(kind: str, key_size: int, query_size: int) -> ScoreWeights:
    if kind == "dot":
        return ScoreWeights()
    query = random_tensor(key_size, query_size, seed=3)
    if kind == "scaled_dot":
        return ScoreWeights(query, random_tensor(key_size, seed=4))
    return ScoreWeights(query, None, random_tensor(key_size, seed=4))


@pytest.mark.parametrize("kind", ["dot", "additive", "scaled_dot"])
@pytest.mark.parametrize("wiring", ["bahdanau", "luong"])
def test_gradients_equal_numerical_derivatives(wiring: str, kind: str) -> None:
    steps = 3
    hidden_size = 4
    context_size = 2
    feed_size = 3
    key_size = hidden_size if kind == "dot" else 5
    keys, values, mask = memory_tensors(key_size, context_size)
    score = score_tensors(kind, key_size, hidden_size)
    state = (random_tensor(2, hidden_size, seed=5), random_tensor(2, hidden_size, seed=6))
    gates = random_tensor(steps, 2, 4 * hidden_size, seed=7)
    fed = context_size if wiring == "bahdanau" else feed_size
    weights = [
        random_tensor(4 * hidden_size, fed, seed=8),
        random_tensor(4 * hidden_size, hidden_size, seed=9),
    ]
    unroll: Callable[..., Tensor | tuple[Tensor, Tensor]] = unroll_bahdanau
    if wiring == "luong":
        weights.append(random_tensor(2, feed_size, seed=11))  # the first input feed
        weights.append(random_tensor(feed_size, context_size + hidden_size, seed=10))
        unroll = unroll_luong
    given_tensors = [part for part in score if part is not None]
    leaves = [gates, *weights, keys, values, *state, *given_tensors]

    def run(*parts: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        gates, *later_parts = parts
        matrices, later_parts = later_parts[: len(weights)], later_parts[len(weights) :]
        keys, values, hidden, cell, *score_parts = later_parts
        fields = [name for name, part in score._asdict().items() if part is not None]
        weights_of_score = ScoreWeights(**dict(zip(fields, score_parts, strict=True)))
        weight, recurrent, *further_matrices = matrices
        layer = LayerInputs(torch.cat([weight, recurrent], dim=1), None, hidden, cell, None)
        return unroll(gates, *further_matrices, (keys, values, mask), weights_of_score, [layer])

    assert torch.autograd.gradcheck(run, leaves)


@pytest.mark.thorough
@one_quick("wiring", ["bahdanau", "luong"])
def test_gradients_of_upper_layers_equal_numerical_derivatives(wiring: str) -> None:
    """With dropout that differs from step to step."""
    steps = 3
    size = 4
    context_size = 2
    feed_size = 3
    keys, values, mask = memory_tensors(5, context_size)
    score = score_tensors("additive", 5, size)
    upper = [
        random_tensor(*shape, seed=20 + 9 * level + number)
        for level in range(2)
        for number, shape in enumerate([(4 * size, 2 * size), (4 * size,), (2, size), (2, size)])
    ]
    drops = [random_tensor(steps, 2, size, seed=50 + level).detach() for level in range(2)]
    gates = random_tensor(steps, 2, 4 * size, seed=7)
    fed = context_size if wiring == "bahdanau" else feed_size
    weights = [random_tensor(4 * size, fed, seed=8), random_tensor(4 * size, size, seed=9)]
    state = [random_tensor(2, size, seed=5), random_tensor(2, size, seed=6)]
    if wiring == "luong":
        weights.append(random_tensor(2, feed_size, seed=11))  # the first input feed
        weights.append(random_tensor(feed_size, context_size + size, seed=10))

    def run(*parts: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        gates, keys, values, hidden, cell, *later_parts = parts
        matrices, later_parts = later_parts[: len(weights)], later_parts[len(weights) :]
        upper_layers = [LayerInputs(*later_parts[4 * n : 4 * n + 4], drops[n]) for n in range(2)]
        unroll: Callable[..., Any] = unroll_bahdanau if wiring == "bahdanau" else unroll_luong
        weight, recurrent, *further_matrices = matrices
        lowest = LayerInputs(torch.cat([weight, recurrent], dim=1), None, hidden, cell, None)
        result: Tensor | tuple[Tensor, Tensor] = unroll(
            gates, *further_matrices, (keys, values, mask), score, [lowest, *upper_layers]
        )
        return result

    assert torch.autograd.gradcheck(run, [gates, keys, values, *state, *weights, *upper])


def test_bahdanau_gradients_are_correct_if_only_the_contexts_are_used() -> None:
    score = AdditiveScore(H, H, A).double()
    case = Case("bahdanau", "additive", False, 1)
    decoder = make_decoder(case)
    embedded = embedded_targets()
    memory, state = decoder.start(encoder_output(1))
    memory = Memory(score.project(memory.values)[0], *memory[1:])
    (layer,) = decoder.layers
    mask = torch.zeros(B, S, dtype=torch.float64).masked_fill(memory.pad_mask, -torch.inf)
    weights = (decoder.context_gates.weight, layer.hidden_weight)
    gates = layer.gates(embedded.transpose(0, 1))
    start = (state.hidden[:, 0], state.cell[:, 0])
    inputs = LayerInputs(torch.cat(weights, dim=1), None, *start, None)
    _, contexts, _ = unroll_bahdanau(
        gates, (memory.keys, memory.values, mask), score.weights(), [inputs]
    )
    expected, (hidden, cell) = [], start
    for t in range(T):
        scores = score(hidden[:, None], memory.keys) + mask[:, None]
        context = (scores.softmax(-1) @ memory.values)[:, 0]
        hidden, cell = layer.step(gates[t] + decoder.context_gates(context), hidden, cell)
        expected.append(context)
    close(contexts, torch.stack(expected))
    leaves = [embedded, *weights, *score.parameters()]
    slow = torch.autograd.grad(torch.stack(expected).square().sum(), leaves, retain_graph=True)
    for left, right in zip(torch.autograd.grad(contexts.square().sum(), leaves), slow, strict=True):
        close(left, right)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", [*ONE_LAYER, *ONE_OF_EACH], ids=str)
def test_bf16_autocast_is_close_to_float32(case: Case, device: str) -> None:
    decoder = make_decoder(case).float().to(device)
    with torch.no_grad():  # small weights keep tanh of the scaled inputs unsaturated
        for name, weight in decoder.named_parameters():
            weight.div_(4 if name in ("output_layer.weight", "attentional.weight") else 1)
    encoded = moved(encoder_output(case.num_layers), device, torch.float32)
    embedded = embedded_targets().detach().float().to(device).requires_grad_()
    exact, exact_gradients = values_and_gradients(fast, decoder, embedded, encoded)
    for unroll in (fast, stack_steps):
        rounded, gradients = values_and_gradients(unroll, decoder, embedded, encoded, autocast=True)
        error = (rounded.float() - exact).norm() / exact.norm()
        assert 0 < error < 0.02
        for name, gradient in gradients.items():
            assert gradient.dtype == torch.float32
            error = (gradient - exact_gradients[name]).norm()
            assert error <= 0.1 * exact_gradients[name].norm() + 0.02, name
