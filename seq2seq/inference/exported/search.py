"""Greedy and beam search over exported models: ids in, ids out.

The searches take the decisions of `inference.search`, in NumPy. Sentences of one padded length are
searched together; finished ones leave the batch.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, PAD_ID
from seq2seq.engines.onnx.network import Array, Arrays, ExportedModel
from seq2seq.inference.exported.constraints import constrain, has_rules, limit_length
from seq2seq.inference.exported.lexical import (
    Advancing,
    advancing_tokens,
    allocate,
    constrain_lexically,
)
from seq2seq.inference.exported.sentence_search import Finished, Node, SentenceSearch, path_to
from seq2seq.inference.search.interface import (
    MAX_FACTOR,
    MIN_COVERAGE,
    Hypothesis,
    NonFiniteError,
    SearchOptions,
)
from seq2seq.inference.search.sentences import Request, make_sentence, queues
from seq2seq.inference.settings import SearchSettings
from seq2seq.runtime.errors import UserError

TILE_ROWS = 320  # hypotheses searched together
SHRINK = 8  # finished sentences leave the batch once they are 1 / SHRINK of it


def search_exported(
    model: ExportedModel,
    requests: Sequence[Request],
    options: SearchOptions,
    on_found: Callable[[int], None] | None = None,
) -> list[list[Hypothesis]]:
    """Return at most `options.size` hypotheses for each request, best first, as `search`.

    Raises NonFiniteError if the log-probabilities of a sentence are not finite.
    """
    sentences = [make_sentence(each, options) for each in requests]
    found: list[list[Hypothesis]] = [[] for _ in sentences]
    tile = max(1, TILE_ROWS // options.size)
    for width, numbers in queues(requests):
        for start in range(0, len(numbers), tile):
            batch = [
                SentenceSearch(number, sentences[number], options.size)
                for number in numbers[start : start + tile]
            ]
            kind = _PlainGreedy if _is_plain(batch, options) else _Batch
            for number, hypotheses in kind(model, batch, width, options).run():
                found[number] = hypotheses
                if on_found is not None:
                    on_found(number)
    return found


def check_settings(settings: SearchSettings) -> None:
    """Raise UserError for a setting of one call that only run folders support."""
    refused = {
        "--sample": settings.sampling is not None,
        "--groups": settings.groups > 1,
        "--mbr": settings.mbr is not None,
        "--heads": settings.head_attention,
    }
    for option, given in refused.items():
        if given:
            raise UserError(
                f"{option}: an exported model has greedy and beam search only; use the run folder"
            )


class _Batch:
    """Sentences of one padded length that are searched together."""

    def __init__(
        self, model: ExportedModel, batch: list[SentenceSearch], width: int, options: SearchOptions
    ) -> None:
        self.model, self.batch, self.options, self.size = model, batch, options, options.size
        sources = [[*each.sentence.source, EOS_ID] for each in batch]
        src = np.full((len(batch), width), PAD_ID, np.int64)
        for row, ids in zip(src, sources, strict=True):
            row[: len(ids)] = ids
        lengths = np.array([len(ids) for ids in sources])
        self.memory, self.state = model.encode(src, lengths)
        self.state = _rows_of(self.state, np.repeat(np.arange(len(batch)), self.size))
        self.ids = np.full(len(batch) * self.size, BOS_ID)
        self.scores = np.full((len(batch), self.size), -np.inf, np.float32)
        self.scores[:, 0] = 0
        self.coverage: Array | None = None  # [N, S], summed attention of partial hypotheses
        self.has_phrases = bool(batch[0].sentence.lexical.phrases)  # as all of a queue
        self.tracks_tokens = self.has_phrases or has_rules(batch, options)
        self.advancing: dict[int, Advancing] = {}  # by slot, of this step
        if options.forbidden is not None:
            for each in batch:
                each.text_states = [options.forbidden.start] * self.size

    def run(self) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the number and the hypotheses of each sentence as its search ends."""
        left = len(self.batch)
        while left:
            for each in self._step():
                left -= 1
                assert each.hypotheses is not None, "set where a sentence is finished"
                yield each.number, each.hypotheses
            if left and SHRINK * (len(self.batch) - left) >= len(self.batch):
                self._shrink()

    def _step(self) -> list[SentenceSearch]:
        """Take a step; return the sentences whose search ends with it."""
        greedy = self.size == 1 and not self.has_phrases
        return self._greedy_step() if greedy else self._beam_step()

    def _shrink(self) -> None:
        """Drop the finished sentences."""
        kept = self._searched()
        slots = np.array(kept)
        rows = (self._first_rows()[slots, None] + np.arange(self.size)).ravel()
        self.batch = [self.batch[slot] for slot in kept]
        self.memory, self.state = _rows_of(self.memory, slots), _rows_of(self.state, rows)
        self.ids, self.scores = self.ids[rows], self.scores[slots]
        self.coverage = None if self.coverage is None else self.coverage[rows]

    def _advance(self) -> tuple[Array, Array | None]:
        """Step the model; return constrained log-probabilities [N, V] and attention [N, S]."""
        found = self.model.advance(self.ids, self.state, self.memory)
        self.state = found.state
        for slot in np.flatnonzero(np.isnan(found.log_probs[:: self.size, EOS_ID])).tolist():
            if not self.batch[slot].finished:
                raise NonFiniteError(self.batch[slot].number, math.nan)
        searched = self._searched() if self.has_phrases else []
        own = found.log_probs.reshape(len(self.batch), self.size, -1)
        self.advancing = {n: advancing_tokens(own[n], self.batch[n]) for n in searched}
        constrain(found.log_probs, self.batch, self.options)
        for slot, advancing in self.advancing.items():
            constrain_lexically(own[slot], self.batch[slot], advancing)
        return found.log_probs, found.attention_weights

    def _searched(self) -> list[int]:
        """Return the slots of sentences whose search has not ended."""
        return [slot for slot, each in enumerate(self.batch) if not each.finished]

    def _greedy_step(self) -> list[SentenceSearch]:
        log_probs, weights = self._advance()
        self.ids = log_probs.argmax(axis=1)
        values = log_probs[np.arange(len(self.ids)), self.ids].tolist()
        finished = []
        for slot, (each, token, value) in enumerate(
            zip(self.batch, self.ids.tolist(), values, strict=True)
        ):
            if each.finished:
                continue
            if not math.isfinite(value):
                raise NonFiniteError(each.number, value)
            node = Node(each.nodes[0], token, value, self._kept(weights, slot))
            self._extend(each, [(0, node)])
            if token == EOS_ID:
                total = 0.0
                for step in path_to(node):  # in order; `sum` compensates from Python 3.12 on
                    total += step.log_prob
                score = total / each.length**self.options.length_penalty
                each.hypotheses = [self._hypothesis(each, Finished(score, node))]
                finished.append(each)
            elif each.length >= each.sentence.limit:  # end-of-sentence alone may be
                raise NonFiniteError(each.number, -math.inf)
        return finished

    def _beam_step(self) -> list[SentenceSearch]:
        log_probs, weights = self._advance()
        totals, places = self.model.topk(log_probs, self.scores, 2 * self.size)
        parents, tokens = np.divmod(places, log_probs.shape[1])
        for slot, advancing in self.advancing.items():
            own = log_probs[slot * self.size : (slot + 1) * self.size]
            candidates = [part[slot] for part in (totals, parents, tokens)]
            allocate(candidates, own, self.scores[slot], self.batch[slot], advancing)
        values = log_probs[parents + self._first_rows()[:, None], tokens]
        penalties = self._coverage_penalties(weights)  # [N] or None
        chosen = [part.tolist() for part in (totals, parents, tokens, values)]
        self.scores[:] = -np.inf
        rows = np.repeat(self._first_rows(), self.size)
        finished = []
        for slot, (each, *columns) in enumerate(zip(self.batch, *chosen, strict=True)):
            if each.finished:
                continue
            if not math.isfinite(columns[0][0]):
                raise NonFiniteError(each.number, columns[0][0])
            first = slot * self.size
            kept = self._choose(each, zip(*columns, strict=True), first, weights, penalties)
            for k, (total, parent, node) in enumerate(kept):
                self.scores[slot, k], rows[first + k], self.ids[first + k] = (
                    total,
                    first + parent,
                    node.token,
                )
            if self._is_finished(each, float(self.scores[slot, 0])):
                each.hypotheses = [self._hypothesis(each, entry) for entry in each.pool]
                finished.append(each)
        self.state = _rows_of(self.state, rows)
        self.coverage = None if self.coverage is None else self.coverage[rows]
        return finished

    def _choose(
        self,
        each: SentenceSearch,
        candidates: Iterable[tuple[float, int, int, float]],
        first: int,
        weights: Array | None,
        penalties: Array | None,
    ) -> list[tuple[float, int, Node]]:
        """Move candidates that end to the pool; return the K best others, which extend the search.

        A candidate is its score, its parent, its token and the token's log-probability; only those
        among the K best are pooled. Returns scores, parents and nodes.
        """
        norm = self._norm(each.length + 1)
        kept: list[tuple[float, int, Node]] = []
        for rank, (total, parent, token, value) in enumerate(candidates):
            if total == -math.inf or (token != EOS_ID and len(kept) == self.size):
                continue
            row = first + parent
            node = Node(each.nodes[parent], token, value, self._kept(weights, row))
            if token != EOS_ID:
                kept.append((total, parent, node))
            elif rank < self.size:
                penalty = 0.0 if penalties is None else float(penalties[row])
                each.pool.append(Finished(total / norm + penalty, node))
        each.pool.sort(key=lambda entry: -entry.score)
        del each.pool[self.size :]
        self._extend(each, [(parent, node) for _, parent, node in kept])
        return kept

    def _is_finished(self, each: SentenceSearch, best: float) -> bool:
        """Return whether no partial hypothesis, if it ended now, would enter the pool."""
        if each.length >= each.sentence.limit:
            return True
        full = len(each.pool) == self.size
        return full and each.pool[-1].score >= best / self._norm(each.length)

    def _norm(self, length: int) -> float:
        norm = np.float32(length) ** np.float32(self.options.length_penalty)
        return min(float(norm), MAX_FACTOR)

    def _first_rows(self) -> Array:
        """Return the first row of each sentence: [B]."""
        return np.arange(len(self.batch)) * self.size

    def _extend(self, each: SentenceSearch, kept: Sequence[tuple[int, Node]]) -> None:
        """Make the kept continuations, parents with tokens, the partial hypotheses."""
        unused = self.size - len(kept)
        each.length += 1
        each.nodes = [node for _, node in kept] + [None] * unused
        if not self.tracks_tokens:
            return
        states, missing, text_states = each.prefix_states, each.missing, each.text_states
        prefix = each.sentence.prefix
        if prefix.states:
            each.prefix_states = [prefix.after(states[parent], node.token) for parent, node in kept]
            each.prefix_states += [len(prefix.states)] * unused
        if each.sentence.kept:
            each.missing = [_without(missing[parent], node.token) for parent, node in kept]
            each.missing += [()] * unused
        if self.has_phrases:
            lexical, progress = each.sentence.lexical, each.progress
            each.progress = [lexical.after(progress[parent], node.token) for parent, node in kept]
            each.progress += [lexical.start()] * unused
        if (forbidden := self.options.forbidden) is not None:
            each.text_states = [
                forbidden.after(text_states[parent], node.token) for parent, node in kept
            ] + [forbidden.start] * unused

    def _kept(self, weights: Array | None, row: int) -> Array | None:
        return weights[row] if weights is not None and self.options.return_attention else None

    def _coverage_penalties(self, weights: Array | None) -> Array | None:
        """Add the attention weights [N, S] of a step to the coverage; return its penalty [N].

        It is `beta * sum_s log(min(sum_t a_ts, 1))`, as in `BeamSearch`.
        """
        if weights is None or not self.options.coverage_penalty:
            return None
        self.coverage = weights if self.coverage is None else self.coverage + weights
        logs = np.log(self.coverage.clip(MIN_COVERAGE, 1))
        lengths = [len(each.sentence.source) + 1 for each in self.batch]
        padding = np.arange(logs.shape[1]) >= np.repeat(lengths, self.size)[:, None]
        logs[padding] = 0
        penalties: Array = min(self.options.coverage_penalty, MAX_FACTOR) * logs.sum(axis=1)
        return penalties

    def _hypothesis(self, each: SentenceSearch, entry: Finished) -> Hypothesis:
        nodes = path_to(entry.end)
        rows = [node.attention_weights for node in nodes if node.attention_weights is not None]
        width = len(each.sentence.source) + 1
        weights = np.stack([row[:width] for row in rows]) if rows else None
        log_probs = tuple(node.log_prob for node in nodes) if self.options.return_scores else ()
        score = entry.score if self.options.return_scores or self.size > 1 else math.nan
        return Hypothesis([node.token for node in nodes], score, weights, log_probs)


def _is_plain(batch: Sequence[SentenceSearch], options: SearchOptions) -> bool:
    """Return whether greedy search of sentences need not follow their tokens one by one."""
    if options.size > 1 or options.return_scores or options.return_attention:
        return False
    return not (batch[0].sentence.lexical.phrases or has_rules(batch, options))


class _PlainGreedy(_Batch):
    """Greedy search for the ids alone of sentences without rules: an array, no linked tokens."""

    def __init__(
        self, model: ExportedModel, batch: list[SentenceSearch], width: int, options: SearchOptions
    ) -> None:
        super().__init__(model, batch, width, options)
        self.length = 0
        self.limits = np.array([each.sentence.limit for each in batch])
        self.searched = np.full(len(batch), True)
        self.rows = np.arange(len(batch))  # row of each sentence in `tokens`
        self.tokens = np.zeros((len(batch), self.limits.max()), np.int64)

    def _shrink(self) -> None:
        super()._shrink()
        self.limits, self.rows = self.limits[self.searched], self.rows[self.searched]
        self.searched = self.searched[self.searched]

    def _step(self) -> list[SentenceSearch]:
        found = self.model.advance(self.ids, self.state, self.memory)
        log_probs, self.state = found.log_probs, found.state
        undefined = np.isnan(log_probs[:, EOS_ID])
        log_probs[:, list(self.options.forbidden_ids)] = -np.inf
        at_limit = self.searched & (self.limits <= self.length + 1)
        ends = [log_probs[slot : slot + 1] for slot in np.flatnonzero(at_limit)]
        limit_length(log_probs, ends, self.length, self.options.min_length)
        self.ids = log_probs.argmax(axis=1)
        values = log_probs[np.arange(len(self.ids)), self.ids]
        self.tokens[self.rows, self.length] = self.ids
        self.length += 1
        values[undefined] = np.nan
        values[at_limit & (self.ids != EOS_ID)] = -np.inf
        for slot in np.flatnonzero(self.searched & ~np.isfinite(values)).tolist():
            raise NonFiniteError(self.batch[slot].number, float(values[slot]))
        ended = np.flatnonzero(self.searched & (self.ids == EOS_ID)).tolist()
        self.searched[ended] = False
        for slot in ended:
            ids = self.tokens[self.rows[slot], : self.length].tolist()
            self.batch[slot].hypotheses = [Hypothesis(ids, math.nan, None, ())]
        return [self.batch[slot] for slot in ended]


def _without(tokens: tuple[int, ...], token: int) -> tuple[int, ...]:
    return tuple(each for each in tokens if each != token)


def _rows_of(parts: list[Arrays], rows: Array) -> list[Arrays]:
    return [{name: part.take(rows, axis=0) for name, part in each.items()} for each in parts]
