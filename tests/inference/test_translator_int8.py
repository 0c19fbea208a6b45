"""Search with int8 weights."""

import io
from pathlib import Path

import pytest
from cases.tiny_runs import DECODERS
from cases.toy_text import toy_pairs

from seq2seq.__main__ import main as cli
from seq2seq.inference.translator import Translator

LINES, _ = toy_pairs(40, seed=5)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("beam", [1, 3])
def test_a_translation_does_not_depend_on_the_batch(
    tiny_runs: dict[str, Path], decoder: str, beam: int
) -> None:
    rounded = Translator.load(tiny_runs[decoder], device="cpu", int8=True)
    exact = Translator.load(tiny_runs[decoder], device="cpu")
    in_one_batch = rounded.translate(LINES, beam_size=beam)
    one_by_one = [rounded.translate([line], beam_size=beam)[0] for line in LINES]
    assert in_one_batch == one_by_one
    assert rounded.engine.attends == (decoder != "none")
    scores = [translation.score for translation in in_one_batch]
    assert scores != [translation.score for translation in exact.translate(LINES, beam_size=beam)]


def test_the_command_accepts_int8(
    tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("\n".join(LINES), encoding="utf-8")
    run = ["-m", str(tiny_runs["luong"]), "--device", "cpu"]
    assert cli(["translate", *run, "--int8", "-i", str(tmp_path / "in")]) == 0
    expected = Translator.load(tiny_runs["luong"], device="cpu", int8=True).translate(LINES)
    assert io.StringIO(capsys.readouterr().out).read().splitlines() == [e.text for e in expected]
