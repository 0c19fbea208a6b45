"""Attention as word alignments and in a terminal, for given translations, lines and words."""

from pathlib import Path

import numpy as np
import pytest
from cases.toy_text import toy_pairs

from seq2seq.__main__ import main
from seq2seq.inference.attention_map import AttentionMap, by_words, labels_of
from seq2seq.inference.nbest import AttentionBlocks, NBestEntry
from seq2seq.inference.scoring import attend, forced_decodings, score_lines
from seq2seq.inference.translation import Translation, join_parts
from seq2seq.inference.translator import Translator
from seq2seq.runtime.errors import UserError
from seq2seq.tools.analysis.attention.alignment import (
    GoldLine,
    align,
    alignment_error_rate,
    pharaoh,
    read_gold,
)
from seq2seq.tools.analysis.attention.plot import as_text, map_of, translation_by_words

SRC = ["▁a", "▁bc", "d", "</s>"]
TGT = ["▁x", "y", "▁z", "</s>"]
WEIGHTS = np.array(
    [[0.5, 0.25, 0.25, 0.0], [0.1, 0.4, 0.1, 0.4], [0.6, 0.2, 0.1, 0.1], [0.0, 0.0, 0.0, 1.0]]
)
MAP = AttentionMap("a bcd", "xy z", SRC, TGT, WEIGHTS)


def test_word_weights_are_sums_over_source_and_means_over_target_tokens() -> None:
    merged = by_words(MAP)
    assert merged.src_tokens == ["▁a", "▁bcd", "</s>"]
    assert merged.tgt_tokens == ["▁xy", "▁z", "</s>"]
    assert merged.weights == pytest.approx(
        np.array([[0.3, 0.5, 0.2], [0.6, 0.3, 0.1], [0.0, 0.0, 1.0]])
    )


def test_each_target_word_is_aligned_with_the_source_word_of_the_highest_weight() -> None:
    links = align(MAP)
    assert links == {(1, 0), (0, 1)}
    assert pharaoh(links) == "1-0 0-1"
    assert align(map_of(Translation(), "")) == frozenset()


def aligned_by(order: list[int], src: list[str], tgt: list[str], texts: tuple[str, str]) -> str:
    """Return the alignment of a map whose row t has most of its weight in column order[t]."""
    weights = np.full((len(tgt), len(src)), 0.01)
    weights[range(len(tgt)), order] = 0.9
    return pharaoh(align(AttentionMap(*texts, src, tgt, weights)))


def test_words_of_a_line_in_parts_are_those_of_the_line() -> None:
    """The EOS of a part is no word, nor is the tag that a later part repeats."""
    src = ["▁<2x>", "▁a", "▁b", ".", "</s>", "▁<2x>", "▁c", "▁d", "</s>"]
    tgt = ["▁u", "</s>", "▁w", "▁v", "</s>"]
    texts = "<2x> a b c d", "u w v"
    assert aligned_by([2, 4, 7, 6, 8], src, tgt, texts) == "2-0 4-1 3-2"
    src = ["▁a", "▁bc", "</s>", "▁de", "▁f", "</s>"]  # bcde was cut
    assert aligned_by([4, 5, 3, 1, 5], src, tgt, ("a bcde f", "u w v")) == "2-0 1-1 1-2"
    src = ["▁a。", "</s>", "▁b。", "</s>"]  # no space in the text
    assert aligned_by([2, 3, 0, 2, 3], src, tgt, ("a。b。", "u w v")) == "0-0 0-1 0-2"


def test_words_are_those_of_the_text_where_tokens_have_other_boundaries() -> None:
    src = ["▁a", "▁b", "▁c", "</s>"]
    tgt = ["▁x", "▁y▁z", "▁u", "</s>"]
    texts = "A\u00a0B c", "x y z u"  # normalized by a model, which joins words in tokens, too
    assert aligned_by([1, 2, 0, 3], src, tgt, texts) == "0-0 1-1 1-2 0-3"
    assert aligned_by([2, 0, 1, 3], src, tgt, texts) == "1-0 0-1 0-2 0-3"


@pytest.mark.parametrize("texts", [("a b", ""), ("", "x"), ("", "")])
def test_a_text_without_words_has_no_links(texts: tuple[str, str]) -> None:
    assert aligned_by([1, 1], ["▁a", "▁b"], ["▁x", "</s>"], texts) == ""


def test_the_alignment_error_rate_is_that_of_och_and_ney() -> None:
    sure = frozenset({(0, 0), (1, 1)})
    possible = frozenset({(0, 0), (1, 1), (2, 1)})
    gold = [GoldLine(sure, possible)]
    assert alignment_error_rate([sure], gold) == 0.0
    assert alignment_error_rate([possible], gold) == 0.0
    assert alignment_error_rate([frozenset({(0, 0), (5, 1)})], gold) == pytest.approx(1 - 2 / 4)
    assert alignment_error_rate([frozenset()], gold) == 1.0
    assert alignment_error_rate([frozenset()], [GoldLine(frozenset(), frozenset())]) == 0.0


def test_gold_alignments_have_sure_and_possible_links(tmp_path: Path) -> None:
    path = tmp_path / "gold"
    path.write_text("0-0 1?2 3p4\n\n12-7\n", encoding="utf-8")
    first, blank, last = read_gold(path)
    assert (first.sure, first.possible) == ({(0, 0)}, {(0, 0), (1, 2), (3, 4)})
    assert (blank.sure, last.sure) == (frozenset(), {(12, 7)})
    path.write_text("0-0\n0-0 1:2\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"gold:2: '1:2' is no link such as 0-0"):
        read_gold(path)


def test_a_map_in_a_terminal_has_a_row_for_each_target_token() -> None:
    lines = as_text(MAP).splitlines()
    assert lines[:3] == ["a bcd", "xy z", ""]
    rows = [line for line in lines if line.endswith("\u2502")]
    assert [row.split()[0] for row in rows] == ["x", "y", "z", "</s>"]
    assert rows[3].endswith("\u2502      \u2588\u2588\u2502")
    assert lines[-2].split() == ["1", "2", "3", "4"]
    assert lines[-1] == "1 a  2 bc  3 d  4 </s>"


def test_a_map_that_is_wider_than_the_terminal_goes_on_below() -> None:
    lines = as_text(MAP, limit=11).splitlines()
    rows = [line for line in lines if line.endswith("\u2502")]
    assert {len(row) for row in rows} == {11}
    assert [row.split()[0] for row in rows] == ["x", "y", "z", "</s>"] * 2
    assert rows[7].endswith("\u2502  \u2588\u2588\u2502")
    assert [line.split() for line in (lines[7], lines[13])] == [["1", "2"], ["3", "4"]]
    assert lines[-1] == "1 a  2 bc  3 d  4 </s>"
    assert as_text(MAP, limit=15) == as_text(MAP)
    assert as_text(MAP, limit=1).count("\u2502") == 2 * 4 * 4


def test_wide_and_combining_characters_keep_the_grid_aligned() -> None:
    table = as_text(MAP._replace(tgt_tokens=["▁日本", "▁नि", "▁e\u0301", "</s>"])).splitlines()
    assert [row.partition("\u2502")[0] for row in table[3:7]] == [
        *("日本 ", "  नि ", "   e\u0301 ", "</s> ")
    ]


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    sides = [[*lines[:2], "", *lines[2:4]] for lines in toy_pairs(4, seed=5)]
    paths = tmp_path / "in.src", tmp_path / "in.tgt"
    for path, lines in zip(paths, sides, strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.parametrize("decoder", ["bahdanau", "luong"])
def test_attention_of_a_forced_translation_equals_that_of_search(
    tiny_runs: dict[str, Path], decoder: str
) -> None:
    translator = Translator.load(tiny_runs[decoder], device="cpu")
    sources = [line for line in toy_pairs(12, seed=9)[0] if line]
    translations = translator.translate(sources, beam_size=1)
    src, tgt, _ = translator.vocabularies
    ids_by_token = {token: number for number, token in enumerate(tgt.tokens(range(len(tgt))))}
    ids = [
        [ids_by_token[token] for token in translation.tokens[:-1]] for translation in translations
    ]
    pairs = list(zip(src.encode(sources), ids, strict=True))
    forced = forced_decodings(translator.engine, pairs, True)
    for translated, decoding in zip(translations, forced, strict=True):
        assert translated.attention is not None
        assert decoding.attention_weights is not None
        assert (decoding.attention_weights == translated.attention).all()
    texts = [translation.text for translation in translations]
    scored = score_lines(translator.loaded, sources, texts)
    for text, attended, score in zip(
        texts, attend(translator.loaded, sources, texts), scored, strict=True
    ):
        assert attended.text == text
        assert (attended.score, attended.log_probs) == (score.score, score.log_probs)
        assert attended.attention is not None
        assert attended.attention.shape == (len(attended.tokens), len(attended.src_tokens))
        assert attended.attention.sum(axis=1) == pytest.approx(1, abs=1e-4)


def test_byte_tokens_are_decoded_in_words_and_headings() -> None:
    src = ["\u2581", "<0xD0>", "<0x9E>", "n", "<0xFF>", "</s>", "\u2581b", "</s>"]
    blocks = AttentionBlocks([np.ones((2, 6), np.float32), np.ones((1, 2), np.float32)])
    entry = NBestEntry("x y", 0.0, ["\u2581x", "</s>", "</s>"], [0.0] * 3, blocks)
    translation = translation_by_words(Translation([entry], src, 2))
    assert translation.src_tokens == ["\u2581\u041en\ufffd", "</s>", "\u2581b", "</s>"]
    assert [
        attention_map.source for attention_map in Translation([entry], src, 2).attention_maps("")
    ] == ["\u041en\ufffd", "b"]


def test_the_bytes_of_a_character_are_labelled_with_it() -> None:
    tokens = ["\u2581", "<0xE6>", "<0x97>", "<0xA5>", "<0x4B>", "<0xFF>", "<0xE6>", "<unk>", "</s>"]
    labels = ["\u2581", *["\u65e5"] * 3, "K", "<0xFF>", "<0xE6>", "<unk>", "</s>"]
    assert labels_of(tokens) == labels


def test_a_part_has_the_text_of_its_line_and_its_translation(tiny_runs: dict[str, Path]) -> None:
    """Its tokens spell what was searched, with other marks and characters."""
    translator = Translator.load(tiny_runs["luong"], device="cpu")
    line = "Ba\u00a0mo lu! Zu\u3000ki\u3002 " * 20
    translation = translator.translate(line)
    assert translation.parts > 1
    maps = list(translation.attention_maps())
    sources = [attention.source for attention in maps]
    assert len(sources) == translation.parts
    assert "".join(sources).replace(" ", "") == line.replace(" ", "")
    assert all(source.startswith(("Ba\u00a0mo", "Zu\u3000ki")) for source in sources)
    texts = [attention.translation for attention in maps]
    assert texts == list(translation.n_best[0].part_texts)
    assert " ".join(texts) == translation.text


def test_blank_lines_have_no_weights(tiny_runs: dict[str, Path]) -> None:
    translator = Translator.load(tiny_runs["luong"], device="cpu")
    blank, *_ = attend(translator.loaded, ["", "ba"], ["ba", ""])
    assert blank.attention is None
    with pytest.raises(UserError, match="1 lines have 2 translations"):
        list(attend(translator.loaded, ["ba"], ["ba", "ba"]))


def test_alignments_have_a_line_for_each_line(
    tiny_runs: dict[str, Path],
    texts: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    src, tgt = texts
    call = ["attention", "-m", str(tiny_runs["luong"]), "-i", str(src), "-r", str(tgt)]
    output = tmp_path / "x.align"
    gold = tmp_path / "gold.align"
    assert main([*call, "-o", str(output)]) == 0
    rows = lines_of(output)
    assert len(rows) == 5
    assert rows[2] == ""
    for row, source, target in zip(rows, lines_of(src), lines_of(tgt), strict=True):
        links = [tuple(map(int, link.split("-"))) for link in row.split()]
        assert [word for _, word in links] == list(range(len(target.split())))
        assert all(word < len(source.split()) for word, _ in links)
    gold.write_bytes(output.read_bytes())
    capsys.readouterr()
    assert main([*call, "-o", str(output), "--gold", str(gold)]) == 0
    assert capsys.readouterr().out == "alignment error rate: 0.0%\n"
    gold.write_text("9-0\n" * 5, encoding="utf-8")
    assert main([*call, "-o", str(output), "--gold", str(gold)]) == 0
    assert capsys.readouterr().out == "alignment error rate: 100.0%\n"


def test_links_of_parts_are_those_of_each_part_moved_by_the_words_before(
    tiny_runs: dict[str, Path],
) -> None:
    translator = Translator.load(tiny_runs["luong"], device="cpu")
    src, tgt = ([line for line in side if line][:6] for side in toy_pairs(12, seed=3))
    parts = list(attend(translator.loaded, src, tgt))
    translation = join_parts(parts, 1)
    links = set()
    words_before = np.zeros(2, int)
    for part, source, target in zip(parts, src, tgt, strict=True):
        links |= {tuple((words_before + link).tolist()) for link in align(map_of(part, source))}
        words_before += len(source.split()), len(target.split())
    assert translation.text == " ".join(tgt)
    assert align(map_of(translation, " ".join(src))) == links
    assert {word for _, word in links} == set(range(words_before[1]))


def test_without_an_output_maps_go_to_stdout(
    tiny_runs: dict[str, Path], texts: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    src, tgt = texts
    call = ["attention", "-m", str(tiny_runs["bahdanau"]), "-i", str(src), "-r", str(tgt)]
    assert main([*call, "--words"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:2] == [lines_of(src)[0], lines_of(tgt)[0]]
    words = [line.split()[0] for line in out.splitlines() if line.endswith("\u2502")]
    first = [*lines_of(tgt)[0].split(), "</s>"]
    assert words[: len(first)] == first


@pytest.mark.thorough
def test_pdf_is_drawn(tiny_runs: dict[str, Path], texts: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    call = ["attention", "-m", str(tiny_runs["luong"]), "-i", str(texts[0]), "--words"]
    for name in ("one.pdf", "two.pdf"):
        assert main([*call, "-o", str(tmp_path / name)]) == 0
    content = (tmp_path / "one.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert content == (tmp_path / "two.pdf").read_bytes()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("-r", "{tgt}", "-b", "2", "-o", "x.html"), "-b has no effect on given translations"),
        (("--gold", "{tgt}", "-o", "x.html"), "--gold: needs -o FILE.align"),
        (("--gold", "{tgt}", "-o", "x.align"), "is no link such as 0-0"),
        (("-o", "x.bmp"), "Use .html, .png, .svg, .pdf, .json or .align"),
        (("-r", "{short}"), "has 5 lines but "),
    ],
)
def test_conflicting_options_and_inputs_are_refused(
    tiny_runs: dict[str, Path],
    texts: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("ba\n", encoding="utf-8")
    arguments = [option.format(tgt=texts[1], short="short") for option in options]
    paths_before = sorted(tmp_path.iterdir())
    assert main(["attention", "-m", str(tiny_runs["luong"]), "-i", str(texts[0]), *arguments]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == paths_before


def test_an_unknown_word_is_a_separate_word() -> None:
    """Otherwise the links of all following words would be shifted."""
    from seq2seq.inference.attention_map import word_spans

    tokens = ["▁the", "<unk>", "<unk>", "▁cat", "</s>"]
    assert word_spans(tokens) == [range(n, n + 1) for n in range(5)]
