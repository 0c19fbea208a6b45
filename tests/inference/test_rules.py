"""Every strategy with every rule, on both engines, against a search written with lists."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from cases.oracle import CPU, MAY_FOLLOW, Oracle, all_hypotheses, ask, check_ranking
from cases.prefix_automata import CHOICES, begins, prefix_of
from cases.searches import search
from cases.tiers import one_quick

from seq2seq.data.vocabulary.vocabulary import EOS_ID, UNK_ID, Ids
from seq2seq.engines.engine import Sampling
from seq2seq.inference.search.interface import Request, SearchOptions
from seq2seq.inference.search.lexical import (
    NO_LEXICAL,
    NO_PREFIX,
    Lexical,
    Prefix,
    PrefixState,
    lexical_of,
)
from seq2seq.inference.search.rules import NextTokens
from seq2seq.inference.search.sentences import make_sentence

SOURCES = [[4, 5], [6], [5, 5, 4, 6, 4], [], [4, 4, 4]]
LIMITS = [4, 5, 6, 3, 2]


class NeverAfter:
    """Token 5 never follows 4, in place of forbidden words."""

    start = 0

    def after(self, _: int, token: int) -> int:
        return token

    def forbidden_tokens(self, state: int, _: bool) -> Any:
        return np.array([5] if state == 4 else [], np.int64)


class Rule(NamedTuple):
    """Options of a search, and the tokens that they allow after some: (source, ids) -> tokens."""

    options: dict[str, Any]
    allows: Callable[[Ids, Ids, list[int]], Sequence[int]]
    prefix: Prefix = NO_PREFIX


def follow_prefix(_: Ids, ids: Ids, tokens: list[int]) -> Sequence[int]:
    state = 0
    for token in ids:
        state = CHOICES.after(state, token)
    return CHOICES.states[state].tokens.tolist() if state < len(CHOICES.states) else tokens


def keep_fours(source: Ids, ids: Ids, tokens: list[int]) -> Sequence[int]:
    """Take 4 once if the source has it, before the end, and never otherwise."""
    lacks_four = 4 in source and 4 not in ids
    return [t for t in tokens if (t != 4 or lacks_four) and (t != EOS_ID or not lacks_four)]


RULES = {
    "none": Rule({}, lambda _, __, tokens: tokens),
    "prefix": Rule({}, follow_prefix, CHOICES),
    "n-grams": Rule(
        {"no_repeat_ngram": 1}, lambda _, ids, tokens: [t for t in tokens if t not in ids]
    ),
    "length": Rule(
        {"min_length": 2},
        lambda _, ids, tokens: [t for t in tokens if t != EOS_ID or len(ids) >= 2],
    ),
    "kept": Rule({"kept_ids": range(4, 5)}, keep_fours),
    "words": Rule(
        {"forbidden_words": NeverAfter()},
        lambda _, ids, tokens: [t for t in tokens if (*ids[-1:], t) != (4, 5)],
    ),
    "repetition": Rule({"repetition_penalty": 1.7}, lambda _, __, tokens: tokens),
}
STRATEGIES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 3},
    "groups": {"beam_size": 4, "groups": 2, "diversity": 0.8},
    "samples": {"beam_size": 1, "sampling": Sampling(3, temperature=2.0)},
}


class Listed:
    """The search for one source, in lists of hypotheses."""

    def __init__(self, model: Oracle, source: Ids, limit: int, rule: Rule) -> None:
        self.source, self.rule = source, rule
        room = len(rule.prefix.states)
        self.limit = limit if room + ("kept_ids" in rule.options) < limit else limit + room
        self.total = cache(lambda ids: ask(model, source, [*ids]).log_prob)

    def allowed(self, ids: Ids) -> Sequence[int]:
        if len(ids) == self.limit:
            return [EOS_ID]
        is_missing = "kept_ids" in self.rule.options and 4 in self.source and 4 not in ids
        if is_missing and len(ids) == self.limit - 1:
            return [4]  # there is no room for another token
        tokens = [*MAY_FOLLOW, *([EOS_ID] if ids else [])]
        return self.rule.allows(self.source, ids, tokens)

    def score(self, ids: Ids) -> float:
        """Return the log-probability, that of repeated tokens multiplied by the penalty."""
        factor = self.rule.options.get("repetition_penalty", 1.0)
        total = 0.0
        for n, token in enumerate(ids):
            value = self.total(tuple(ids[: n + 1])) - (self.total(tuple(ids[:n])) if n else 0.0)
            total += value * (factor if token in ids[:n] else 1.0)
        return total

    def greedy(self) -> list[Ids]:
        ids: Ids = []
        while not ids or ids[-1] != EOS_ID:
            ids = max(([*ids, i] for i in self.allowed(ids)), key=self.score)
        return [ids]

    def beam(self, size: int, groups: int = 1, diversity: float = 0.0) -> list[Ids]:
        width = size // groups
        living: list[list[Ids]] = [[[]] for _ in range(groups)]
        ended: list[list[Ids]] = [[] for _ in range(groups)]
        for length in range(1, self.limit + 2):
            tokens_of_step: list[int] = []
            for group in range(groups):
                ranked = [[*ids, i] for ids in living[group] for i in self.allowed(ids)]
                ranked.sort(
                    key=lambda ids: diversity * tokens_of_step.count(ids[-1]) - self.score(ids)
                )
                ranked = ranked[: 2 * width]
                ended[group] += [ids for ids in ranked[:width] if ids[-1] == EOS_ID]
                ended[group] = self.best(ended[group])[:width]
                living[group] = [ids for ids in ranked if ids[-1] != EOS_ID][:width]
                living[group].sort(key=self.score, reverse=True)
                tokens_of_step += [ids[-1] for ids in living[group]]
            pools = zip(ended, living, strict=True)
            if all(
                not alive
                or (
                    len(pool) == width
                    and self.score(pool[-1]) / len(pool[-1]) >= self.score(alive[0]) / length
                )
                for pool, alive in pools
            ):
                break
        return self.best([ids for pool in ended for ids in pool])

    def best(self, hypotheses: list[Ids]) -> list[Ids]:
        return sorted(hypotheses, key=lambda ids: -self.score(ids) / len(ids))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_finds_what_the_rules_allow(strategy: str, name: str) -> None:
    rule = RULES[name]
    keys = STRATEGIES[strategy]
    for seed in range(3):
        model: Any = Oracle(seed)
        options = SearchOptions(**keys, **rule.options)  # type: ignore[arg-type]
        lists = search(model, SOURCES, LIMITS, options, CPU, [rule.prefix] * len(SOURCES))
        for source, limit, hypotheses in zip(SOURCES, LIMITS, lists, strict=True):
            listed = Listed(model, source, limit, rule)
            for ids, score, *_ in hypotheses:
                assert score == pytest.approx(listed.score(ids) / len(ids), rel=1e-4)
                for n, token in enumerate(ids):
                    assert token in listed.allowed(ids[:n])
            ids_of = [hypothesis.ids for hypothesis in hypotheses]
            if strategy == "greedy":
                assert ids_of == listed.greedy()
            elif strategy == "samples":
                assert len(ids_of) == 3
            else:
                expected = listed.beam(*(value for key, value in keys.items()))
                assert ids_of == expected
                assert not any(math.isnan(hypothesis.score) for hypothesis in hypotheses)


@one_quick("size", [1, 2, 5], quick=1)
def test_other_rules_hold_beside_phrases(size: int) -> None:
    """5 follows 4 never, nor does 4 occur twice, nor an n-gram but within the phrase."""
    phrase = lexical_of([([5, 6, UNK_ID], False)])
    for seed in range(6):
        model: Any = Oracle(seed)
        for name, options in (
            ("words", {"forbidden_words": NeverAfter()}),
            ("kept", {"kept_ids": range(4, 6)}),
            ("n-grams", {"no_repeat_ngram": 2}),
        ):
            sources = [[4, 5], [5], [5, 4, 6]]
            lists = search(
                model,
                sources,
                [9] * 3,
                SearchOptions(size, **options),  # type: ignore[arg-type]
                CPU,
                lexical=[phrase] * 3,
            )
            for source, hypotheses in zip(sources, lists, strict=True):
                assert hypotheses
                for ids, *_ in hypotheses:
                    starts = [n for n in range(len(ids)) if ids[n : n + 3] == [5, 6, UNK_ID]]
                    assert starts
                    if name == "words":
                        assert (4, 5) not in pairwise(ids)
                    if name == "kept":
                        assert [ids.count(token) for token in (4, 5)] == [4 in source, 1]
                    pairs = [*pairwise(ids)]
                    repeated = {pair for pair in pairs if pairs.count(pair) > 1}
                    assert name != "n-grams" or repeated <= {(5, 6), (6, UNK_ID)}


def test_a_forbidden_word_completes_no_phrase_even_if_nothing_else_is_possible() -> None:
    """The prefix ends in 4, and the phrase has to follow at once: nothing is left."""
    prefix = Prefix([PrefixState(np.array([4]), {4: 1})], [])
    options = SearchOptions(3, forbidden_words=NeverAfter())  # type: ignore[arg-type]
    phrase = lexical_of([([5], False)])
    assert search(Oracle(1), [[6]], [1], options, CPU, [prefix], lexical=[phrase]) == [[]]
    (hypotheses,) = search(Oracle(1), [[6]], [3], options, CPU, [prefix], lexical=[phrase])
    assert hypotheses
    for ids, *_ in hypotheses:
        assert ids[:1] == [4]
        assert 5 in ids
        assert (4, 5) not in pairwise(ids)


class Translations(NamedTuple):
    """A rule as the set of translations that obey it: (source, ids) -> whether one is in it."""

    contains: Callable[[Ids, Ids], bool]
    options: dict[str, Any] = {}  # noqa: RUF012 -- never changed
    prefix: Prefix = NO_PREFIX
    lexical: Lexical = NO_LEXICAL


def repeats(ids: Ids) -> set[tuple[int, int]]:
    pairs = [*pairwise(ids)]
    return {pair for pair in pairs if pairs.count(pair) > 1}


TWO_TOKENS = prefix_of({4: 1, 5: 1}, {4: None, 6: None, EOS_ID: None})
SETS = {
    "prefix": Translations(lambda _, ids: begins(TWO_TOKENS, ids), prefix=TWO_TOKENS),
    "phrase": Translations(
        lambda _, ids: (5, 6) in pairwise(ids), lexical=lexical_of([([5, 6], False)])
    ),
    "words": Translations(
        lambda _, ids: (4, 5) not in pairwise(ids), {"forbidden_words": NeverAfter()}
    ),
    "n-grams": Translations(lambda _, ids: not repeats(ids), {"no_repeat_ngram": 2}),
    "length": Translations(lambda _, ids: len(ids) > 3, {"min_length": 3}),
    "kept": Translations(
        lambda source, ids: ids.count(4) == int(4 in source), {"kept_ids": range(4, 5)}
    ),
}
SET_LIMITS = {(4, 6): 3, (6,): 3, (5, 4): 2}  # tokens, by source


def check_intersection(names: Sequence[str], sizes: Sequence[int], seed: int) -> None:
    """Check that a wide beam finds the intersection of sets, and narrow ones nothing else."""
    rules = [SETS[name] for name in names]
    keys: dict[str, Any] = {}
    for rule in rules:
        keys |= rule.options
    prefix = next((rule.prefix for rule in rules if rule.prefix.states), NO_PREFIX)
    lexical = next((rule.lexical for rule in rules if rule.lexical.phrases), NO_LEXICAL)
    for source, limit in SET_LIMITS.items():
        model: Any = Oracle(seed)
        request = Request([*source], limit, prefix, lexical)
        max_length = make_sentence(request, SearchOptions(1, **keys)).limit - 1
        possible = list(all_hypotheses(max_length))
        obeying = [ids for ids in possible if all(r.contains([*source], ids) for r in rules)]
        # No step has more continuations, even of hypotheses that obey no rule but the prefix.
        exhaustive_size = sum(begins(prefix, ids) for ids in possible)
        for size in (exhaustive_size, *sizes):
            options = SearchOptions(size, **keys)
            (hypotheses,) = search(
                model, [[*source]], [limit], options, CPU, [prefix], lexical=[lexical]
            )
            if size == exhaustive_size:
                check_ranking(model, [*source], hypotheses, obeying, options.length_penalty, 0)
            assert all(hypothesis.ids in obeying for hypothesis in hypotheses)


@pytest.mark.parametrize("names", [*combinations(SETS, 2)], ids=" and ".join)
def test_two_rules_leave_the_intersection_of_their_sets(names: Sequence[str]) -> None:
    check_intersection(names, [1, 2], seed=len("".join(names)))


@pytest.mark.thorough
@pytest.mark.parametrize("names", [*combinations(SETS, 3)], ids=" and ".join)
def test_three_rules_leave_the_intersection_of_their_sets(names: Sequence[str]) -> None:
    for seed in range(3):
        check_intersection(names, [1, 2, 3, 5], seed)


@pytest.mark.thorough
@pytest.mark.parametrize("names", [*combinations(SETS, 4)], ids=" and ".join)
def test_four_rules_leave_the_intersection_of_their_sets(names: Sequence[str]) -> None:
    check_intersection(names, [1, 2, 3, 5], seed=0)


def test_what_would_complete_a_forbidden_word_is_no_other_token() -> None:
    allowed = np.zeros(8, bool)
    allowed[[EOS_ID, 5]] = True
    choice = NextTokens(4, allowed)
    choice.unwanted = [5]
    choice.forbid_if_others([EOS_ID])
    assert choice.allowed_of(range(8)) == [EOS_ID, 5]
    choice.unwanted = []
    choice.forbid_if_others([EOS_ID])
    assert choice.allowed_of(range(8)) == [5]
