"""Greedy search: take the most probable token at every step until end-of-sentence."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids
from seq2seq.inference.search.continuous_batching import ContinuousBatch
from seq2seq.inference.search.interface import Hypothesis, NonFiniteError
from seq2seq.inference.search.topk import argmax_of_approximate, argmax_token
from seq2seq.runtime.device import values_of

ATTENTION_STEPS = 64  # steps for which attention weights are allocated at a time


class GreedySearch(ContinuousBatch):
    """Greedy search with one hypothesis per slot."""

    def allocate(self, slots: int) -> None:
        self.paths: list[Ids] = [[] for _ in range(slots)]
        self.log_probs: list[list[float]] = [[] for _ in range(slots)]  # one per token, nats
        self.attention: Tensor | None = None  # [*, B, S], the first `attention_steps` are filled
        self.attention_steps = 0

    def keep(self, slots: Sequence[int]) -> None:
        self.paths = [self.paths[slot] for slot in slots]
        self.log_probs = [self.log_probs[slot] for slot in slots]
        self.attention = None if self.attention is None else self.attention[:, list(slots)]

    def begin(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.paths[slot], self.log_probs[slot] = [], []

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        step = self.model.step(self.ids, self.state, self.memory)
        self.state = step.state
        self.ids, best, log_probs = self._best_tokens(step.outputs)
        if step.attention_weights is not None and self.options.return_attention:
            self._keep_attention(step.attention_weights)
        tokens, values = values_of(self.ids, best if log_probs is None else log_probs)
        self.check_finite(values)
        if log_probs is None:
            values = [math.nan] * len(tokens)
        self.rows.advance([[token] for token in tokens], [[0] for _ in tokens])
        finished = []
        for slot in self.rows.busy():
            self.paths[slot].append(tokens[slot])
            self.log_probs[slot].append(values[slot])
            if tokens[slot] == EOS_ID:
                finished.append((slot, [self._hypothesis(slot)]))
                self.rows.clear(slot)
            elif self.rows.lengths[slot] >= self.rows.limits[slot]:  # end-of-sentence alone may be
                raise NonFiniteError(slot, -math.inf)
        return finished

    def _best_tokens(self, outputs: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the best next tokens [N], their logits and, if wanted, log-probabilities."""
        if self.options.repetition_penalty != 1:
            values = self.constrain(self.model.project(outputs).float().log_softmax(dim=-1))
            tokens = argmax_token(values)
            best = values.gather(1, tokens[:, None])[:, 0]
            return tokens, best, best if self.options.return_scores else None
        approximate, log_probs = self.model.project_approximately(outputs), None
        if approximate is None or self.options.return_scores:
            logits = self.model.project(outputs).float()
            log_probs = logits.log_softmax(dim=-1) if self.options.return_scores else None
        if approximate is None:
            tokens = argmax_token(self.constrain(logits))
            best = logits.gather(1, tokens[:, None])[:, 0]
        else:
            self.constrain(approximate.logits)
            tokens, best = argmax_of_approximate(approximate)
        if log_probs is not None:
            log_probs = log_probs.gather(1, tokens[:, None])[:, 0]
        return tokens, best, log_probs

    def _keep_attention(self, weights: Tensor) -> None:
        """Append the attention weights [B, S] of a step; drop those before the oldest sentence."""
        kept = weights.new_empty(0, *weights.shape) if self.attention is None else self.attention
        if self.attention_steps == len(kept):
            kept = kept[len(kept) - max(self.rows.lengths) :]
            self.attention_steps = len(kept)
            room = weights.new_empty(len(kept) + ATTENTION_STEPS, *weights.shape)
            kept = torch.cat([kept, room])
        kept[self.attention_steps] = weights
        self.attention, self.attention_steps = kept, self.attention_steps + 1

    def _hypothesis(self, slot: int) -> Hypothesis:
        length, weights = self.rows.lengths[slot], None
        if self.attention is not None:  # weights are copied: their buffer is reused
            steps = slice(self.attention_steps - length, self.attention_steps)
            own = self.attention[steps, slot, : self.src_lengths_on_host[slot]]
            weights = own.float().cpu().clone()
        total = 0.0
        for each in self.log_probs[slot]:  # in order; `sum` compensates from Python 3.12 on
            total += each
        score = total / length**self.options.length_penalty
        log_probs = tuple(self.log_probs[slot]) if self.options.return_scores else ()
        return Hypothesis(self.paths[slot], score, weights, log_probs)
