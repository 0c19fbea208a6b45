"""Lines without final punctuation on the command line, and the note about them."""

import io
import json
import sys
from pathlib import Path

import pytest
from cases.toy_text import write_small_corpus

from seq2seq.__main__ import main
from seq2seq.runs.run_config import stored_run

NOTE = "note: no final punctuation mark, unlike the training text; translated as if there were one"
WORDS = "note: words that the training text never has"
LACKING = "note: characters that the training text hardly has"
VANISHED = "note: such characters that the translation lacks"
COPIED = "note: no letters, unlike the training text; copied"
LINES = ["buda ki.", "more ta", "", "zu ba?", '"more"', "ki:", "..."]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on text whose sources all end in a full stop, and whose targets end in another mark."""
    folder = tmp_path_factory.mktemp("marks")
    config = write_small_corpus(folder)
    assert main(["train", str(config), "training.max_steps=2", "--device=cpu"]) == 0
    (folder / "text").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return folder / "run"


def test_training_records_the_marks(run: Path) -> None:
    assert stored_run(run).source.final_marks == [".", "!"]


@pytest.mark.parametrize("options", [(), ("-b", "1"), ("--json",), ("--n-best", "2")])
def test_lines_without_a_mark_are_noted_once(
    run: Path, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["translate", "-m", str(run), "-i", str(run.parent / "text"), *options]
    capsys.readouterr()
    assert main(call) == 0
    words = "1 'buda, ki', 2 'more, ta', 4 'zu, ba', 5 'more', 6 'ki'"
    notes = f"{WORDS}: 5 lines ({words})\n{NOTE}: 2 lines (2, 5)\n"
    notes += f"{LACKING}: 2 lines (5 '\"', 6 ':')\n"
    notes += f"{VANISHED}: 1 line (6 ':')\n{COPIED}: 1 line (7)\n"
    assert capsys.readouterr().err == notes


def test_streams_have_the_note_too(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    lines = io.TextIOWrapper(io.BytesIO("".join(f"{line}\n" for line in LINES).encode()))
    monkeypatch.setattr(sys, "stdin", lines)
    assert main(["translate", "-m", str(run), "--stream"]) == 0
    streamed = capsys.readouterr()
    assert main(["translate", "-m", str(run), "-i", str(run.parent / "text")]) == 0
    assert capsys.readouterr().out == streamed.out
    assert f"{NOTE}: 1 line (2)\n" in streamed.err
    assert f"{NOTE}: 1 line (5)\n" in streamed.err


def test_the_mark_is_added_to_the_tokens(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["translate", "-m", str(run), "--json", "more ta", "more ta."]) == 0
    bare, marked = map(json.loads, capsys.readouterr().out.splitlines())
    assert bare["src_tokens"][-2:] == [".", "</s>"]
    assert bare | {"text": ""} == marked | {"text": ""}


def test_evaluation_adds_the_mark_and_scores_unchanged_references(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reference is compared with the output of `translate`."""
    text, output, again = (run.parent / name for name in ("text", "hyp", "again"))
    assert main(["translate", "-m", str(run), "-i", str(text), "-o", str(output)]) == 0
    capsys.readouterr()
    call = ["evaluate", "-m", str(run), "-i", str(text), "-r", str(text), "-o", str(again)]
    assert main(call) == 0
    assert f"{NOTE}: 2 lines (2, 5)\n" in capsys.readouterr().err
    assert again.read_bytes() == output.read_bytes()
    assert main(["score", "-m", str(run), "-i", str(text), "-r", str(output), "--json"]) == 0
    printed = capsys.readouterr()
    assert NOTE not in printed.err
    scored = [json.loads(line) for line in printed.out.splitlines()]
    assert "." not in scored[1]["src_tokens"]
    assert "." in scored[0]["src_tokens"]
