"""`Translation` and the calls that return it: for one string, for lines, and in a notebook."""

import itertools
import random
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases.toy_text import toy_pairs

from seq2seq import Translator
from seq2seq.inference import attention_table
from seq2seq.inference.attention_map import labels_of, legible
from seq2seq.inference.nbest import AttentionBlocks, NBestEntry
from seq2seq.inference.scoring import score_lines
from seq2seq.inference.translation import Translation, join_parts

LINES, OTHERS = toy_pairs(6, seed=3)


@pytest.fixture(scope="module")
def translator(tiny_runs: dict[str, Path]) -> Translator:
    return Translator.load(tiny_runs["bahdanau"], device="cpu")


# ------------------------------------------------------------------------------------- one string


@pytest.mark.parametrize("line", [*LINES[:3], "", "ba\nka", np.str_("ba")])
def test_one_string_has_one_translation(translator: Translator, line: str) -> None:
    translation = translator.translate(line, 3, 2)
    assert isinstance(translation, Translation)
    assert [translation] == translator.translate([line], 3, 2)


def test_prefix_and_phrases_of_one_string_are_its_own(translator: Translator) -> None:
    assert translator.translate(LINES[0], prefixes="Zu ").text.startswith("Zu ")
    assert "mo ka" in translator.translate(LINES[0], constraints=["mo ka"]).text
    with pytest.raises(TypeError, match=r"^prefixes: must be a str, not list$"):
        translator.translate(LINES[0], prefixes=["Zu "])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"^constraints\[0\]: must be a list of str, phrases, \[\]"):
        translator.translate(LINES[0], constraints="mo ka")
    with pytest.raises(TypeError, match=r"^lines: must be a list of str, .* not str; "):
        translator.stream(LINES[0])


def test_one_string_has_one_score(translator: Translator) -> None:
    expected = score_lines(translator.loaded, LINES, OTHERS)
    assert translator.score(LINES, OTHERS) == expected
    assert translator.score(iter(LINES), tuple(OTHERS)) == expected
    assert translator.score(LINES[2], OTHERS[2]) == expected[2]
    for lines, translations in ((LINES[0], [OTHERS[0]]), (LINES, OTHERS[0]), (LINES[0], None)):
        with pytest.raises(TypeError, match=r"^translations: must be a "):
            translator.score(lines, translations)  # type: ignore[call-overload]


# ------------------------------------------------------------------------------------- its fields


def test_every_entry_has_all_fields(translator: Translator) -> None:
    for translation in translator.translate(LINES, 4, 4):
        best = translation.n_best[0]
        assert (translation.text, translation.score) == (best.text, best.score)
        assert (translation.tokens, translation.log_probs) == (best.tokens, best.log_probs)
        assert len({entry.text for entry in translation.n_best}) == 4
        for entry in translation.n_best:
            attention = entry.attention
            assert attention is not None
            assert attention.dtype == np.float32
            assert attention.shape == (len(entry.tokens), len(translation.src_tokens))
            assert attention.sum(axis=1) == pytest.approx(1, abs=1e-4)
            assert len(entry.log_probs) == len(entry.tokens)
            assert max(entry.log_probs) <= 0


@pytest.mark.parametrize("beam_size", [1, 3])
def test_attention_of_an_entry_equals_that_of_its_tokens(
    translator: Translator, beam_size: int
) -> None:
    """Forced decoding of the same tokens gives the same weights, also for entries of a beam."""
    src, tgt, _ = translator.vocabularies
    ids_by_token = {token: number for number, token in enumerate(tgt.tokens(range(len(tgt))))}
    from seq2seq.inference.scoring import forced_decodings

    for line in LINES:
        for entry in translator.translate(line, beam_size, beam_size).n_best:
            ids = [ids_by_token[token] for token in entry.tokens[:-1]]
            (forced,) = forced_decodings(translator.engine, [(*src.encode([line]), ids)], True)
            assert forced.attention_weights is not None
            assert entry.attention == pytest.approx(forced.attention_weights, abs=1e-5)
            assert entry.log_probs == pytest.approx(forced.log_probs, abs=1e-4)


def test_without_attention_there_is_none(
    translator: Translator, tiny_runs: dict[str, Path]
) -> None:
    assert translator.translate(LINES[0], text_only=True).attention is None
    plain = Translator.load(tiny_runs["none"], device="cpu").translate(LINES[0])
    assert plain.attention is None
    assert "<table" not in plain._repr_html_()
    blank = Translation()
    assert (blank.text, blank.score, blank.tokens, blank.attention) == ("", 0.0, [], None)


def block(rows: int, columns: int, value: float) -> AttentionBlocks:
    return AttentionBlocks([np.full((rows, columns), value, np.float32)])


def test_the_list_of_joined_parts_has_the_best_combinations() -> None:
    generator = random.Random(3)
    for parts_count in (2, 3, 4) * 20:
        parts = []
        for number in range(parts_count):
            scores = sorted((-3 * generator.random() ** 2 for _ in range(4)), reverse=True)
            parts.append(
                Translation(
                    [
                        NBestEntry(f"{number}{rank}", score, ["a"] * generator.randint(1, 9))
                        for rank, score in enumerate(scores)
                    ]
                )
            )
        best, *lower = (
            join_parts([Translation([entry]) for entry in entries], 1).n_best[0]
            for entries in itertools.product(*(part.n_best for part in parts))
        )
        lower = [entry for entry in lower if entry.score <= best.score]
        expected = [best, *sorted(lower, key=lambda entry: -entry.score)]
        for n_best in (1, 2, 7, 1000):
            n_best_list = join_parts(parts, n_best, by_score=True).n_best
            scores = [entry.score for entry in expected[:n_best]]
            scores += scores[-1:] * (n_best - len(scores))
            assert [entry.score for entry in n_best_list] == pytest.approx(scores)
            assert n_best_list[0] == best


def test_parts_are_joined_on_the_diagonal() -> None:
    parts = [
        Translation([NBestEntry("a b", -1.0, ["a", "b", "</s>"], [-1.0] * 3, block(3, 2, 0.5))]),
        Translation([NBestEntry("c", -4.0, ["c", "</s>"], [-4.0] * 2, block(2, 1, 1.0))]),
    ]
    translation = join_parts(parts, 1)
    assert translation.attention is not None
    assert translation.attention.tolist() == [[0.5, 0.5, 0.0]] * 3 + [[0.0, 0.0, 1.0]] * 2
    assert (translation.text, translation.score) == ("a b c", (3 * -1.0 + 2 * -4.0) / 5)
    assert translation == join_parts(parts, 1)
    assert translation != join_parts([parts[0], parts[0]], 1)
    assert translation.attention_blocks != block(5, 3, 0.5)
    assert repr(translation.attention_blocks) == "AttentionBlocks([3, 2], [2, 1])"


def test_a_joined_line_has_the_notes_of_all_parts() -> None:
    entries = [NBestEntry("a", -1.0, ["a", "</s>"], [-1.0] * 2)]
    parts = [Translation(entries, notes=notes) for notes in (["first"], [], ["third", "more"])]
    assert join_parts(parts, 1).notes == ["first", "third", "more"]


# ------------------------------------------------------------------------------------- in notebooks


class Table(HTMLParser):
    """Cells of the tables, with the tags and attributes of all elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.labels: dict[str, list[str]] = {"col": [], "row": []}
        self.cells: list[tuple[str, str]] = []
        self.attributes: set[str] = set()
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes |= values.keys()
        if tag == "th":
            self.labels[str(values["scope"])].append("")
            self.side = str(values["scope"])
        if tag == "td" and "title" in values:
            self.cells.append((str(values["style"]), str(values["title"])))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "th" in self.open:
            self.labels[self.side][-1] += data


def opacity(style: str) -> float:
    colour = f"rgba({','.join(map(str, attention_table.BLUE))},"
    return float(style.partition(colour)[2].partition(")")[0])


def test_a_notebook_shows_a_heat_map(translator: Translator) -> None:
    translation = translator.translate(LINES[0])
    html = translation._repr_html_()
    table = Table(html)
    assert translation.attention is not None
    assert table.labels["col"] == labels_of(translation.src_tokens)
    assert table.labels["row"] == labels_of(translation.tokens)
    weights = translation.attention.ravel().tolist()
    assert [opacity(style) for style, _ in table.cells] == pytest.approx(weights, abs=0.001)
    hints = [float(hint.rpartition(" ")[2]) for _, hint in table.cells]
    assert hints == pytest.approx(weights, abs=0.001)
    source = f">{escape(LINES[0])}<"
    text = f">{escape(legible(translation.text))}<"
    assert 0 < html.index(source) < html.index(text)
    assert html.count("attention weight 0") == 1


def test_the_heat_map_is_escaped_and_self_contained() -> None:
    text = '<script>alert("x")</script>'
    entry = NBestEntry(text, -1.0, ["▁<b>", "\x07", "</s>"], [-1.0] * 3, block(3, 2, 0.5))
    html = Translation([entry], ["▁&amp;", "</s>"])._repr_html_()
    table = Table(html)
    assert table.labels == {"col": ["&amp;", "</s>"], "row": ["<b>", "U+0007", "</s>"]}
    assert not {"script", "link", "img", "b>"} & set(table.tags)
    assert table.attributes <= {"style", "dir", "scope", "title", "class"}
    assert "color: inherit" in html  # tables of pages without a doctype do not inherit it
    assert "url(" not in html
    assert "http" not in html


def luminance(colour: tuple[float, ...]) -> float:
    """Return the relative luminance of WCAG 2.1 for red, green and blue from 0 to 255."""
    linear = [
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in (value / 255 for value in colour)
    ]
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("page", [(255, 255, 255), (17, 17, 17)], ids=["light", "dark"])
def test_cells_of_large_weight_stand_out_from_the_page(page: tuple[int, ...]) -> None:
    """Contrast is at least 3, as WCAG 2.1 requires of graphics."""
    light, dark = sorted((luminance(attention_table.BLUE), luminance(page)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3


def test_the_style_sheet_has_the_colour_of_the_cells() -> None:
    red, green, blue = attention_table.BLUE
    assert f"--attention: {red} {green} {blue};" in attention_table.style()


def test_labels_without_spaces_between_words_stand_upright() -> None:
    entry = NBestEntry("a", -1.0, ["▁a"], [-1.0], block(1, 2, 0.5))
    html = Translation([entry], ["你好", "▁b"])._repr_html_()
    assert html.count("class=upright") == 1
    assert '<span dir="auto" class=upright>你好</span>' in html


def test_parts_have_a_table_each_and_huge_ones_a_line(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    translation: Any = translator.translate(" ".join(LINES * 3))
    assert translation.parts > 1
    assert translation._repr_html_().count("<table") == translation.parts
    monkeypatch.setattr(attention_table, "MAX_CELLS", 3)
    assert "<table" not in translation._repr_html_()
    assert translation._repr_html_().count("too many to show") == translation.parts
