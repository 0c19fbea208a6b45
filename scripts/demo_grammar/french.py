"""English-French: draws one clause, or joins two, from everyday life or public affairs."""

from random import Random

from demo_grammar import french_affairs as affairs
from demo_grammar import french_everyday as everyday
from demo_grammar import french_states as states
from demo_grammar.french_phrases import joined, sentence
from demo_grammar.splits import Pair, Splits, draw_splits, is_negated

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
    second = rng.choice(clauses)(rng)
    contrast = is_negated(first[0]) != is_negated(second[0])
    link = (", but", ", mais") if contrast else (" and", " et")
    return sentence(joined((first[0] + link[0], first[1] + link[1]), second))


def french_corpus(seed: int) -> Splits:
    """10,000 English-French pairs of 3 to 30 words, by split."""
    return draw_splits(french_sentence, SIZES, seed, KEPT_OUT)
