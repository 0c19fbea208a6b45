"""Constrained search: no repeated n-grams, and prefixes; against brute force and lists."""

import itertools
import random
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases.oracle import CPU, MAY_FOLLOW, Oracle, all_hypotheses, ask, check_against, check_ranking
from cases.prefix_automata import CHOICES, begins, forced
from cases.random_models import MAKERS, VOCABULARY_SIZE, random_model, random_sources, same
from cases.searches import requests_of, row_search, search
from cases.tiers import one_quick, quick_values

from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids
from seq2seq.engines.engine import FREE, MAY_NOT_END, MUST_END, Mask
from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.inference.search.interface import Request, SearchOptions
from seq2seq.inference.search.lexical import NO_PREFIX, Prefix
from seq2seq.inference.search.rules import (
    KeepPrefix,
    NextTokens,
    NoRepeatedNgram,
    RequirePhrases,
    RuleStates,
    rules_of,
)
from seq2seq.inference.search.sentences import SlotTable, make_sentence

SOURCES = [[4, 5], [6, 5, 5, 4]]


def repeats(ids: Ids, n: int) -> bool:
    """Return whether any n consecutive tokens occur twice."""
    seen = [tuple(ids[start : start + n]) for start in range(len(ids) - n + 1)]
    return len(set(seen)) < len(seen)


# ------------------------------------------------------------------------------ repeated n-grams


@pytest.mark.parametrize(
    ("ngram", "prefix"),
    [(1, NO_PREFIX), (2, NO_PREFIX), (0, CHOICES), (2, CHOICES), (0, forced([4, 4, 6]))],
)
@pytest.mark.parametrize(("length_penalty", "coverage_penalty"), [(0.0, 0.0), (0.7, 0.4)])
def test_an_exhaustive_beam_finds_every_allowed_hypothesis(
    ngram: int, prefix: Prefix, length_penalty: float, coverage_penalty: float
) -> None:
    model: Any = Oracle(3)
    everything = list(all_hypotheses(4))
    allowed = [
        ids
        for ids in everything
        if not (ngram and repeats(ids[:-1], ngram)) and begins(prefix, ids)
    ]
    assert 3 < len(allowed) < len(everything)
    lists = search(
        model,
        SOURCES,
        [4] * len(SOURCES),
        SearchOptions(len(everything), length_penalty, coverage_penalty, ngram),
        CPU,
        [prefix] * len(SOURCES),
    )
    for source, hypotheses in zip(SOURCES, lists, strict=True):
        check_ranking(model, source, hypotheses, allowed, length_penalty, coverage_penalty)


@pytest.mark.parametrize("ngram", [0, 1, 2, 3])
@pytest.mark.parametrize("prefix", [NO_PREFIX, CHOICES, forced([5, 4])])
def test_greedy_search_takes_the_most_probable_allowed_token(ngram: int, prefix: Prefix) -> None:
    for seed in range(6):
        model: Any = Oracle(seed, markov=seed % 2 == 0)
        limits = [9, 12]
        lists = search(
            model, SOURCES, limits, SearchOptions(1, no_repeat_ngram=ngram), CPU, [prefix] * 2
        )
        for source, limit, (best,) in zip(SOURCES, limits, lists, strict=True):
            assert best.ids == constrained_greedy(model, source, limit, ngram, prefix)
            check_against(ask(model, source, best.ids), best, 1.0)


def constrained_greedy(model: Oracle, source: Ids, limit: int, ngram: int, prefix: Prefix) -> Ids:
    chain: Ids = []
    state = 0
    while not chain or chain[-1] != EOS_ID:
        tokens: Iterable[int] = [*MAY_FOLLOW, EOS_ID] if chain else MAY_FOLLOW
        if len(chain) == limit:
            tokens = [EOS_ID]
        if state < len(prefix.states):
            tokens = prefix.states[state].tokens.tolist()
        fresh = [i for i in tokens if i == EOS_ID or not (ngram and repeats([*chain, i], ngram))]
        log_probs = {i: ask(model, source, [*chain, i]).log_prob for i in fresh or tokens}
        chain.append(max(log_probs, key=lambda i: log_probs[i]))
        state = prefix.after(state, chain[-1])
    return chain


def pair() -> Ensemble:
    return Ensemble([random_model("luong", 4, end=1), random_model("none", 5, end=1)])


# The rules know tokens alone, of whichever model.
MODELS = {name: MAKERS[name] for name in ("covered", "copying", "none")} | {"ensemble": pair}


@pytest.fixture(scope="module", params=quick_values(MODELS))
def model(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param]()


@one_quick("beam_size", [1, 4], quick=1)
def test_no_ngram_occurs_twice_and_every_hypothesis_ends(model: Any, beam_size: int) -> None:
    """Once every token has occurred, only EOS is left."""
    for ngram, limit, count in ((1, VOCABULARY_SIZE + 5, 2), (2, 20, 7), (3, 20, 7)):
        sources = random_sources(count, seed=30)
        limits = [limit] * count
        unconstrained = search(model, sources, limits, SearchOptions(beam_size, 0.3), CPU)
        lists = search(
            model, sources, limits, SearchOptions(beam_size, 0.3, no_repeat_ngram=ngram), CPU
        )
        assert any(
            repeats(candidate.ids[:-1], ngram)
            for hypotheses in unconstrained
            for candidate in hypotheses
        )
        for source, unconstrained_list, hypotheses in zip(
            sources, unconstrained, lists, strict=True
        ):
            if beam_size == 1 and not repeats(unconstrained_list[0].ids[:-1], ngram):
                assert same(hypotheses, unconstrained_list)
            for hypothesis in hypotheses:
                assert not repeats(hypothesis.ids[:-1], ngram)
                assert hypothesis.ids.index(EOS_ID) == len(hypothesis.ids) - 1 <= limit
            check_against(ask(model, source, hypotheses[0].ids), hypotheses[0], 0.3)


def test_no_rule_runs_unless_a_sentence_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = random_sources(5, seed=31)
    model = MAKERS["luong"]()
    plain = search(model, sources, [9] * 5, SearchOptions(3), CPU)
    monkeypatch.setattr(NextTokens, "__init__", None)
    again = search(model, sources, [9] * 5, SearchOptions(3), CPU, [NO_PREFIX] * 5)
    assert all(same(*both_lists) for both_lists in zip(plain, again, strict=True))


# ---------------------------------------------------------------------------------------- prefixes


@pytest.mark.parametrize("beam_size", [1, 4])
def test_every_hypothesis_begins_with_its_prefix(model: Any, beam_size: int) -> None:
    """Even a prefix longer than the limit, which then counts from the end of the prefix."""
    sources = random_sources(9, seed=32)
    generator = random.Random(3)
    starts = [
        [generator.randrange(4, VOCABULARY_SIZE) for _ in range(n % 9)] for n in range(len(sources))
    ]
    limits = [1 + n % 7 for n in range(len(sources))]
    prefixes = [forced(start) for start in starts]
    lists = search(model, sources, limits, SearchOptions(beam_size, 0.7), CPU, prefixes)
    for source, start, limit, hypotheses in zip(sources, starts, limits, lists, strict=True):
        room = limit if len(start) < limit else limit + len(start)
        assert 1 <= len(hypotheses) <= beam_size
        for hypothesis in hypotheses:
            assert hypothesis.ids[: len(start)] == start
            assert max(1, len(start)) < len(hypothesis.ids) <= room + 1
            check_against(ask(model, source, hypothesis.ids), hypothesis, 0.7)


def test_greedy_search_given_its_own_prefix_gives_the_same_result(model: Any) -> None:
    sources = random_sources(20, seed=33)
    unconstrained = search(model, sources, [12] * 20, SearchOptions(1), CPU)
    starts = [hypotheses[0].ids[: n % 5] for n, hypotheses in enumerate(unconstrained)]
    prefixes = [forced([i for i in start if i != EOS_ID]) for start in starts]
    again = search(model, sources, [12] * 20, SearchOptions(1), CPU, prefixes)
    for start, unconstrained_list, prefixed_list in zip(starts, unconstrained, again, strict=True):
        assert same(unconstrained_list, prefixed_list), start


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_prefix_may_repeat_ngrams(model: Any, beam_size: int) -> None:
    start = [7, 8, 7, 8, 7, 8]
    (hypotheses,) = search(
        model, [[5, 9, 4]], [12], SearchOptions(beam_size, no_repeat_ngram=2), CPU, [forced(start)]
    )
    assert hypotheses
    for hypothesis in hypotheses:
        assert hypothesis.ids[:6] == start
        beyond = [tuple(bigram) for bigram in itertools.pairwise(hypothesis.ids[5:-1])]
        assert not {(7, 8), (8, 7)}.intersection(beyond)
        assert len(set(beyond)) == len(beyond)


@pytest.mark.parametrize(("beam_size", "ngram"), [(1, 2), (4, 0)])
def test_constrained_results_do_not_depend_on_the_batch(
    model: Any, beam_size: int, ngram: int
) -> None:
    count = 25
    sources = random_sources(count, seed=34)
    limits = [2 + (7 * n) % 11 for n in range(count)]
    generator = random.Random(4)
    prefixes = [
        forced([generator.randrange(4, VOCABULARY_SIZE) for _ in range(max(0, n % 8 - 3))])
        for n in range(count)
    ]
    options = SearchOptions(beam_size, no_repeat_ngram=ngram)
    everything = search(model, sources, limits, options, CPU, prefixes)
    results = row_search(model, requests_of(sources, limits, prefixes), options)
    shuffled = generator.sample(range(count), count)
    for rows in (shuffled, shuffled[:7], *([i] for i in shuffled[:4])):
        for i, hypotheses in zip(rows, results(rows), strict=True):
            assert same(hypotheses, everything[i])


def rule_states(options: SearchOptions, slots: int) -> RuleStates:
    return RuleStates(rules_of(options), options, SlotTable(slots))


def mask_of(states: RuleStates, lengths: Sequence[int], limits: Sequence[int]) -> Mask:
    """Return the mask of a step for slots of these lengths and limits, with seven tokens."""
    states.table.lengths, states.table.limits = np.array(lengths), np.array(limits)
    return states.mask(SimpleNamespace(values=np.zeros((1, 7))))  # type: ignore[arg-type]


def forbidden_by(states: RuleStates, lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Return the tokens that the rules forbid in each row, but for those that no search takes."""
    mask = mask_of(states, lengths, [limit] * len(lengths))
    banned: list[list[int]] = [[] for _ in range(len(lengths) * states.options.beam_size)]
    if mask.forbidden is not None:
        for row, forbidden in zip(*mask.forbidden, strict=True):
            tokens = np.flatnonzero(forbidden).tolist()
            banned[row] = [i for i in tokens if i not in states.options.forbidden_ids]
    return banned


BIGRAMS = SearchOptions(2, no_repeat_ngram=2)
SENTENCE = make_sentence(Request([4], 9), BIGRAMS)


def states_after_three_tokens() -> RuleStates:
    """Return the states of two hypotheses in each of three slots."""
    states = rule_states(BIGRAMS, 3)
    for slot in range(3):
        states.begin(slot, SENTENCE)
    states.advance(np.array([[4, 5], [6, 4], [5, 5]]), np.zeros((3, 2), int), np.zeros((3, 2)))
    for tokens in ([[5, 4], [6, 5], [6, 6]], [[4, 5], [4, 4], [4, 6]]):
        states.advance(np.array(tokens), np.array([[0, 1]] * 3), np.zeros((3, 2)))
    return states


def test_ngrams_of_other_sentences_are_not_repetitions() -> None:
    """A reused slot starts without history."""
    states = states_after_three_tokens()
    assert forbidden_by(states, [3] * 3, 9) == [[5], [4], [], [5], [], [6]]
    states.begin(0, SENTENCE)
    assert forbidden_by(states, [0, 3, 3], 9) == [[EOS_ID], [], [], [5], [], [6]]


def test_slots_that_are_kept_keep_the_states_of_their_rules() -> None:
    states = states_after_three_tokens()
    states.keep([2, 0])
    assert forbidden_by(states, [3] * 2, 9) == [[], [6], [5], [4]]


def test_a_search_has_the_rules_it_needs() -> None:
    for options, rule_types in (
        (SearchOptions(1), []),
        (SearchOptions(1, no_repeat_ngram=2), [NoRepeatedNgram]),
    ):
        rules = rules_of(options)
        assert [type(active_rule) for active_rule in rules] == [
            KeepPrefix,
            *rule_types,
            RequirePhrases,
        ]
        sentence = make_sentence(Request([4], 9), options)
        rules_of_sentence = [rule for rule in rules if rule.start(sentence) is not None]
        assert [type(active_rule) for active_rule in rules_of_sentence] == rule_types
        prefixed = make_sentence(Request([4], 9, CHOICES), options)
        rules_of_sentence = [rule for rule in rules if rule.start(prefixed) is not None]
        assert [type(active_rule) for active_rule in rules_of_sentence] == [KeepPrefix, *rule_types]


def test_lengths_are_limited_from_both_sides() -> None:
    states = rule_states(SearchOptions(2, min_length=2), 4)
    limits = [9, 4, 4, 0]  # the fourth slot is empty
    ends = [mask_of(states, [length] * 3 + [0], limits).ends for length in range(4)]
    assert ends[0].tolist() == [MAY_NOT_END, MAY_NOT_END, MAY_NOT_END, FREE]
    assert ends[1].tolist() == [MAY_NOT_END, MAY_NOT_END, MAY_NOT_END, FREE]
    assert ends[2].tolist() == [FREE, FREE, FREE, FREE]
    assert ends[3].tolist() == [FREE, MUST_END, MUST_END, FREE]


@one_quick(
    ("kind", "beam_size", "ngram"),
    [("covered", 1, 1), ("copying", 4, 0), ("none", 1, 1), ("ensemble", 4, 1)],
)
def test_kept_tokens_occur_once_in_every_hypothesis(kind: str, beam_size: int, ngram: int) -> None:
    """For any limit, prefix and batch."""
    model = MODELS[kind]()
    kept_ids = range(5, 9)
    sources = random_sources(18, seed=12)
    generator = random.Random(5)
    limits = [1 + n % 6 for n in range(18)]
    prefixes = [forced([generator.randrange(9, VOCABULARY_SIZE)] * (n % 3 == 2)) for n in range(18)]
    options = SearchOptions(beam_size, no_repeat_ngram=ngram, kept_ids=kept_ids)
    lists = search(model, sources, limits, options, CPU, prefixes)
    search_rows = row_search(model, requests_of(sources, limits, prefixes), options)
    several = 0
    for n, (source, hypotheses) in enumerate(zip(sources, lists, strict=True)):
        kept_of_source = sorted({token for token in source if token in kept_ids})
        several += len(kept_of_source) > 1
        assert hypotheses
        for ids, *_ in hypotheses:
            assert sorted(token for token in ids if token in kept_ids) == kept_of_source
            assert len(ids) <= max(limits[n], 1 + len(kept_of_source)) + 1 + len(prefixes[n].states)
        assert same(search_rows([n])[0], hypotheses)
    assert several > 5
