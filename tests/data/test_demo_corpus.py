import re
import string
import subprocess
import sys
import unicodedata
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from make_demo_corpus import french_corpus, french_lengths, marathi_corpus

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_demo_corpus.py"

Pair = tuple[str, str]
Splits = dict[str, list[Pair]]

PUNCTUATION = str.maketrans("", "", string.punctuation)


def by_word(rows: dict[str, str]) -> dict[str, str]:
    return {word: form for form, row in rows.items() for word in row.split()}


# Spelled out by hand, apart from the lexicon that wrote the corpus: (gender, number) of each form.
NOUNS = by_word(
    {
        "ms": (
            "livre sac chien chat château hôtel accord traité rapport arbre oiseau "
            "homme acteur jardin musée gouvernement programme système projet marché "
            "manteau ordinateur"
        ),
        "fs": (
            "voiture maison église école porte fenêtre lettre histoire loi décision "
            "déclaration convention zone réforme crise femme reine actrice robe "
            "pomme fleur bibliothèque"
        ),
        "mp": (
            "livres sacs chiens chats châteaux hôtels accords traités arbres "
            "oiseaux hommes acteurs jardins chevaux projets"
        ),
        "fp": (
            "voitures maisons églises portes lettres histoires lois femmes reines "
            "robes pommes fleurs réformes conventions"
        ),
    }
)
ADJECTIVES = by_word(
    {
        "ms": (
            "petit grand bon beau bel nouveau nouvel vieux vieil long vert blanc "
            "noir européen allemand italien social intéressant"
        ),
        "fs": (
            "petite grande bonne belle nouvelle vieille longue verte blanche noire "
            "européenne allemande italienne sociale intéressante grecque "
            "internationale"
        ),
        "mp": (
            "petits grands bons beaux nouveaux longs verts blancs noirs européens "
            "allemands italiens sociaux intéressants internationaux"
        ),
        "fp": (
            "petites grandes bonnes belles nouvelles vieilles longues vertes "
            "blanches noires européennes allemandes italiennes intéressantes "
            "grecques"
        ),
    }
)
DETERMINERS = by_word(
    {
        "ms": "le un ce cet du au",
        "fs": "la une cette ma",
        "s": "mon notre",
        "p": "les des ces mes nos aux plusieurs deux trois dix",
    }
)
VOWELS = "aàâeéèêiîoôuhœ"
VOWELLED = [noun for noun, form in NOUNS.items() if form == "ms" and noun[0] in VOWELS]

MONTHS = dict(
    line.split()
    for line in (
        "January janvier",
        "February février",
        "March mars",
        "April avril",
        "May mai",
        "June juin",
        "July juillet",
        "August août",
        "September septembre",
        "October octobre",
        "November novembre",
        "December décembre",
    )
)

MARATHI_GENDERS = by_word(
    {
        "m": "मुलगा माणूस घोडा कुत्रा आंबा चहा भात पाव रस्ता धडा",
        "f": "मुलगी बाई गोष्ट खोली खुर्ची पिशवी गाडी नदी बाग कॉफी मैत्रीण",
        "n": "पुस्तक पत्र चित्र घर झाड फूल सफरचंद दूध पाणी उत्तर गाणे",
    }
)
MARATHI_ADJECTIVES = by_word(
    {
        "m": "चांगला मोठा जुना सोपा पांढरा काळा पिवळा हिरवा",
        "f": "चांगली मोठी जुनी सोपी पांढरी काळी पिवळी हिरवी",
        "n": "चांगले मोठे जुने सोपे पांढरे काळे पिवळे हिरवे",
    }
)
MARATHI_NAMES = by_word(
    {"तो": "राहुल अमित सचिन विजय अनिल गणेश", "ते": "सीता मीना आशा प्रिया कविता गौरी"}
)
VERB_ENDINGS = ("आहे", "आहेत", "नाही", "नाहीत", "तो", "ते", "तात", "ला", "ली", "ले", "ल्या")
WAS = ("होता", "होती", "होते", "होत्या", "नव्हता", "नव्हती", "नव्हते", "नव्हत्या")


@pytest.fixture(scope="module")
def french() -> Splits:
    return french_corpus(1)


@pytest.fixture(scope="module")
def marathi() -> Splits:
    return marathi_corpus(1)


def every_pair(splits: Splits) -> list[Pair]:
    return [pair for pairs in splits.values() for pair in pairs]


def words(text: str) -> list[str]:
    """Words in lower case, without punctuation, "l'accord" as two."""
    return re.findall(r"[^\s.,']+", text.lower())


def clauses(text: str) -> list[str]:
    """The parts between conjunctions, without the full stop."""
    return re.split(r",? (?:आणि|पण) ", text.removesuffix("."))


def test_the_seed_alone_decides(french, marathi):
    assert french_corpus(1) == french
    assert marathi_corpus(1) == marathi
    assert marathi_corpus(2) != marathi
    assert french_corpus(2) != french


@pytest.mark.parametrize("name", ["french", "marathi"])
def test_no_sentence_occurs_twice_on_either_side(name, request):
    pairs = every_pair(request.getfixturevalue(name))
    for side in range(2):
        plain = [pair[side].lower().translate(PUNCTUATION) for pair in pairs]
        assert len(set(plain)) == len(plain)


@pytest.mark.parametrize("name", ["french", "marathi"])
def test_form_of_every_line(name, request):
    for pair in every_pair(request.getfixturevalue(name)):
        for text in pair:
            assert 3 <= len(text.split()) <= 30, text
            assert text == " ".join(text.split()), text
            assert text == unicodedata.normalize("NFC", text), text
            assert not re.search(" [.,]", text), text
            assert text[0] == text[0].upper(), text
        assert pair[0].endswith(".") == pair[1].endswith("."), pair
        assert pair[0].count(",") == pair[1].count(","), pair


def test_french_sizes(french):
    assert {name: len(pairs) for name, pairs in french.items()} == {
        "train": 9200,
        "valid": 300,
        "test": 500,
    }
    lengths = {len(fr.split()) for _, fr in french["train"]}
    assert lengths == set(range(3, 31))


def test_english_article_suits_the_next_word(french, marathi):
    for en, _ in every_pair(french) + every_pair(marathi):
        assert not re.search(r"\b[Aa] (?:[aio]|e(?!uro)|honest|umbrella)", en), en
        assert not re.search(r"\b[Aa]n (?![aeiou]|A|I|honest)", en), en


def test_french_elides_and_contracts_everywhere(french):
    for _, fr in every_pair(french):
        text = fr.lower()
        assert not re.search(rf"\b(?:le|la|de|ne|que|je|ma|ce) [{VOWELS}]", text), fr
        assert not re.search(r"\b(?:de|à) les?\b", text), fr
        assert not re.search(rf"'(?![{VOWELS}y])", text.replace("aujourd'hui", "")), fr
        assert not re.search(rf"\b(?:bel|nouvel|vieil|cet) (?![{VOWELS}])", text), fr
        assert not re.search(rf"\b(?:beau|nouveau|vieux) (?:{'|'.join(VOWELLED)})\b", text), fr


def test_french_noun_phrases_agree(french):
    checked = 0
    for _, fr in every_pair(french):
        text = words(fr)
        for place, word in enumerate(text):
            if word not in NOUNS:
                continue
            start = place - 1
            while start >= 0 and text[start] in ADJECTIVES:
                start -= 1
            end = place + 1
            while end < len(text) and text[end] in ADJECTIVES:
                end += 1
            for adjective in (*text[start + 1 : place], *text[place + 1 : end]):
                invariable = adjective == "vieux" and NOUNS[word] == "mp"
                assert ADJECTIVES[adjective] == NOUNS[word] or invariable, (fr, adjective)
                checked += 1
            determiner = DETERMINERS.get(text[start], "")
            assert set(determiner) <= set(NOUNS[word]), fr
            checked += bool(determiner)
    assert checked > 10_000


def test_french_passive_agrees_with_its_document(french):
    endings = {
        "accord|traité|rapport": "[éu]",
        "loi|décision|déclaration|convention": "[éu]e",
        "accords|traités|rapports": "[éu]s",
        "lois|décisions|déclarations|conventions": "[éu]es",
    }
    for nouns, ending in endings.items():
        document = rf"(?:L'|(?:Les?|La|Ce[ts]?|Cette) (?:nouv\w+ )?)(?:{nouns})"
        about = r"(?: internation\w+)?(?: sur (?:(?! a | ont | est | sera| n| et |,).)*)?"
        passive = r"(?: n'a pas| n'ont pas| a| ont) été (\w+)"
        found = [re.match(document + about + passive, fr) for _, fr in french["train"]]
        participles = [match.group(1) for match in found if match]
        assert len(participles) > 20, nouns
        assert all(re.fullmatch(rf"\w+{ending}", participle) for participle in participles)


def test_french_verb_stands_within_its_negation(french):
    for en, fr in every_pair(french):
        negations = len(re.findall(r"\b(?:not|never|no)\b", en))
        assert len(re.findall(r"\b(?:ne |n')", fr.lower())) == negations, fr
        assert len(re.findall(r"\b(?:pas|jamais)\b", fr)) == negations
        assert not re.search(r"\b(?:pas|jamais) (?:un|une|des|du)\b", fr), fr


def test_european_economic_area_is_frequent_and_crosses(french):
    area = [(en, fr) for en, fr in french["train"] if "European Economic Area" in en]
    assert len(area) > 700
    assert all("zone économique européenne" in fr for _, fr in area)
    before = {en.split(" the European Economic Area")[0] for en, _ in area}
    assert len(before) > 200
    names = re.compile(
        r"(?:European|American|African|Asian) \w+ (?:Area|Community|Conference|Federation)"
    )
    others = {name for en, _ in french["train"] for name in names.findall(en)}
    assert len(others) > 60  # so that each word must be looked up by itself
    mirrored = re.compile(r"(?:économique|monétaire|culturelle|sociale) (?:française|allemande)\b")
    assert sum(bool(mirrored.search(fr)) for _, fr in french["train"]) > 20


def test_dates_cross_over(french):
    for en, fr in every_pair(french):
        for month, year in re.findall(r"\bin ([A-Z]\w+) (\d{4})", en):
            assert f"en {MONTHS[month]} {year}" in fr
        for day, month, year in re.findall(r"\bon (\d+) ([A-Z]\w+) (\d{4})", en):
            assert f"le {'1er' if day == '1' else day} {MONTHS[month]} {year}" in fr
    assert any("in August 1992" in en for en, _ in french["train"])


def test_the_french_example_is_kept_out(french):
    for en, _ in every_pair(french):
        assert "agreement on the European Economic Area was signed in August 1992" not in en


def test_rahul_is_a_good_boy_is_in_no_pair_but_its_parts_are(marathi):
    for en, mr in every_pair(marathi):
        assert "rahul is a good boy" not in en.lower()
        assert "राहुल चांगला मुलगा" not in mr
    train = [en for en, _ in marathi["train"]]
    assert sum("is a good boy" in en for en in train) >= 10
    assert sum(bool(re.search(r"Rahul is a good \w+", en)) for en in train) >= 5
    assert sum(bool(re.search(r"Rahul is an? \w+ boy", en)) for en in train) >= 5
    assert sum(en.startswith("Rahul") for en in train) >= 100


def test_half_of_marathi_ends_in_a_full_stop(marathi):
    stops = [en.endswith(".") for en, _ in marathi["train"]]
    assert 0.45 < sum(stops) / len(stops) < 0.55


def test_marathi_is_written_in_devanagari_and_its_verb_stands_last(marathi):
    for _, mr in every_pair(marathi):
        assert re.fullmatch(r"[\u0900-\u094d ,]+\.?", mr), mr
        assert mr.removesuffix(".").endswith((*VERB_ENDINGS, *WAS)), mr


def test_marathi_adjectives_agree(marathi):
    checked = 0
    for _, mr in every_pair(marathi):
        text = mr.removesuffix(".").split()
        for adjective, noun in pairwise(text):
            if adjective in MARATHI_ADJECTIVES and noun in MARATHI_GENDERS:
                assert MARATHI_ADJECTIVES[adjective] == MARATHI_GENDERS[noun], mr
                checked += 1
    assert checked > 250


def test_marathi_past_agrees_with_what_was_done(marathi):
    endings = {"m": "ला", "f": "ली", "n": "ले"}
    agents = {f"{name}ने" for name in MARATHI_NAMES} | {"त्याने", "तिने"}
    checked = 0
    for _, mr in every_pair(marathi):
        for clause in clauses(mr):
            agent, *rest = clause.removesuffix(" नाही").split()
            noun = next((word for word in rest if word in MARATHI_GENDERS), "")
            if agent in agents and noun:
                assert rest[-1].endswith(endings[MARATHI_GENDERS[noun]]), mr
                checked += 1
    assert checked > 100


def test_marathi_present_agrees_with_who_acts(marathi):
    checked = 0
    for en, mr in every_pair(marathi):
        if " and " in en:
            continue
        for clause in clauses(mr):
            subject, *_, verb = clause.split()
            if subject in MARATHI_NAMES and verb not in WAS and verb.endswith(("तो", "ते", "तात")):
                assert verb.endswith(MARATHI_NAMES[subject]), mr
                checked += 1
    assert checked > 100


def test_lengths_are_learnt_short_and_tested_alike():
    splits = french_lengths(1)
    counts = {
        name: Counter((len(src.split()) - 1) // 5 for src, _ in pairs)
        for name, pairs in splits.items()
    }
    assert counts["train"].keys() == counts["valid"].keys() == {0, 1, 2}
    assert counts["test"] == dict.fromkeys(range(7), 100)
    for side in zip(*every_pair(splits), strict=True):
        assert len(set(side)) == len(side)
    joined = [src for src, _ in splits["train"] if re.search(",? (?:and|but) ", src)]
    assert len(joined) > 1000  # what makes test sentences long is seen in training


def test_script_writes_the_same_bytes_every_time(tmp_path):
    for folder in ("first", "second"):
        call = [sys.executable, SCRIPT, "--output", tmp_path / folder]
        done = subprocess.run(call, capture_output=True, text=True, check=True, encoding="utf-8")
        assert len(done.stdout.splitlines()) == 3
    written = sorted(path for path in (tmp_path / "first").rglob("*") if path.is_file())
    names = {str(path.relative_to(tmp_path / "first").as_posix()) for path in written}
    assert names == {
        f"{folder}/{split}.{lang}"
        for folder, tgt_lang in (("demo", "fr"), ("demo-lengths", "fr"), ("demo-en-mr", "mr"))
        for split in ("train", "valid", "test")
        for lang in ("en", tgt_lang)
    }
    for path in written:
        content = path.read_bytes()
        assert content == (tmp_path / "second" / path.relative_to(tmp_path / "first")).read_bytes()
        assert b"\r" not in content
        assert content.endswith(b"\n")
