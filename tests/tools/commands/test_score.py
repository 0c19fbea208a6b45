"""`seq2seq score`: an output line for every pair of lines, whatever they contain."""

import gzip
import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases.toy_text import toy_pairs

from seq2seq.__main__ import main
from seq2seq.inference.scoring import score_lines
from seq2seq.inference.translator import Translator
from seq2seq.runtime.errors import RunError
from seq2seq.runtime.files import json_text

SRC, TGT = toy_pairs(9, seed=6)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    src = tmp_path / "a.src"
    tgt = tmp_path / "a.tgt.gz"
    src.write_text("\n".join(SRC) + "\n", encoding="utf-8")
    tgt.write_bytes(gzip.compress("\r\n".join(TGT).encode()))
    return src, tgt


def call(*arguments: object) -> int:
    return main(["score", *map(str, arguments), "--device", "cpu"])


def test_each_output_line_is_the_score_of_a_pair(
    luong: Path, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("-m", luong, "-i", files[0], "-r", files[1]) == 0
    out, err = capsys.readouterr()
    expected = score_lines(Translator.load(luong, device="cpu").loaded, SRC, TGT)
    assert out.splitlines() == [f"{scored_line.score:.6f}" for scored_line in expected]
    tokens = sum(len(scored_line.tokens) for scored_line in expected)
    total = sum(sum(scored_line.log_probs) for scored_line in expected)
    perplexity = f"{math.exp(-total / tokens):.2f}"
    assert err == f"perplexity {perplexity} over {tokens:,} tokens, </s> included\n"


def test_json_has_the_log_probability_of_each_token(
    luong: Path, files: tuple[Path, Path], tmp_path: Path
) -> None:
    output = tmp_path / "scores"
    assert call("-m", luong, "-i", files[0], "-r", files[1], "--json", "-o", output) == 0
    expected = score_lines(Translator.load(luong, device="cpu").loaded, SRC, TGT)
    for line, scored_line in zip(
        output.read_text(encoding="utf-8").splitlines(), expected, strict=True
    ):
        fields = json.loads(line)
        assert fields["score"] == round(scored_line.score, 6)
        assert fields["log_prob"] == round(scored_line.log_prob, 6)
        assert fields["perplexity"] == pytest.approx(scored_line.perplexity)
        assert (fields["src_tokens"], fields["tgt_tokens"]) == (
            scored_line.src_tokens,
            scored_line.tokens,
        )
        assert fields["log_probs"] == pytest.approx(scored_line.log_probs, abs=1e-6)


@pytest.mark.parametrize("json_lines", [False, True])
def test_blank_and_invalid_lines_have_an_output_line(
    luong: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    json_lines: bool,
) -> None:
    tgt = tmp_path / "tgt"
    tgt.write_bytes(b"\n\xff ta\nzu\n \t\nba\x00 ka\xe2\x80\xa8mo\n")
    stdin = b"\xef\xbb\xbf\nzu\n\nbuda ki.\n" + b"ma " * 300 + b"\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    assert call("-m", luong, "-r", tgt, *["--json"] * json_lines) == 0
    out, err = capsys.readouterr()
    lines = out.split("\n")
    assert len(lines) == 6
    if json_lines:
        assert [json.loads(line)["score"] is None for line in lines[:5]] == [0, 0, 1, 1, 0]
        assert json.loads(lines[0])["tgt_tokens"] == []
    else:
        assert [lines[0], lines[2], lines[3]] == ["0.000000", "-inf", "-inf"]
    assert f"not UTF-8 were replaced in 1 line (2) of {tgt}\n" in err
    assert "note: only one side is blank, scored -inf: 2 lines (3, 4)\n" in err


def test_empty_input_gives_empty_output(
    luong: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    assert call("-m", luong, "-i", empty, "-r", empty) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 1e39])
@pytest.mark.parametrize("json_lines", [False, True])
def test_scores_that_are_not_finite_are_refused_by_line(
    luong: Path,
    files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    factor: float,
    json_lines: bool,
) -> None:
    def with_scaled_logits(*_: object, **__: object) -> Translator:
        translator = Translator.load(luong, device="cpu")
        log_probs = translator.engine.log_probs

        def scaled(*places: Any) -> Any:
            with np.errstate(over="ignore"):
                return log_probs(*places) * factor

        monkeypatch.setattr(translator.engine, "log_probs", scaled)
        return translator

    monkeypatch.setattr("seq2seq.cli.arguments.load_translator", with_scaled_logits)
    assert call("-m", luong, "-i", files[0], "-r", files[1], *["--json"] * json_lines) == 1
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert f"{files[1]}:1: a token has the log-probability " in line
    assert "blank" not in line
    assert "perplexity" not in line


def test_without_tokens_there_is_no_perplexity(
    luong: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "blank").write_text("\n \n", encoding="utf-8")
    assert call("-m", luong, "-i", tmp_path / "blank", "-r", tmp_path / "blank") == 0
    out, err = capsys.readouterr()
    assert out == "0.000000\n" * 2
    assert err == "no perplexity: no pair has text on both sides\n"


def test_json_is_strict() -> None:
    assert json.loads(json_text({"score": 1.5, "lines": [None, "\u00e9"]})) == {
        "score": 1.5,
        "lines": [None, "\u00e9"],
    }
    for value in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(RunError, match="not finite"):
            json_text({"score": [value]}, indent=2)
