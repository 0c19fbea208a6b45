"""Phrases of the English-French grammar: spelling at word borders, noun phrases, verbs, dates."""

import re
from random import Random
from typing import NamedTuple

from demo_grammar import french_words as words
from demo_grammar.french_words import Adjective, Noun, Verb
from demo_grammar.splits import Pair

Determiner = tuple[str, str, str]  # English, French masculine, French feminine

THE: Determiner = ("the", "le", "la")
THE_PLURAL: Determiner = ("the", "les", "les")
INDEFINITE: tuple[Determiner, Determiner] = (("a", "un", "une"), ("", "des", "des"))
SINGULAR: tuple[Determiner, ...] = (  # possessives last, as in PLURAL
    THE,
    INDEFINITE[0],
    ("this", "ce", "cette"),
    ("my", "mon", "ma"),
    ("our", "notre", "notre"),
)
PLURAL: tuple[Determiner, ...] = (
    THE_PLURAL,
    INDEFINITE[1],
    ("these", "ces", "ces"),
    ("my", "mes", "mes"),
    ("our", "nos", "nos"),
)
COUNTED: tuple[Determiner, ...] = (
    ("several", "plusieurs", "plusieurs"),
    ("many", "beaucoup de", "beaucoup de"),
    *((en, fr, fr) for en, fr in words.NUMBERS),
)

BE = ("am", "is", "are", "are")
AVOIR = ("ai", "a", "avons", "ont")
ETRE = ("suis", "est", "sommes", "sont")
FUTURE_ENDINGS = ("ai", "a", "ons", "ont")
FIRST, THIRD, FIRST_PLURAL, THIRD_PLURAL = range(4)


class Phrase(NamedTuple):
    """A noun phrase or pronoun; `person` indexes je, il, nous, ils; `gender` "" is unknown."""

    en: str
    fr: str
    gender: str
    person: int

    @property
    def plural(self) -> bool:
        return self.person >= FIRST_PLURAL


def _by_names(names: str, *tables: dict[str, Adjective]) -> tuple[Adjective, ...]:
    every = {name: adjective for table in tables for name, adjective in table.items()}
    return tuple(every[name] for name in names.split())


_NATIONAL = tuple(a for a in words.NATIONALITIES.values() if a.en != "European")
_FITTING: tuple[tuple[tuple[Noun, ...], str, tuple[Adjective, ...]], ...] = (
    (words.PEOPLE, "young old", _NATIONAL),
    (words.ANIMALS, "small big beautiful old young", _by_names("black white grey", words.COLOURS)),
    (
        words.BUILDINGS,
        "small big beautiful old new",
        (*_by_names("famous modern", words.QUALITIES), *_NATIONAL),
    ),
    (words.THINGS, "small big beautiful old new", tuple(words.COLOURS.values())),
    (words.OPENINGS, "small big beautiful old new", _by_names("red green white", words.COLOURS)),
    (
        tuple(work for work in words.WORKS if work.en != "letter"),
        "good bad long beautiful new",
        (*_by_names("interesting sad funny famous", words.QUALITIES), *_NATIONAL),
    ),
    (words.named("letter"), "long beautiful new", _by_names("interesting sad", words.QUALITIES)),
    (words.PLANTS, "small big beautiful", _by_names("red yellow green", words.COLOURS)),
    (words.DOCUMENTS, "new", _by_names("international", words.QUALITIES)),
)
ADJECTIVES = {
    noun: (_by_names(before, words.BEFORE), after)
    for nouns, before, after in _FITTING
    for noun in nouns
}

_VOWEL = "(?=[aàâeéèêiîoôuhœAÀÂEÉÈÊIÎOÔUHŒ])"  # no word of the lexicon has an aspirated h
_FRENCH_BORDERS = (
    (rf"\bl[ea] {_VOWEL}", "l'"),
    (rf"\b(d|n|qu|j)e {_VOWEL}", r"\1'"),
    (rf"\bma {_VOWEL}", "mon "),
    (rf"\bce {_VOWEL}", "cet "),
    (r"\bde le ", "du "),
    (r"\bde les ", "des "),
    (r"\bà le ", "au "),
    (r"\bà les ", "aux "),
)


def sentence(clause: Pair) -> Pair:
    """The clause as written: a/an, elision and contraction, a capital and a full stop."""
    en, fr = (" ".join(side.split()) for side in clause)
    en = re.sub(r"\ba (?=[aeiouAEIOU])(?!a Euro)", "an ", en)
    for pattern, spelling in _FRENCH_BORDERS:
        fr = re.sub(pattern, spelling, fr)
    return f"{en[0].upper()}{en[1:]}.", f"{fr[0].upper()}{fr[1:]}."


def joined(*parts: Pair | Phrase) -> Pair:
    """The parts in this order on both sides; what crosses, crosses within a part."""
    return " ".join(part[0] for part in parts), " ".join(part[1] for part in parts)


def agree(adjective: Adjective, gender: str, plural: bool) -> str:
    return adjective.forms[(gender == "f") + 2 * plural]


def noun_phrase(
    noun: Noun, determiner: Determiner, plural: bool = False, adjectives: tuple[Adjective, ...] = ()
) -> Phrase:
    """Determiner, adjectives and noun; each adjective on its own side of the French noun.

    Those after the noun stand in mirrored order, the closest first: "zone économique européenne".
    """
    masculine_fr, feminine_fr = determiner[1:]
    article = feminine_fr if noun.gender == "f" else masculine_fr
    head = noun.fr_plural if plural else noun.fr
    before = ""
    for adjective in adjectives:
        form = agree(adjective, noun.gender, plural)
        if not adjective.before:
            continue
        singular_masculine = noun.gender == "m" and not plural
        if adjective.liaison and singular_masculine and re.match(_VOWEL, head):
            form = adjective.liaison
        before = form
    if before and article == "des":
        article = "de"
    after = [agree(a, noun.gender, plural) for a in reversed(adjectives) if not a.before]
    en_head = noun.en_plural if plural else noun.en
    en = " ".join((determiner[0], *(a.en for a in adjectives), en_head))
    fr = " ".join((article, before, head, *after))
    return Phrase(en, fr, noun.gender, THIRD_PLURAL if plural else THIRD)


def described(rng: Random, noun: Noun, determiner: Determiner, plural: bool = False) -> Phrase:
    """The noun with no adjective, one before or after it in French, or one on either side."""
    before, after = ADJECTIVES.get(noun, ((), ()))
    chosen: list[Adjective] = []
    if before and rng.random() < 0.35:
        chosen.append(rng.choice(before))
    if after and rng.random() < 0.35:
        chosen.append(rng.choice(after))
    return noun_phrase(noun, determiner, plural, tuple(chosen))


def thing(rng: Random, nouns: tuple[Noun, ...], negated: bool = False) -> Phrase:
    """An object phrase; under negation an indefinite article becomes "de"."""
    noun, plural = rng.choice(nouns), rng.random() < 0.35
    determiners = PLURAL if plural else SINGULAR
    if plural and not negated and rng.random() < 0.5:
        determiners = COUNTED
    determiner = rng.choice(determiners[:3] if noun in words.PUBLIC else determiners)
    if negated and determiner in INDEFINITE:
        determiner = (determiner[0], "de", "de")
    return described(rng, noun, determiner, plural)


def negated_or_not(finite: str, rest: str, negative: str) -> str:
    """The French verb; `negative` is "pas" or "jamais" around the finite part, or ""."""
    return f"ne {finite} {negative} {rest}" if negative else f"{finite} {rest}"


def past(verb: Verb, person: int, negated: bool) -> Pair:
    en = f"did not {verb.en}" if negated else verb.en_past
    return en, negated_or_not(AVOIR[person], verb.participle, "pas" if negated else "")


def future(verb: Verb, person: int, negated: bool) -> Pair:
    en = f"will not {verb.en}" if negated else f"will {verb.en}"
    finite = verb.future + FUTURE_ENDINGS[person]
    return en, negated_or_not(finite, "", "pas" if negated else "")


def progressive(verb: Verb, person: int, negated: bool) -> Pair:
    en = f"{BE[person]} {'not ' if negated else ''}{verb.en_ing}"
    return en, negated_or_not(verb.present[person], "", "pas" if negated else "")


def present(verb: Verb, person: int, negated: bool) -> Pair:
    en = verb.en_third if person == THIRD else verb.en
    if negated:
        en = f"{'does' if person == THIRD else 'do'} not {verb.en}"
    return en, negated_or_not(verb.present[person], "", "pas" if negated else "")


def agreed_participle(participle: str, phrase: Phrase) -> str:
    return participle + ("e" if phrase.gender == "f" else "") + ("s" if phrase.plural else "")


def passive(verb: Verb, subject: Phrase, in_future: bool, negated: bool) -> Pair:
    """Write "was signed" or "will be signed" as "a été signé" or "sera signé", which agree."""
    participle = agreed_participle(verb.participle, subject)
    pas = "pas" if negated else ""
    if in_future:
        finite = "seront" if subject.plural else "sera"
        en = f"will {'not ' if negated else ''}be {verb.en_past}"
        return en, negated_or_not(finite, participle, pas)
    en = f"{'were' if subject.plural else 'was'} {'not ' if negated else ''}{verb.en_past}"
    return en, negated_or_not(AVOIR[subject.person], f"été {participle}", pas)


def date(rng: Random, first_year: int = 1985, last_year: int = 2004) -> Pair:
    """A date with its preposition: a month, a year or a day of a month and year."""
    year = rng.randint(first_year, last_year)
    month_en, month_fr = rng.choice(words.MONTHS)
    shape = rng.random()
    if shape < 0.55:
        return f"in {month_en} {year}", f"en {month_fr} {year}"
    if shape < 0.75:
        return f"in {year}", f"en {year}"
    day = rng.randint(1, 28 if month_en == "February" else 30)
    return f"on {day} {month_en} {year}", f"le {'1er' if day == 1 else day} {month_fr} {year}"


def date_or_limit(rng: Random) -> Pair:
    """A date in the past, or the month before or after which something came to be."""
    en, fr = date(rng)
    if en.startswith("in ") and rng.random() < 0.15:
        limit_en, limit_fr = rng.choice((("before", "avant"), ("after", "après")))
        return limit_en + en.removeprefix("in"), limit_fr + fr.removeprefix("en")
    return en, fr


def past_time(rng: Random) -> Pair:
    if rng.random() < 0.35:
        return date(rng)
    return rng.choice(
        (
            ("yesterday", "hier"),
            ("last week", "la semaine dernière"),
            ("last month", "le mois dernier"),
            ("last year", "l'année dernière"),
            ("this morning", "ce matin"),
            *((f"on {en}", fr) for en, fr in words.WEEKDAYS),
        )
    )


def future_time(rng: Random) -> Pair:
    if rng.random() < 0.25:
        return date(rng, 2030, 2036)
    return rng.choice(
        (
            ("tomorrow", "demain"),
            ("next week", "la semaine prochaine"),
            ("next month", "le mois prochain"),
            ("next year", "l'année prochaine"),
            *((f"on {en}", fr) for en, fr in words.WEEKDAYS),
        )
    )


def repeated_time(rng: Random) -> Pair:
    return rng.choice(
        (
            ("every day", "chaque jour"),
            ("every morning", "chaque matin"),
            ("every week", "chaque semaine"),
            *((f"every {en}", f"chaque {fr}") for en, fr in words.WEEKDAYS),
        )
    )
