"""Diagrams of the documentation are those that the script draws, and well-formed."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

import draw_diagrams


def test_the_diagrams_of_the_pages_are_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = draw_diagrams.IMAGES
    monkeypatch.setattr(draw_diagrams, "IMAGES", tmp_path)
    assert draw_diagrams.main() == 0
    paths = sorted(tmp_path.iterdir())
    assert len(paths) >= 5
    for path in paths:
        assert path.read_bytes() == (committed / path.name).read_bytes(), path.name
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        for box in root.iter("{http://www.w3.org/2000/svg}rect"):
            left = float(box.attrib["x"])
            top = float(box.attrib["y"])
            assert left >= 0
            assert top >= 0
            assert left + float(box.attrib["width"]) <= width
            assert top + float(box.attrib["height"]) <= height
