"""Attention layer shared by the attentional decoders, with its coverage."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.model import attention
from seq2seq.model.attention import ScoreFunction
from seq2seq.model.fused.attention import ScoreWeights
from seq2seq.model.local_attention import Window
from seq2seq.model.state import DecoderState, EncoderOutput, Memory


class AttentionState(NamedTuple):
    """Attention state carried to the next step: coverage and target position, None if unused."""

    coverage: Tensor | None  # [N, S]
    position: Tensor | None  # [N]


class AttentionOutput(NamedTuple):
    """Result of attending with N queries."""

    context: Tensor  # [N, C]
    attention_weights: Tensor  # [N, S], the mean over heads
    state: AttentionState
    head_weights: Tensor | None  # [N, M, S] of M heads; None of a score with one head


class Coverage(nn.Module):
    """`v . tanh(W q + U h_s + w c_s)` with the coverage `c_s = sum of a_{t',s} over t' < t`.

    See et al. (2017), eq. 10 and 11, after Tu et al. (2016), without the paper's bias. The term
    `w c_s` is added to the keys `U h_s`, to which the additive score adds the query. w is zero at
    first, so training starts from the additive score. The coverage loss of the paper is
    `training.losses: {coverage: 1}`.
    """

    def __init__(self, attention_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(attention_size))

    def forward(self, keys: Tensor, coverage: Tensor) -> Tensor:
        """Add coverage [B, K, S] to keys [B, S, A]: the keys of each hypothesis [B, K, S, A]."""
        return keys[:, None] + coverage[..., None] * self.weight


class AttentionLayer(nn.Module):
    """Base of the attentional decoders: a score function, optionally with a window and coverage.

    The decoders decide at which point of a step they attend, and with which query.
    """

    def __init__(
        self, score: ScoreFunction, window: Window | None, coverage: Coverage | None
    ) -> None:
        super().__init__()
        self.score = score
        self.window = window
        self.coverage = coverage

    def memory(self, encoded: EncoderOutput) -> Memory:
        """Project encoder outputs to the keys and values of the memory."""
        keys, values = self.score.project(encoded.outputs)
        return Memory(keys, values, encoded.pad_mask)

    def initial_attention_state(self, encoded: EncoderOutput) -> AttentionState:
        """Return zero coverage and target position 0, each None if unused."""
        pad_mask = encoded.pad_mask
        dtype = encoded.cell.dtype
        coverage = position = None
        if self.coverage is not None:
            coverage = torch.zeros_like(encoded.outputs[..., 0], dtype=dtype)  # [B, S]
        if self.window is not None:
            position = torch.zeros_like(pad_mask[:, 0], dtype=torch.long)  # [B]
        return AttentionState(coverage, position)

    def attend(self, query: Tensor, state: DecoderState, memory: Memory) -> AttentionOutput:
        """Attend with the queries [N, Q] of N = B * K hypotheses."""
        batch = memory.keys.shape[0]
        queries = query.reshape(batch, -1, int(query.shape[-1]))  # [B, K, Q]; a constant of graphs
        keys = memory.keys
        window_weights = None
        coverage = state.coverage
        position = state.position
        if self.coverage is not None:
            assert coverage is not None, "set by initial_attention_state"
            by_sentence = coverage.reshape(batch, -1, coverage.shape[-1])  # [B, K, S]
            keys = self.coverage(keys, by_sentence)  # [B, K, S, A]
        if self.window is not None:
            assert position is not None, "set by initial_attention_state"
            positions = position.reshape(batch, -1)  # [B, K]
            window_weights = self.window(queries, positions, memory.pad_mask)  # [B, K, S]
            position = position + 1
        scores = self.score(queries, keys)  # [B, K, S] or [B, M, K, S]
        of_heads = attention.masked_weights(scores, memory.pad_mask, window_weights)
        context = attention.context_of(of_heads, memory.values).flatten(0, 1)  # [N, C]
        weights = attention.mean_over_heads(of_heads).flatten(0, 1)  # [N, S]
        head_weights = of_heads.transpose(1, 2).flatten(0, 1) if of_heads.dim() == 4 else None
        coverage = None if coverage is None else coverage + weights
        return AttentionOutput(context, weights, AttentionState(coverage, position), head_weights)

    def attend_sequence(
        self, queries: Tensor, state: DecoderState, memory: Memory
    ) -> tuple[Tensor, Tensor]:
        """Attend with queries [B, T, Q] at all target positions, without coverage.

        Returns the contexts [B, T, C] and the attention weights [B, T, S].
        """
        window_weights = None
        if self.window is not None:
            assert state.position is not None, "set by initial_attention_state"
            offsets = torch.arange(queries.shape[1], device=queries.device)
            positions = state.position[:, None] + offsets  # [B, T]
            window_weights = self.window(queries, positions, memory.pad_mask)  # [B, T, S]
        scores = self.score(queries, memory.keys)
        return attention.masked_attention(scores, memory.values, memory.pad_mask, window_weights)

    def fused_score(self) -> ScoreWeights | None:
        """Return the score for the fused unroll; None if score, window or coverage prevent it."""
        return self.score.weights() if self.window is None and self.coverage is None else None
