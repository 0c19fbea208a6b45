"""Beam search over arrays of all slots; diverse groups, and dynamic allocation for phrases."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seq2seq.data.vocabulary.vocabulary import EOS_ID
from seq2seq.engines.engine import Array, Best, Engine, EngineStep, spread
from seq2seq.inference.search import strategies
from seq2seq.inference.search.interface import Hypothesis, SearchOptions
from seq2seq.inference.search.lexical import Lexical, PhraseProgress
from seq2seq.inference.search.rules import RuleStates, SlotPhrases
from seq2seq.inference.search.sentences import Sentence, SlotTable
from seq2seq.inference.search.strategies import Path, Selection, Strategy, Trail


class Pool(NamedTuple):
    """Finished hypotheses of each group, best first."""

    scores: Array  # [B G, W]; -inf: none
    steps: Array  # [B G, W], number of the step that ended each
    parents: Array  # [B G, W], the hypothesis of the slot that it ended
    log_probs: Array  # [B G, W], of end-of-sentence, nats


class Beam(Strategy):
    """Keep the K best partial hypotheses per sentence; finished ones move to a pool.

    A sentence is finished at its limit, or once its pool holds K hypotheses and no partial
    hypothesis would score higher than the worst of them if it ended now, with the source fully
    covered. With a length penalty `a > 0` this bound is not admissible: the log-probability `P` of
    a hypothesis can only fall, but `P / length^a` may still rise (see docs/results/lab-speed.md).

    Diverse beam search divides the hypotheses of a slot among groups, each with a pool of its own;
    arrays have a row for each of B G groups of W = K / G hypotheses.
    """

    def __init__(
        self, engine: Engine, options: SearchOptions, table: SlotTable, trail: Trail
    ) -> None:
        super().__init__(engine, options, table, trail)
        self.width = options.beam_size // options.groups
        shape = (len(table) * options.groups, self.width)
        self._scores = np.full(shape, -np.inf, np.float32)  # partial hypotheses
        zeros = np.zeros(shape, np.int64)
        log_probs = np.zeros(shape, np.float32)
        self._pool = Pool(self._scores.copy(), zeros, zeros.copy(), log_probs)
        self._coverage: Array | None = None  # [N, S], summed attention of partial hypotheses

    def begin(self, slots: Array, sentences: Sequence[Sentence]) -> None:  # noqa: ARG002
        groups = spread(slots, self.options.groups)
        self._scores[groups] = -np.inf
        self._pool.scores[groups] = -np.inf
        self._scores[groups, 0] = 0
        if self._coverage is not None:
            self._coverage[spread(slots, self.options.beam_size)] = 0

    def keep(self, slots: Array) -> None:
        groups = spread(slots, self.options.groups)
        self._scores = self._scores[groups]
        self._pool = Pool(*(part[groups] for part in self._pool))
        if self._coverage is not None:
            self._coverage = self._coverage[spread(slots, self.options.beam_size)]

    def choose(self, step: EngineStep, rules: RuleStates) -> Selection:
        groups = self.options.groups
        candidates = self._candidates(step, rules)
        if self.options.coverage_penalty and step.attention is not None:
            coverage = 0 if self._coverage is None else self._coverage
            self._coverage = coverage + step.attention
        is_eos = candidates.tokens == EOS_ID
        lengths = np.maximum(self.table.lengths, 1)  # empty slots have 0
        penalties = strategies.length_penalty(lengths, self.options.length_penalty)
        length_norms = penalties.astype(np.float32)
        if groups > 1:
            length_norms = length_norms.repeat(groups)
        ending_groups = np.flatnonzero(is_eos[:, : self.width].any(axis=1))
        if len(ending_groups):
            self._add_to_pool(ending_groups, candidates, is_eos, length_norms)
        extended = self._extended(candidates, is_eos, ending_groups)
        self._scores = extended.scores
        is_done = self._pool.scores[:, -1] >= self._scores[:, 0] / length_norms
        if groups > 1:
            is_done = np.logical_and.reduce(is_done.reshape(-1, groups), axis=1)
            group_starts = np.arange(len(is_eos)) % groups * self.width
            extended.parents[:] += group_starts[:, None]  # those of a group become its slot's
        is_done |= self.table.lengths >= self.table.limits
        shape = len(is_done), self.options.beam_size
        parents = extended.parents.reshape(shape)
        if self._coverage is not None:
            self._coverage = self._coverage[strategies.rows_of(parents).ravel()]
        return Selection(
            extended.tokens.reshape(shape),
            parents,
            extended.log_probs.reshape(shape),
            best_scores=candidates.scores[:, 0].reshape(-1, groups).max(axis=1),  # of all groups
            is_done=is_done,
        )

    def _candidates(self, step: EngineStep, rules: RuleStates) -> Best:  # noqa: ARG002
        """Return the best continuations of each group: [B G, 2 W].

        Of these at least W do not end: each of the W hypotheses has one continuation that ends.
        """
        return self.engine.best(step, self._scores, 2 * self.width)

    def _add_to_pool(
        self, groups: Array, candidates: Best, is_eos: Array, length_norms: Array
    ) -> None:
        """Move those of the W best candidates that end to the pool, with their final score.

        The pool keeps the W best of these and of its own.
        """
        width = self.width
        parents = candidates.parents[groups, :width]
        sums = candidates.scores[groups, :width]
        scores = np.where(is_eos[groups, :width], sums, np.float32(-np.inf))
        scores = scores / length_norms[groups, None]
        hypotheses = parents + groups[:, None] % self.options.groups * width  # of the slot
        if self._coverage is not None:
            slots = groups // self.options.groups
            coverage = self._coverage[slots[:, None] * self.options.beam_size + hypotheses]
            lengths = np.broadcast_to(self.table.source_lengths[slots][:, None], parents.shape)
            scores = scores + strategies.coverage_penalty(
                coverage, lengths, self.options.coverage_penalty
            )
        steps = np.full(parents.shape, self.trail.end)
        additions = Pool(scores, steps, hypotheses, candidates.log_probs[groups, :width])
        columns = [
            np.concatenate([column[groups], addition], axis=1)
            for column, addition in zip(self._pool, additions, strict=True)
        ]
        order = descending(columns[0])[:, :width]
        for column, best in zip(self._pool, chosen_by(order, *columns), strict=True):
            column[groups] = best

    def _extended(self, candidates: Best, is_eos: Array, ending_groups: Array) -> Best:
        """Return the W best continuations of each group that do not end."""
        extended = Best(*(column[:, : self.width].copy() for column in candidates))
        # those of one group are in order already where none of the W best ends
        groups = ending_groups if self.options.groups == 1 else np.arange(len(is_eos))
        if len(groups):
            unordered = Best(*(column[groups] for column in candidates))
            scores = np.where(is_eos[groups], np.float32(-np.inf), unordered.scores)
            unordered = unordered._replace(scores=scores)
            order = descending(scores)[:, : self.width]
            for column, best in zip(extended, chosen_by(order, *unordered), strict=True):
                column[groups] = best
        return extended

    def hypotheses(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        size = self.options.beam_size
        slot_numbers = np.array(slots)
        groups = spread(slot_numbers, self.options.groups)
        columns = [column[groups].reshape(-1, size) for column in self._pool]
        order = descending(columns[0])[:, : self.options.returned or size]
        scores, steps, parents, eos_log_probs = chosen_by(order, *columns)
        lengths = steps - self.table.starts[slot_numbers][:, None]  # without end-of-sentence
        lengths[np.isneginf(scores)] = 0
        traced_slots = slot_numbers.repeat(order.shape[1])
        paths = self.trail.trace(traced_slots, parents.ravel(), steps.ravel(), lengths.ravel())
        lists: dict[int, list[Hypothesis]] = {slot: [] for slot in slots}
        values = scores.ravel().tolist(), eos_log_probs.ravel().tolist()
        for slot, path, score, log_prob in zip(traced_slots.tolist(), paths, *values, strict=True):
            if score > -math.inf:
                lists[slot].append(self._hypothesis(slot, path, score, log_prob))
        return list(lists.values())

    def _hypothesis(self, slot: int, path: Path, score: float, eos_log_prob: float) -> Hypothesis:
        start = self.table.starts[slot]
        width = self.table.source_lengths[slot]
        attention = self.trail.attention(slot, path.hypotheses, start, width)
        log_probs = (*path.log_probs, eos_log_prob) if self.options.return_scores else ()
        return Hypothesis([*path.tokens, EOS_ID], score, attention, log_probs)


class DiverseBeam(Beam):
    """Beam whose groups choose one after the other (Vijayakumar et al. 2018), Hamming diversity.

    A group ranks tokens by their log-probability minus `diversity` times the number of hypotheses
    of earlier groups that continue with the same token at this step. Scores are without that
    penalty; continuations beyond the W best that end, or do not end, have -inf.
    """

    def _candidates(self, step: EngineStep, rules: RuleStates) -> Best:  # noqa: ARG002
        groups = self.options.groups
        width = self.width
        # Penalties demote at most W continuations by each token of the K - W earlier hypotheses.
        count = 2 * width + width * (self.options.beam_size - width)
        all_groups = self.engine.best(step, self._scores, count)
        parent_scores = self._scores.reshape(-1, groups, width)
        earlier_tokens = np.full((len(parent_scores), 0), -1)  # of earlier groups; -1: of none
        chosen_of_groups = []
        for group in range(groups):
            best = Best(*(column[group::groups] for column in all_groups))
            chosen = self._chosen_of_group(best, parent_scores[:, group], earlier_tokens)
            is_continued = (chosen.tokens != EOS_ID) & ~np.isneginf(chosen.scores)
            tokens = np.where(is_continued, chosen.tokens, -1)
            earlier_tokens = np.concatenate([earlier_tokens, tokens], axis=1)
            chosen_of_groups.append(chosen)
        stacked = (np.stack(columns, axis=1) for columns in zip(*chosen_of_groups, strict=True))
        return Best(*(column.reshape(-1, column.shape[2]) for column in stacked))

    def _chosen_of_group(self, best: Best, parent_scores: Array, earlier_tokens: Array) -> Best:
        """Return the 2 W best of a group's continuations [B, M] by their ranks.

        Those beyond the W best that end, or beyond the W best that do not, have score -inf.
        """
        width = self.width
        is_repeated = best.tokens[:, :, None] == earlier_tokens[:, None]
        times_taken = is_repeated.sum(axis=2, dtype=np.float32)
        ranks = best.log_probs - np.float32(self.options.diversity) * times_taken
        ranks += chosen_by(best.parents, parent_scores)[0]
        order = descending(ranks)[:, : 2 * width]
        ranks, *columns = chosen_by(order, ranks, *best)
        chosen = Best(*columns)
        is_eos = chosen.tokens == EOS_ID
        place = np.arange(order.shape[1])
        is_usable = np.where(is_eos, place < width, np.cumsum(~is_eos, axis=1) <= width)
        is_usable &= ~np.isneginf(ranks)
        return chosen._replace(scores=np.where(is_usable, chosen.scores, np.float32(-np.inf)))


class PhraseBeam(Beam):
    """Beam that is divided among banks, each of which has met the same number of tokens.

    Dynamic beam allocation (Post & Vilar 2018, section 3): the candidates of a step are the best of
    all hypotheses, the best of each, and every token that advances a missing phrase.
    """

    def _candidates(self, step: EngineStep, rules: RuleStates) -> Best:
        size = self.options.beam_size
        phrases = rules.phrases()
        best = self.engine.best(step, self._scores, 2 * size)
        rows, tokens = self._pairs(step, phrases, best)
        log_probs = self.engine.log_probs(step, rows, tokens)
        costs = -(self._scores.ravel()[rows] + log_probs)
        for slot, (lexical, progress) in phrases.items():
            if np.isnan(best.scores[slot, 0]):
                continue  # the search ends with an error
            in_slot = slice(*np.searchsorted(rows, [slot * size, (slot + 1) * size]))
            parents = rows[in_slot] - slot * size
            columns = costs[in_slot].tolist(), parents.tolist(), tokens[in_slot].tolist()
            candidates = list(map(Continuation, *columns))
            log_probs_of = dict(zip(candidates, log_probs[in_slot].tolist(), strict=True))
            continuations = chosen_from_banks(candidates, lexical, progress, size)
            continuations += [NO_CONTINUATION] * (2 * size - len(continuations))
            best.scores[slot] = [-continuation.cost for continuation in continuations]
            best.parents[slot] = [continuation.parent for continuation in continuations]
            best.tokens[slot] = [continuation.token for continuation in continuations]
            best.log_probs[slot] = [
                log_probs_of.get(continuation, -np.inf) for continuation in continuations
            ]
        return best

    def _pairs(
        self, step: EngineStep, phrases: dict[int, SlotPhrases], best: Best
    ) -> tuple[Array, Array]:
        """Return the candidates of a step: rows of hypotheses [M], ascending, and tokens [M]."""
        size = self.options.beam_size
        pairs = [
            (slot * size + k, token)
            for slot, (lexical, progress) in phrases.items()
            for k, hypothesis_progress in enumerate(progress)
            for token in lexical.advancing(hypothesis_progress)
        ]
        best_of_each = self.engine.best(step, self._scores.reshape(-1, 1), 1)
        pairs += enumerate(best_of_each.tokens[:, 0].tolist())
        best_rows = best.parents + np.arange(len(best.parents))[:, None] * size
        pairs += zip(best_rows.ravel().tolist(), best.tokens.ravel().tolist(), strict=True)
        rows, tokens = np.unique(np.array(pairs), axis=0).T  # a continuation may come three times
        return rows, tokens


def descending(values: Array) -> Array:
    """Return the order of values [..., M] from the largest to the smallest; stable."""
    order: Array = np.argsort(-values, axis=-1, kind="stable")
    return order


def chosen_by(order: Array, *parts: Array) -> list[Array]:
    """Return the columns `order` [R, M] of each row of parts [R, *], as `np.take_along_axis`."""
    places = order + (np.arange(len(order)) * parts[0].shape[1])[:, None]
    return [part.reshape(-1)[places] for part in parts]


class Continuation(NamedTuple):
    """Continuation of a hypothesis by a token; the best is the least."""

    cost: float  # minus the log-probability of the extended hypothesis, nats
    parent: int
    token: int


NO_CONTINUATION = Continuation(math.inf, 0, 0)


def chosen_from_banks(
    candidates: Iterable[Continuation],
    lexical: Lexical,
    progress: Sequence[PhraseProgress],
    size: int,
) -> list[Continuation]:
    """Return the candidates that end, best first, then at most `size` others, divided among banks.

    A candidate ends if it is among the `size` best that meet all tokens. Places that a bank does
    not fill go to the banks that have met most.
    """
    total = lexical.total
    banks: list[list[Continuation]] = [[] for _ in range(total + 1)]
    complete: list[Continuation] = []
    for candidate in sorted(candidates):
        if candidate.cost == math.inf:
            continue
        if candidate.token == EOS_ID:  # masked until all are met, unless a prefix leaves no choice
            complete.append(candidate)
            continue
        met = lexical.met(lexical.after(progress[candidate.parent], candidate.token))
        banks[met].append(candidate)
        if met == total:
            complete.append(candidate)
    bank_sizes = [size // len(banks)] * len(banks)
    bank_sizes[-1] += size % len(banks)
    bank_sizes = [min(most, len(bank)) for most, bank in zip(bank_sizes, banks, strict=True)]
    for n in reversed(range(len(banks))):
        unused_places = size - sum(bank_sizes)
        bank_sizes[n] += min(unused_places, len(banks[n]) - bank_sizes[n])
    continuing = [
        candidate
        for bank_size, bank in zip(bank_sizes, banks, strict=True)
        for candidate in bank[:bank_size]
    ]
    ending = [candidate for candidate in complete[:size] if candidate.token == EOS_ID]
    return ending + sorted(continuing)
