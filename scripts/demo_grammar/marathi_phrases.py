"""Phrases of the English-Marathi grammar: agreement, verb forms, people and things."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from demo_grammar import marathi_words as words
from demo_grammar.marathi_words import ADJECTIVES, THINGS, Forms, Person, Verb
from demo_grammar.splits import Pair

NO_TIME: Pair = ("", "")


class Phrase(NamedTuple):
    """A thing or things on both sides, with what verbs and adjectives agree with."""

    en: str
    mr: str
    gender: str
    plural: bool


def agree(forms: Forms, gender: str, plural: bool) -> str:
    """The form for "m", "f" or "n"; some plurals look like another gender's singular."""
    if len(forms) == 1:
        return forms[0]
    masculine, feminine, neuter, feminine_plural = forms
    if plural:
        return {"m": neuter, "f": feminine_plural, "n": feminine}[gender]
    return {"m": masculine, "f": feminine, "n": neuter}[gender]


def spaced(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def mr_be(plural: bool, negated: bool) -> str:
    if negated:
        return "नाहीत" if plural else "नाही"
    return "आहेत" if plural else "आहे"


def habitual(verb: Verb, gender: str, plural: bool, negated: bool) -> str:
    if negated:
        return f"{verb.participle} {mr_be(plural, negated)}"
    return verb.habitual + ("तात" if plural else "तो" if gender == "m" else "ते")


def perfective(verb: Verb, gender: str, plural: bool, negated: bool) -> str:
    done = verb.perfective + agree(words.PERFECTIVE, gender, plural)
    return f"{done} {mr_be(plural, negated)}" if negated else done


def en_verb(verb: Verb, person: Person, past: bool, negated: bool) -> str:
    if negated:
        return f"{'did' if past else 'do' if person.en_plural else 'does'} not {verb.en}"
    if past:
        return verb.en_past
    return verb.en if person.en_plural else verb.en_third


def en_be(plural: bool, negated: bool) -> str:
    return f"{'are' if plural else 'is'}{' not' if negated else ''}"


def ergative(person: Person) -> str:
    return person.oblique + ("नी" if person.plural else "ने")


def dative(person: Person) -> str:
    return person.oblique + ("ना" if person.plural else "ला")


def named_person(rng: Random) -> Person:
    return rng.choice(words.NAMES if rng.random() < 0.75 else words.KIN)


def anybody(rng: Random) -> Person:
    """Somebody, or a group that has one word."""
    kind = rng.random()
    if kind < 0.65:
        return named_person(rng)
    return rng.choice(words.PRONOUNS if kind < 0.75 else words.PEOPLE)


def couple(rng: Random) -> Person:
    """Two names: masculine unless both are women; used only where they keep their base form."""
    first, second = rng.sample(words.NAMES, 2)
    gender = "f" if first.gender == second.gender == "f" else "m"
    names = f"{first.mr} आणि {second.mr}"
    return Person(f"{first.en} and {second.en}", names, "", gender, en_plural=True, plural=True)


def somebody(rng: Random) -> Person:
    return couple(rng) if rng.random() < 0.15 else anybody(rng)


def doer_of(rng: Random, verb: Verb, draw: Callable[[Random], Person]) -> Person:
    """Somebody to do it; nobody plural reads, for "they read" would not show its tense."""
    person = draw(rng)
    while verb.en == "read" and person.en_plural:
        person = draw(rng)
    return person


def bare_thing(rng: Random, name: str) -> Phrase:
    thing = THINGS[name]
    if thing.plural and rng.random() < 0.35:
        return Phrase(thing.en_plural, thing.plural, thing.gender, True)
    return Phrase(thing.en, thing.mr, thing.gender, False)


def some_thing(
    rng: Random, name: str, article: str = "a", odds: float = 0.3, counted: bool = True
) -> Phrase:
    """The noun, described at these odds and perhaps counted; the article is the English one."""
    en, mr, gender, plural = bare_thing(rng, name)
    if rng.random() < odds:
        adjective = rng.choice(THINGS[name].adjectives.split())
        en = f"{adjective} {en}"
        mr = f"{agree(ADJECTIVES[adjective], gender, plural)} {mr}"
    if plural and counted and article == "a" and rng.random() < 0.4:
        number_en, number_mr = rng.choice(words.NUMBERS)
        return Phrase(f"{number_en} {en}", f"{number_mr} {mr}", gender, plural)
    if article == "a" and (plural or name in words.MASSES):
        return Phrase(en, mr, gender, plural)
    return Phrase(f"{article} {en}", mr, gender, plural)


def object_of(rng: Random, verb: Verb, negated: bool = False) -> Phrase:
    article = "the" if verb.en in words.DEFINITE_OBJECTS else "a"
    return some_thing(rng, rng.choice(verb.objects.split()), article, counted=not negated)


def time_or_none(rng: Random, times: tuple[Pair, ...]) -> Pair:
    return rng.choice(times) if rng.random() < 0.5 else NO_TIME
