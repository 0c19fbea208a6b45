"""Beam search: keep the likeliest K beginnings of each sentence; an ended one goes to the pool."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2seq.data.vocabulary import EOS_ID
from seq2seq.inference.continuous_batching import ContinuousBatch
from seq2seq.inference.interface import Hypothesis, Model, SearchOptions
from seq2seq.inference.topk import topk_continuations

LEAST_COVERED = 1e-4


class BeamSearch(ContinuousBatch):
    """K hypotheses a slot.

    A sentence is done once its pool is full and no beginning, were it to end now with all of the
    source covered, would beat the worst in the pool.
    """

    def __init__(
        self, model: Model, memory: Any, state: Any, rows: Tensor, beam: SearchOptions, ruled: bool
    ) -> None:
        super().__init__(model, memory, state, rows, beam, ruled)
        shape = (len(self.limits), beam.size)
        self.first = torch.arange(shape[0], device=self.device)[:, None] * beam.size
        self.scores = torch.full(shape, -torch.inf, device=self.device)  # of beginnings
        self.pool_scores = self.scores.clone()  # the best ended hypotheses, -inf where none
        self.pool_parents = torch.zeros(shape, dtype=torch.long, device=self.device)
        self.pool_lengths = torch.zeros(shape, dtype=torch.long, device=self.device)
        self.coverage: Tensor | None = None  # [B * K, S], all that beginnings have looked at
        self.trail: list[_Trail] = []  # back to the first step of the oldest slot

    def keep(self, slots: Sequence[int]) -> None:
        kept = torch.tensor(slots, device=self.device)
        rows = self.rows_of(kept)
        self.first = self.first[: len(slots)]
        self.scores, self.pool_scores = self.scores[kept], self.pool_scores[kept]
        self.pool_parents, self.pool_lengths = self.pool_parents[kept], self.pool_lengths[kept]
        self.coverage = None if self.coverage is None else self.coverage[rows]
        self.trail = [step.of(slots, rows) for step in self.trail]

    def begin(self, slots: Sequence[int]) -> None:
        rows = torch.tensor(slots, device=self.device)
        self.scores[rows] = -torch.inf
        self.scores[rows, 0] = 0
        self.pool_scores[rows] = -torch.inf
        if self.coverage is not None:
            self.coverage.unflatten(0, self.scores.shape)[rows] = 0

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        step = self.model.step(self.ids, self.state, self.memory)
        logits = self.model.project(step.outputs).float()
        log_probs = self.restrict(
            torch.log_softmax(logits, -1, out=logits)
        )  # in place: it is large
        best, parents, pieces = topk_continuations(log_probs, self.scores, 2 * self.beam.size)
        ended = pieces == EOS_ID
        lengths = torch.tensor(self.ages, device=self.device)[:, None] + 1
        norms = lengths.to(best.dtype) ** self.beam.length_penalty
        scores = best.masked_fill(~ended, -torch.inf) / norms
        self._cover(step.attention_weights)
        if self.coverage is not None:
            scores = scores + self._coverage_penalties(self.coverage).gather(1, parents)
        self._pool(scores, parents, lengths)
        self.scores, kept = best.masked_fill(ended, -torch.inf).topk(self.beam.size, dim=-1)
        parents, pieces = parents.gather(1, kept), pieces.gather(1, kept)
        looks = step.attention_weights if self.beam.return_attention else None
        self.trail.append(_Trail(pieces.tolist(), parents.tolist(), looks))
        rows = (self.first + parents).flatten()
        self.state, self.ids = step.state.select(rows), pieces.flatten()
        if self.coverage is not None:
            self.coverage = self.coverage[rows]
        self.grow(self.trail[-1].pieces, self.trail[-1].parents)
        closed = (self.pool_scores[:, -1] >= self.scores[:, 0] / norms[:, 0]).tolist()
        done = []
        for slot in self.busy():
            if closed[slot]:
                done.append((slot, self._hypotheses(slot)))
                self.empty(slot)
        del self.trail[: len(self.trail) - max(self.ages)]
        return done

    def _cover(self, attention_weights: Tensor | None) -> None:
        """Add what a step has looked at, [B * K, S], where a penalty asks for it."""
        if attention_weights is None or not self.beam.coverage_penalty:
            return
        if self.coverage is None:
            self.coverage = torch.zeros_like(attention_weights)
        self.coverage = self.coverage + attention_weights

    def _coverage_penalties(self, coverage: Tensor) -> Tensor:
        """`beta * sum over s of log(min(sum over t of a_ts, 1))`: [B, K]; Wu et al. (2016), eq. 14.

        It is at most 0. A word that got less than LEAST_COVERED counts as if it had got that, lest
        one out of reach of a local window outweigh everything.
        """
        covered = (
            coverage.clamp(LEAST_COVERED, 1).log().unflatten(0, self.scores.shape)
        )  # [B, K, S]
        positions = torch.arange(covered.shape[-1], device=self.device)
        padded = positions >= self.src_lengths[:, None, None]
        total: Tensor = covered.masked_fill(padded, 0).sum(dim=-1)
        return self.beam.coverage_penalty * total

    def _pool(self, scores: Tensor, parents: Tensor, lengths: Tensor) -> None:
        """Take in what ends now: of the candidates [B, 2K] those among the likeliest K count."""
        size = self.beam.size
        self.pool_scores, kept = torch.cat([self.pool_scores, scores[:, :size]], 1).topk(size)
        self.pool_parents = torch.cat([self.pool_parents, parents[:, :size]], 1).gather(1, kept)
        lengths = torch.cat([self.pool_lengths, lengths.expand(-1, size)], 1)
        self.pool_lengths = lengths.gather(1, kept)

    def _hypotheses(self, slot: int) -> list[Hypothesis]:
        """What a slot's pool holds, best first, each followed back to its first piece."""
        steps = self.trail[len(self.trail) - self.ages[slot] :]
        pool = (self.pool_scores, self.pool_parents, self.pool_lengths)
        found, asked = [], []  # `asked`: which hypothesis each step of each looked with
        for score, row, length in zip(*(part[slot].tolist() for part in pool), strict=True):
            if score == -torch.inf:
                continue
            path, rows = [EOS_ID], [row]
            for step in reversed(steps[: length - 1]):
                path.append(step.pieces[slot][row])
                row = step.parents[slot][row]
                rows.append(row)
            found.append(Hypothesis(path[::-1], score, None))
            asked.append(rows[::-1] + [0] * (len(steps) - length))
        looks = [step.attention_weights for step in steps if step.attention_weights is not None]
        if not looks:
            return found
        own = slice(slot * self.beam.size, (slot + 1) * self.beam.size)
        weights = torch.stack([look[own] for look in looks]).float().cpu()  # [T, K, S]
        weights = weights[torch.arange(len(steps)), torch.tensor(asked)]  # [M, T, S]
        return [
            each._replace(attention_weights=look[: len(each.ids)])
            for each, look in zip(found, weights, strict=True)
        ]


class _Trail(NamedTuple):
    """One step of all beams: the pieces taken, from which hypotheses, and where those looked."""

    pieces: list[list[int]]  # [B][K]
    parents: list[list[int]]  # [B][K]
    attention_weights: Tensor | None  # [B * K, S], of the hypotheses before the step, if kept

    def of(self, slots: Sequence[int], rows: Tensor) -> "_Trail":
        """These slots of it, whose hypotheses are these rows."""
        look = self.attention_weights
        return _Trail(
            [self.pieces[slot] for slot in slots],
            [self.parents[slot] for slot in slots],
            None if look is None else look[rows],
        )
