"""What the two decoders with attention share: how they look at the memory, and what that leaves."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.model.attention import Score, attend
from seq2seq.model.coverage import Coverage
from seq2seq.model.encoder import EncoderOutput
from seq2seq.model.fused.attention import ScoreWeights
from seq2seq.model.local_attention import Window
from seq2seq.model.state import DecoderState, Memory


class AttentionState(NamedTuple):
    """What looking leaves in the state, where a window or a coverage reads it."""

    coverage: Tensor | None  # [N, S]
    position: Tensor | None  # [N]


class AttentionOutput(NamedTuple):
    """What N queries find."""

    context: Tensor  # [N, C]
    weights: Tensor  # [N, S]
    attention_state: AttentionState


class AttentionLayer(nn.Module):
    """A decoder that attends by a score, maybe within a window, maybe told what it has looked at.

    When it looks, and with which query, is the wiring: the decoders'.
    """

    def __init__(self, score: Score, window: Window | None, coverage: Coverage | None) -> None:
        super().__init__()
        self.score = score
        self.window = window
        self.coverage = coverage

    def memory(self, encoded: EncoderOutput) -> Memory:
        """What attention may read of these sentences."""
        keys, values = self.score.project(encoded.outputs)
        return Memory(keys, values, encoded.pad_mask)

    def initial_attention_state(self, encoded: EncoderOutput) -> AttentionState:
        """Of hypotheses that have not looked yet: nothing covered, position 0."""
        pad_mask, dtype = encoded.pad_mask, encoded.cell.dtype
        covered = None if self.coverage is None else torch.zeros_like(pad_mask, dtype=dtype)
        position = (
            None if self.window is None else torch.zeros_like(pad_mask[:, 0], dtype=torch.long)
        )
        return AttentionState(covered, position)

    def attended(self, query: Tensor, state: DecoderState, memory: Memory) -> AttentionOutput:
        """Attend with N = B * K queries [N, Q], each in the state of its hypothesis."""
        batch = len(memory.keys)
        queries = query.unflatten(0, (batch, -1))  # [B, K, Q]
        keys, window_weights, covered, position = memory.keys, None, state.coverage, state.position
        if self.coverage is not None:
            assert covered is not None, "START state has it"
            keys = self.coverage(keys, covered.unflatten(0, (batch, -1)))
        if self.window is not None:
            assert position is not None, "START state has it"
            window_weights = self.window(
                queries, position.unflatten(0, (batch, -1)), memory.pad_mask
            )
            position = position + 1
        context, weights = attend(
            self.score(queries, keys), memory.values, memory.pad_mask, window_weights
        )
        context, weights = context.flatten(0, 1), weights.flatten(0, 1)
        covered = None if covered is None else covered + weights
        return AttentionOutput(context, weights, AttentionState(covered, position))

    def attend_sequence(self, queries: Tensor, memory: Memory) -> Tensor:
        """The contexts [B, T, C] of all target positions' queries [B, T, Q]; not with coverage."""
        window_weights = None
        if self.window is not None:
            position = torch.arange(queries.shape[1], device=queries.device)
            window_weights = self.window(
                queries, position.expand(len(queries), -1), memory.pad_mask
            )
        scores = self.score(queries, memory.keys)
        return attend(scores, memory.values, memory.pad_mask, window_weights)[0]

    def fused_score(self) -> ScoreWeights | None:
        """The score as tensors where that is all of the attention: what the fast unroll takes."""
        plain = self.window is None and self.coverage is None
        return self.score.weights() if plain else None
