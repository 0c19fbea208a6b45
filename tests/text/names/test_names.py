"""Names in a toy language pair: mining, detection, masking, transliteration, restoring, storage."""

import random
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest
from cases.tiers import one_quick
from cases.toy_names import name_pairs, some_names, spelled

from seq2seq.config.errors import ConfigError
from seq2seq.config.schema import VocabularyConfig, load_config
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import (
    NAME_IDS,
    checksums_of,
    load_vocabularies,
    save_vocabularies,
)
from seq2seq.runtime.errors import UserError
from seq2seq.text.names.mining import NameMiner
from seq2seq.text.names.names import Masked, Names, learn_names
from seq2seq.text.names.native_speller import NativeSpeller, NgramModel
from seq2seq.text.names.sounds import SoundModel, units_of
from seq2seq.text.names.speller import Speller
from seq2seq.text.names.words import PLACEHOLDERS, placeholders_in, source_words

NAMES = some_names(150, seed=1)
KNOWN = NAMES[:120]
UNKNOWN = NAMES[120:]
PAIRS = name_pairs(KNOWN, 900, seed=2)
SRC = [pair.src for pair in PAIRS]
TGT = [pair.tgt for pair in PAIRS]
A, B, C = PLACEHOLDERS[:3]


@pytest.fixture(scope="module")
def names() -> Names:
    return learn_names(SRC, TGT)


def texts(masked: list[Masked]) -> list[str]:
    return [part.text for part in masked]


# ----------------------------------------------------------------------------------------- mining


def test_mining_finds_names_and_removes_their_endings() -> None:
    occurring = {name: stem for pair in PAIRS for name, stem in pair.names.items()}
    stems = {name: pair.stem for name, pair in NameMiner(SRC, TGT).mine().items()}
    assert stems.keys() <= occurring.keys()  # no common words
    right = sum(stems.get(name) == stem for name, stem in occurring.items())
    assert right >= 0.95 * len(occurring)


def test_mining_finds_loan_words() -> None:
    """They show the sounds of letters that no name has, and are no names themselves."""
    loans = {"sodi": "सोदि", "dasu": "दासु", "kasida": "कासिदा", "sosi": "सोसि"}
    lines = [
        (f"see the big {loan} today", f"थघ {text}{ending} घठछ ठथ")
        for loan, text in loans.items()
        for ending in ("", "", "ला")
    ]
    src = [*SRC, *(line[0] for line in lines)]
    tgt = [*TGT, *(line[1] for line in lines)]
    content = learn_names(src, tgt).content
    assert content["loans"] == loans
    assert content["names"].keys().isdisjoint(map(str.capitalize, loans))
    pairs = [(name.lower(), stem) for name, (stem, _) in content["names"].items()]
    assert not Speller(pairs, content["words"]).as_foreign("dosa")
    speller = Speller(pairs, content["words"], loans=[*loans.items()])
    assert next(iter(speller.as_foreign("dosa"))) == "दोसा"


def test_text_without_names_is_refused() -> None:
    with pytest.raises(UserError, match=r"vocabulary\.names: found 0 names"):
        learn_names(["the house sleeps", "see the tree"] * 20, ["झडढ ढघफ", "शछढ घठछ"] * 20)


def test_symbols_are_not_learned(names: Names) -> None:
    symbol = KNOWN[0]
    assert symbol in names.pairs
    content = learn_names(SRC, TGT, [symbol]).content
    assert symbol not in {*content["names"], *content["capitalised"]}


def test_words_have_no_possessive() -> None:
    words = {
        word.text: word for word in source_words("Anna's dog (Rex) ran. O'Neil's? Yes, Jean-Luc!")
    }
    assert [*words] == ["Anna", "dog", "Rex", "ran", "O'Neil", "Yes", "Jean-Luc"]
    assert [word for word, info in words.items() if info.initial] == ["Anna", "O'Neil", "Yes"]


# -------------------------------------------------------------------------------------- detection


@pytest.mark.parametrize("name", UNKNOWN[:10])
def test_unknown_names_are_found(names: Names, name: str) -> None:
    other_name = UNKNOWN[-1]
    for line, expected in {
        f"The house of {name} sleeps.": [f"The house of {A} sleeps."],
        f"{name} walks today.": [f"{A} walks today."],
        f"{name}'s house sleeps": [f"{A}'s house sleeps"],
        f"The tree sleeps. {name} walks today.": [f"The tree sleeps. {A} walks today."],
        f"See {name}, {other_name} and {KNOWN[0]}.": [f"See {A}, {B} and {C}."],
        f"The house of {name} {other_name} sleeps.": [f"The house of {A} sleeps."],
    }.items():
        assert texts(names.mask(line)) == expected


def test_common_words_are_not_names(names: Names) -> None:
    for line in (
        "House sleeps today.",
        "Water! The tree walks. Big house.",
        "THE HOUSE SLEEPS TODAY.",
        "Sleeps!",
        "the house",
        "",
        "I see. A tree.",
        "12 x {} \u200b",
    ):
        assert texts(names.mask(line)) == [line]


@pytest.mark.parametrize("name", UNKNOWN[:3])
@pytest.mark.parametrize(
    ("text_before", "text_after"),
    [
        *(("Mr. ", " sleeps."), ("Mr ", " sleeps."), ("The house of Prof. ", " sleeps.")),
        *(("Captain ", " walks."), ("Hello, ", "!"), ("Yes, ", " walks."), ("Dear ", ", walks.")),
        *(("Good day, ", "."), ("Sir, ", " walks."), ("Se\u00f1ora ", " walks.")),
        *(("Uncle ", "'s house sleeps."), ("The tree sleeps. Oh, ", " walks.")),
    ],
)
def test_titles_and_greetings_are_words(
    names: Names, name: str, text_before: str, text_after: str
) -> None:
    assert texts(names.mask(f"{text_before}{name}{text_after}")) == [
        f"{text_before}{A}{text_after}"
    ]


def test_titles_alone_are_names_where_names_are(names: Names) -> None:
    """A surname such as King is none of a title."""
    assert texts(names.mask("The house of King sleeps.")) == [f"The house of {A} sleeps."]
    assert texts(names.mask("The house of Hello sleeps.")) == [f"The house of {A} sleeps."]


@pytest.mark.parametrize("name", UNKNOWN[:10])
def test_unknown_words_are_names_alone_in_capitals_or_after_a_title(
    names: Names, name: str
) -> None:
    for line in ("{}", "{}.", "{}!", '"{}?"', "The house of Dr. {} sleeps.", "Dr. {} walks today."):
        (masked,) = names.mask(line.format(name))
        assert name in masked.names.values()
    for line in ("THE HOUSE OF {} SLEEPS.", "{}", "{}!"):
        (masked,) = names.mask(line.format(name.upper()))
        assert masked.text == line.format(A)
        assert names.restore(A, masked) == name.upper()
    (masked,) = names.mask(f"THE HOUSE OF {KNOWN[0].upper()} SLEEPS.")
    assert names.restore(A, masked) == spelled(KNOWN[0])


def test_initials_belong_to_a_name(names: Names) -> None:
    name, other_name = UNKNOWN[:2]
    for line, expected in {
        f"B. K. {name} sleeps.": f"B. K. {name}",
        f"The house of K. {name} sleeps.": f"K. {name}",
        f"{name} K. {other_name} sleeps.": f"{name} K. {other_name}",
        f"The house sleeps, k. {name} walks today.": name,
    }.items():
        (masked,) = names.mask(line)
        assert list(masked.names.values()) == [expected]
        assert masked.written == line
        assert ("K. " in names.restore(A, masked)) == ("K. " in line)
    capitalised = {**names.content["capitalised"], "I": 100}
    common = Names({**names.content, "capitalised": capitalised})
    assert texts(common.mask(f"See I. {name} sleeps.")) == [f"See I. {A} sleeps."]
    assert texts(common.mask(f"I. {name} sleeps.")) == [f"{A} sleeps."]


def test_a_title_does_not_end_a_sentence() -> None:
    def initial(line: str) -> list[str]:
        return [word.text for word in source_words(line) if word.initial]

    assert initial("Dr. Bell met Mr. Xu on Mt. Fuji.") == ["Dr"]
    assert initial("J. K. Rowling met A.K. Sen.") == ["J"]
    assert initial("It was pm. Tom came. Why? No... Yes") == ["It", "Tom", "Why", "No", "Yes"]


# ---------------------------------------------------------------------------------------- masking


def test_both_sides_of_a_pair_are_masked_alike(names: Names) -> None:
    masked = 0
    for pair in PAIRS:
        src, tgt = names.mask_pair(pair.src, pair.tgt)
        assert (src, tgt) == Names(names.content).mask_pair(pair.src, pair.tgt)
        assert sorted(placeholders_in(src)) == sorted(placeholders_in(tgt))
        assert len(set(placeholders_in(src))) == len(placeholders_in(src))
        order = sorted(pair.names, key=pair.src.index)
        restored = src
        for mark, name in zip(placeholders_in(src), order, strict=False):
            restored = restored.replace(mark, name)
            tgt = tgt.replace(mark, pair.names[name])
        assert (restored, tgt) == (pair.src, pair.tgt)
        masked += bool(placeholders_in(src))
    assert masked >= 0.9 * sum(bool(pair.names) for pair in PAIRS)


def test_a_name_that_occurs_twice_has_two_places(names: Names) -> None:
    for name in KNOWN[:20]:
        written_src = f"{name} and {name} see the water."
        written_tgt = f"{spelled(name)}ला {spelled(name)} फठ घठछ."
        src, tgt = names.mask_pair(written_src, written_tgt)
        marks = placeholders_in(src)
        assert len(set(marks)) == 2
        assert sorted(placeholders_in(tgt)) == sorted(marks)
        for mark in marks:
            src = src.replace(mark, name)
            tgt = tgt.replace(mark, spelled(name))
        assert (src, tgt) == (written_src, written_tgt)


def test_a_name_missing_on_one_side_is_not_masked(names: Names) -> None:
    name, other_name = KNOWN[:2]
    assert names.mask_pair(f"{name} sleeps.", "ढघफ.") == (f"{name} sleeps.", "ढघफ.")
    src, tgt = names.mask_pair(f"{name} and {other_name} sleep.", f"{spelled(other_name)}ला ढघफ.")
    mark = placeholders_in(src)[0]
    assert (src, tgt) == (f"{name} and {mark} sleep.", f"{mark}ला ढघफ.")


def test_placeholder_characters_in_the_text_are_not_names(names: Names) -> None:
    assert texts(names.mask(f"The {A} sleeps.")) == ["The \ufffd sleeps."]
    assert names.mask_pair(f"a {B}", f"{C} b") == ("a \ufffd", "\ufffd b")


def test_many_names_are_masked_in_parts(names: Names) -> None:
    line = "See " + ", ".join(UNKNOWN[:20]) + "."
    parts = names.mask(line)
    assert len(parts) == 3
    assert [name for part in parts for name in part.names.values()] == UNKNOWN[:20]
    text = " ".join(parts_text(part) for part in parts)
    assert text == line


def parts_text(part: Masked) -> str:
    text = part.text
    for mark, name in part.names.items():
        text = text.replace(mark, name)
    return text


# -------------------------------------------------------------------------------- transliteration


def test_unknown_names_are_transliterated_by_sound(names: Names) -> None:
    right = sum(names.spelling(name) == spelled(name) for name in UNKNOWN)
    assert right >= 0.8 * len(UNKNOWN)
    assert names.spelling(" ".join(KNOWN[:2])) == " ".join(map(spelled, KNOWN[:2]))


def test_vowel_signs_follow_letters() -> None:
    """No transliteration starts with a vowel sign, or has one after a virama or another sign."""
    speller = Speller([("kta", "क्ता"), ("ma", "म"), ("ra", "रा")], ["क्त", "ता", "ित"])
    for name in ("kta", "ka", "ata", "a", "ktra", "aa", "raa", "maraa"):
        for spellings in (speller.as_foreign(name), speller.native.spellings(name)):
            for text in spellings:
                signs = [
                    n for n, character in enumerate(text) if unicodedata.category(character) == "Mc"
                ]
                assert all(n and unicodedata.category(text[n - 1]) == "Lo" for n in signs)


def test_names_that_cannot_be_transliterated_are_copied(names: Names) -> None:
    for word in ("NASA", "Ωμέγα", "Zażółć"):
        assert names.spelling(word) == word


def test_restoring_keeps_endings_and_adds_the_source_form_if_uncertain(names: Names) -> None:
    name = KNOWN[0]
    unknown = "Kanora"
    names = Names(names.content)
    names.__dict__["_speller"] = SimpleNamespace(spell=lambda _: ("कानोरा", False))
    masked = {A: name, B: unknown}
    text = names.restore(f"{A}ला घठछ{B}चा.", Masked("", masked))
    assert text == f"{spelled(name)}ला घठछ कानोराचा (Kanora)."
    source, target = names.mask_translation(f"{name} and {unknown} sleep.", text)
    assert (source.text, source.names) == (f"{A} and {B} sleep.", masked)
    assert target == f"{A}ला घठछ {B}चा."
    assert names.mask_target(text, masked) == target


def test_names_are_copied_between_languages_that_spell_them_alike() -> None:
    copying_names = learn_names(SRC, [f"Das {' '.join(pair.names)} xq." for pair in PAIRS])
    assert copying_names.copies
    assert "loans" not in copying_names.content
    assert copying_names.spelling("Zażółć") == "Zażółć"


def test_alignment_uses_each_letter_once() -> None:
    sounds = SoundModel()
    for name in NAMES:
        links = sounds.align(name.lower(), units_of(spelled(name)))
        assert links is not None
        assert "".join(link.chunk for link in links) == name.lower()
        assert "".join(link.unit for link in links) == spelled(name)
    assert sounds.align("longer", units_of("क")) is None


def test_ngram_probabilities_sum_to_one() -> None:
    generator = random.Random(3)
    model = NgramModel(3, size=5)
    for _ in range(30):
        model.add(generator.choices("abcd", k=generator.randint(0, 5)), generator.choice([0.5, 2]))
    for history in (("<s>", "<s>"), ("a", "b"), ("d",), (), ("x", "y"), ("x", "a")):
        total = sum(model.prob(history, symbol) for symbol in (*"abcd", "</s>"))
        assert total == pytest.approx(1)
    model = NgramModel(1, size=10)
    model.add("aab")
    assert model.prob((), "a") == pytest.approx((2 + 3 / 10) / (4 + 3))


def test_words_are_romanized_by_unicode_character_names() -> None:
    romanizations = NativeSpeller(["कमल"]).romanizations
    for word, letters in {
        "कमल": ["kamal"],
        "चित्र": ["chitr"],
        "मीरा": ["mira", "meera"],
        "गंगा": ["ganga"],
        "слово": [],
        "word": [],
    }.items():
        assert romanizations(word) == letters


# ------------------------------------------------------------------------- storage and vocabularies


def test_loaded_names_equal_the_stored_ones(names: Names) -> None:
    again = Names.from_bytes(names.stored)
    assert again.stored == names.stored
    assert again.spelling(UNKNOWN[0]) == names.spelling(UNKNOWN[0])
    for damaged in (b"", b"[]", b"{}", names.stored[:-9], b'{"format": 0}', b"\xff"):
        with pytest.raises(ValueError):  # noqa: PT011 (its message is for a UserError)
            Names.from_bytes(damaged)


@one_quick(("kind", "joint"), [("unigram", True), ("bpe", True), ("char", True), ("char", False)])
def test_placeholders_are_tokens(kind: str, joint: bool, tmp_path: Path) -> None:
    config = VocabularyConfig.model_validate(
        {
            "type": kind,
            "size": 310,
            "joint": joint,
            "names": "placeholders",
            "sampling": 0.3 * (kind != "char"),
        }
    )
    trained = train_vocabularies(config, SRC, TGT)
    save_vocabularies(trained, tmp_path)
    checksums = checksums_of(trained)
    assert "names" in checksums
    vocabularies = load_vocabularies(tmp_path, config.sampling, checksums)
    assert checksums_of(vocabularies) == checksums == checksums_of(load_vocabularies(tmp_path))
    for side in vocabularies[:2]:
        assert side.tokens(NAME_IDS) == list(PLACEHOLDERS)
        (ids,) = side.encode([f"x{B}ला."])
        assert [i for i in ids if i in NAME_IDS] == [NAME_IDS[1]]
        assert side.decode(ids) == f"x{B}ला."
    pair = next(pair for pair in PAIRS if len(pair.names) == 2)
    sides = vocabularies.encode_pairs([pair.src], [pair.tgt])
    assert [sum(i in NAME_IDS for i in ids) for (ids,) in sides] == [2, 2]
    if config.sampling:
        for side, text in zip(
            vocabularies[:2], names_masked(vocabularies.names, pair), strict=True
        ):
            for seed in range(5):
                (ids,) = side.sample([text], seed)
                assert sum(i in NAME_IDS for i in ids) == 2
                assert side.decode(ids) == text


def names_masked(names: Names | None, pair: tuple[str, str, dict[str, str]]) -> tuple[str, str]:
    assert names is not None
    return names.mask_pair(*pair[:2])


def test_damaged_names_are_refused(tmp_path: Path) -> None:
    config = VocabularyConfig.model_validate({"size": 310, "names": "placeholders"})
    trained = train_vocabularies(config, SRC, TGT)
    save_vocabularies(trained, tmp_path)
    path = tmp_path / "names.json"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match=r"names\.json: its checksum differs"):
        load_vocabularies(tmp_path, checksums=checksums_of(trained))
    with pytest.raises(UserError, match=r"names\.json: not a file of names"):
        load_vocabularies(tmp_path)
    path.unlink()
    with pytest.raises(UserError, match=r"names\.json: no such file"):
        load_vocabularies(tmp_path, checksums=checksums_of(trained))


def test_word_vocabularies_cannot_mask_names(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("vocabulary: {type: word, names: placeholders}\n")
    with pytest.raises(ConfigError, match=r"vocabulary\.names: type word cannot split an ending"):
        load_config(path)
