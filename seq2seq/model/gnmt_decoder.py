"""GNMT's decoder: only the lowest layer attends, so that no step waits for attention."""

import torch
from torch import Tensor

from seq2seq.model import decoder
from seq2seq.model.attention import ScoreFunction
from seq2seq.model.attention_layer import AttentionLayer, Coverage
from seq2seq.model.decoder import HIDDEN_SCALE, OUTPUT_SCALE, DecoderSizes
from seq2seq.model.layers import Linear, tanh
from seq2seq.model.local_attention import Window
from seq2seq.model.state import DecoderState, EncoderOutput, Inputs, Memory, Step, Unrolled


class GNMTDecoder(AttentionLayer):
    """Wu et al. (2016), section 3, in the wiring of NVIDIA's GNMT v2 for PyTorch.

    `h^1_t = LSTM(h^1_{t-1}, y_{t-1})` attends and gives `c_t`, which every layer above reads beside
    the output of the layer below: `h^l_t = LSTM(h^l_{t-1}, [x^{l-1}_t; c_t])`. Nothing is fed back,
    so each layer runs over the complete target at once. The paper attends with `h^1_{t-1}` and
    feeds `c_t` to the lowest layer as well. As in the other decoders an output layer
    `2 tanh(W [4 x_t; 4 c_t] + b)`, with the output x of the top layer, precedes the projection.
    The decoder starts from the encoder's final states.
    """

    def __init__(
        self,
        sizes: DecoderSizes,
        score: ScoreFunction,
        window: Window | None = None,
        coverage: Coverage | None = None,
    ) -> None:
        super().__init__(score, window, coverage)
        self.dropout, self.output_dropout = decoder.hidden_and_output_dropout(sizes.dropout)
        joined_size = sizes.hidden + score.context_size
        self.layers = sizes.stack(joined_size)
        self.output_layer = Linear(joined_size, sizes.output)

    def start(self, encoded: EncoderOutput) -> tuple[Memory, DecoderState]:
        hidden, cell = decoder.final_states(encoded, self.layers)
        attention_state = self.initial_attention_state(encoded)
        state = DecoderState(hidden, cell, encoded.hidden[:, 0, :0], *attention_state)
        return self.memory(encoded), state

    def inputs(self, embedded: Tensor) -> Inputs:
        return decoder.recurrent_inputs(embedded, self.layers)

    def step(self, inputs: Inputs, state: DecoderState, memory: Memory) -> Step:
        previous_states = list(zip(state.hidden.unbind(1), state.cell.unbind(1), strict=True))
        lowest, *upper_layers = self.layers
        states = [lowest.step(inputs.gates, *previous_states[0])]
        output = states[0][0]  # [N, H]
        attended = self.attend(output, state, memory)
        for layer, start in zip(upper_layers, previous_states[1:], strict=True):
            states.append(layer.step(layer.gates(self.joined(output, attended.context)), *start))
            output = self.output_of(states[-1][0], output)
        hidden, cell = (torch.stack(parts, dim=1) for parts in zip(*states, strict=True))
        next_state = DecoderState(hidden, cell, state.input_feed, *attended.state)
        outputs = self.outputs(output, attended.context)
        return Step(outputs, next_state, attended.attention_weights, attended.head_weights)

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory) -> Unrolled:
        if self.coverage is not None:  # a step attends as those before it did
            return decoder.stack_steps(self, embedded, state, memory)
        previous_states = list(zip(state.hidden.unbind(1), state.cell.unbind(1), strict=True))
        lowest, *upper_layers = self.layers
        output, _ = lowest.run(embedded, previous_states[0])  # [B, T, H]
        context, weights = self.attend_sequence(output, state, memory)  # [B, T, C], [B, T, S]
        for layer, start in zip(upper_layers, previous_states[1:], strict=True):
            hidden, _ = layer.run(self.joined(output, context), start)
            output = self.output_of(hidden, output)
        return Unrolled(self.outputs(output, context), weights)

    def joined(self, output: Tensor, context: Tensor) -> Tensor:
        """Return the inputs of a layer above the lowest, under dropout: [..., H + C]."""
        return self.dropout(torch.cat([output, context.to(output.dtype)], dim=-1))

    def output_of(self, hidden: Tensor, lower_output: Tensor) -> Tensor:
        """Return the output of a layer above the lowest, given that of the layer below."""
        return hidden + lower_output if self.layers.residual else hidden

    def outputs(self, output: Tensor, context: Tensor) -> Tensor:
        """Return `2 tanh(W [4 x_t; 4 c_t] + b)`, with dropout in training: [..., R]."""
        features = torch.cat([output, context.to(output.dtype)], dim=-1)
        return OUTPUT_SCALE * self.output_dropout(tanh(self.output_layer(HIDDEN_SCALE * features)))
