"""Lines without a final mark, for models whose training text nearly always has one."""

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from cases.toy_text import toy_pairs

from seq2seq.inference.line_preparation import Preparation
from seq2seq.inference.requirements import Requirements
from seq2seq.inference.scoring import score_lines
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.runs.graphs import export_runs
from seq2seq.text.final_marks import without_mark
from seq2seq.text.glossary import Glossary
from seq2seq.text.source_profile import NO_PROFILE, SourceProfile

MARKED, _ = toy_pairs(60, seed=22)
BARE = [line[:-1] for line in MARKED]
NOTE = "no final punctuation mark, unlike the training text; translated as if there were one"
MARKS = [".", *"!?,;:-"]


@pytest.fixture(scope="module")
def translator(tiny_runs: dict[str, Path]) -> Translator:
    """Load a model that ends some of its translations with a mark."""
    translator = Translator.load(tiny_runs["bahdanau"], device="cpu")
    return Translator(replace(translator.loaded, source=SourceProfile(final_marks=MARKS)))


def check_without_mark(unmarked: Translation, marked: Translation) -> None:
    """Assert that a line is translated as with a final mark, which is then removed."""
    assert unmarked.notes == [NOTE]
    assert marked.notes == []
    assert unmarked.src_tokens == marked.src_tokens
    best = unmarked.n_best[0]
    expected = marked.n_best[0]
    assert best.text == without_mark(expected.text, MARKS)
    assert (best.score, best.tokens) == (expected.score, expected.tokens)
    assert best.log_probs == expected.log_probs
    assert (best.attention is None) == (expected.attention is None)
    if best.attention is not None and expected.attention is not None:
        np.testing.assert_array_equal(best.attention, expected.attention)


@pytest.mark.parametrize(("beam_size", "text_only"), [(1, False), (3, False), (3, True)])
def test_a_line_is_translated_as_if_it_had_the_mark(
    translator: Translator, beam_size: int, text_only: bool
) -> None:
    translations = translator.translate(BARE, beam_size, text_only=text_only)
    expected = translator.translate(MARKED, beam_size, text_only=text_only)
    for unmarked, marked in zip(translations, expected, strict=True):
        check_without_mark(unmarked, marked)
    has_lost_mark = [a.text != b.text for a, b in zip(translations, expected, strict=True)]
    assert 0 < sum(has_lost_mark) < len(BARE)  # otherwise the test would prove little
    plain = Translator(replace(translator.loaded, source=NO_PROFILE)).translate(BARE, beam_size)
    assert [translation.text for translation in plain] != [
        translation.text for translation in translations
    ]


def test_texts_of_an_n_best_list_differ(translator: Translator) -> None:
    for unmarked, marked in zip(
        translator.translate(BARE, 4, 4), translator.translate(MARKED, 4, 4), strict=True
    ):
        check_without_mark(unmarked, marked)
        assert len({entry.text for entry in unmarked.n_best}) == 4


def test_other_lines_are_left_alone(translator: Translator) -> None:
    lines = [*MARKED[:9], "ba ka?", '"ba ka."', "ba ka...", "ba ka:", "...", "", " ", "—", "▁"]
    expected = Translator(replace(translator.loaded, source=NO_PROFILE)).translate(lines, n_best=2)
    assert translator.translate(lines, n_best=2) == expected
    headings = Translator(replace(translator.loaded, source=SourceProfile()))
    assert headings.translate(BARE[:9]) == Translator(
        replace(translator.loaded, source=NO_PROFILE)
    ).translate(BARE[:9])


@pytest.mark.thorough
def test_translations_do_not_depend_on_the_batch(translator: Translator) -> None:
    lines = [*BARE, *MARKED[:20], "", "ba ka velo " * 30]
    in_one_batch = translator.translate(lines, n_best=2)
    order = list(range(len(lines)))
    random.Random(7).shuffle(order)
    for size in (1, 7, len(order)):
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            in_batches = translator.translate([lines[row] for row in rows], n_best=2)
            assert in_batches == [in_one_batch[row] for row in rows]


def test_every_part_of_a_line_has_a_mark(translator: Translator) -> None:
    sentences = Translator(
        replace(translator.loaded, source=replace(translator.source, sentences=1))
    )
    (translation,) = sentences.translate(["Zu ba. Ka velo"])
    first, last = (sentences.translate([line])[0] for line in ("Zu ba.", "Ka velo"))
    assert translation.text == f"{first.text} {last.text}"
    assert translation.tokens == [*first.tokens, *last.tokens]
    assert NOTE in translation.notes
    (long,) = translator.translate(["ba ka velo zu " * 30 + "ti."])
    assert long.notes == ["longer than data.max_length; translated in parts"]
    assert long.parts > 2
    starts = [0, *(n for n, token in enumerate(long.src_tokens, 1) if token == "</s>")]
    parts = [long.src_tokens[a : b - 1] for a, b in pairwise(starts)]
    assert all(part[-1] == "." and len(part) <= translator.max_length for part in parts)
    texts = ["".join(part).replace("▁", " ").strip() for part in parts]
    sentences_alone = translator.translate([*(text[:-1] for text in texts[:-1]), texts[-1]])
    assert long.text.split() == [
        word for sentence in sentences_alone for word in sentence.text.split()
    ]


def test_a_mark_is_removed_unless_the_prefix_ends_in_one(translator: Translator) -> None:
    preparation = Preparation(translator, Requirements(translator.vocabularies), SearchSettings())
    begins = ["ba", "ba!", "ba ka.", ""]
    lines = preparation.prepare(BARE[:4], begins, None)
    assert [line.parts[0].part.has_added_mark for line in lines] == [True, False, False, True]


@pytest.mark.thorough
def test_prefixes_and_phrases_keep_their_mark(translator: Translator) -> None:
    for begin in ("ba", "ba!", "ba ka."):
        translations = translator.translate(BARE[:20], prefixes=[begin] * 20)
        assert all(translation.text.startswith(begin) for translation in translations)
        assert all(NOTE in translation.notes for translation in translations)
    (translation_of_first,) = translator.translate(BARE[:1], prefixes=[""])
    check_without_mark(translation_of_first, translator.translate(MARKED[:1])[0])
    phrase = "ka!"
    for translation in translator.translate(BARE[:20], 4, constraints=[[phrase]] * 20):
        assert phrase in translation.text
    terms = Glossary([(line.split()[0], phrase) for line in dict.fromkeys(BARE[:3])])
    for translation in translator.translate(BARE[:3], 4, settings=SearchSettings(glossary=terms)):
        assert phrase in translation.text


def test_a_line_is_kept_if_its_translation_is_only_the_mark(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ids,) = translator.vocabularies.tgt.encode(["!"])

    def always(*_: object) -> object:
        from seq2seq.inference.search.interface import Hypothesis

        return [[Hypothesis([*ids, 3], -1.0, None)]]

    monkeypatch.setattr("seq2seq.inference.part_search.search", always)
    assert [translation.text for translation in translator.translate(["ba ka"], 1)] == ["ba ka"]
    assert [translation.text for translation in translator.translate(["ba ka."], 1)] == ["!"]


def test_given_translations_are_scored_as_they_are(translator: Translator) -> None:
    _, targets = toy_pairs(60, seed=22)
    plain = Translator(replace(translator.loaded, source=NO_PROFILE))
    assert score_lines(translator.loaded, BARE, targets) == score_lines(plain, BARE, targets)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_an_exported_model_adds_marks_too(
    translator: Translator, tiny_runs: dict[str, Path], tmp_path: Path, beam_size: int
) -> None:
    export_runs([tiny_runs["bahdanau"]], tmp_path / "export", int8=False)
    loaded = Translator.load(tmp_path / "export").loaded
    exported = Translator(replace(loaded, source=translator.source))
    expected = translator.translate(BARE, beam_size)
    for translation, expected_translation in zip(
        exported.translate(BARE, beam_size), expected, strict=True
    ):
        assert (translation.text, translation.notes, translation.tokens) == (
            expected_translation.text,
            expected_translation.notes,
            expected_translation.tokens,
        )
