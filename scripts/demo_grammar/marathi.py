"""The English-Marathi grammar: verb-final clauses, each written on both sides at once."""

import re
from random import Random

from demo_grammar import marathi_words as words
from demo_grammar.marathi_phrases import (
    NO_TIME,
    Phrase,
    agree,
    anybody,
    bare_thing,
    couple,
    dative,
    doer_of,
    en_be,
    en_verb,
    ergative,
    habitual,
    mr_be,
    named_person,
    object_of,
    perfective,
    some_thing,
    somebody,
    spaced,
    time_or_none,
)
from demo_grammar.marathi_words import ADJECTIVES, THINGS, VERBS, Person
from demo_grammar.splits import Pair, Splits, draw_splits, is_negated

SIZES = {"train": 3400, "valid": 200, "test": 400}
KEPT_OUT = ("rahul is a good boy", "राहुल चांगला मुलगा", "राहुल खूप चांगला मुलगा")


def _copula(rng: Random, person: Person, negated: bool) -> Pair:
    """Is, are, was or were, with or without "not"."""
    if rng.random() < 0.75:
        return en_be(person.en_plural, negated), mr_be(person.plural, negated)
    en = f"{'were' if person.en_plural else 'was'}{' not' if negated else ''}"
    return en, agree(words.WAS_NOT if negated else words.WAS, person.gender, person.plural)


def _identity(rng: Random) -> Pair:
    """Who is what, as "Amit is a good boy": all words but the name show the gender."""
    kind = rng.random()
    person = rng.choice(words.SIBLINGS if kind < 0.05 else words.PRONOUNS)
    if kind < 0.9:
        person = couple(rng) if kind < 0.12 else rng.choice(words.NAMES)
    together = person.plural
    index = (person.gender == "f") + 2 * together
    fitting = [p for p in words.PROFESSIONS if p.forms[index] and (p.en_plural or not together)]
    profession = rng.choice((*fitting, *fitting[:1] * 4))  # boy and girl more often
    adjective = rng.choice((*profession.adjectives.split(), *("good",) * 3))
    form = agree(ADJECTIVES[adjective], person.gender, together)
    negated = rng.random() < 0.2
    very = adjective != "new" and not negated and rng.random() < 0.15
    be = _copula(rng, person, negated)
    article, noun = ("", profession.en_plural) if together else ("a", profession.en)
    return (
        spaced(person.en, be[0], article, "very" if very else "", adjective, noun),
        spaced(person.mr, "खूप" if very else "", form, profession.forms[index], be[1]),
    )


def _mood(rng: Random) -> Pair:
    person, negated, adjective = somebody(rng), rng.random() < 0.2, rng.choice(words.MOODS.split())
    very = adjective != "alone" and not negated and rng.random() < 0.3
    form = agree(ADJECTIVES[adjective], person.gender, person.plural)
    be = _copula(rng, person, negated)
    return (
        spaced(person.en, be[0], "very" if very else "", adjective),
        spaced(person.mr, "खूप" if very else "", form, be[1]),
    )


def _habit(rng: Random) -> Pair:
    """The verb agrees with who acts."""
    verb = rng.choice([verb for verb in VERBS.values() if verb.en_third])
    person, negated = doer_of(rng, verb, somebody), rng.random() < 0.2
    goods = object_of(rng, verb, negated)
    if verb.en in ("buy", "sell"):
        goods = some_thing(rng, rng.choice(words.DAILY), counted=not negated)
    time = time_or_none(rng, words.HABITUAL_TIMES)
    en = spaced(person.en, en_verb(verb, person, False, negated), goods.en, time[0])
    action = habitual(verb, person.gender, person.plural, negated)
    return en, spaced(person.mr, time[1], goods.mr, action)


def _continuous(rng: Random) -> Pair:
    verb, person = rng.choice([v for v in VERBS.values() if v.en_ing]), somebody(rng)
    goods = object_of(rng, verb)
    en = spaced(person.en, en_be(person.en_plural, False), verb.en_ing, goods.en)
    return en, spaced(person.mr, goods.mr, verb.participle, mr_be(person.plural, False))


def _deed(rng: Random) -> Pair:
    """The past: who acted takes -ने or -नी, and the verb agrees with the thing."""
    verb = rng.choice([verb for verb in VERBS.values() if verb.en_past and verb.perfective])
    person, negated = doer_of(rng, verb, anybody), rng.random() < 0.2
    goods, time = object_of(rng, verb, negated), time_or_none(rng, words.PAST_TIMES)
    action = perfective(verb, goods.gender, goods.plural, negated)
    en = spaced(person.en, en_verb(verb, person, True, negated), goods.en, time[0])
    return en, spaced(ergative(person), time[1], goods.mr, action)


def _motion(rng: Random) -> Pair:
    """Going, sitting, working: the verb agrees with who acts, now and in the past."""
    verb, kind = rng.choice(words.MOTIONS)
    person, place = somebody(rng), rng.choice(words.WHEREABOUTS[kind])
    tense, negated = rng.random(), rng.random() < 0.2
    if verb.en_past and tense < 0.5:
        time = time_or_none(rng, words.PAST_TIMES)
        en = en_verb(verb, person, True, negated)
        mr = perfective(verb, person.gender, person.plural, negated)
    elif verb.en_ing and tense < 0.65:
        time, en = NO_TIME, f"{en_be(person.en_plural, False)} {verb.en_ing}"
        mr = f"{verb.participle} {mr_be(person.plural, False)}"
    else:
        time = NO_TIME if verb.en == "live" else time_or_none(rng, words.HABITUAL_TIMES)
        en = en_verb(verb, person, False, negated)
        mr = habitual(verb, person.gender, person.plural, negated)
    return (
        spaced(person.en, en, place[0], time[0]),
        spaced(person.mr, time[1], place[1], mr),
    )


def _liking(rng: Random) -> Pair:
    """Who likes takes -ला or -ना, and the verb agrees with what is liked."""
    person, negated, thing = anybody(rng), rng.random() < 0.25, THINGS[rng.choice(words.LIKED)]
    plural = bool(thing.plural)
    ending = "तात" if plural else "तो" if thing.gender == "m" else "ते"
    action = f"आवडत {mr_be(plural, True)}" if negated else f"आवड{ending}"
    like = "like" if person.en_plural else "likes"
    if negated:
        like = f"{'do' if person.en_plural else 'does'} not like"
    en = spaced(person.en, like, thing.en_plural if plural else thing.en)
    return en, spaced(dative(person), thing.plural if plural else thing.mr, action)


def _determiner(rng: Random, thing: Phrase) -> Pair:
    """Write "the" (none in Marathi), "this" or "that", which agree with the thing."""
    if rng.random() < 0.35:
        return "the", ""
    return _demonstrative(rng, thing)


def _demonstrative(rng: Random, thing: Phrase) -> Pair:
    en = rng.choice(tuple(words.DEMONSTRATIVES))
    mr = agree(words.DEMONSTRATIVES[en], thing.gender, thing.plural)
    return words.DEMONSTRATIVE_PLURALS[en] if thing.plural else en, mr


def _owner(rng: Random, thing: Phrase) -> Pair:
    """Write "my" or "Sita's", which agrees with what is owned."""
    if rng.random() < 0.3:
        return "my", agree(words.MY, thing.gender, thing.plural)
    owner = named_person(rng)
    return f"{owner.en}'s", owner.oblique + agree(words.GENITIVE, thing.gender, thing.plural)


def _quality(rng: Random) -> Pair:
    """What a thing is like, as "Sita's house is big": the adjective agrees with the thing."""
    owned = rng.random() < 0.45
    name = rng.choice(words.OWNED if owned else tuple(THINGS))
    thing, negated = bare_thing(rng, name), rng.random() < 0.2
    en, mr = (_owner if owned else _determiner)(rng, thing)
    adjective = rng.choice(THINGS[name].adjectives.split())
    form = agree(ADJECTIVES[adjective], thing.gender, thing.plural)
    return (
        spaced(en, thing.en, en_be(thing.plural, negated), adjective),
        spaced(mr, thing.mr, form, mr_be(thing.plural, negated)),
    )


def _pointing(rng: Random) -> Pair:
    """What this is, as "This is a red flower": "this" takes the gender of the far noun."""
    name = rng.choice([name for name in THINGS if name not in words.MASSES])
    thing = some_thing(rng, name, odds=1, counted=False)
    en, mr = _demonstrative(rng, thing)
    be = mr_be(thing.plural, False)
    return spaced(en, en_be(thing.plural, False), thing.en), spaced(mr, thing.mr, be)


def _location(rng: Random) -> Pair:
    """Where somebody or something is, or that something is there."""
    kind, negated = rng.random(), rng.random() < 0.2
    if kind < 0.4:
        person, place = somebody(rng), rng.choice(words.WHEREABOUTS["person"])
        return (
            spaced(person.en, en_be(person.en_plural, negated), place[0]),
            spaced(person.mr, place[1], mr_be(person.plural, negated)),
        )
    place, name = rng.choice(words.WHEREABOUTS["thing"]), rng.choice(words.PORTABLE)
    if kind < 0.75:
        thing = some_thing(rng, name, "the")
        return (
            spaced(thing.en, en_be(thing.plural, negated), place[0]),
            spaced(thing.mr, place[1], mr_be(thing.plural, negated)),
        )
    thing = some_thing(rng, name)
    one = "" if thing.plural else "एक"
    return (
        spaced("there", en_be(thing.plural, False), thing.en, place[0]),
        spaced(place[1], one, thing.mr, mr_be(thing.plural, False)),
    )


def _having(rng: Random) -> Pair:
    person, negated = anybody(rng), rng.random() < 0.2
    while person in words.PRONOUNS:
        person = anybody(rng)
    thing = some_thing(rng, rng.choice(words.PORTABLE), counted=not negated)
    have = "have" if person.en_plural else "has"
    if negated:
        have = f"{'do' if person.en_plural else 'does'} not have"
    one = "" if thing.plural or negated else "एक"
    be = mr_be(thing.plural, negated)
    return spaced(person.en, have, thing.en), spaced(f"{person.oblique}कडे", one, thing.mr, be)


def _relation(rng: Random) -> Pair:
    person, other = rng.sample(words.NAMES, 2)
    negated = rng.random() < 0.2
    en, mr, _ = rng.choice([row for row in words.RELATIONS if row[2] == person.gender])
    owner_en, owner_mr = (
        f"{other.en}'s",
        other.oblique + agree(words.GENITIVE, person.gender, False),
    )
    if rng.random() < 0.2:
        owner_en, owner_mr = "my", agree(words.MY, person.gender, False)
    return (
        spaced(person.en, en_be(False, negated), owner_en, en),
        spaced(person.mr, owner_mr, mr, mr_be(False, negated)),
    )


CLAUSES = (
    *(_identity,) * 8,
    *(_quality,) * 4,
    *(_habit,) * 3,
    *(_deed,) * 4,
    *(_motion,) * 4,
    *(_mood,) * 2,
    *(_liking,) * 2,
    *(_pointing,) * 2,
    *(_location,) * 2,
    _continuous,
    _having,
    _relation,
)


def marathi_sentence(rng: Random) -> Pair:
    """One sentence pair, a clause or two; one in two has a full stop, on both sides."""
    en, mr = rng.choice(CLAUSES)(rng)
    if rng.random() < 0.18:
        second_en, second_mr = rng.choice(CLAUSES)(rng)
        contrast = is_negated(en) != is_negated(second_en)
        link_en, link_mr = (", but", ", पण") if contrast else (" and", " आणि")
        en, mr = f"{en}{link_en} {second_en}", f"{mr}{link_mr} {second_mr}"
    en = re.sub(r"\ba (?=[aeio]|honest)", "an ", en)
    stop = "." if rng.random() < 0.5 else ""
    return f"{en[0].upper()}{en[1:]}{stop}", f"{mr}{stop}"


def marathi_corpus(seed: int) -> Splits:
    """4,000 English-Marathi pairs, by split; none says that Rahul is a good boy."""
    return draw_splits(marathi_sentence, SIZES, seed, KEPT_OUT)
