"""The decoders, side by side: Bahdanau's wiring, Luong's, and the plain one without attention.

They differ in `step`. START states, memory and the teacher-forced unroll follow from it.
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from seq2seq.model.attention import Score
from seq2seq.model.attention_layer import AttentionLayer
from seq2seq.model.coverage import Coverage
from seq2seq.model.encoder import EncoderOutput
from seq2seq.model.fused.decoders import unroll_bahdanau, unroll_luong
from seq2seq.model.fused.lstm import LayerInputs
from seq2seq.model.layers import Dropout, tanh
from seq2seq.model.local_attention import Window
from seq2seq.model.lstm import LSTMStack
from seq2seq.model.state import DecoderState, Inputs, Memory, Step

# A read-out is learnt in larger steps than the layers below: Adam moves all entries of a matrix
# alike, and what an LSTM puts out is small beside an embedding of variance one.
HIDDEN_SCALE = 4.0  # of hidden states and contexts that enter a read-out
OUTPUT_SCALE = 2.0  # of read-outs that enter the projection to the vocabulary


class Decoder(Protocol):
    """The seam: training unrolls a decoder over known targets, search steps it."""

    def start(self, encoded: EncoderOutput) -> tuple[Memory, DecoderState]:
        """What attention may read, and the state before the first target position."""
        ...

    def inputs(self, embedded: Tensor) -> Inputs:
        """What embedded target positions [..., E] give a step to read."""
        ...

    def step(self, inputs: Inputs, state: DecoderState, memory: Memory) -> Step:
        """One target position for N = B * K rows."""
        ...

    def __call__(self, embedded: Tensor, state: DecoderState, memory: Memory) -> Tensor:
        """Teacher forcing: embedded `tgt_in` [B, T, E] -> outputs [B, T, R] of stacked steps."""
        ...


class BahdanauDecoder(AttentionLayer):
    """Bahdanau et al. (2015), section 3.1: attend with `s_{t-1}`, then step to `s_t`.

    `s_t = LSTM(s_{t-1}, [y_{t-1}; c_t])`, from `s_0 = tanh(W . backward state at the first word)`,
    or of an encoder in one direction its last state. Where the paper has its gated unit this is an
    LSTM (its cell starts at zero), and where it has a maxout read-out this is
    `2 tanh(W [4 s_t; 4 c_t; y_{t-1}])`.
    """

    def __init__(
        self,
        score: Score,
        embedding_size: int,
        hidden_size: int,
        direction_size: int,
        output_size: int,
        num_layers: int,
        dropout: float,
        window: Window | None = None,
        coverage: Coverage | None = None,
    ) -> None:
        super().__init__(score, window, coverage)
        self.direction_size = direction_size
        self.dropout = Dropout(dropout)
        self.first_hidden = nn.Linear(direction_size, hidden_size)
        self.layers = _layers(embedding_size, hidden_size, num_layers)
        self.context_gates = nn.Linear(score.context_size, 4 * hidden_size, bias=False)
        self.readout = nn.Linear(hidden_size + score.context_size + embedding_size, output_size)

    def start(self, encoded: EncoderOutput) -> tuple[Memory, DecoderState]:
        backward = encoded.hidden[..., -self.direction_size :]
        hidden = torch.tanh(self.first_hidden(backward)).to(encoded.cell.dtype)
        cell = torch.zeros_like(hidden)
        state = DecoderState(hidden, cell, _nothing(hidden), *self.initial_attention_state(encoded))
        return self.memory(encoded), state

    def inputs(self, embedded: Tensor) -> Inputs:
        return Inputs(embedded, self.layers.bottom.gates(embedded))

    def step(self, inputs: Inputs, state: DecoderState, memory: Memory) -> Step:
        attended = self.attended(state.hidden[:, -1], state, memory)
        gates = inputs.gates + self.context_gates(attended.context)
        hidden, cell = _climb(self.layers, gates, state, self.dropout)
        outputs = self.output_layer(hidden[:, -1], attended.context, inputs.embedded)
        return Step(
            outputs,
            DecoderState(hidden, cell, state.input_feed, *attended.attention_state),
            attended.weights,
        )

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory) -> Tensor:
        score = self.fused_score()
        if score is None:
            return stack_steps(self, embedded, state, memory)
        layer, steps = self.layers.bottom, embedded.shape[1]
        hiddens, contexts = unroll_bahdanau(
            layer.gates(embedded.transpose(0, 1)),
            self.context_gates.weight,
            layer.hidden_weight,
            _plain_memory(memory, state),
            score,
            state.hidden[:, 0],
            state.cell[:, 0],
            upper_layer_inputs(self.layers, state, steps, self.dropout),
        )
        return self.output_layer(hiddens, contexts, embedded.transpose(0, 1)).transpose(0, 1)

    def output_layer(self, hidden: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        """`2 tanh(W [4 s_t; 4 c_t; y_{t-1}])`: [..., R]."""
        states = HIDDEN_SCALE * hidden, HIDDEN_SCALE * context.to(hidden.dtype)
        inputs = torch.cat([*states, embedded], dim=-1)
        return OUTPUT_SCALE * self.dropout(tanh(self.readout(inputs)))


class LuongDecoder(AttentionLayer):
    """Luong et al. (2015), section 3: step to `h_t`, then attend with it.

    `h_t = LSTM(h_{t-1}, [y_{t-1}; h~_{t-1}])`; `h~_t = tanh(W_c [c_t; h_t])` (eq. 5) is what input
    feeding (section 3.3) joins to the next input. What is learnt is `W_c / 4`, and the projection
    sees `2 h~_t`.
    """

    def __init__(
        self,
        score: Score,
        embedding_size: int,
        hidden_size: int,
        output_size: int,
        num_layers: int,
        dropout: float,
        input_feeding: bool,
        window: Window | None = None,
        coverage: Coverage | None = None,
    ) -> None:
        super().__init__(score, window, coverage)
        self.dropout = Dropout(dropout)
        self.feed_size = output_size if input_feeding else 0
        self.layers = _layers(embedding_size, hidden_size, num_layers)
        self.feed_gates = (
            nn.Linear(output_size, 4 * hidden_size, bias=False) if input_feeding else None
        )
        self.attentional = nn.Linear(score.context_size + hidden_size, output_size, bias=False)

    def start(self, encoded: EncoderOutput) -> tuple[Memory, DecoderState]:
        input_feed = encoded.hidden.new_zeros(len(encoded.hidden), self.feed_size)
        state = DecoderState(
            encoded.hidden, encoded.cell, input_feed, *self.initial_attention_state(encoded)
        )
        return self.memory(encoded), state

    def inputs(self, embedded: Tensor) -> Inputs:
        return Inputs(embedded, self.layers.bottom.gates(embedded))

    def step(self, inputs: Inputs, state: DecoderState, memory: Memory) -> Step:
        gates = inputs.gates
        if self.feed_gates is not None:
            gates = gates + self.feed_gates(state.input_feed)
        hidden, cell = _climb(self.layers, gates, state, self.dropout)
        attended = self.attended(hidden[:, -1], state, memory)
        vector = self.attentional_vector(attended.context, hidden[:, -1])
        input_feed = state.input_feed if self.feed_gates is None else vector
        return Step(
            self.output(vector),
            DecoderState(hidden, cell, input_feed, *attended.attention_state),
            attended.weights,
        )

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory) -> Tensor:
        if self.feed_gates is not None:
            return self._forward_feeding(self.feed_gates.weight, embedded, state, memory)
        if self.coverage is not None:
            return stack_steps(self, embedded, state, memory)
        hidden = _run_layers(self.layers, embedded, state, self.dropout)
        context = self.attend_sequence(hidden, memory)
        return self.output(self.attentional_vector(context, hidden))

    def _forward_feeding(
        self, feed_weight: Tensor, embedded: Tensor, state: DecoderState, memory: Memory
    ) -> Tensor:
        score = self.fused_score()
        if score is None:
            return stack_steps(self, embedded, state, memory)
        layer, steps = self.layers.bottom, embedded.shape[1]
        vectors = unroll_luong(
            layer.gates(embedded.transpose(0, 1)),
            feed_weight,
            layer.hidden_weight,
            HIDDEN_SCALE * self.attentional.weight,
            _plain_memory(memory, state),
            score,
            state.hidden[:, 0],
            state.cell[:, 0],
            upper_layer_inputs(self.layers, state, steps, self.dropout),
        )
        return self.output(vectors).transpose(0, 1)

    def attentional_vector(self, context: Tensor, hidden: Tensor) -> Tensor:
        """`h~ = tanh(W_c [c; h])`: [..., R]."""
        states = torch.cat([context.to(hidden.dtype), hidden], dim=-1)
        return tanh(self.attentional(HIDDEN_SCALE * states))

    def output(self, vector: Tensor) -> Tensor:
        """`2 h~`, with dropout in training: [..., R]."""
        return OUTPUT_SCALE * self.dropout(vector)


class PlainDecoder(nn.Module):
    """The encoder-decoder without attention (Sutskever et al. 2014).

    All it knows of the source is the encoder's final state. A read-out `2 tanh(W 4 h_t)` stands
    before the vocabulary, as in the other two.
    """

    def __init__(
        self,
        embedding_size: int,
        hidden_size: int,
        output_size: int,
        num_layers: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.layers = _layers(embedding_size, hidden_size, num_layers)
        self.readout = nn.Linear(hidden_size, output_size)

    def start(self, encoded: EncoderOutput) -> tuple[Memory, DecoderState]:
        nothing = encoded.outputs[..., :0]
        memory = Memory(nothing, nothing, encoded.pad_mask)
        return memory, DecoderState(encoded.hidden, encoded.cell, _nothing(encoded.hidden))

    def inputs(self, embedded: Tensor) -> Inputs:
        return Inputs(embedded, self.layers.bottom.gates(embedded))

    def step(self, inputs: Inputs, state: DecoderState, memory: Memory) -> Step:  # noqa: ARG002
        hidden, cell = _climb(self.layers, inputs.gates, state, self.dropout)
        return Step(
            self.output_layer(hidden[:, -1]), DecoderState(hidden, cell, state.input_feed), None
        )

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory) -> Tensor:  # noqa: ARG002
        return self.output_layer(_run_layers(self.layers, embedded, state, self.dropout))

    def output_layer(self, hidden: Tensor) -> Tensor:
        """`2 tanh(W 4 h)`: [..., R]."""
        return OUTPUT_SCALE * self.dropout(tanh(self.readout(HIDDEN_SCALE * hidden)))


def _layers(embedding_size: int, hidden_size: int, num_layers: int) -> LSTMStack:
    return LSTMStack([embedding_size] + [hidden_size] * (num_layers - 1), hidden_size)


def _nothing(hidden: Tensor) -> Tensor:
    """The feed [N, 0] of a decoder that feeds nothing back."""
    return hidden[:, 0, :0]


def _climb(
    layers: LSTMStack, gates: Tensor, state: DecoderState, dropout: Dropout
) -> tuple[Tensor, Tensor]:
    """One step through all layers from the lowest one's gates [N, 4H] -> hidden, cell [N, L, H]."""
    hiddens: list[Tensor] = []
    cells: list[Tensor] = []
    for level, layer in enumerate(layers):
        if level:
            gates = layer.gates(dropout(hiddens[-1]))
        hidden, cell = layer.step(gates, state.hidden[:, level], state.cell[:, level])
        hiddens.append(hidden)
        cells.append(cell)
    return torch.stack(hiddens, dim=1), torch.stack(cells, dim=1)


def _run_layers(
    layers: LSTMStack, embedded: Tensor, state: DecoderState, dropout: Dropout
) -> Tensor:
    """All layers over a target that no step feeds back into: the top one's hidden [B, T, H]."""
    hidden = embedded
    for level, layer in enumerate(layers):
        if level:
            hidden = dropout(hidden)
        hidden, _ = layer(hidden, state.hidden[:, level], state.cell[:, level])
    return hidden


def upper_layer_inputs(
    layers: LSTMStack, state: DecoderState, steps: int, dropout: Dropout
) -> list[LayerInputs]:
    """Return the fused unroll's inputs for the layers above the lowest; draws their dropout."""
    drops = dropout.training and dropout.p > 0
    return [
        LayerInputs(
            torch.cat([layer.input_weight, layer.hidden_weight], dim=1),
            layer.bias,
            state.hidden[:, level],
            state.cell[:, level],
            dropout(torch.ones_like(state.hidden[:, level]).expand(steps, -1, -1))
            if drops
            else None,
        )
        for level, layer in enumerate(layers)
        if level
    ]


def _plain_memory(memory: Memory, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, values and an additive mask in the dtype of the states, for the fast unroll."""
    dtype = state.cell.dtype
    mask = torch.zeros_like(memory.pad_mask, dtype=dtype).masked_fill(memory.pad_mask, -torch.inf)
    return memory.keys.to(dtype), memory.values.to(dtype), mask


def stack_steps(decoder: Decoder, embedded: Tensor, state: DecoderState, memory: Memory) -> Tensor:
    """The definition of teacher forcing: step after step, outputs [B, T, R]."""
    outputs = []
    inputs = decoder.inputs(embedded)
    for embeddings, gates in zip(inputs.embedded.unbind(1), inputs.gates.unbind(1), strict=True):
        step = decoder.step(Inputs(embeddings, gates), state, memory)
        outputs.append(step.outputs)
        state = step.state
    return torch.stack(outputs, dim=1)
