"""Attention of each head: the weights, and how they are plotted and written."""

import json
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases.tiers import one_quick
from cases.tiny_runs import create_tiny_run, tiny_config
from cases.toy_text import toy_pairs
from numpy.typing import NDArray
from torch import Tensor, nn

from seq2seq.__main__ import main
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.engines.torch.engine import TorchEngine
from seq2seq.inference.attention_map import joined, word_spans
from seq2seq.inference.scoring import attend, forced_decodings
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.runs.checkpoint import load_model
from seq2seq.tools.analysis.attention.plot import groups_of, translation_by_words, write_attention

HEADS = 3
SETTINGS = SearchSettings(head_attention=True)
LINES, OTHERS = toy_pairs(20, seed=12)


@pytest.fixture(scope="module")
def headed(tmp_path_factory: pytest.TempPathFactory, tiny_vocabularies: Vocabularies) -> Path:
    """Create a run whose score has several heads."""
    config = tiny_config(tmp_path_factory.mktemp("heads"), "luong")
    score = {"score": {"scaled_dot": HEADS}, "attention_size": 4 * HEADS}
    tree = config.model_dump()
    tree["model"] = {"decoder": "luong", "embedding_size": 12, "hidden_size": 20, **score}
    return create_tiny_run(type(config).model_validate(tree), tiny_vocabularies, 5)


@pytest.fixture(scope="module")
def translator(headed: Path) -> Translator:
    return Translator.load(headed, device="cpu")


def heads_of(translation: Translation) -> NDArray[np.float32]:
    assert translation.head_attention is not None
    return translation.head_attention


def test_the_weights_are_the_softmax_of_the_scores_of_each_head(
    headed: Path, translator: Translator
) -> None:
    """Compare with the softmax of the scores that a forward hook records in torch."""
    line = "buda ki more ta."
    recorded_scores: list[Tensor] = []

    def record(_: nn.Module, __: Any, scores: Tensor) -> None:
        recorded_scores.append(scores.clone())

    translation = translator.translate(line, 1)
    loaded = load_model(headed, torch.device("cpu"))
    model = loaded.model
    vocabularies = loaded.vocabularies
    (src,) = vocabularies.src.encode([line])
    tokens = vocabularies.tgt.tokens(range(len(vocabularies.tgt)))
    tgt = [tokens.index(token) for token in translation.tokens[:-1]]
    score = model.decoder.score  # type: ignore[union-attr]
    with score.register_forward_hook(record):
        forced_decodings(TorchEngine(model.eval(), torch.device("cpu")), [(src, tgt)])
    plain = np.stack(
        [
            scores_of_step[0, :, 0, : len(translation.src_tokens)].numpy()
            for scores_of_step in recorded_scores
        ],
        axis=1,
    )
    exponents = np.exp(plain - plain.max(axis=-1, keepdims=True))
    expected = (exponents / exponents.sum(axis=-1, keepdims=True))[:, : len(translation.tokens)]
    heads = heads_of(translator.translate(line, 1, settings=SETTINGS))
    assert heads.shape == (HEADS, len(translation.tokens), len(translation.src_tokens))
    assert np.abs(heads - expected).max() < 2e-6
    assert np.abs(heads[0] - heads[1]).max() > 0.05


@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_mean_over_heads_is_the_attention_of_search(
    translator: Translator, beam_size: int
) -> None:
    lines = [*LINES, "", " ".join(LINES[:12])]  # the last one is translated in parts
    plain = translator.translate(lines, beam_size)
    with_heads = translator.translate(lines, beam_size, settings=SETTINGS)
    assert with_heads[-1].parts > 1
    assert with_heads[-2].head_attention is None
    for plain_translation, translation in zip(plain, with_heads, strict=True):
        assert (plain_translation.text, plain_translation.score, plain_translation.tokens) == (
            translation.text,
            translation.score,
            translation.tokens,
        )
        assert plain_translation.head_attention is None
        if plain_translation.attention is not None:
            assert translation.attention is not None
            assert (plain_translation.attention == translation.attention).all()
            assert (
                np.abs(heads_of(translation).mean(axis=0) - plain_translation.attention).max()
                < 1e-5
            )


@pytest.mark.thorough
def test_the_weights_do_not_depend_on_the_batch(translator: Translator) -> None:
    batched = translator.translate(LINES, settings=SETTINGS)
    backwards = translator.translate(LINES[::-1], settings=SETTINGS)[::-1]
    for line, batched_line, backwards_line in zip(LINES, batched, backwards, strict=True):
        single = translator.translate(line, settings=SETTINGS)
        assert (heads_of(batched_line) == heads_of(backwards_line)).all()
        assert (heads_of(batched_line) == heads_of(single)).all()


def test_given_translations_have_heads_too(translator: Translator) -> None:
    targets = [*OTHERS, "ba"]
    translations = list(attend(translator.loaded, [*LINES, ""], targets, heads=True))
    assert [translation.text for translation in translations] == targets
    assert translations[-1].head_attention is None
    for translation, plain in zip(
        translations, attend(translator.loaded, [*LINES, ""], targets), strict=True
    ):
        assert plain.head_attention is None
        if translation.attention is not None:
            assert np.abs(heads_of(translation).mean(axis=0) - translation.attention).max() < 1e-6
    single = next(attend(translator.loaded, LINES[3:4], targets[3:4], heads=True))
    assert (heads_of(single) == heads_of(translations[3])).all()


def test_each_head_of_each_part_has_a_map(translator: Translator) -> None:
    line = " ".join(LINES[:12])
    (translation,) = translator.translate([line], settings=SETTINGS)
    maps = list(translation.attention_maps(line))
    assert len(maps) == HEADS * translation.parts
    names = [f"head {number} of {HEADS}" for number in range(1, HEADS + 1)]
    assert [attention_map.head for attention_map in maps] == names * translation.parts
    row = column = 0
    for start in range(0, len(maps), HEADS):
        for head, attention_map in enumerate(maps[start : start + HEADS]):
            bottom = row + len(attention_map.tgt_tokens)
            right = column + len(attention_map.src_tokens)
            assert (
                attention_map.weights == heads_of(translation)[head, row:bottom, column:right]
            ).all()
            assert attention_map.weights.sum(axis=1) == pytest.approx(1, abs=1e-4)
        row = bottom
        column = right
    assert (row, column) == (len(translation.tokens), len(translation.src_tokens))


def test_words_merge_in_every_head(translator: Translator) -> None:
    """Compare with sums and means computed in loops."""
    line = " ".join(LINES[:12])
    (translation,) = translator.translate([line], settings=SETTINGS)
    merged = translation_by_words(translation)
    rows = word_spans(translation.tokens)
    columns = word_spans(translation.src_tokens)
    assert merged.tokens == [joined([translation.tokens[i] for i in row]) for row in rows]
    assert merged.src_tokens == [
        "".join(translation.src_tokens[i] for i in span) for span in columns
    ]
    for row, score in zip(rows, merged.log_probs, strict=True):
        assert score == pytest.approx(sum(translation.log_probs[i] for i in row))
    assert merged.attention is not None
    assert translation.attention is not None
    pairs = [
        (merged.attention, translation.attention),
        *zip(heads_of(merged), heads_of(translation), strict=True),
    ]
    for by_word, by_token in pairs:
        for i, row in enumerate(rows):
            for j, span in enumerate(columns):
                total = sum(float(by_token[t, s]) for t in row for s in span)
                assert by_word[i, j] == pytest.approx(total / len(row), abs=1e-6)


def attention(*arguments: object) -> int:
    return main(["attention", *map(str, arguments), "--device", "cpu"])


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in.src"
    path.write_text("".join(f"{line}\n" for line in LINES[:4]), encoding="utf-8")
    return path


def test_terminal_and_json_output_have_every_head(
    headed: Path, translator: Translator, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert attention("-m", headed, "-i", text, "--heads") == 0
    out = capsys.readouterr().out
    for number in range(1, HEADS + 1):
        assert out.count(f"\nhead {number} of {HEADS}\n") == 4
    path = text.with_suffix(".json")
    assert attention("-m", headed, "-i", text, "--heads", "-o", path) == 0
    expected = translator.translate(LINES[:4], settings=SETTINGS)
    for fields, translation in zip(json.loads(path.read_text("utf-8")), expected, strict=True):
        assert np.array(fields["head_weights"]) == pytest.approx(heads_of(translation), abs=1e-6)
        assert np.array(fields["attention_weights"]) == pytest.approx(
            translation.attention, abs=1e-6
        )


def test_json_by_words_has_a_field_for_each_word(headed: Path, text: Path) -> None:
    path = text.with_suffix(".json")
    assert attention("-m", headed, "-i", text, "--words", "-o", path) == 0
    for fields, line in zip(json.loads(path.read_text("utf-8")), LINES, strict=False):
        assert fields["src_tokens"] == [*(f"\u2581{word}" for word in line.split()), "</s>"]
        shape = len(fields["tgt_tokens"]), len(fields["src_tokens"])
        assert np.array(fields["attention_weights"]).shape == shape
        assert len(fields["log_probs"]) == shape[0]
        assert "head_weights" not in fields


def area(picture: bytes) -> float:
    """Return the area of a PNG in pixels, or of a PDF's page in square points."""
    if picture.startswith(b"\x89PNG"):
        width, height = struct.unpack(">II", picture[16:24])
        return float(width * height)
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", picture)
    assert box is not None
    return float(box[1]) * float(box[2])


@one_quick("suffix", [".html", ".svg", ".png", ".pdf"])
def test_a_plot_shows_every_head(
    headed: Path, text: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if suffix != ".html":
        pytest.importorskip("matplotlib")
    path = text.with_suffix(suffix)
    text.write_text("".join(f"{line}\n" for line in LINES[:2]), encoding="utf-8")
    assert attention("-m", headed, "-i", text, "--heads", "-o", path) == 0
    notes = capsys.readouterr().err.splitlines()  # this model has hardly learned to attend
    assert [note for note in notes if "hardly any attention" not in note] == []
    content = path.read_bytes()
    if suffix in (".html", ".svg"):
        for number in range(1, HEADS + 1):
            assert content.count(f">head {number} of {HEADS}<".encode()) == 2
    else:
        plain = text.with_name(f"mean{suffix}")
        assert attention("-m", headed, "-i", text, "-o", plain) == 0
        assert area(content) > 0.75 * HEADS * area(plain.read_bytes())  # as many panels


def test_a_figure_states_how_many_heads_it_shows(translator: Translator, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    translations = translator.translate(LINES[:4], settings=SETTINGS)
    (note,) = write_attention(groups_of(translations, LINES[:4]), tmp_path / "a.svg")
    assert "shows the first 8 maps; write .json" in note
    assert (tmp_path / "a.svg").read_text("utf-8").count(">head ") == 8


@pytest.mark.parametrize(
    ("runs", "options", "message"),
    [
        (["luong"], [], "has no heads to plot apart; omit --heads"),
        (["heads", "heads"], [], "has no heads to plot apart; omit --heads"),
        (["heads"], ["-o", "a.align"], "--heads: .align is one alignment by all heads"),
    ],
)
def test_heads_that_do_not_exist_are_refused(
    headed: Path,
    tiny_runs: dict[str, Path],
    text: Path,
    runs: Sequence[str],
    options: Sequence[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folders = {**tiny_runs, "heads": headed}
    models = [word for run in runs for word in ("-m", folders[run])]
    assert attention(*models, "-i", text, "--heads", *options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_an_exported_model_has_the_heads_of_its_run(
    headed: Path, translator: Translator, tmp_path: Path
) -> None:
    assert main(["export", "-m", str(headed), "-o", str(tmp_path / "new")]) == 0
    exported = Translator.load(tmp_path / "new")
    assert exported.engine.has_heads
    for of_export, of_run in zip(
        exported.translate(LINES, settings=SETTINGS),
        translator.translate(LINES, settings=SETTINGS),
        strict=True,
    ):
        assert (heads_of(of_export) == heads_of(of_run)).all()


def test_a_line_without_weights_is_noted(
    headed: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    references = tmp_path / "references"
    references.write_text("ba\n\nba\nba\n", encoding="utf-8")
    call = ["-m", headed, "-i", text, "-r", references]
    for output in ([], ["-o", tmp_path / "a.html"], ["-o", tmp_path / "a.json"]):
        assert attention(*call, *output) == 0
        err = capsys.readouterr().err
        assert err.endswith("translation is blank or the line very long: 1 line (2)\n")


def test_a_copy_model_has_heads_too(tmp_path: Path, tiny_vocabularies: Vocabularies) -> None:
    tree = tiny_config(tmp_path / "run", "luong").model_dump()
    score = {"score": {"scaled_dot": HEADS}, "attention_size": 4 * HEADS, "copy": True}
    tree["model"] = {"decoder": "luong", "embedding_size": 12, "hidden_size": 20, **score}
    config = tiny_config(tmp_path / "run", "luong").model_validate(tree)
    copying = Translator.load(create_tiny_run(config, tiny_vocabularies, 5), device="cpu")
    (translation,) = copying.translate(LINES[:1], settings=SETTINGS)
    assert translation.attention is not None
    assert np.abs(heads_of(translation).mean(axis=0) - translation.attention).max() < 1e-5
    assert torch.is_grad_enabled()
