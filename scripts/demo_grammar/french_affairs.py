"""Public affairs in the English-French grammar: treaties, laws, policies and who decides them."""

from random import Random

from demo_grammar import french_words as words
from demo_grammar.french_phrases import (
    THE,
    THE_PLURAL,
    THIRD,
    THIRD_PLURAL,
    Phrase,
    date,
    date_or_limit,
    described,
    future,
    future_time,
    joined,
    noun_phrase,
    passive,
    past,
)
from demo_grammar.french_states import being
from demo_grammar.french_words import VERBS, Adjective, Noun
from demo_grammar.splits import Pair

EEA = ("the European Economic Area", "la zone économique européenne")
# Other names of the same build: what crosses must be looked up word by word, not learnt as one.
ALLIANCES = (
    Noun("Area", "Areas", "zone", "zones", "f"),
    Noun("Community", "Communities", "Communauté", "Communautés", "f"),
    Noun("Conference", "Conferences", "Conférence", "Conférences", "f"),
    Noun("Federation", "Federations", "Fédération", "Fédérations", "f"),
)
REGIONS = (
    words.NATIONALITIES["European"],
    words.NATIONALITIES["American"],
    Adjective("African", ("africain", "africaine", "africains", "africaines")),
    Adjective("Asian", ("asiatique", "asiatique", "asiatiques", "asiatiques")),
)
CONCERNS = tuple(
    words.RELATIONAL[name]._replace(en=name.capitalize())
    for name in ("economic", "monetary", "cultural", "scientific", "agricultural", "financial")
)
GOVERNMENT = Noun("government", "governments", "gouvernement", "gouvernements", "m")
JUDGEMENTS = tuple(
    words.QUALITIES[name] for name in ("important", "useful", "necessary", "clear", "difficult")
)
DOCUMENT_VERBS = {
    "agreement": ("sign", "publish", "approve", "reject"),
    "treaty": ("sign", "publish", "approve", "reject"),
    "convention": ("sign", "adopt", "approve", "reject"),
    "declaration": ("sign", "publish", "adopt", "approve"),
    "report": ("publish", "approve", "reject", "prepare", "study"),
    "law": ("publish", "adopt", "approve", "reject", "prepare", "study"),
    "decision": ("publish", "approve", "adopt", "prepare"),
}
MEASURE_KINDS = {
    "policy": ("economic", "social", "agricultural", "commercial", "monetary", "cultural"),
    "crisis": ("economic", "political", "social", "financial", "monetary"),
    "system": ("political", "monetary", "financial", "social"),
    "programme": ("economic", "political", "social", "cultural", "scientific"),
    "reform": ("economic", "political", "social", "agricultural", "monetary"),
    "project": ("cultural", "scientific", "industrial", "agricultural"),
    "market": ("agricultural", "financial"),
    "institute": ("scientific", "cultural"),
    "area": ("economic", "industrial", "commercial"),
    "sector": ("agricultural", "industrial", "financial"),
}
SUPPORTED = ("policy", "programme", "reform", "project")
SUPPORT_VERBS = ("support", "finance", "study", "approve", "reject", "prepare")


def _alliance(rng: Random) -> Phrase:
    """The European Economic Area, more often than not, or another name of that build."""
    if rng.random() < 0.56:
        return Phrase(*EEA, "f", THIRD)
    adjectives = (rng.choice(REGIONS), rng.choice(CONCERNS))
    return noun_phrase(rng.choice(ALLIANCES), THE, adjectives=adjectives)


def _document(rng: Random, noun: Noun) -> Phrase:
    """A document, mostly with what it is about; every second one of those: an alliance."""
    plural = rng.random() < 0.2
    if plural:
        determiner = rng.choice((THE_PLURAL, THE_PLURAL, ("these", "ces", "ces")))
    else:
        determiner = rng.choice((THE, THE, ("this", "ce", "cette")))
    phrase = described(rng, noun, determiner, plural)
    if rng.random() < 0.25:
        return phrase
    en, fr = _alliance(rng)[:2] if rng.random() < 0.55 else rng.choice(words.TOPICS)
    return phrase._replace(en=f"{phrase.en} on {en}", fr=f"{phrase.fr} sur {fr}")


def _body(rng: Random) -> Phrase:
    """Who signs and decides: an institution, a government, one country or two."""
    kind = rng.random()
    if kind < 0.3:
        en, fr = rng.choice(words.BODIES)
        return Phrase(en, fr, "", THIRD)
    if kind < 0.55:
        nationalities = [n for n in words.NATIONALITIES.values() if n.en != "European"]
        return noun_phrase(GOVERNMENT, THE, adjectives=(rng.choice(nationalities),))
    if kind < 0.65:
        en, fr = _alliance(rng)[:2]
        return Phrase(f"the countries of {en}", f"les pays de {fr}", "m", THIRD_PLURAL)
    first, second = rng.sample(words.COUNTRIES, 2)
    if kind < 0.8:
        return Phrase(first.en, first.fr, "", THIRD_PLURAL if first.plural else THIRD)
    return Phrase(f"{first.en} and {second.en}", f"{first.fr} et {second.fr}", "", THIRD_PLURAL)


def _measure(rng: Random, names: tuple[str, ...] = tuple(MEASURE_KINDS)) -> Phrase:
    """Write "the new German economic policy": two adjectives cross, the closer staying closer."""
    name = rng.choice(names)
    noun = next(noun for noun in words.MEASURES if noun.en == name)
    adjectives: tuple[Adjective, ...] = (words.RELATIONAL[rng.choice(MEASURE_KINDS[name])],)
    if rng.random() < 0.8:
        adjectives = (rng.choice(tuple(words.NATIONALITIES.values())), *adjectives)
    if rng.random() < 0.25:
        adjectives = (words.BEFORE["new"], *adjectives)
    plural = rng.random() < 0.2
    return noun_phrase(noun, THE_PLURAL if plural else THE, plural, adjectives)


def enactment(rng: Random) -> Pair:
    """A document is signed, by somebody or somewhere or neither, at a date."""
    noun = rng.choice(words.DOCUMENTS)
    name, subject = rng.choice(DOCUMENT_VERBS[noun.en]), _document(rng, noun)
    in_future, negated = rng.random() < 0.2, rng.random() < 0.15
    when = future_time(rng) if in_future else (date if negated else date_or_limit)(rng)
    action = passive(VERBS[name], subject, in_future, negated)
    if rng.random() < 0.3:
        body = _body(rng)
        return joined(subject, action, (f"by {body.en}", f"par {body.fr}"), when)
    if name == "sign" and rng.random() < 0.5:
        en, fr = rng.choice(words.CITIES)
        return joined(subject, action, (f"in {en}", f"à {fr}"), when)
    return joined(subject, action, when)


def act(rng: Random) -> Pair:
    """Somebody signs, publishes or rejects a document at a date."""
    noun, body = rng.choice(words.DOCUMENTS), _body(rng)
    verb = VERBS[rng.choice(DOCUMENT_VERBS[noun.en])]
    negated = rng.random() < 0.2
    past_dates = date if negated else date_or_limit
    tense, time = rng.choice(((past, past_dates), (past, past_dates), (future, future_time)))
    return joined(body, tense(verb, body.person, negated), _document(rng, noun), time(rng))


def support(rng: Random) -> Pair:
    """Somebody supports, finances or rejects a policy at a date."""
    body, verb = _body(rng), VERBS[rng.choice(SUPPORT_VERBS)]
    tense, time = rng.choice(((past, date), (future, future_time)))
    action = tense(verb, body.person, rng.random() < 0.2)
    return joined(body, action, _measure(rng, SUPPORTED), time(rng))


def judgement(rng: Random) -> Pair:
    """What a document, a policy or the European Economic Area is like, and for whom."""
    kind = rng.random()
    if kind < 0.2:
        subject, adjectives = _alliance(rng), JUDGEMENTS[:2]
    elif kind < 0.5:
        subject, adjectives = _document(rng, rng.choice(words.DOCUMENTS)), JUDGEMENTS
    else:
        subject, adjectives = _measure(rng), JUDGEMENTS[:1]
    clause = being(rng, subject, rng.choice(adjectives))
    if rng.random() < 0.5:
        country = rng.choice(words.COUNTRIES)
        return joined(clause, (f"for {country.en}", f"pour {country.fr}"))
    return clause


def statement(rng: Random) -> Pair:
    """Somebody said or announced that ..."""
    body = _body(rng)
    en, participle, family = rng.choice(
        (("said", "dit", judgement), ("announced", "annoncé", enactment))
    )
    finite = "ont" if body.plural else "a"
    return joined(body, (f"{en} that", f"{finite} {participle} que"), family(rng))
