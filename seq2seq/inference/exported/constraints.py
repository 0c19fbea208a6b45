"""Constraints on the next token in NumPy, in the order of `inference.search.constraints`."""

from collections.abc import Iterable, Sequence

import numpy as np

from seq2seq.data.vocabulary.vocabulary import EOS_ID
from seq2seq.engines.onnx.network import Array
from seq2seq.inference.exported.sentence_search import SentenceSearch
from seq2seq.inference.search.forbidden import Forbidden
from seq2seq.inference.search.interface import SearchOptions


def constrain(log_probs: Array, batch: Sequence[SentenceSearch], options: SearchOptions) -> None:
    """Set the log-probabilities [N, V] of tokens that no hypothesis may take to -inf, in place.

    Sentence n of the batch has the K rows from n * K on.
    """
    rows = log_probs.reshape(len(batch), options.size, -1)
    searched = [(own, each) for own, each in zip(rows, batch, strict=True) if not each.finished]
    if options.repetition_penalty != 1:
        for own, each in searched:
            _penalize_repetition(own, each, options.repetition_penalty)
    log_probs[:, list(options.forbidden_ids)] = -np.inf
    ends = [own for own, each in searched if 0 < each.length >= each.sentence.limit - 1]
    limit_length(log_probs, ends, searched[0][1].length if searched else 0, options.min_length)
    if not has_rules([each for _, each in searched], options):
        return
    for own, each in searched:
        if options.kept_ids:
            _keep_tokens(own, each, options.kept_ids)
        if each.sentence.prefix.states:
            _keep_prefix(own, each)
        if options.no_repeat_ngram:
            _forbid_repeated_ngrams(own, each, options.no_repeat_ngram)
        if options.forbidden is not None:
            _forbid_words(own, each, options.forbidden)


def has_rules(batch: Sequence[SentenceSearch], options: SearchOptions) -> bool:
    """Return whether the next token of a sentence depends on those so far but for its length."""
    if options.kept_ids or options.no_repeat_ngram or options.repetition_penalty != 1:
        return True
    return options.forbidden is not None or any(each.sentence.prefix.states for each in batch)


def _penalize_repetition(own: Array, each: SentenceSearch, factor: float) -> None:
    """Multiply log-probabilities [K, V] of tokens that a hypothesis has."""
    for k, row in enumerate(own):
        row[list(set(each.history(k)))] *= factor


def limit_length(log_probs: Array, at_limit: Iterable[Array], length: int, shortest: int) -> None:
    """Let no hypothesis of this length end early, and those at their sentence's limit only end.

    A limit leaves room for the shortest translation.
    """
    if length < max(1, shortest):
        log_probs[:, EOS_ID] = -np.inf
    for own in at_limit:
        ends = own[:, EOS_ID].copy()
        own[:] = -np.inf
        own[:, EOS_ID] = ends


def _keep_tokens(own: Array, each: SentenceSearch, ids: range) -> None:
    """Let each hypothesis take those of `ids` that its source has, once, before it ends."""
    before = own[:, ids.start : ids.stop].copy()
    own[:, ids.start : ids.stop] = -np.inf
    room = each.room - each.sentence.lexical.total
    for k, missing in enumerate(each.missing):
        if not missing:
            continue
        if not each.in_prefix(k):
            own[k, EOS_ID] = -np.inf
            if room <= len(missing):
                own[k] = -np.inf
        for token in missing:
            own[k, token] = before[k, token - ids.start]


def _keep_prefix(own: Array, each: SentenceSearch) -> None:
    """Let hypotheses with an incomplete prefix take only tokens that continue it."""
    for k, state in enumerate(each.prefix_states):
        if each.in_prefix(k):
            tokens = each.sentence.prefix.states[state].tokens
            allowed = own[k, tokens]
            own[k] = -np.inf
            own[k, tokens] = allowed


def _forbid_repeated_ngrams(own: Array, each: SentenceSearch, size: int) -> None:
    """Forbid tokens that complete an n-gram of the hypothesis, unless a prefix requires one."""
    for k, row in enumerate(own):
        history = each.history(k)
        latest = history[len(history) - size + 1 :]
        repeated = [
            history[start + size - 1]
            for start in range(len(history) - size + 1)
            if history[start : start + size - 1] == latest
        ]
        _forbid(row, repeated, unless_stuck=each.in_prefix(k))


def _forbid_words(own: Array, each: SentenceSearch, forbidden: Forbidden) -> None:
    last = each.length == each.sentence.limit - 2  # end-of-sentence follows
    for row, state in zip(own, each.text_states, strict=True):
        _forbid(row, forbidden.forbidden_tokens(state, last), unless_stuck=True)


def _forbid(row: Array, tokens: Sequence[int] | Array, unless_stuck: bool) -> None:
    """Forbid tokens of a row [V]; not at all if no token is left and `unless_stuck`."""
    before = row[tokens]
    row[tokens] = -np.inf
    if unless_stuck and np.isneginf(row).all():
        row[tokens] = before
