"""Everyday clauses of the English-French grammar: what people do, eat, give and where they go."""

from random import Random

from demo_grammar import french_words as words
from demo_grammar.french_phrases import (
    ETRE,
    FIRST,
    FIRST_PLURAL,
    THE,
    THE_PLURAL,
    THIRD,
    THIRD_PLURAL,
    Phrase,
    agree,
    agreed_participle,
    described,
    future,
    future_time,
    joined,
    negated_or_not,
    noun_phrase,
    past,
    past_time,
    present,
    progressive,
    repeated_time,
    thing,
)
from demo_grammar.french_words import ANIMALS, BUILDINGS, THINGS, VERBS, Noun, named
from demo_grammar.splits import Pair

_BOOKS = named("book letter story novel poem")
_GOODS = (*THINGS, *ANIMALS, *named("book novel house castle hotel flower apple"))
OBJECTS: dict[str, tuple[Noun, ...]] = {
    "buy": _GOODS,
    "sell": _GOODS,
    "find": (*THINGS, *ANIMALS, *named("book letter")),
    "lose": named("bag hat coat shirt umbrella book letter suitcase dog cat"),
    "visit": BUILDINGS,
    "admire": (*BUILDINGS, *named("tree flower horse bird")),
    "wash": named("car hat coat shirt dress window dog horse"),
    "repair": named("car bicycle boat chair table lamp armchair computer door window umbrella"),
    "open": named("door window suitcase shop bag box letter"),
    "close": named("door window suitcase shop bag box"),
    "read": _BOOKS,
    "write": (*_BOOKS, *named("song")),
    "sing": named("song"),
    "build": named("house castle bridge boat"),
}
HABITS = ("read", "write", "visit", "admire", "wash", "open", "close", "sing")
MOMENTS = ("find", "lose")  # have no progressive

REASONS = {
    "happy": ("buy", "find", "visit"),
    "sad": ("lose", "sell"),
    "tired": ("wash", "repair", "build"),
}


def person(rng: Random) -> Phrase:
    """One person by name, by kinship or by what they are; never a pronoun."""
    kind = rng.random()
    if kind < 0.4:
        name, gender = rng.choice(words.NAMES)
        return Phrase(name, name, gender, THIRD)
    if kind < 0.65:
        owner = rng.choice((("my", "mon", "ma"), ("our", "notre", "notre")))
        return noun_phrase(rng.choice(words.FAMILY), owner)
    return described(rng, rng.choice(words.PEOPLE), THE)


def third_person(rng: Random) -> Phrase:
    """A subject whose gender shows in French: a person, he or she, or several people."""
    kind = rng.random()
    if kind < 0.15:
        return rng.choice((Phrase("he", "il", "m", THIRD), Phrase("she", "elle", "f", THIRD)))
    if kind < 0.2:
        return Phrase("the children", "les enfants", "m", THIRD_PLURAL)
    if kind < 0.32:
        return described(rng, rng.choice(words.PEOPLE), THE_PLURAL, plural=True)
    if kind < 0.38:
        resident = noun_phrase(rng.choice(words.PEOPLE), THE)
        home = joined(present(VERBS["live"], THIRD, False), _whereabouts(rng))
        return resident._replace(
            en=f"{resident.en} who {home[0]}", fr=f"{resident.fr} qui {home[1]}"
        )
    return person(rng)


def anyone(rng: Random) -> Phrase:
    if rng.random() < 0.15:
        return rng.choice((Phrase("I", "je", "", FIRST), Phrase("we", "nous", "", FIRST_PLURAL)))
    return third_person(rng)


def _whereabouts(rng: Random) -> Pair:
    if rng.random() < 0.5:
        en, fr = rng.choice(words.CITIES)
        return f"in {en}", f"à {fr}"
    country = rng.choice(words.COUNTRIES)
    return f"in {country.en}", country.to


def doing(rng: Random) -> Pair:
    """Somebody does something with a thing: now, once, in the future, often, never, regularly."""
    name = rng.choice(tuple(OBJECTS))
    if name in HABITS and rng.random() < 0.25:
        return _habit(rng, name)
    verb, subject, negated = VERBS[name], anyone(rng), rng.random() < 0.2
    goods = thing(rng, OBJECTS[name], negated)
    if name not in MOMENTS and rng.random() < 0.25:
        return joined(subject, progressive(verb, subject.person, negated), goods)
    if name == "read" or rng.random() < 0.3:  # "they read" would not show its tense
        action, time = future(verb, subject.person, negated), future_time(rng)
    else:
        action, time = past(verb, subject.person, negated), past_time(rng)
    parts = (subject, action, goods)
    return joined(*parts, time) if rng.random() < 0.7 else joined(*parts)


def _habit(rng: Random, name: str) -> Pair:
    """Simple present with "often", "never" or "every ..."; "often" and "never" cross the verb."""
    subject = person(rng)
    en, fr = present(VERBS[name], THIRD, False)
    kind = rng.choice(("often", "never", "every"))
    goods = thing(rng, OBJECTS[name], negated=kind == "never")
    if kind == "often":
        return joined(subject, (f"often {en}", f"{fr} souvent"), goods)
    if kind == "never":
        return joined(subject, (f"never {en}", negated_or_not(fr, "", "jamais")), goods)
    return joined(subject, (en, fr), goods, repeated_time(rng))


def meal(rng: Random) -> Pair:
    """Eating and drinking with the partitive article, which becomes "de" under negation; liking."""
    name = rng.choice(("drink", "eat", "like"))
    subject, negated = anyone(rng), rng.random() < 0.3
    foods = [(en, fr) for verb, en, fr in words.FOODS if name in (verb, "like")]
    if name == "like":
        foods += [(noun.en_plural, f"les {noun.fr_plural}") for noun in ANIMALS]
        return joined(subject, present(VERBS[name], subject.person, negated), rng.choice(foods))
    first, second = rng.sample(foods, 2)
    if negated:
        bare = first[1].removeprefix("le ").removeprefix("la ").removeprefix("l'")
        action = rng.choice((past, future, present))(VERBS[name], subject.person, True)
        return joined(subject, action, (first[0], f"de {bare}"))
    dish = first[0], f"de {first[1]}"
    if rng.random() < 0.5:
        dish = joined(dish, (f"and {second[0]}", f"et de {second[1]}"))
    tense, time = rng.choice(((past, past_time), (future, future_time), (present, repeated_time)))
    return joined(subject, tense(VERBS[name], subject.person, False), dish, time(rng))


def giving(rng: Random) -> Pair:
    subject, negated = anyone(rng), rng.random() < 0.15
    tense, time = rng.choice(((past, past_time), (future, future_time)))
    action = tense(VERBS[rng.choice(("give", "show"))], subject.person, negated)
    gift = thing(rng, (*THINGS, *ANIMALS, *_BOOKS, *named("flower")), negated)
    plural = rng.random() < 0.4
    receiver = noun_phrase(rng.choice(words.PEOPLE), THE_PLURAL if plural else THE, plural)
    return joined(subject, action, gift, (f"to {receiver.en}", f"à {receiver.fr}"), time(rng))


def mood_with_reason(rng: Random) -> Pair:
    """Write "Marie is sad because she lost ..."; the pronoun has the gender of the person."""
    name = rng.choice(tuple(REASONS))
    subject, verb = person(rng), rng.choice(REASONS[name])
    pronoun = ("she", "elle") if subject.gender == "f" else ("he", "il")
    feeling = agree(words.QUALITIES[name], subject.gender, False)
    link = f"is {name} because {pronoun[0]}", f"est {feeling} parce que {pronoun[1]}"
    goods = thing(rng, OBJECTS[verb])
    parts = (subject, link, past(VERBS[verb], THIRD, False), goods)
    return joined(*parts, past_time(rng)) if rng.random() < 0.4 else joined(*parts)


def journey(rng: Random) -> Pair:
    """Going, arriving, staying and coming back: "être", and agreement with the subject."""
    subject, country = third_person(rng), rng.choice(words.COUNTRIES)
    city_en, city_fr = rng.choice(words.CITIES)
    places = named("castle church hotel school museum hospital theatre")
    place = noun_phrase(rng.choice(places), THE)
    base, en, participle, where = rng.choice(
        (
            ("go", "went", "allé", (f"to {country.en}", country.to)),
            ("go", "went", "allé", (f"to {city_en}", f"à {city_fr}")),
            ("go", "went", "allé", (f"to {place.en}", f"à {place.fr}")),
            ("arrive", "arrived", "arrivé", (f"in {city_en}", f"à {city_fr}")),
            ("stay", "stayed", "resté", (f"in {country.en}", country.to)),
            ("come back", "came back", "revenu", (f"from {country.en}", country.origin)),
        )
    )
    negated = rng.random() < 0.2
    agreed = agreed_participle(participle, subject)
    fr = negated_or_not(ETRE[subject.person], agreed, "pas" if negated else "")
    return joined(subject, (f"did not {base}" if negated else en, fr), where, past_time(rng))


def home(rng: Random) -> Pair:
    """Where somebody lives or works, or did so between two months of a year."""
    subject, verb = anyone(rng), VERBS[rng.choice(("live", "work"))]
    if rng.random() < 0.4:
        action = present(verb, subject.person, rng.random() < 0.25)
        return joined(subject, action, _whereabouts(rng))
    first, last = sorted(rng.sample(range(12), 2))
    (from_en, from_fr), (to_en, to_fr) = words.MONTHS[first], words.MONTHS[last]
    year = rng.randint(1985, 2004)
    span = f"from {from_en} to {to_en} {year}", f"de {from_fr} à {to_fr} {year}"
    return joined(subject, past(verb, subject.person, False), _whereabouts(rng), span)
