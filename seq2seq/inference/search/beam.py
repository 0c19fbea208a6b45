"""Beam search: keep the K best partial hypotheses per sentence; finished ones move to a pool."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2seq.data.vocabulary.vocabulary import EOS_ID
from seq2seq.inference.search.beam_allocation import (
    advancing_tokens,
    allocate,
    constrain_lexically,
)
from seq2seq.inference.search.continuous_batching import ContinuousBatch
from seq2seq.inference.search.interface import MAX_FACTOR, MIN_COVERAGE, Hypothesis
from seq2seq.inference.search.topk import Continuations, diverse_continuations, topk_continuations
from seq2seq.runtime.device import values_of


class BeamSearch(ContinuousBatch):
    """Beam search with K hypotheses per slot.

    A sentence is finished at its limit, or once its pool holds K hypotheses and no partial
    hypothesis would score higher than the worst of them if it ended now, with the source fully
    covered. With a length penalty `a > 0` this bound is not admissible: the log-probability `P` of
    a hypothesis can only fall, but `P / length^a` may still rise (see docs/results/speed.md).
    """

    def allocate(self, slots: int) -> None:
        self.width = self.options.size // self.options.groups  # hypotheses of a group, K / G
        shape = (slots * self.options.groups, self.width)
        self.scores = torch.full(shape, -torch.inf, device=self.device)  # partial hypotheses
        self.pool_scores = self.scores.clone()  # finished hypotheses, best first; -inf: none
        self.pool_parents = torch.zeros(shape, dtype=torch.long, device=self.device)
        self.pool_lengths = torch.zeros(shape, dtype=torch.long, device=self.device)
        self.coverage: Tensor | None = None  # [N, S], summed attention of partial hypotheses
        self.trail: list[_TrailStep] = []  # since the first step of the oldest sentence

    def keep(self, slots: Sequence[int]) -> None:
        kept, rows = self._groups_of(slots), self.rows.of(torch.tensor(slots, device=self.device))
        self.scores, self.pool_scores = self.scores[kept], self.pool_scores[kept]
        self.pool_parents, self.pool_lengths = self.pool_parents[kept], self.pool_lengths[kept]
        self.coverage = None if self.coverage is None else self.coverage[rows]
        self.trail = [step.select(slots, rows) for step in self.trail]

    def _groups_of(self, slots: Sequence[int]) -> Tensor:
        """Return the groups [M * G] of slots; each has scores and a pool of its own."""
        first = torch.tensor(slots, device=self.device)[:, None] * self.options.groups
        return (first + torch.arange(self.options.groups, device=self.device)).flatten()

    def begin(self, slots: Sequence[int]) -> None:
        rows = self._groups_of(slots)
        self.scores[rows] = -torch.inf
        self.scores[rows, 0] = 0
        self.pool_scores[rows] = -torch.inf
        if self.coverage is not None:
            self.coverage.unflatten(0, self.scores.shape)[rows] = 0

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        lengths = torch.tensor(self.rows.lengths, device=self.device)[:, None] + 1
        step = self.model.step(self.ids, self.state, self.memory)  # a GPU is not waited for now
        logits = self.model.project(step.outputs).float()
        log_probs = torch.log_softmax(logits, -1, out=logits)  # in place: it is large
        candidates = self._candidates(log_probs)
        lengths = lengths.repeat_interleave(self.options.groups, 0)
        norms = lengths.to(candidates.scores.dtype) ** self.options.length_penalty
        norms = norms.clamp(max=MAX_FACTOR)
        self._add_coverage(step.attention_weights)
        self._pool_finished(candidates, lengths, norms)
        kept = self._extend(candidates, log_probs, step.state)
        best, finished = candidates.scores[:: self.options.groups, 0], self._finished(norms)
        best, finished, *kept = values_of(best, finished, *kept)  # the only wait for a GPU
        self.check_finite(best)
        self._follow(kept, step.attention_weights)
        return self._pop_finished(finished)

    def _candidates(self, log_probs: Tensor) -> Continuations:
        """Constrain log-probabilities [N, V], in place; return the best continuations [B, 2K]."""
        count = 2 * self.width
        if self.options.groups > 1:
            constrained = self.constrain(log_probs)
            return diverse_continuations(
                constrained, self.scores, self.options.groups, self.options.diversity
            )
        if not any(self.rows.lexical[slot].phrases for slot in self.rows.busy()):
            return topk_continuations(self.constrain(log_probs), self.scores, count)
        advancing = advancing_tokens(log_probs, self.rows)
        constrain_lexically(self.constrain(log_probs), self.rows, advancing)
        candidates = topk_continuations(log_probs, self.scores, count)
        allocate(candidates, log_probs, self.scores, self.rows, advancing)
        return candidates

    def _add_coverage(self, attention_weights: Tensor | None) -> None:
        """Add the attention weights [N, S] of a step to the coverage, if it is penalized."""
        if attention_weights is None or not self.options.coverage_penalty:
            return
        if self.coverage is None:
            self.coverage = torch.zeros_like(attention_weights)
        self.coverage = self.coverage + attention_weights

    def _coverage_penalties(self, coverage: Tensor) -> Tensor:
        """Return `beta * sum_s log(min(sum_t a_ts, 1))`: [B, K]; Wu et al. (2016), eq. 14.

        Unlike in the paper end-of-sentence is among the positions s, and those with less than
        MIN_COVERAGE count as if they had that much. Otherwise one position outside a local
        attention window would outweigh everything else.
        """
        clamped = coverage.clamp(MIN_COVERAGE, 1).log()
        covered = clamped.unflatten(0, self.scores.shape)  # [B, K, S]
        positions = torch.arange(covered.shape[-1], device=self.device)
        src_lengths = self.src_lengths.repeat_interleave(self.options.groups)
        padding = positions >= src_lengths[:, None, None]
        total: Tensor = covered.masked_fill(padding, 0).sum(dim=-1)
        return min(self.options.coverage_penalty, MAX_FACTOR) * total

    def _pool_finished(self, candidates: Continuations, lengths: Tensor, norms: Tensor) -> None:
        """Move those of the K best candidates that end now to the pool, with their final score."""
        size = self.width
        scores = candidates.scores.masked_fill(candidates.tokens != EOS_ID, -torch.inf) / norms
        if self.coverage is not None:
            penalties = self._coverage_penalties(self.coverage)
            scores = scores + penalties.gather(1, candidates.parents)
        self.pool_scores, kept = torch.cat([self.pool_scores, scores[:, :size]], 1).topk(size)
        parents = torch.cat([self.pool_parents, candidates.parents[:, :size]], 1)
        lengths = torch.cat([self.pool_lengths, lengths.expand(-1, size)], 1)
        self.pool_parents, self.pool_lengths = parents.gather(1, kept), lengths.gather(1, kept)

    def _extend(self, candidates: Continuations, log_probs: Tensor, state: Any) -> list[Tensor]:
        """Continue with the K best candidates [B, 2K] that do not end.

        Returns tokens and parents [B, K] and, if scores are wanted, log-probabilities [B, K] of the
        tokens, and of end-of-sentence after each hypothesis before the step.
        """
        ended = candidates.tokens == EOS_ID
        partial = candidates.scores.masked_fill(ended, -torch.inf)
        self.scores, kept = partial.topk(self.width, dim=-1)
        parents, tokens = candidates.parents.gather(1, kept), candidates.tokens.gather(1, kept)
        if self.options.groups > 1:  # from hypotheses of a group to those of a slot
            tokens = tokens.reshape(-1, self.options.size)
            parents = (parents + self._offsets(len(parents))).reshape(-1, self.options.size)
        rows = (self.rows.first + parents).flatten()
        self.state, self.ids = state.select(rows), tokens.flatten()
        if self.coverage is not None:
            self.coverage = self.coverage[rows]
        if not self.options.return_scores:
            return [tokens, parents]
        of_tokens = log_probs[rows, self.ids].view_as(tokens)
        return [tokens, parents, of_tokens, log_probs[:, EOS_ID].view_as(tokens)]

    def _follow(self, kept: Sequence[Any], attention_weights: Tensor | None) -> None:
        """Record a step: the values of the tensors of `_extend`."""
        tokens, parents, *log_probs = kept
        weights = attention_weights if self.options.return_attention else None
        values = _TokenLogProbs(*log_probs) if log_probs else None
        self.trail.append(_TrailStep(tokens, parents, weights, values))
        self.rows.advance(tokens, parents)

    def _offsets(self, count: int) -> Tensor:
        """Return the first hypothesis, within its slot, of each of many groups: [count, 1]."""
        groups = torch.arange(count, device=self.device) % self.options.groups
        return (groups * self.width)[:, None]

    def _finished(self, norms: Tensor) -> Tensor:
        """Return for each slot [B] whether no partial hypothesis can still reach the pool."""
        groups_finished = self.pool_scores[:, -1] >= self.scores[:, 0] / norms[:, 0]
        return groups_finished.view(-1, self.options.groups).all(dim=1)

    def _pop_finished(self, is_finished: Sequence[bool]) -> list[tuple[int, list[Hypothesis]]]:
        """Empty the slots of finished sentences and return their hypotheses."""
        finished = []
        for slot in self.rows.busy():
            if is_finished[slot] or self.rows.lengths[slot] >= self.rows.limits[slot]:
                finished.append((slot, self._hypotheses(slot)))
                self.rows.clear(slot)
        del self.trail[: len(self.trail) - max(self.rows.lengths)]
        return finished

    def _hypotheses(self, slot: int) -> list[Hypothesis]:
        """Trace the pool of a slot back to its first tokens; return its hypotheses, best first."""
        steps = self.trail[len(self.trail) - self.rows.lengths[slot] :]
        parents = self.pool_parents + self._offsets(len(self.pool_parents))
        parts = (self.pool_scores, parents, self.pool_lengths)
        pool = values_of(*(part.view(-1, self.options.size)[slot] for part in parts))
        pooled = sorted(zip(*pool, strict=True), key=lambda each: -each[0])  # all groups together
        found, attending = [], []  # `attending`: the row of each hypothesis at each step
        for score, row, length in pooled:
            if score == -torch.inf:
                continue
            path, rows, end = [EOS_ID], [row], steps[length - 1].log_probs
            log_probs = [] if end is None else [end.ends[slot][row]]
            for step in reversed(steps[: length - 1]):
                path.append(step.tokens[slot][row])
                if step.log_probs is not None:
                    log_probs.append(step.log_probs.tokens[slot][row])
                row = step.parents[slot][row]
                rows.append(row)
            found.append(Hypothesis(path[::-1], score, None, tuple(log_probs[::-1])))
            attending.append(rows[::-1] + [0] * (len(steps) - length))
        kept = [step.attention_weights for step in steps if step.attention_weights is not None]
        if not kept:
            return found
        own = slice(slot * self.options.size, (slot + 1) * self.options.size)
        kept = [each[own, : self.src_lengths_on_host[slot]] for each in kept]
        weights = torch.stack(kept).float().cpu()  # [T, K, S]
        weights = weights[torch.arange(len(steps)), torch.tensor(attending)]  # [M, T, S]
        return [
            hypothesis._replace(attention_weights=each[: len(hypothesis.ids)])
            for hypothesis, each in zip(found, weights, strict=True)
        ]


class _TokenLogProbs(NamedTuple):
    """Log-probabilities of one step of all beams, nats."""

    tokens: list[list[float]]  # [B][K], of the token that extends each hypothesis
    ends: list[list[float]]  # [B][K], of end-of-sentence after each hypothesis before the step

    def select(self, slots: Sequence[int]) -> "_TokenLogProbs":
        """Return those of these slots."""
        return _TokenLogProbs(*([part[slot] for slot in slots] for part in self))


class _TrailStep(NamedTuple):
    """One step of all beams: tokens, parents, and the attention weights of the parents."""

    tokens: list[list[int]]  # [B][K]
    parents: list[list[int]]  # [B][K]
    attention_weights: Tensor | None  # [N, S], of the hypotheses before the step, if kept
    log_probs: _TokenLogProbs | None  # if scores are wanted

    def select(self, slots: Sequence[int], rows: Tensor) -> "_TrailStep":
        """Return the step for these slots, whose hypotheses are `rows`."""
        weights = self.attention_weights
        return _TrailStep(
            [self.tokens[slot] for slot in slots],
            [self.parents[slot] for slot in slots],
            None if weights is None else weights[rows],
            None if self.log_probs is None else self.log_probs.select(slots),
        )
