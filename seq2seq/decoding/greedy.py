"""Greedy search: from START take the likeliest piece until END."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seq2seq.batches import Ids
from seq2seq.decoding.hypothesis import Beam, Hypothesis, Model
from seq2seq.decoding.slots import Slots
from seq2seq.vocabulary import EOS_ID


class GreedySlots(Slots):
    """One hypothesis a slot, and nothing ever taken back."""

    def __init__(
        self, model: Model, memory: Any, state: Any, rows: Tensor, beam: Beam, ruled: bool
    ) -> None:
        super().__init__(model, memory, state, rows, beam, ruled)
        self.paths: list[Ids] = [[] for _ in self.limits]
        self.totals = [0.0] * len(self.limits)
        self.looks: list[Tensor] = []  # [B, S] of each step, back to the first of the oldest slot

    def keep(self, slots: Sequence[int]) -> None:
        self.paths = [self.paths[slot] for slot in slots]
        self.totals = [self.totals[slot] for slot in slots]
        self.looks = [look[list(slots)] for look in self.looks]

    def begin(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.paths[slot], self.totals[slot] = [], 0.0

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        step = self.model.step(self.ids, self.state, self.memory)
        self.state = step.state
        best = self.likeliest(step.outputs, torch.zeros(len(self.ids), 1, device=self.device), 1)
        self.ids = best.pieces[:, 0]
        if step.attention_weights is not None:
            self.looks.append(step.attention_weights)
        pieces, values = self.ids.tolist(), best.scores[:, 0].tolist()
        self.grow([[piece] for piece in pieces], [[0] for _ in pieces])
        done = []
        for slot in self.busy():
            self.paths[slot].append(pieces[slot])
            self.totals[slot] += values[slot]
            if pieces[slot] == EOS_ID:
                done.append((slot, [self._hypothesis(slot)]))
                self.empty(slot)
        del self.looks[: len(self.looks) - max(self.ages)]
        return done

    def _hypothesis(self, slot: int) -> Hypothesis:
        length, weights = self.ages[slot], None
        if self.looks:
            weights = torch.stack([look[slot] for look in self.looks[-length:]]).float().cpu()
        score = self.totals[slot] / length**self.beam.length_penalty
        return Hypothesis(self.paths[slot], score, weights)
