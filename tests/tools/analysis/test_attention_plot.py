"""Attention plots, parsed independently of the code that draws them."""

import os
import re
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pytest

from seq2seq.inference.attention_figure import map_figure
from seq2seq.inference.nbest import AttentionBlocks, NBestEntry
from seq2seq.inference.translation import Translation
from seq2seq.runtime import figures
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.tools.analysis.attention import plot as attention_plot
from seq2seq.tools.analysis.attention.plot import (
    beside_as_text,
    check_plot_path,
    groups_beside,
    groups_of,
    write_attention,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

SOURCE = 'Two <script>alert("x")</script> & dogs'


def translation(text: str, src: list[str], tgt: list[str], weights: object) -> Translation:
    blocks = AttentionBlocks([np.array(weights, np.float32)])
    return Translation([NBestEntry(text, 0.0, tgt, [], blocks)], src)


SMALL = translation(
    "दोन कुत्रे",
    ["▁Two", "▁<script>", 'alert("x")', "</script>", "▁&", "▁dogs", "</s>"],
    ["▁दोन", "▁कुत", "्रे", "<0xE0>", "</s>"],
    [[(7 * row + column) / 40 for column in range(7)] for row in range(5)],
)
LABELS = {
    "col": ["Two", "<script>", 'alert("x")', "</script>", "&", "dogs", "</s>"],
    "row": ["दोन", "कुत", "्रे", "<0xE0>", "</s>"],
}
STARTS = {"col": [0, 1, 4, 5, 6], "row": [0, 1, 4]}
BLANK = Translation()


class Page(HTMLParser):
    """Elements of the page as a browser sees them: tags, labels, cells and links."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.labels: dict[str, list[str]] = {"col": [], "row": []}
        self.starts: dict[str, list[int]] = {"col": [], "row": []}
        self.directions: set[str | None] = set()
        self.weights: list[float] = []
        self.hints: list[str] = []
        self.scope: str | None = None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.links += [name for name in values if name in {"src", "href"}]
        if tag == "th":
            self.scope = values["scope"]
            assert self.scope is not None
            if "first" in (values.get("class") or ""):
                self.starts[self.scope].append(len(self.labels[self.scope]))
        if tag == "span" and self.scope is not None:
            self.directions.add(values["dir"])
        if tag == "td" and "title" in values:
            hint = values["title"]
            style = values["style"]
            assert hint is not None
            assert style is not None
            self.hints.append(hint)
            self.weights.append(float(hint.rpartition(" ")[2]))
            opacities = float(style.rpartition(",")[2].removesuffix(")"))
            assert opacities == pytest.approx(self.weights[-1], abs=1e-3)

    def handle_endtag(self, tag: str) -> None:
        if tag == "th":
            self.scope = None

    def handle_data(self, data: str) -> None:
        if self.scope is not None:
            self.labels[self.scope].append(data)


def chain(length: int) -> Translation:
    """Return a sentence of `length` equal tokens, each attending to its own position."""
    return translation("b " * length, ["▁a"] * length, ["▁b"] * length, np.eye(length))


def boxes(figure: "Figure") -> tuple[list["Bbox"], list["Bbox"]]:
    """Return the extents of the titles and of the labels of a figure, in pixels."""
    from matplotlib import rc_context

    with rc_context(figures.OPTIONS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # not every machine has all fonts
        figure.draw_without_rendering()
        labels = [
            label.get_window_extent()
            for axes in figure.axes
            for label in (*axes.get_xticklabels(), *axes.get_yticklabels())
        ]
        titles = [title.get_window_extent() for title in titles_of(figure)]
    return titles, labels


def titles_of(figure: "Figure") -> list[Any]:
    """Return the titles of the panels."""
    titles = [axes._left_title for axes in figure.axes]  # type: ignore[attr-defined]
    return [title for title in titles if title.get_text()]


@pytest.mark.parametrize(
    "source", ["a b", "the agreement on the European Economic Area was signed " * 6, "x" * 300]
)
def test_titles_wrap_and_meet_no_label(source: str) -> None:
    """Titles and labels lie within the figure, and no two of them overlap."""
    tokens = ["▁gjpqy" * 3, "▁a", *["▁" + "ligatures" * n for n in (1, 2)], "你好", "</s>"]
    panels = [
        translation(source.upper(), tokens[:length], tokens[-length:], np.eye(length))
        for length in (6, 2, 5, 6)
    ]
    maps = [attention for panel in panels for attention in panel.attention_maps(source)]
    figure = map_figure(maps)
    titles, labels = boxes(figure)
    assert len({(title.x0, title.y0) for title in titles}) == len(maps)  # in a grid
    for title in titles:
        assert figure.bbox.x0 <= title.x0
        assert title.x1 <= figure.bbox.x1
        assert title.y1 <= figure.bbox.y1
        assert not any(title.overlaps(label) for label in labels)
    for label in labels:
        assert figure.bbox.contains(label.x0, label.y0)
        assert figure.bbox.contains(label.x1, label.y1)


def test_titles_of_unequal_heights_lie_within_the_figure() -> None:
    texts = "She wrote my poem .", "The agreement on the economic area was signed in August ."
    maps = []
    for text in texts:
        tokens = [f"▁{word}" for word in text.split()]
        panel = translation(text, tokens, tokens, np.eye(len(tokens)))
        maps += panel.attention_maps(text)
    for number in (1, 2, 3, 5):
        figure = map_figure((maps * 3)[:number])
        assert all(title.y1 <= figure.bbox.y1 for title in boxes(figure)[0])


def test_a_figure_has_one_colour_bar_with_a_name() -> None:
    maps = [attention for length in (3, 4, 5) for attention in chain(length).attention_maps("a")]
    names = [axes.get_xlabel() for axes in map_figure(maps).axes]
    assert names == ["", "", "", "attention weight"]


def test_a_translation_plots_itself() -> None:
    figure = SMALL.plot()
    (title,) = titles_of(figure)
    assert " ".join(title.get_text().split()) == f"{SOURCE} {SMALL.text}"  # the source first
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    words = [label.get_text() for label in SMALL.plot(words=True).axes[0].get_yticklabels()]
    assert words == ["दोन", "कुत्रे<0xE0>".replace("<0xE0>", "\ufffd"), "</s>"]
    with pytest.raises(UserError, match="no attention weights to plot"):
        BLANK.plot()


def png_size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def svg_texts(path: Path) -> list[str]:
    elements = ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    return [element.text or "" for element in elements]


def test_page_has_every_label_and_weight_in_order(tmp_path: Path) -> None:
    assert write_attention(groups_of([SMALL], [SOURCE]), tmp_path / "a.html") == []
    page = Page(tmp_path / "a.html")
    assert page.labels == LABELS
    assert page.starts == STARTS
    assert page.directions == {"auto"}
    assert SMALL.attention is not None
    assert page.weights == pytest.approx(SMALL.attention.ravel().tolist(), abs=5e-4)
    assert page.hints[9] == f"कुत ← {LABELS['col'][2]}: 0.225"


def test_page_has_no_scripts_or_links(tmp_path: Path) -> None:
    write_attention(groups_of([SMALL], [SOURCE]), tmp_path / "a.html")
    page = Page(tmp_path / "a.html")
    content = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "script" not in page.tags
    assert page.links == []
    assert "url(" not in content
    assert "@import" not in content
    assert "meta" in page.tags
    assert content.index('charset="utf-8"') < 200


def test_svg_is_xml_with_labels_as_text(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    assert write_attention(groups_of([SMALL, chain(3)], [SOURCE, "a a a"]), path) == []
    texts = svg_texts(path)
    for label in (SOURCE, SMALL.text, *LABELS["col"], *LABELS["row"]):
        assert label in texts
    assert [text for text in texts if text in LABELS["col"][:6]] == LABELS["col"][:6]
    assert texts.count("a") == texts.count("b") == 3


def test_svg_is_deterministic(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        write_attention(groups_of([SMALL], [SOURCE]), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_png_grows_with_sentences_and_labels(tmp_path: Path) -> None:
    sizes = []
    with_long_label = replace(chain(15), src_tokens=["▁a"] * 14 + ["▁" + "a" * 30])
    for number, maps in enumerate([[chain(4)], [chain(15)], [with_long_label], [chain(15)] * 2]):
        path = tmp_path / f"{number}.PNG"
        write_attention(groups_of(maps, ["a"] * len(maps)), path)
        sizes.append(png_size(path))
    assert sizes[0][0] < sizes[1][0]
    assert sizes[0][1] < sizes[1][1]
    assert sizes[1][0] == sizes[2][0]
    assert sizes[1][1] < sizes[2][1]
    across, down = sizes[3]  # side by side
    assert sizes[1][0] < across
    assert down == sizes[1][1]


def test_png_of_a_long_sentence_is_limited_in_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "MAX_SIDE", 300)
    (note,) = write_attention(groups_of([chain(20)], ["a"]), tmp_path / "a.png")
    assert max(png_size(tmp_path / "a.png")) == 300
    assert "dpi the PNG is hard to read" in note
    monkeypatch.setattr(figures, "MAX_PIXELS", 40_000)
    write_attention(groups_of([chain(20)], ["a"]), tmp_path / "a.png")
    width, height = png_size(tmp_path / "a.png")
    assert 38_000 < width * height <= 40_000


def test_dollar_signs_are_text_not_formulas(tmp_path: Path) -> None:
    prices = ["▁$x_1$", "▁$\\frac$", "</s>"]
    map_ = translation("$x_1$ $\\frac$", prices, prices, np.eye(3))
    write_attention(groups_of([map_], ["$x_1$ $\\frac$"]), tmp_path / "a.svg")
    assert svg_texts(tmp_path / "a.svg").count("$\\frac$") == 2


def test_invisible_tokens_are_shown_by_code_point(tmp_path: Path) -> None:
    tokens = ["▁", "\u200d", "\x07", "क्\u200dष"]
    invisible = translation("\x07", tokens, ["</s>"], [[0.1, 0.2, 0.3, 0.4]])
    for name in ("a.html", "a.svg"):
        write_attention(groups_of([invisible], ["\x07"]), tmp_path / name)
    labels = ["▁", "U+200D", "U+0007", "क्\u200dष"]
    assert Page(tmp_path / "a.html").labels["col"] == labels
    assert [text for text in svg_texts(tmp_path / "a.svg") if text in labels] == labels


def test_missing_glyphs_are_reported_in_one_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.font_manager import fontManager

    latin = [font for font in fontManager.ttflist if font.name.startswith("DejaVu")]
    monkeypatch.setattr(fontManager, "ttflist", latin)
    (note,) = write_attention(groups_of([SMALL], [SOURCE]), tmp_path / "a.png")
    assert "\n" not in note
    assert "characters, shown as boxes in the .png" in note
    assert ".html" in note
    assert write_attention(groups_of([SMALL], [SOURCE]), tmp_path / "a.svg") == []
    assert write_attention(groups_of([chain(3)], ["a"]), tmp_path / "a.png") == []


@pytest.mark.parametrize(("name", "limit"), [("a.html", "MAX_TABLES"), ("a.svg", "MAX_PANELS")])
def test_sentences_beyond_the_limit_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, limit: str
) -> None:
    monkeypatch.setattr(attention_plot, limit, 2)
    maps = [chain(3), BLANK, chain(4), chain(5)]
    groups = groups_of(maps, ["first", "", "second", "third"])
    (note,) = write_attention(groups, tmp_path / name)
    assert "shows the first 2 maps" in note
    content = (tmp_path / name).read_text(encoding="utf-8")
    assert "second" in content
    assert "third" not in content


def test_unusable_paths_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"\.html, \.png, \.svg, \.pdf, \.json or \.align"):
        write_attention(groups_of([SMALL], [SOURCE]), tmp_path / "a.bmp")
    with pytest.raises(UserError, match="no folder"):
        check_plot_path(tmp_path / "nowhere" / "a.html")
    monkeypatch.setattr("seq2seq.tools.analysis.attention.plot.is_installed", lambda _: False)
    with pytest.raises(UserError, match=r"seq2seq-attention\[plot\]"):
        check_plot_path(tmp_path / "a.svg")
    check_plot_path(tmp_path / "a.html")
    assert list(tmp_path.iterdir()) == []


def test_only_blank_sentences_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="blank"):
        write_attention(groups_of([BLANK], [""]), tmp_path / "a.html")


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.html"
    path.write_text("old", encoding="utf-8")

    def fail(_source: Path, _target: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(RunError, match=r"a\.html: cannot be written \(disk full\)"):
        write_attention(groups_of([SMALL], [SOURCE]), path)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_drawing_does_not_change_global_state(tmp_path: Path) -> None:
    import matplotlib
    from matplotlib._pylab_helpers import Gcf

    parameters_before = dict(matplotlib.rcParams)
    write_attention(groups_of([chain(3)], ["a"]), tmp_path / "a.png")
    assert dict(matplotlib.rcParams) == parameters_before
    assert Gcf.get_all_fig_managers() == []


def test_the_target_of_a_symbolic_link_is_written(tmp_path: Path) -> None:
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    write_attention(groups_of([chain(3)], ["a"]), tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").read_bytes().startswith(b"<!DOCTYPE html>")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_page_is_written_to_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.html"
    expected = tmp_path / "expected.html"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as reader:
        read = reader.submit(pipe.read_bytes)
        write_attention(groups_of([chain(3)], ["a"]), pipe)
        write_attention(groups_of([chain(3)], ["a"]), expected)
        assert read.result(timeout=600) == expected.read_bytes()


def test_two_models_are_side_by_side(tmp_path: Path) -> None:
    """Each map is below the sentence, its translation and the name of its model."""
    systems = {"runs/a": [SMALL, chain(3)], "runs/b": [chain(4), chain(2)]}
    sources = [SOURCE, "a a a"]
    groups = list(groups_beside(systems, sources))
    assert [[attention.model for attention in group] for group in groups] == [
        ["runs/a", "runs/b"]
    ] * 2
    assert groups[0][1].weights.shape == (4, 4)
    assert write_attention(groups, tmp_path / "a.html") == []
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.count('<div class="beside">') == 2
    assert re.findall("runs/[ab]", page.partition("<main>")[2]) == ["runs/a", "runs/b"] * 2
    write_attention(groups, tmp_path / "a.svg")
    texts = svg_texts(tmp_path / "a.svg")
    assert texts.count("runs/a") == texts.count("runs/b") == 2
    write_attention(groups, tmp_path / "two.png")
    write_attention(groups[1:], tmp_path / "one.png")
    (across, down), (one_across, one_down) = map(
        png_size, (tmp_path / "two.png", tmp_path / "one.png")
    )
    assert down > 1.5 * one_down  # a row for each sentence
    assert across < 2 * one_across


def test_a_terminal_shows_two_maps_side_by_side_where_there_is_room() -> None:
    (group,) = groups_beside({"a": [chain(3)], "b": [chain(4)]}, ["a a a"])
    single_maps = [beside_as_text([attention]) for attention in group]
    width = (
        max(map(len, single_maps[0].splitlines())) + 4 + max(map(len, single_maps[1].splitlines()))
    )
    wide = beside_as_text(group, width).splitlines()
    assert max(map(len, wide)) <= width
    assert len(wide) == len(single_maps[1].splitlines())
    assert all(row in line for row, line in zip(single_maps[0].splitlines(), wide, strict=False))
    assert beside_as_text(group, width - 1) == "\n\n".join(single_maps)
    assert beside_as_text(group) == "\n\n".join(single_maps)


def test_cells_have_percentages_on_request(tmp_path: Path) -> None:
    weights = [[0.04, 0.96], [0.5, 0.5]]
    plotted = translation("b", ["▁a", "</s>"], ["▁b", "</s>"], weights)
    write_attention(groups_of([plotted], ["a"]), tmp_path / "a.html", percentages=True)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert re.findall(r'">(\d*)</td>', page) == ["", "96", "50", "50"]
    assert "A number is a weight in percent; below 5% a cell has none." in page
    write_attention(groups_of([plotted], ["a"]), tmp_path / "b.html")
    page = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert re.findall(r'">(\d*)</td>', page) == [""] * 4
    assert "Point at a cell for its weight." in page
