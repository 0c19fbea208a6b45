"""States in the English-French grammar: what people and things are like, and where they are."""

from random import Random

from demo_grammar import french_words as words
from demo_grammar.french_everyday import OBJECTS, anyone, person, third_person
from demo_grammar.french_phrases import (
    BE,
    ETRE,
    THE,
    THE_PLURAL,
    Phrase,
    agree,
    agreed_participle,
    described,
    joined,
    negated_or_not,
    noun_phrase,
    past,
    past_time,
)
from demo_grammar.french_words import ANIMALS, BUILDINGS, THINGS, VERBS, Adjective, Noun, named
from demo_grammar.splits import Pair

_QUALITIES, _BEFORE, _COLOURS = words.QUALITIES, words.BEFORE, words.COLOURS
_SIZES = (_BEFORE["small"], _BEFORE["big"])
_LOOKS = (*_SIZES, _BEFORE["old"], _BEFORE["beautiful"])
_OPEN = (_QUALITIES["open"], _QUALITIES["closed"])
PREDICATES: tuple[tuple[tuple[Noun, ...], tuple[Adjective, ...], tuple[Adjective, ...]], ...] = (
    # nouns; adjectives that suit "very" and comparison; adjectives that do not
    (BUILDINGS, (*_LOOKS, _QUALITIES["famous"]), ()),
    (named("church school museum hospital theatre library"), (), _OPEN),
    (named("box bag suitcase"), _SIZES, (_QUALITIES["empty"], *_OPEN)),
    (named("chair armchair car"), (_QUALITIES["comfortable"],), ()),
    (THINGS, (*_LOOKS, _QUALITIES["expensive"]), tuple(_COLOURS.values())),
    (words.WORKS, (*(_QUALITIES[q] for q in ("interesting", "sad", "funny")), _BEFORE["long"]), ()),
    (ANIMALS, (*_SIZES, _BEFORE["old"]), tuple(_COLOURS[c] for c in ("black", "white", "grey"))),
    (words.PLANTS, (*_SIZES, _BEFORE["beautiful"]), tuple(_COLOURS[c] for c in ("green", "red"))),
    (words.OPENINGS, _SIZES, _OPEN),
)
COMPARATIVES = {"small": "smaller", "big": "bigger", "old": "older", "long": "longer"}
MOODS = tuple(_QUALITIES[m] for m in ("happy", "sad", "tired", "ill", "rich", "famous", "ready"))


def being(rng: Random, subject: Phrase, adjective: Adjective, gradable: bool = True) -> Pair:
    """The subject is, or is not, (very) so: the adjective agrees across the verb."""
    negated = rng.random() < 0.25
    very = gradable and rng.random() < 0.3
    en = f"{BE[subject.person]} {'not ' * negated}{'very ' * very}{adjective.en}"
    rest = f"{'très ' * very}{agree(adjective, subject.gender, subject.plural)}"
    fr = negated_or_not(ETRE[subject.person], rest, "pas" if negated else "")
    return joined(subject, (en, fr))


def mood(rng: Random) -> Pair:
    adjective = rng.choice(MOODS)
    return being(rng, third_person(rng), adjective, gradable=adjective.en != "ready")


def quality(rng: Random) -> Pair:
    """What a thing, somebody's thing or a thing that somebody bought is like."""
    nouns, gradable, other = rng.choice(PREDICATES)
    noun, adjective = rng.choice(nouns), rng.choice((*gradable, *other))
    plural, kind = rng.random() < 0.3, rng.random()
    subject = noun_phrase(noun, THE_PLURAL if plural else THE, plural)
    if kind < 0.35 and noun in (*THINGS, *ANIMALS, *words.WORKS):
        owner = person(rng)
        en = f"{owner.en}'s {noun.en_plural if plural else noun.en}"
        subject = subject._replace(en=en, fr=f"{subject.fr} de {owner.fr}")
    elif kind < 0.65:
        subject = _with_relative(rng, noun, subject)
    return being(rng, subject, adjective, adjective in gradable)


def _with_relative(rng: Random, noun: Noun, phrase: Phrase) -> Phrase:
    """Write "the letter that Marie wrote": the participle agrees with what stands before it."""
    names = [name for name, nouns in OBJECTS.items() if noun in nouns and name != "read"]
    if not names:
        return phrase
    verb, subject = VERBS[rng.choice(names)], rng.choice((person, anyone))(rng)
    finite = past(verb, subject.person, False)[1].split()[0]
    participle = agreed_participle(verb.participle, phrase)
    clause = joined(("that", "que"), subject, (verb.en_past, f"{finite} {participle}"))
    if rng.random() < 0.5:
        clause = joined(clause, past_time(rng))
    return phrase._replace(en=f"{phrase.en} {clause[0]}", fr=f"{phrase.fr} {clause[1]}")


def comparison(rng: Random) -> Pair:
    nouns, gradable, _ = rng.choice([row for row in PREDICATES if row[1]])
    first, second = rng.sample(nouns, 2)
    adjective, plural = rng.choice(gradable), rng.random() < 0.25
    subject = noun_phrase(first, THE_PLURAL if plural else THE, plural)
    other = noun_phrase(second, THE_PLURAL if plural else THE, plural)
    more = COMPARATIVES.get(adjective.en, f"more {adjective.en}")
    en, fr = rng.choice(((f"{more} than", "plus"), (f"as {adjective.en} as", "aussi")))
    form = agree(adjective, subject.gender, subject.plural)
    link = f"{BE[subject.person]} {en}", f"{ETRE[subject.person]} {fr} {form} que"
    return joined(subject, link, other)


def _somewhere(rng: Random) -> Pair:
    en, fr, nouns = rng.choice(
        (
            ("under", "sous", named("chair table tree")),
            ("on", "sur", named("chair table armchair")),
            ("in", "dans", (*(b for b in BUILDINGS if b.en != "bridge"), *named("car box"))),
            ("behind", "derrière", (*BUILDINGS, *named("door tree"))),
            ("in front of", "devant", (*BUILDINGS, *named("door window shop"))),
            ("near", "près de", (*BUILDINGS, *named("door window tree"))),
        )
    )
    place = noun_phrase(rng.choice(nouns), THE)
    return f"{en} {place.en}", f"{fr} {place.fr}"


def location(rng: Random) -> Pair:
    """Where a thing is; that there is one, are several or is none."""
    kind, plural = rng.random(), rng.random() < 0.4
    noun = rng.choice(named("dog cat bird rabbit bag hat coat umbrella lamp book letter"))
    place = _somewhere(rng)
    if kind < 0.5:
        subject = described(rng, noun, THE_PLURAL if plural else THE, plural)
        negative = "pas" if rng.random() < 0.25 else ""
        en = f"{BE[subject.person]}{' not' if negative else ''}"
        be = en, negated_or_not(ETRE[subject.person], "", negative)
        return joined(subject, be, place)
    be_en = "are" if plural else "is"
    if kind < 0.6:
        absent = noun_phrase(noun, ("no", "de", "de"), plural)
        return joined((f"there {be_en}", "il n'y a pas"), absent, place)
    number = rng.choice(words.NUMBERS)
    determiner = (number[0], number[1], number[1]) if plural else ("a", "un", "une")
    return joined((f"there {be_en}", "il y a"), described(rng, noun, determiner, plural), place)
