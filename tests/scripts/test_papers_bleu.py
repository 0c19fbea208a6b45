"""The papers' BLEU: tokenisation by sacremoses, and messages."""

import importlib.util
import sys
from pathlib import Path

import pytest

import papers_bleu

HAS_SACREMOSES = importlib.util.find_spec("sacremoses") is not None


def run(monkeypatch: pytest.MonkeyPatch, *arguments: Path | str) -> None:
    monkeypatch.setattr(sys, "argv", ["papers_bleu.py", *map(str, arguments)])
    papers_bleu.main()


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.skipif(not HAS_SACREMOSES, reason="needs sacremoses")
def test_text_is_scored_in_the_form_of_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "Ein Mann & eine Frau, die „lachen“.", "Zwei Hunde spielen im Schnee!"
    expected = (
        "ein mann &amp; eine frau , die &quot; lachen &quot; .",
        "zwei hunde spielen im schnee !",
    )
    run(monkeypatch, "de", write(tmp_path / "hyp", *lines), write(tmp_path / "ref", *expected))
    assert capsys.readouterr().out.startswith("BLEU 100.00 nrefs:1|case:mixed|eff:no|tok:none|")


def test_a_missing_package_is_named_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    text = write(tmp_path / "text", "a")
    with pytest.raises(SystemExit, match="error: sacremoses is not installed"):
        run(monkeypatch, "de", text, text)


def test_texts_of_different_length_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_text = write(tmp_path / "one", "a")
    long_text = write(tmp_path / "two", "a", "b")
    with pytest.raises(SystemExit, match=r"error: .*one has 1 lines, .*two 2"):
        run(monkeypatch, "de", short_text, long_text)
    with pytest.raises(SystemExit, match=r"error: .*none"):
        run(monkeypatch, "de", short_text, tmp_path / "none")
