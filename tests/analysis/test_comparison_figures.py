"""Figures of `seq2seq compare`: titles, labels and files, drawn without any training."""

import re
import warnings
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiers import one_quick

from seq2seq.analysis.compare import results
from seq2seq.analysis.scored_text import WORDS, Bucket


def comparison(
    folder: Path, names: list[str], buckets: int, beyond: int = 0, sharing: int = 1
) -> SimpleNamespace:
    """Return results of variants, the first ones sharing a training, with two seeds each."""
    variants = [SimpleNamespace(name=name) for name in names]
    cut = [
        Bucket(5 * n + 1, 5 * n + 5, list(range(1234)), n >= buckets - beyond)
        for n in range(buckets)
    ]
    scored = []
    for index, variant in enumerate(variants):
        curves = [[(step, 30.0 + index / 9) for step in (100, 200)] for _ in range(2)]
        bleu = [30 + index / 9 - n / 2 for n in range(buckets)]
        runs = [SimpleNamespace(curve=curve) for curve in curves]
        deviations = [1.5] * buckets
        scored.append(
            SimpleNamespace(
                variant=variant, runs=runs, by_length=bleu, by_length_deviation=deviations
            )
        )
    plan = SimpleNamespace(
        seeds=(1, 2),
        variants=variants,
        trained_as=lambda each: variants[0] if each in variants[:sharing] else each,
        figure_path=lambda name, form: folder / f"{name}.{form}",
    )
    task = SimpleNamespace(split="valid", longest=5 * (buckets - beyond), unit=WORDS)
    return SimpleNamespace(plan=plan, task=task, buckets=cut, variants=scored)


NAMES = ["none", "bahdanau", "luong"]


@one_quick(
    ("names", "buckets", "sharing"),
    [
        (NAMES, 4, 1),
        (NAMES, 30, 1),
        ([f"variant-{n}" for n in range(30)], 3, 1),
        ([f"decoding-{n}" for n in range(40)], 3, 40),
        ([f"decoding-{n}" for n in range(20)], 3, 12),
        (["base", "x" * 78], 3, 1),
    ],
)
def test_texts_are_in_the_picture_and_apart(
    tmp_path: Path, names: list[str], buckets: int, sharing: int
) -> None:
    pytest.importorskip("matplotlib")
    result = comparison(tmp_path, names, buckets, 1, sharing)
    for drawn in (results._curves(result), results._lengths(result)):
        drawn.draw_without_rendering()
        (axes,), (legend,) = drawn.axes, drawn.legends
        columns = [axes.get_xticklabels(), legend.get_texts()[::-1]]
        for direction, texts in zip("xy", columns, strict=True):
            boxes = [text.get_window_extent() for text in texts]
            ends = [(getattr(box, f"{direction}0"), getattr(box, f"{direction}1")) for box in boxes]
            assert all(first[1] < second[0] + 1 for first, second in pairwise(ends))
            assert all(
                drawn.bbox.x0 - 1 <= box.x0 <= box.x1 <= drawn.bbox.x1 + 1
                and drawn.bbox.y0 - 1 <= box.y0 <= box.y1 <= drawn.bbox.y1 + 1
                for box in boxes
            )
        width, height = axes.get_window_extent().size / drawn.dpi
        assert width > 3
        assert height > 2.5
        labels = " ".join(text.get_text().replace("\n", " ") for text in legend.get_texts())
        assert sorted(re.findall(r"[\w-]+", labels)) == sorted(names)


def test_the_shaded_lengths_are_explained_in_the_title(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = results._lengths(comparison(tmp_path, NAMES, 3, 1))
    (axes,), (legend,) = drawn.axes, drawn.legends
    assert "Shaded: longer than any source in training (10 words)" in axes.get_title(loc="left")
    assert [text.get_text() for text in legend.get_texts()] == NAMES
    (axes,) = results._lengths(comparison(tmp_path, NAMES, 3)).axes
    assert "Shaded" not in axes.get_title(loc="left")


@pytest.mark.parametrize("buckets", [1, 2])
def test_standard_deviations_are_visible(tmp_path: Path, buckets: int) -> None:
    pytest.importorskip("matplotlib")
    (axes,) = results._lengths(comparison(tmp_path, NAMES, buckets)).axes
    bars = [bar.lines[2][0].get_segments() for bar in axes.containers]
    heights = [bar[0][1][1] - bar[0][0][1] for bar in bars]
    assert heights == pytest.approx([3.0] * 3)
    assert len({bar[0][0][0] for bar in bars}) == 3  # beside each other


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_equal_results_have_equal_files(tmp_path: Path, form: str) -> None:
    pytest.importorskip("matplotlib")
    result = comparison(tmp_path, NAMES, 4, 1)
    contents = []
    for _ in range(2):
        results.write_figures(result, form)
        contents.append(
            [(tmp_path / f"{name}.{form}").read_bytes() for name in ("curves", "lengths")]
        )
    assert contents[0] == contents[1]
    for content in contents[0]:
        assert b"Date" not in content
        assert b"/Type3" not in content
        if form == "svg":
            assert all(f">{name}</text>".encode() in content for name in NAMES)


def test_names_in_other_scripts_give_one_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.font_manager import fontManager

    latin = [font for font in fontManager.ttflist if font.name.startswith("DejaVu")]
    monkeypatch.setattr(fontManager, "ttflist", latin)
    result = comparison(tmp_path, ["注意力", "plain"], 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, note = results.write_figures(result, "png")
        assert "3 characters, shown as boxes in the .png; use .html or .svg instead" in note
        assert len(results.write_figures(result, "svg")) == 1
    assert ">注意力</text>" in (tmp_path / "lengths.svg").read_text(encoding="utf-8")
