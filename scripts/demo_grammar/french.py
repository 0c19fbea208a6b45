"""English-French: draws one clause, or joins two, from everyday life or public affairs."""

from random import Random

from demo_grammar import french_affairs as affairs
from demo_grammar import french_everyday as everyday
from demo_grammar import french_states as states
from demo_grammar.french_phrases import joined, sentence
from demo_grammar.splits import Pair, Splits, draw_by_length, draw_splits, is_negated

SIZES = {"train": 9200, "valid": 300, "test": 500}
KEPT_OUT = ("the agreement on the european economic area was signed in august 1992",)

EVERYDAY = (
    *(everyday.doing,) * 6,
    *(states.quality,) * 4,
    *(states.location,) * 2,
    *(everyday.journey,) * 2,
    states.mood,
    everyday.mood_with_reason,
    everyday.meal,
    everyday.giving,
    states.comparison,
    everyday.home,
)
AFFAIRS = (
    *(affairs.enactment,) * 4,
    *(affairs.act,) * 3,
    *(affairs.support,) * 2,
    *(affairs.judgement,) * 2,
    *(affairs.statement,) * 2,
)


def french_sentence(rng: Random) -> Pair:
    """One sentence pair: a clause, or sometimes two joined by "and" or "but"."""
    clauses = EVERYDAY if rng.random() < 0.6 else AFFAIRS
    first = rng.choice(clauses)(rng)
    if rng.random() < 0.85:
        return sentence(first)
    return sentence(linked(first, first, rng.choice(clauses)(rng)))


def linked(before: Pair, last: Pair, clause: Pair) -> Pair:
    """Join a clause to those before: by "but" if either it or the last says no, not both."""
    contrast = is_negated(last[0]) != is_negated(clause[0])
    link = (", but", ", mais") if contrast else (" and", " et")
    return joined((before[0] + link[0], before[1] + link[1]), clause)


def french_chain(rng: Random) -> Pair:
    """One to four clauses, joined; short ones more often."""
    clauses = EVERYDAY if rng.random() < 0.6 else AFFAIRS
    chain = last = rng.choice(clauses)(rng)
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3))):
        clause = rng.choice(clauses)(rng)
        chain, last = linked(chain, last, clause), clause
    return sentence(chain)


def french_corpus(seed: int) -> Splits:
    """10,000 English-French pairs of 3 to 30 words, by split."""
    return draw_splits(french_sentence, SIZES, seed, KEPT_OUT)


def french_lengths(seed: int) -> Splits:
    """9,500 pairs of up to 15 English words to learn from, and 700 of up to 35 to test with."""
    return draw_by_length(french_chain, {**SIZES, "test": 700}, seed, KEPT_OUT, 15, 35)
