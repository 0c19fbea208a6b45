"""Lines of only invisible characters are blank to every command."""

import json
from pathlib import Path

import pytest
from cases.toy_text import write_small_corpus

from seq2seq.__main__ import main

INVISIBLE = (
    "\u200b",
    "\xad",
    "\ufeff",
    "\u200b \u2060",
    "\u3164",
    "\u2800",
    "\u202e",
    "\U000e0001",
)


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return path


@pytest.mark.parametrize("options", [[], ["-b", "1"], ["--n-best", "2"], ["--prefix", "ba "]])
def test_invisible_lines_are_not_translated(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    lines = ["ba.", *INVISIBLE, "ba."]
    path = write(tmp_path / "in", lines)
    assert main(["translate", "-m", str(tiny_run), "-i", str(path), "--json", *options]) == 0
    texts = [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]
    assert texts[0] == texts[-1] != ""
    assert texts[1:-1] == [""] * len(INVISIBLE)


def test_an_invisible_prefix_is_ignored(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "in", ["ba."])
    outputs = []
    for options in ([], ["--prefix", "\u200b\xad"]):
        assert main(["translate", "-m", str(tiny_run), "-i", str(path), *options]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]


def test_score_and_attention_skip_invisible_lines(
    tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "in", [*INVISIBLE, "ba.", "\u200b"])
    target = write(tmp_path / "ref", [*INVISIBLE[::-1], "\ufeff", "ba."])
    run = str(tiny_runs["luong"])
    assert main(["score", "-m", run, "-i", str(source), "-r", str(target)]) == 0
    assert capsys.readouterr().out == "0.000000\n" * len(INVISIBLE) + "-inf\n" * 2
    only = write(tmp_path / "only", list(INVISIBLE))
    assert main(["attention", "-m", run, "-i", str(only), "-o", str(tmp_path / "a.html")]) == 2


@pytest.mark.thorough
@pytest.mark.usefixtures("few_steps")
def test_training_and_check_count_invisible_lines_as_blank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_small_corpus(tmp_path)
    for split in ("train", "valid"):
        path = tmp_path / f"{split}.tgt"
        lines = path.read_text("utf-8").splitlines()
        write(path, [*INVISIBLE, *lines[len(INVISIBLE) :]])
    assert main(["train", str(config), "training.max_steps=1", "--device", "cpu"]) == 0
    log = capsys.readouterr().err
    assert "skipped in training: 8 pairs with a blank side" in log
    assert "in validation: 8 pairs with a blank side" in log
    assert main(["check", str(config), "--json", "-", "--device", "cpu"]) == 0
    texts = json.loads(capsys.readouterr().out)["texts"]
    for split in ("train", "valid"):
        assert texts[split]["statistics"]["blank"] == list(range(1, 9))
