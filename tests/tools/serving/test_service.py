"""Pairs of languages that requests name."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from seq2seq.data.languages import language_name, unknown_code_hint
from seq2seq.runtime.errors import UserError
from seq2seq.text.source_profile import SourceProfile
from seq2seq.tools.serving.service import LanguagePair, LanguagePairs

EN_DE = LanguagePair("en", "de")
DE_EN = LanguagePair("de", "en")
FR_EN = LanguagePair("fr", "en")
TRANSLATOR: Any = None
PAIRS = LanguagePairs(dict.fromkeys((EN_DE, DE_EN, FR_EN), TRANSLATOR))


@pytest.mark.parametrize(
    ("src", "tgt", "expected"),
    [
        (None, None, EN_DE),
        ("auto", None, EN_DE),
        ("fr", None, FR_EN),
        ("auto", "de", EN_DE),
        (None, "de", EN_DE),
        ("de", "en", DE_EN),
        ("DE", "en-US", DE_EN),
        (" de", "en ", DE_EN),
        ("deu", "EN_gb", DE_EN),
        ("auto", "de-AT", EN_DE),
        ("fra", None, FR_EN),
    ],
)
def test_a_request_may_name_one_language_or_none(
    src: str | None, tgt: str | None, expected: LanguagePair
) -> None:
    assert PAIRS.find(src, tgt) == expected


@pytest.mark.parametrize(
    ("src", "tgt", "message"),
    [
        ("xx", None, "no model translates from xx; there is en-de, de-en, fr-en"),
        ("auto", "fr", "no model translates to fr; there is en-de, de-en, fr-en"),
        ("en", "fr", "no model translates from en to fr; there is en-de, de-en, fr-en"),
        (None, "auto", "no model translates to auto; there is en-de, de-en, fr-en"),
        ("auto", "auto", "no model translates to auto; there is en-de, de-en, fr-en"),
        (None, "en", "de-en, fr-en fit; name both languages"),
        ("auto", "en", "de-en, fr-en fit; name both languages"),
    ],
)
def test_a_refused_pair_is_named(src: str | None, tgt: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        PAIRS.find(src, tgt)
    assert str(caught.value) == f"source, target: {message}"


def test_the_region_counts_where_two_pairs_have_one() -> None:
    british = LanguagePair("de", "en-GB")
    american = LanguagePair("de", "en-US")
    pairs = LanguagePairs(dict.fromkeys((british, american), TRANSLATOR))
    assert pairs.find("de", "en_us") == american


def test_a_language_with_a_script_has_its_name() -> None:
    assert language_name("zh-Hant") == "Traditional Chinese"
    assert language_name("zh_Hant") == "Traditional Chinese"
    assert [language_name(code) for code in ("mr", "en-GB", "xx")] == [
        "Marathi",
        "British English",
        "xx",
    ]


def test_the_script_of_a_text_shows_its_language() -> None:
    profiles = {"en": ["LATIN"], "mr": ["DEVANAGARI"], "fr": ["LATIN"]}
    pairs = LanguagePairs(
        {
            LanguagePair(code, "de"): SimpleNamespace(source=SourceProfile(scripts=scripts))  # type: ignore[misc]
            for code, scripts in profiles.items()
        }
    )
    assert pairs.detected("\u0930\u093e\u0939\u0941\u0932 is") == ["mr"]
    assert pairs.detected("The cat") == ["en", "fr"]
    assert pairs.detected("12 %") == ["en", "mr", "fr"]
    assert pairs.find("auto", "de", "\u0930\u093e\u0939\u0941\u0932") == LanguagePair("mr", "de")
    with pytest.raises(UserError, match="en-de, fr-de fit; name both languages"):
        pairs.find("auto", "de", "The cat")


def test_of_regions_the_exact_one_decides() -> None:
    brazil = LanguagePair("en", "pt-BR")
    portugal = LanguagePair("en", "pt-PT")
    pairs = LanguagePairs(dict.fromkeys((brazil, portugal), TRANSLATOR))
    assert pairs.find("en-GB", "pt-BR") == brazil
    assert pairs.find("en-GB", "pt_pt") == portugal
    with pytest.raises(UserError, match="en-pt-BR, en-pt-PT fit; use the codes of one of them"):
        pairs.find("en-GB", "pt")


def test_words_and_scripts_say_how_sure_a_language_is() -> None:
    """No text is that of a model for certain: it may have a language that none knows."""
    profile = SourceProfile(
        scripts=["LATIN"],
        tgt_characters="abcdef",
        src_words=["the", "cat", "is"],
        tgt_words=["le", "chat", "est"],
    )
    marathi = SourceProfile(scripts=["DEVANAGARI"], tgt_characters="abc")
    pairs = LanguagePairs(
        {
            LanguagePair("en", "fr"): SimpleNamespace(source=profile),  # type: ignore[misc]
            LanguagePair("mr", "en"): SimpleNamespace(source=marathi),
        }
    )
    assert pairs.confidences("Le chat est noir.") == {"fr": 4 / 6, "en": 1 / 6}
    assert pairs.confidences("The cat.") == {"en": 3 / 5, "fr": 1 / 5}
    assert pairs.confidences("\u0930\u093e\u0939\u0941\u0932") == {"mr": 1 / 2}
    assert pairs.confidences("12") == {"en": 1 / 4, "fr": 1 / 4, "mr": 1 / 4}


@pytest.mark.parametrize("code", ["en", "mr", "mar", "EN_gb", "zh-Hant", "pt-BR", "gsw", "tok"])
def test_a_language_code_needs_no_hint(code: str) -> None:
    assert unknown_code_hint(code) is None


@pytest.mark.parametrize(
    ("text", "hint"),
    [("English", "; did you mean 'en'?"), ("swiss german", "; did you mean 'gsw'?"), ("q7", "")],
)
def test_the_name_of_a_language_is_answered_with_its_code(text: str, hint: str) -> None:
    assert unknown_code_hint(text) == hint
