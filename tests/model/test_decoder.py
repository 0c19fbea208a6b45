"""The decoders against their papers' equations; their differences; states; dropout."""

import math

import pytest
import torch
from cases.models import (
    CASES,
    ONE_OF_EACH,
    SRC_LENGTHS,
    B,
    Case,
    D,
    E,
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
from torch import Tensor, nn

from seq2seq.model.decoder import DecoderState, EncoderOutput, LuongDecoder, Memory, Step

K = 2
Vector = list[float]
WITH_ATTENTION = [case for case in CASES if case.kind != "plain"]
GLOBAL = [case for case in WITH_ATTENTION if not case.window]


# ------------------------------------------------------------- the papers' equations, in loops


def times(weight: Tensor, vector: Vector) -> Vector:
    return [sum(row[i] * vector[i] for i in range(len(vector))) for row in weight.detach().tolist()]


def add(*vectors: Vector) -> Vector:
    return [sum(parts) for parts in zip(*vectors, strict=True)]


def tanh(vector: Vector) -> Vector:
    return [math.tanh(x) for x in vector]


def lstm(gates: Vector, cell: Vector) -> tuple[Vector, Vector]:
    """Return hidden and cell from gates (o, i, f, g) before their non-linearities."""
    hidden = []
    next_cell = []
    for n in range(H):
        o, i, f = (1 / (1 + math.exp(-gates[part * H + n])) for part in range(3))
        next_cell.append(f * cell[n] + i * math.tanh(gates[3 * H + n]))
        hidden.append(o * math.tanh(next_cell[-1]))
    return hidden, next_cell


def average(scores: Vector, values: list[Vector]) -> tuple[Vector, Vector]:
    """Return the context and the attention weights: values averaged by the softmax of scores."""
    total = sum(math.exp(score) for score in scores)
    weights = [math.exp(score) / total for score in scores]
    columns = zip(*values, strict=True)
    return [sum(w * x for w, x in zip(weights, c, strict=True)) for c in columns], weights


def own_parameters(decoder: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in decoder.named_parameters()}


def fourfold(xs: Vector) -> Vector:
    """Scale states and contexts as the output layer reads them."""
    return [4 * x for x in xs]


def twofold(xs: Vector) -> Vector:
    """Scale outputs as the projection reads them."""
    return [2 * x for x in xs]


def input_gates(parameters: dict[str, Tensor], y: Vector, hidden: Vector) -> Vector:
    """Return the gate inputs of a layer from its input, its last hidden state and its bias."""
    from_input = times(parameters["layers.0.input_weight"], y)
    from_hidden = times(parameters["layers.0.hidden_weight"], hidden)
    return add(from_input, from_hidden, parameters["layers.0.bias"].tolist())


def bahdanau_in_loops(
    parameters: dict[str, Tensor], y: Vector, s: Vector, cell: Vector, h: list[Vector]
) -> tuple[Vector, Vector, Vector, Vector]:
    """e_j = v . tanh(W s + U h_j); c = sum a_j h_j; s' = LSTM([y; c], s); 2 tanh(R [4s'; 4c; y])"""
    v = parameters["score.energy.weight"][0].tolist()
    query = times(parameters["score.query_projection.weight"], s)
    scores = [
        sum(a * b for a, b in zip(v, tanh(add(query, key)), strict=True))
        for key in (times(parameters["score.key_projection.weight"], position) for position in h)
    ]
    context, weights = average(scores, h)
    gates = add(input_gates(parameters, y, s), times(parameters["context_gates.weight"], context))
    s, cell = lstm(gates, cell)
    product = times(parameters["output_layer.weight"], fourfold(s + context) + y)
    outputs = twofold(tanh(add(product, parameters["output_layer.bias"].tolist())))
    return outputs, s, cell, weights


def luong_in_loops(
    parameters: dict[str, Tensor],
    y: Vector,
    hidden: Vector,
    cell: Vector,
    feed: Vector,
    h: list[Vector],
) -> tuple[Vector, Vector, Vector, Vector]:
    """h' = LSTM([y; feed], h); e_j = h' . W h_j; c = sum a_j h_j; h~ = tanh(4 W [c; h'])."""
    gates = input_gates(parameters, y, hidden)
    if feed:
        gates = add(gates, times(parameters["input_feed_gates.weight"], feed))
    hidden, cell = lstm(gates, cell)
    scores = [
        sum(
            a * b / math.sqrt(H)  # the parameter is W sqrt(H)
            for a, b in zip(
                hidden, times(parameters["score.key_projection.weight"], position), strict=True
            )
        )
        for position in h
    ]
    context, weights = average(scores, h)
    vector = tanh(times(parameters["attentional.weight"], fourfold(context + hidden)))
    return vector, hidden, cell, weights


def check_step(
    step: Step, row: int, outputs: Vector, hidden: Vector, cell: Vector, weights: Vector | None
) -> None:
    close(step.outputs[row], torch.tensor(outputs, dtype=torch.float64))
    close(step.state.hidden[row, 0], torch.tensor(hidden, dtype=torch.float64))
    close(step.state.cell[row, 0], torch.tensor(cell, dtype=torch.float64))
    if weights is not None:
        padded = weights + [0.0] * (S - len(weights))
        close(step.attention_weights[row], torch.tensor(padded, dtype=torch.float64))


def test_bahdanau_steps_follow_the_equations_of_the_paper() -> None:
    decoder = make_decoder(Case("bahdanau", "additive", False, 1))
    parameters = own_parameters(decoder)
    encoded = encoder_output(1)
    embedded = embedded_targets()
    memory, state = decoder.start(encoded)
    first = one_step(decoder, embedded[:, 0], state, memory)
    second = one_step(decoder, embedded[:, 1], first.state, memory)
    for row, length in enumerate(SRC_LENGTHS):
        h = encoded.outputs[row, :length].tolist()
        y = embedded[row].tolist()
        backward = encoded.hidden[row, 0, H - D :].tolist()
        start = add(
            times(parameters["initial_hidden.weight"], backward),
            parameters["initial_hidden.bias"].tolist(),
        )
        outputs, s, cell, weights = bahdanau_in_loops(parameters, y[0], tanh(start), [0.0] * H, h)
        check_step(first, row, outputs, s, cell, weights)
        check_step(second, row, *bahdanau_in_loops(parameters, y[1], s, cell, h))


@pytest.mark.parametrize("feeding", [True, False], ids=["feeding", "no feeding"])
def test_luong_steps_follow_the_equations_of_the_paper(feeding: bool) -> None:
    decoder = make_decoder(Case("luong", "general", feeding, 1))
    parameters = own_parameters(decoder)
    encoded = encoder_output(1)
    embedded = embedded_targets()
    memory, state = decoder.start(encoded)
    first = one_step(decoder, embedded[:, 0], state, memory)
    second = one_step(decoder, embedded[:, 1], first.state, memory)
    for row, length in enumerate(SRC_LENGTHS):
        h = encoded.outputs[row, :length].tolist()
        y = embedded[row].tolist()
        start = (encoded.hidden[row, 0].tolist(), encoded.cell[row, 0].tolist())
        feed = [0.0] * R if feeding else []
        vector, hidden, cell, weights = luong_in_loops(parameters, y[0], *start, feed, h)
        check_step(first, row, twofold(vector), hidden, cell, weights)
        feed = vector if feeding else []
        vector, *state_and_weights = luong_in_loops(parameters, y[1], hidden, cell, feed, h)
        check_step(second, row, twofold(vector), *state_and_weights)


def test_plain_steps_are_an_lstm_and_an_output_layer() -> None:
    decoder = make_decoder(Case("plain", "", False, 1))
    parameters = own_parameters(decoder)
    encoded = encoder_output(1)
    embedded = embedded_targets()
    memory, state = decoder.start(encoded)
    step = one_step(decoder, embedded[:, 0], state, memory)
    assert step.attention_weights is None
    for row in range(B):
        hidden = encoded.hidden[row, 0].tolist()
        cell = encoded.cell[row, 0].tolist()
        hidden, cell = lstm(input_gates(parameters, embedded[row, 0].tolist(), hidden), cell)
        product = times(parameters["output_layer.weight"], fourfold(hidden))
        outputs = twofold(tanh(add(product, parameters["output_layer.bias"].tolist())))
        check_step(step, row, outputs, hidden, cell, None)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_an_upper_layer_reads_the_hidden_of_the_one_below(case: Case) -> None:
    decoder = make_decoder(case)
    memory, state = decoder.start(encoder_output(case.num_layers))
    state = state._replace(cell=random_tensor(B, 2, H, seed=6))
    next_state = one_step(decoder, embedded_targets()[:, 0], state, memory).state
    upper = decoder.layers[1]
    hidden, cell = upper.step(
        upper.gates(next_state.hidden[:, 0]), state.hidden[:, 1], state.cell[:, 1]
    )
    close(next_state.hidden[:, 1], hidden)
    close(next_state.cell[:, 1], cell)


@pytest.mark.parametrize("case", GLOBAL, ids=str)
def test_queries_come_from_the_top_layer_but_in_gnmt_from_the_lowest(case: Case) -> None:
    decoder = make_decoder(case)
    memory, state = decoder.start(encoder_output(case.num_layers))
    step = one_step(decoder, embedded_targets()[:, 0], state, memory)
    querying = state if case.kind == "bahdanau" else step.state
    level = 0 if case.kind == "gnmt" else case.num_layers - 1
    scores = decoder.score(querying.hidden[:, level : level + 1], memory.keys)
    scores = scores.reshape(B, -1, S)  # [B, heads, S]
    expected = scores.masked_fill(memory.pad_mask[:, None], -torch.inf).softmax(-1).mean(1)
    close(step.attention_weights, expected)


# ------------------------------------------------------------------- differences between decoders


@pytest.mark.parametrize("case", WITH_ATTENTION, ids=str)
def test_the_first_attention_depends_on_the_first_input_except_in_bahdanau(case: Case) -> None:
    decoder = make_decoder(case)
    memory, state = decoder.start(encoder_output(case.num_layers))
    first, second = (
        one_step(decoder, random_tensor(B, E, seed=seed), state, memory) for seed in (11, 12)
    )
    same = torch.equal(first.attention_weights, second.attention_weights)
    assert same == (case.kind == "bahdanau")
    assert not torch.allclose(first.outputs, second.outputs)


@pytest.mark.parametrize("case", GLOBAL, ids=str)
def test_attention_weights_are_a_distribution_over_unpadded_positions(case: Case) -> None:
    decoder = make_decoder(case)
    memory, state = decoder.start(encoder_output(case.num_layers))
    weights = one_step(decoder, embedded_targets()[:, 0], state, memory).attention_weights
    assert weights.shape == (B, S)
    assert torch.equal(weights == 0, memory.pad_mask)
    close(weights.sum(1), torch.ones(B, dtype=torch.float64))


@pytest.mark.parametrize("layers", [1, 2])
def test_the_plain_decoder_depends_only_on_the_final_state(layers: int) -> None:
    decoder = make_decoder(Case("plain", "", False, layers))
    embedded = embedded_targets()
    encoded = encoder_output(layers)

    def run(**changes: Tensor) -> Tensor:
        memory, state = decoder.start(encoded._replace(**changes))
        return decoder(embedded, state, memory).outputs

    expected = run()
    assert torch.equal(run(outputs=random_tensor(B, S, H, seed=20)), expected)
    for name in ("hidden", "cell"):
        other_state = random_tensor(B, layers, H, seed=21)
        assert not torch.allclose(run(**{name: other_state}), expected)


# ----------------------------------------------------------------------- initial state, selection


@pytest.mark.parametrize("case", CASES, ids=str)
def test_start_state(case: Case) -> None:
    decoder = make_decoder(case)
    encoded = encoder_output(case.num_layers)
    memory, state = decoder.start(encoded)
    if case.kind == "bahdanau":
        backward = encoded.hidden[:, :, H - D :]
        first = decoder.initial_hidden
        close(state.hidden, torch.tanh(backward @ first.weight.t() + first.bias))
        size = H if layer_class(case).has_cell else 0
        assert torch.equal(state.cell, torch.zeros(B, case.num_layers, size, dtype=torch.float64))
    else:
        assert torch.equal(state.hidden, encoded.hidden)
        assert torch.equal(state.cell, encoded.cell)
    feed_size = R if case.input_feeding else 0
    assert torch.equal(state.input_feed, torch.zeros(B, feed_size, dtype=torch.float64))
    assert torch.equal(memory.pad_mask, encoded.pad_mask)
    if case.kind == "plain":
        assert memory.keys.shape == memory.values.shape == (B, S, 0)
    else:
        keys, values = decoder.score.project(encoded.outputs)
        close(memory.keys, keys)
        close(memory.values, values)


@pytest.mark.parametrize("layers", [1, 2])
def test_luong_feeds_its_attentional_hidden_state_or_nothing(layers: int) -> None:
    for feeding in (True, False):
        decoder = make_decoder(Case("luong", "dot", feeding, layers))
        memory, state = decoder.start(encoder_output(layers))
        step = one_step(decoder, embedded_targets()[:, 0], state, memory)
        expected = step.outputs / 2 if feeding else step.outputs[:, :0]
        assert torch.equal(step.state.input_feed, expected)
    names = {name for name, _ in decoder.named_parameters()}
    assert not any(name.startswith("input_feed") for name in names)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_k_hypotheses_of_a_sentence_equal_k_copies_of_it(case: Case) -> None:
    decoder = make_decoder(case)
    encoded = encoder_output(case.num_layers)
    inputs = [random_tensor(B * K, E, seed=seed) for seed in (30, 31)]
    copies = torch.arange(B).repeat_interleave(K)
    memory, state = decoder.start(encoded)
    state = state.select(copies)
    copied_memory, copied_state = decoder.start(
        EncoderOutput(*(part[copies] for part in encoded[:4]))
    )
    for embedded in inputs:
        step = one_step(decoder, embedded, state, memory)
        step_of_copies = one_step(decoder, embedded, copied_state, copied_memory)
        close(step.outputs, step_of_copies.outputs)
        for left, right in zip(step.state, step_of_copies.state, strict=True):
            close(left, right)
        if case.kind != "plain":
            close(step.attention_weights, step_of_copies.attention_weights)
        state = step.state
        copied_state = step_of_copies.state


def test_select_takes_the_same_rows_of_every_part() -> None:
    rows = torch.tensor([2, 0, 2, 1])
    state = DecoderState(*(random_tensor(B, size, seed=size) for size in (2, 3, 5)))
    memory = Memory(*(random_tensor(B, S, size, seed=size) for size in (2, 3)), torch.eye(B, S) > 0)
    for parts in (state, memory):
        selection = parts.select(rows)
        assert type(selection) is type(parts)
        for part, source in zip(selection, parts, strict=True):
            if source is None:
                assert part is None
            else:
                assert torch.equal(part, torch.stack([source[row] for row in (2, 0, 2, 1)]))


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_selected_hypotheses_continue_unchanged(case: Case) -> None:
    decoder = make_decoder(case)
    embedded = embedded_targets()
    memory, state = decoder.start(encoder_output(case.num_layers))
    state = one_step(decoder, embedded[:, 0], state, memory).state
    rows = torch.tensor([2, 1])
    full_step = one_step(decoder, embedded[:, 1], state, memory)
    selected_step = one_step(decoder, embedded[rows, 1], state.select(rows), memory.select(rows))
    close(selected_step.outputs, full_step.outputs[rows])
    close(selected_step.state.hidden, full_step.state.hidden[rows])


# ---------------------------------------------------------------------------------------- dropout


@pytest.mark.parametrize("case", CASES, ids=str)
def test_dropout_acts_only_in_training(case: Case) -> None:
    embedded = embedded_targets()
    encoded = encoder_output(case.num_layers)

    def run(dropout: float, training: bool, seed: int, stepwise: bool) -> Tensor:
        decoder = make_decoder(case, dropout).train(training)
        torch.manual_seed(seed)
        memory, state = decoder.start(encoded)
        if stepwise:
            return one_step(decoder, embedded[:, 0], state, memory).outputs
        return decoder(embedded, state, memory).outputs

    for stepwise in (True, False):
        expected = run(0.0, training=True, seed=1, stepwise=stepwise)
        assert torch.equal(run(0.5, training=False, seed=1, stepwise=stepwise), expected)
        first_seed, second_seed = (
            run(0.5, training=True, seed=seed, stepwise=stepwise) for seed in (1, 2)
        )
        assert not torch.equal(first_seed, second_seed)
        assert torch.equal(run(0.5, training=True, seed=1, stepwise=stepwise), first_seed)


def test_dropout_zeroes_its_share_and_scales_the_rest() -> None:
    case = Case("luong", "dot", True, 1)
    plain = make_decoder(case)
    dropping = make_decoder(case, dropout=0.25)
    torch.manual_seed(1)
    encoded = encoder_output(1)
    embedded = random_tensor(B, 300, E, seed=1)
    memory, state = plain.start(encoded)
    expected, outputs = (decoder(embedded, state, memory).outputs for decoder in (plain, dropping))
    is_zero = outputs == 0
    assert is_zero.double().mean().item() == pytest.approx(0.25, abs=0.02)
    close(outputs[~is_zero], expected[~is_zero] / 0.75)


def test_luong_feeds_back_outputs_before_dropout() -> None:
    decoder = make_decoder(Case("luong", "dot", True, 1), dropout=0.5)
    assert isinstance(decoder, LuongDecoder)
    memory, state = decoder.start(encoder_output(1))
    step = one_step(decoder, embedded_targets()[:, 0], state, memory)
    assert (step.outputs == 0).any()
    assert (step.state.input_feed != 0).all()


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_dropout_is_applied_between_layers(case: Case) -> None:
    decoder = make_decoder(case, dropout=0.5)
    memory, state = decoder.start(encoder_output(2))
    first, second = (
        one_step(decoder, embedded_targets()[:, 0], state, memory).state.hidden for _ in range(2)
    )
    assert torch.equal(first[:, 0], second[:, 0])
    assert not torch.allclose(first[:, 1], second[:, 1])


def test_targets_have_as_many_outputs_as_positions() -> None:
    for case in CASES:
        decoder = make_decoder(case)
        memory, state = decoder.start(encoder_output(case.num_layers))
        assert decoder(embedded_targets(), state, memory).outputs.shape == (B, T, R)
