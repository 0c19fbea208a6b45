"""Decoders side by side: Bahdanau's, Luong's, and the plain one without attention.

What defines each is `step`; the teacher-forced `forward` computes the same, faster.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seq2seq.model.attention import ScoreFunction
from seq2seq.model.attention_layer import AttentionLayer, Coverage
from seq2seq.model.fused.attention import ScoreWeights
from seq2seq.model.fused.decoders import unroll_bahdanau, unroll_luong
from seq2seq.model.fused.lstm import LayerInputs
from seq2seq.model.layers import Dropout, DropoutRates, Linear, tanh
from seq2seq.model.local_attention import Window
from seq2seq.model.recurrent import LSTMLayer, RecurrentLayer, RecurrentStack
from seq2seq.model.state import DecoderState, EncoderOutput, Inputs, Memory, Step, Unrolled

# Output layers are learned in larger steps than the layers below them: Adam moves all entries of a
# matrix by about the same amount, and LSTM states are small beside embeddings of variance one.
HIDDEN_SCALE = 4.0  # multiplier on states and contexts before the output layer
OUTPUT_SCALE = 2.0  # multiplier on the output layer before the projection to the vocabulary


class Decoder(Protocol):
    """Interface of the decoders: training unrolls one over known targets, search steps it."""

    def start(self, encoded: EncoderOutput) -> tuple[Memory, DecoderState]:
        """Return the memory of the sentences and the state before the first target position."""

    def inputs(self, embedded: Tensor) -> Inputs:
        """Return the inputs of steps, given embedded target positions [..., E]."""

    def step(self, inputs: Inputs, state: DecoderState, memory: Memory) -> Step:
        """Advance N = B * K hypotheses by one target position."""

    def __call__(self, embedded: Tensor, state: DecoderState, memory: Memory) -> Unrolled:
        """Run all steps on embedded targets [B, T, E] under teacher forcing."""


class DecoderSizes(NamedTuple):
    """Sizes and layers that all decoders share."""

    embedding: int  # E
    hidden: int  # H
    output: int  # R
    layers: int = 1  # L
    dropout: float | DropoutRates = 0.0
    residual: bool = False
    layer_class: type[RecurrentLayer] = LSTMLayer
    direction: int = 0  # D, of one direction of the encoder; read by bahdanau alone

    def stack(self, upper_input: int = 0) -> RecurrentStack:
        """Return the layers; those above the lowest read H, or `upper_input` entries."""
        input_sizes = [self.embedding] + [upper_input or self.hidden] * (self.layers - 1)
        return RecurrentStack(self.layer_class, input_sizes, self.hidden, self.residual)


class BahdanauDecoder(AttentionLayer):
    """Bahdanau et al. (2015), section 3.1: attend with `s_{t-1}`, then step to `s_t`.

    `s_t = f(s_{t-1}, [y_{t-1}; c_t])`, from `s_0 = tanh(W h + b)` with h the encoder's backward
    state at the first word (final state if it is unidirectional). The paper's f is `GRULayer`; that
    of an LSTM starts with a cell of zero. `s_0` has a bias, and in a deep decoder one W serves all
    layers, each of which starts from an encoder layer. The output layer is
    `2 tanh(W [4 s_t; 4 c_t; y_{t-1}] + b)`, or with `maxout` that of the paper (A.2.2), which reads
    the previous state: `2 max(u_{2j-1}, u_{2j})` with `u = W [4 s_{t-1}; 4 c_t; y_{t-1}] + b`. The
    paper has no scales and omits biases.
    """

    def __init__(
        self,
        sizes: DecoderSizes,
        score: ScoreFunction,
        window: Window | None = None,
        coverage: Coverage | None = None,
        maxout: bool = False,
    ) -> None:
        super().__init__(score, window, coverage)
        self.direction_size = sizes.direction
        self.dropout, self.output_dropout = hidden_and_output_dropout(sizes.dropout)
        self.initial_hidden = nn.Linear(sizes.direction, sizes.hidden)
        self.layers = sizes.stack()
        gate_size = self.layers.bottom.gate_size
        self.context_gates = nn.Linear(score.context_size, gate_size, bias=False)
        self.maxout = maxout
        joined_size = sizes.hidden + score.context_size + sizes.embedding
        self.output_layer = Linear(joined_size, 2 * sizes.output if maxout else sizes.output)

    def start(self, encoded: EncoderOutput) -> tuple[Memory, DecoderState]:
        backward = aligned(encoded.hidden, self.layers)[..., -self.direction_size :]  # [B, L, D]
        hidden = torch.tanh(self.initial_hidden(backward)).to(encoded.cell.dtype)  # [B, L, H]
        attention_state = self.initial_attention_state(encoded)
        cell = torch.zeros_like(hidden[..., : self.layers.bottom.cell_size])
        input_feed = hidden[:, 0, :0]  # no input feeding: [B, 0]
        return self.memory(encoded), DecoderState(hidden, cell, input_feed, *attention_state)

    def inputs(self, embedded: Tensor) -> Inputs:
        return recurrent_inputs(embedded, self.layers)

    def step(self, inputs: Inputs, state: DecoderState, memory: Memory) -> Step:
        attended = self.attend(state.hidden[:, -1], state, memory)
        gates = inputs.gates + self.context_gates(attended.context)  # [N, 4H] in LSTMs
        top, hidden, cell = step_layers(self.layers, gates, state, self.dropout)
        read = state.hidden[:, -1] if self.maxout else top
        outputs = self.outputs(read, attended.context, inputs.embedded)  # [N, R]
        next_state = DecoderState(hidden, cell, state.input_feed, *attended.state)
        return Step(outputs, next_state, attended.attention_weights, attended.head_weights)

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory) -> Unrolled:
        score = self.fused_score() if self.layers.bottom.is_fused else None
        if score is None or self.maxout:
            return stack_steps(self, embedded, state, memory)
        time_major = embedded.transpose(0, 1)  # [T, B, E]
        gates = self.layers.bottom.gates(time_major)
        weight, steps = self.context_gates.weight, len(gates)
        layers = layer_inputs(self.layers, weight, state, steps, self.dropout)
        hiddens, contexts, weights = unroll_bahdanau(
            gates, _unroll_memory(memory, score, gates.dtype), score, layers, self.layers.residual
        )
        outputs = self.outputs(hiddens, contexts, time_major)
        return Unrolled(outputs.transpose(0, 1), weights.transpose(0, 1))

    def outputs(self, hidden: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        """Return `2 tanh(W [4 s; 4 c_t; y_{t-1}] + b)` or maxout, under dropout: [..., R]."""
        states = HIDDEN_SCALE * hidden, HIDDEN_SCALE * context.to(hidden.dtype)
        sums = self.output_layer(torch.cat([*states, embedded], dim=-1))  # [..., R or 2R]
        activated = torch.maximum(sums[..., ::2], sums[..., 1::2]) if self.maxout else tanh(sums)
        return OUTPUT_SCALE * self.output_dropout(activated)


class LuongDecoder(AttentionLayer):
    """Luong et al. (2015), section 3: step to `h_t`, then attend with it.

    `h_t = LSTM(h_{t-1}, [y_{t-1}; h~_{t-1}])`, where input feeding (section 3.3) joins the last
    attentional vector `h~_t = tanh(W_c [c_t; h_t])` (eq. 5) to the input. Unlike in the paper the
    parameter is `W_c / 4`, and the projection to the vocabulary reads `2 h~_t` and has a bias.
    The decoder starts from the encoder's final states, of both directions if it has two.
    """

    def __init__(
        self,
        sizes: DecoderSizes,
        score: ScoreFunction,
        window: Window | None = None,
        coverage: Coverage | None = None,
        input_feeding: bool = True,
    ) -> None:
        super().__init__(score, window, coverage)
        self.dropout, self.output_dropout = hidden_and_output_dropout(sizes.dropout)
        self.input_feed_size = sizes.output if input_feeding else 0
        self.layers = sizes.stack()
        self.input_feed_gates = (
            nn.Linear(sizes.output, self.layers.bottom.gate_size, bias=False)
            if input_feeding
            else None
        )
        self.attentional = Linear(score.context_size + sizes.hidden, sizes.output, bias=False)

    def start(self, encoded: EncoderOutput) -> tuple[Memory, DecoderState]:
        input_feed = encoded.hidden.new_zeros(encoded.hidden.shape[0], self.input_feed_size)
        hidden, cell = final_states(encoded, self.layers)
        state = DecoderState(hidden, cell, input_feed, *self.initial_attention_state(encoded))
        return self.memory(encoded), state

    def inputs(self, embedded: Tensor) -> Inputs:
        return recurrent_inputs(embedded, self.layers)

    def step(self, inputs: Inputs, state: DecoderState, memory: Memory) -> Step:
        gates = inputs.gates  # [N, 4H]
        if self.input_feed_gates is not None:
            gates = gates + self.input_feed_gates(state.input_feed)
        top, hidden, cell = step_layers(self.layers, gates, state, self.dropout)
        attended = self.attend(top, state, memory)
        vector = self.attentional_vector(attended.context, top)  # [N, R]
        input_feed = state.input_feed if self.input_feed_gates is None else vector
        next_state = DecoderState(hidden, cell, input_feed, *attended.state)
        return Step(
            self.outputs(vector), next_state, attended.attention_weights, attended.head_weights
        )

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory) -> Unrolled:
        if self.input_feed_gates is None and self.coverage is None:  # no step depends on attention
            hidden = run_layers(self.layers, embedded, state, self.dropout)  # [B, T, H]
            context, weights = self.attend_sequence(hidden, state, memory)  # [B, T, C], [B, T, S]
            return Unrolled(self.outputs(self.attentional_vector(context, hidden)), weights)
        score = self.fused_score() if self.layers.bottom.is_fused else None
        if self.input_feed_gates is None or score is None:
            return stack_steps(self, embedded, state, memory)
        gates = self.layers.bottom.gates(embedded.transpose(0, 1))  # [T, B, 4H]
        weight, steps = self.input_feed_gates.weight, len(gates)
        layers = layer_inputs(self.layers, weight, state, steps, self.dropout)
        vectors, weights = unroll_luong(
            gates,
            state.input_feed,
            HIDDEN_SCALE * self.attentional.weight,
            _unroll_memory(memory, score, gates.dtype),
            score,
            layers,
            self.layers.residual,
        )
        return Unrolled(self.outputs(vectors).transpose(0, 1), weights.transpose(0, 1))

    def attentional_vector(self, context: Tensor, hidden: Tensor) -> Tensor:
        """Return `h~ = tanh(W_c [c; h])`: [..., R]."""
        states = torch.cat([context.to(hidden.dtype), hidden], dim=-1)  # [..., C + H]
        return tanh(self.attentional(HIDDEN_SCALE * states))

    def outputs(self, vector: Tensor) -> Tensor:
        """Return `2 h~`, with dropout in training: [..., R]."""
        return OUTPUT_SCALE * self.output_dropout(vector)


class PlainDecoder(nn.Module):
    """Decoder without attention (Sutskever et al. 2014).

    The encoder's final state is all it reads of the source. Unlike in the paper an output layer
    `2 tanh(W 4 h_t + b)` precedes the projection to the vocabulary, as in the other decoders.
    """

    def __init__(self, sizes: DecoderSizes) -> None:
        super().__init__()
        self.dropout, self.output_dropout = hidden_and_output_dropout(sizes.dropout)
        self.layers = sizes.stack()
        self.output_layer = Linear(sizes.hidden, sizes.output)

    def start(self, encoded: EncoderOutput) -> tuple[Memory, DecoderState]:
        empty = encoded.outputs[..., :0]  # [B, S, 0]
        hidden, cell = final_states(encoded, self.layers)
        state = DecoderState(hidden, cell, input_feed=encoded.hidden[:, 0, :0])
        return Memory(empty, empty, encoded.pad_mask), state

    def inputs(self, embedded: Tensor) -> Inputs:
        return recurrent_inputs(embedded, self.layers)

    def step(self, inputs: Inputs, state: DecoderState, memory: Memory) -> Step:  # noqa: ARG002
        top, hidden, cell = step_layers(self.layers, inputs.gates, state, self.dropout)
        next_state = DecoderState(hidden, cell, state.input_feed)
        return Step(self.outputs(top), next_state, attention_weights=None)

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory) -> Unrolled:  # noqa: ARG002
        hidden = run_layers(self.layers, embedded, state, self.dropout)
        return Unrolled(self.outputs(hidden), attention_weights=None)

    def outputs(self, hidden: Tensor) -> Tensor:
        """Return `2 tanh(W 4 h + b)`, with dropout in training: [..., R]."""
        return OUTPUT_SCALE * self.output_dropout(tanh(self.output_layer(HIDDEN_SCALE * hidden)))


def hidden_and_output_dropout(dropout: float | DropoutRates) -> tuple[Dropout, Dropout]:
    """Return the dropout of hidden states and that of the output layer."""
    rates = DropoutRates.of(dropout)
    return Dropout(rates.hidden), Dropout(rates.output)


def aligned(states: Tensor, layers: RecurrentStack) -> Tensor:
    """Return the encoder's final states [B, *, H] from which each decoder layer starts [B, L, H].

    Layers are counted from the top: the decoder's top starts from the encoder's. Decoder layers
    that have no counterpart start from the encoder's lowest.
    """
    missing_layers = int(len(layers) - states.shape[1])  # while tracing, sizes are tensors
    if missing_layers <= 0:
        return states[:, -missing_layers:] if missing_layers else states
    return torch.cat([states[:, :1].expand(-1, missing_layers, -1), states], dim=1)


def final_states(encoded: EncoderOutput, layers: RecurrentStack) -> tuple[Tensor, Tensor]:
    """Return the encoder's final hidden states and cells, as `aligned`."""
    return aligned(encoded.hidden, layers), aligned(encoded.cell, layers)


def recurrent_inputs(embedded: Tensor, layers: RecurrentStack) -> Inputs:
    """Return the inputs of steps, with the lowest layer's gates, of embeddings [..., E]."""
    return Inputs(embedded, layers.bottom.gates(embedded))


def step_layers(
    layers: RecurrentStack, gates: Tensor, state: DecoderState, dropout: Dropout
) -> tuple[Tensor, Tensor, Tensor]:
    """Run one step through all layers, given the lowest's gates [N, 4H].

    Returns the output [N, H] and the next hidden and cell [N, L, H].
    """
    output = gates
    hiddens: list[Tensor] = []
    cells: list[Tensor] = []
    for level, layer in enumerate(layers):
        if level:
            gates = layer.gates(dropout(output))
        hidden, cell = layer.step(gates, state.hidden[:, level], state.cell[:, level])
        output = hidden + output if level and layers.residual else hidden
        hiddens.append(hidden)
        cells.append(cell)
    return output, _stacked(hiddens), _stacked(cells)


def _stacked(states: list[Tensor]) -> Tensor:
    """Stack the states of layers [N, H] to [N, L, H]; that of a single one is not copied."""
    return states[0].unsqueeze(1) if len(states) == 1 else torch.stack(states, dim=1)


def run_layers(
    layers: RecurrentStack, embedded: Tensor, state: DecoderState, dropout: Dropout
) -> Tensor:
    """Run all layers over targets [B, T, E], one by one: outputs of the top [B, T, H]."""
    output = embedded
    for level, layer in enumerate(layers):
        inputs = dropout(output) if level else output
        hidden, _ = layer.run(inputs, (state.hidden[:, level], state.cell[:, level]))
        output = hidden + output if level and layers.residual else hidden
    return output


def layer_inputs(
    layers: RecurrentStack, lowest_weight: Tensor, state: DecoderState, steps: int, dropout: Dropout
) -> list[LayerInputs]:
    """Return the layers' tensors for the fused unroll; draw the dropout between layers.

    `lowest_weight` [4H, *] multiplies what each step adds to the inputs of the lowest layer.
    """
    inputs = []
    for level, layer in enumerate(layers):
        hidden, cell = state.hidden[:, level], state.cell[:, level]
        input_weight = layer.input_weight if level else lowest_weight
        weight = torch.cat([input_weight, layer.hidden_weight], dim=1)
        bias = mask = None
        if level:
            bias = layer.bias
            if dropout.training and dropout.p > 0:
                mask = dropout(torch.ones_like(cell).expand(steps, -1, -1))
        inputs.append(LayerInputs(weight, bias, hidden, cell, mask))
    return inputs


def _unroll_memory(
    memory: Memory, score: ScoreWeights, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return keys, values and additive mask, in float32 or wider but for products on a GPU."""
    wide = torch.promote_types(dtype, torch.float32)
    dtype = dtype if memory.keys.is_cuda else wide
    mask = torch.zeros_like(memory.pad_mask, dtype=wide).masked_fill(memory.pad_mask, -torch.inf)
    keys = memory.keys.to(dtype if score.energy is None else wide)
    return keys, memory.values.to(dtype), mask


def stack_steps(
    decoder: Decoder, embedded: Tensor, state: DecoderState, memory: Memory
) -> Unrolled:
    """Run one `step` after the other: the definition of `forward`."""
    outputs, weights = [], []
    inputs = decoder.inputs(embedded)
    for embeddings, gates in zip(inputs.embedded.unbind(1), inputs.gates.unbind(1), strict=True):
        step = decoder.step(Inputs(embeddings, gates), state, memory)
        outputs.append(step.outputs)
        if step.attention_weights is not None:
            weights.append(step.attention_weights)
        state = step.state
    return Unrolled(torch.stack(outputs, dim=1), torch.stack(weights, dim=1) if weights else None)
