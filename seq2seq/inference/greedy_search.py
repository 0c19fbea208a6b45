"""Greedy search: from START take the likeliest piece until END."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seq2seq.data.batching import Ids
from seq2seq.data.vocabulary import EOS_ID
from seq2seq.inference.continuous_batching import ContinuousBatch
from seq2seq.inference.interface import Hypothesis, Model, SearchOptions
from seq2seq.inference.topk import argmax_of_approximate, argmax_token

ROOM = 64  # steps


class GreedySearch(ContinuousBatch):
    """One hypothesis a slot, and nothing ever taken back."""

    def __init__(
        self, model: Model, memory: Any, state: Any, rows: Tensor, beam: SearchOptions, ruled: bool
    ) -> None:
        super().__init__(model, memory, state, rows, beam, ruled)
        self.paths: list[Ids] = [[] for _ in self.limits]
        self.totals = [0.0] * len(self.limits)
        self.return_attention: Tensor | None = (
            None  # [*, B, S], of the oldest slot's steps and of some before
        )
        self.looked = 0  # of how many steps they are, with room for more

    def keep(self, slots: Sequence[int]) -> None:
        self.paths = [self.paths[slot] for slot in slots]
        self.totals = [self.totals[slot] for slot in slots]
        self.return_attention = (
            None if self.return_attention is None else self.return_attention[:, list(slots)]
        )

    def begin(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.paths[slot], self.totals[slot] = [], 0.0

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        step = self.model.step(self.ids, self.state, self.memory)
        self.state = step.state
        self.ids, log_probs = self._likeliest(step.outputs)
        if step.attention_weights is not None and self.beam.return_attention:
            self._look(step.attention_weights)
        pieces = self.ids.tolist()
        values = [math.nan] * len(pieces) if log_probs is None else log_probs.tolist()
        self.grow([[piece] for piece in pieces], [[0] for _ in pieces])
        done = []
        for slot in self.busy():
            self.paths[slot].append(pieces[slot])
            self.totals[slot] += values[slot]
            if pieces[slot] == EOS_ID:
                done.append((slot, [self._hypothesis(slot)]))
                self.empty(slot)
        return done

    def _likeliest(self, outputs: Any) -> tuple[Tensor, Tensor | None]:
        """The piece that follows each row: [N]; and its log-probability [N], if it is scored."""
        approximate, log_probs = self.model.project_approximately(outputs), None
        if approximate is None or self.beam.return_scores:
            logits = self.model.project(outputs).float()
            log_probs = logits.log_softmax(dim=-1) if self.beam.return_scores else None
        if approximate is None:
            pieces = argmax_token(self.restrict(logits))
        else:
            self.restrict(approximate.logits)
            pieces = argmax_of_approximate(approximate)
        return pieces, None if log_probs is None else log_probs.gather(1, pieces[:, None])[:, 0]

    def _look(self, weights: Tensor) -> None:
        """Keep where a step looks: [B, S]."""
        looks = (
            weights.new_empty(0, *weights.shape)
            if self.return_attention is None
            else self.return_attention
        )
        if self.looked == len(looks):
            kept = looks[len(looks) - max(self.ages) :]
            looks = torch.cat([kept, weights.new_empty(len(kept) + ROOM, *weights.shape)])
            self.looked = len(kept)
        looks[self.looked] = weights
        self.return_attention, self.looked = looks, self.looked + 1

    def _hypothesis(self, slot: int) -> Hypothesis:
        length, weights = self.ages[slot], None
        if self.return_attention is not None:
            steps = self.return_attention[self.looked - length : self.looked, slot]
            weights = steps.float().cpu().clone()  # the room is used again
        score = self.totals[slot] / length**self.beam.length_penalty
        return Hypothesis(self.paths[slot], score, weights)
