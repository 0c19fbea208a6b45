"""`seq2seq check`: what it prints, writes and refuses."""

import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest
from cases.commands import Call, refused

from seq2seq.__main__ import main
from seq2seq.runtime.errors import RunError


def listing(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.usefixtures("few_steps")
def test_check_examines_everything_and_writes_no_files(
    call: Call, small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    listing_before = listing(tmp_path)
    result = call("check", small_corpus, "--device", "cpu", "model.dropout=0.4")
    assert (result.code, result.err) == (0, "")
    assert listing(tmp_path) == listing_before
    assert not (tmp_path / "run").exists()
    rows = [line.split() for line in result.lines]
    assert ["pairs", "train", "valid", "test"] in rows
    assert ["lines", "120", "9", "11"] in rows
    assert ["with", "a", "blank", "side", "0", "0", "0"] in rows
    for start in ("parameters ", "memory ", "an epoch ", "training ", "warning: "):
        assert any(line.startswith(start) for line in result.lines), start
    (passed,) = [line for line in result.lines if line.startswith("ok ")]
    listed = json.loads(call("check", small_corpus, "--device", "cpu", "--json", "-").out)
    count = sum(finding["done"] and not finding["warning"] for finding in listed["findings"])
    assert passed == f"ok       {count} checks passed, listed by --json -"
    labels = [line.partition(" ")[0] for line in result.lines]
    assert labels[-2 - labels.count("warning:") : -2] == ["warning:"] * labels.count("warning:")
    warnings = [line for line in result.lines if line.startswith("warning: ")]
    assert result.lines[-1] == f"{len(warnings)} warnings; `seq2seq train` accepts this config."


@pytest.mark.usefixtures("few_steps")
def test_check_finds_planted_faults_and_json_has_every_line(
    call: Call, small_corpus: Path, tmp_path: Path
) -> None:
    lines = (tmp_path / "train.src").read_text(encoding="utf-8").splitlines()
    lines[3], lines[7] = " ", "ba\ufeffda."
    (tmp_path / "train.src").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for side in ("src", "tgt"):
        train, valid = (tmp_path / f"{split}.{side}" for split in ("train", "valid"))
        valid.write_bytes(b"".join(train.read_bytes().splitlines(keepends=True)[20:40]))
    out = tmp_path / "check.json"
    result = call("check", small_corpus, "--device", "cpu", "--json", out)
    assert result.code == 0
    warnings = "\n".join(line for line in result.lines if line.startswith("warning: "))
    assert "1 pair with a blank side (line 4)" in warnings
    assert "train.src: byte order marks of concatenated files in line 8. " in warnings
    assert "valid: 20 of 20 pairs occur in train" in warnings
    tree = json.loads(out.read_text(encoding="utf-8"))
    assert tree["texts"]["train"]["statistics"]["blank"] == [4]
    assert tree["texts"]["train"]["statistics"]["src"]["unusual_characters"] == {
        "byte order mark": [8]
    }
    valid_in_train = tree["comparisons"][0]
    assert (valid_in_train["split"], valid_in_train["other"]) == ("valid", "train")
    assert valid_in_train["shared"]["pairs"] == list(range(1, 21))
    assert tree["warnings"] == warnings.count("warning: ")
    assert tree["cost"]["parameters"] > 1000
    assert tree["cost"]["epoch_seconds"] > 0


@pytest.mark.usefixtures("few_steps")
def test_check_gives_json_alone_on_stdout(call: Call, small_corpus: Path) -> None:
    result = call("check", small_corpus, "--device", "cpu", "--json", "-", "data.test=null")
    assert (result.code, result.err) == (0, "")
    tree = json.loads(result.out)
    assert set(tree["texts"]) == {"train", "valid"}
    assert [finding["warning"] for finding in tree["findings"]] == sorted(
        (finding["warning"] for finding in tree["findings"]), reverse=True
    )


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    ("part", "last"),
    [
        ("alignment.measure_alignment", "target/source characters "),
        ("forecast.forecast", "target/source characters "),
        ("forecast.cost_findings", "training "),
    ],
)
def test_check_prints_each_part_before_it_computes_the_next(
    call: Call, small_corpus: Path, monkeypatch: pytest.MonkeyPatch, part: str, last: str
) -> None:
    def fail(*_: object) -> NoReturn:
        raise RunError("the next part")

    config = small_corpus, "--device", "cpu"
    complete = call("check", *config).lines
    monkeypatch.setattr(f"seq2seq.tools.analysis.check.{part}", fail)
    result = call("check", *config)
    assert (result.code, result.err) == (1, "seq2seq: error: the next part\n")
    lines = list(filter(None, result.lines))
    assert lines[-1].startswith(last)
    rows = len(lines) - 5 * (part == "forecast.cost_findings")  # without measurements
    assert lines[:rows] == list(filter(None, complete))[:rows]


@pytest.mark.usefixtures("few_steps")
def test_check_warns_of_an_existing_run_in_the_folder(
    call: Call, small_corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best.safetensors").touch()
    listing_before = listing(tmp_path / "run")
    result = call("check", small_corpus, "--device", "cpu")
    assert result.code == 0
    assert any("holds a run" in line and "--overwrite" in line for line in result.lines)
    assert result.lines[-1].endswith("accepts this config with --resume or --overwrite.")
    assert listing(tmp_path / "run") == listing_before


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda at: (at / "train.tgt").unlink(), id="missing"),
        pytest.param(lambda at: (at / "valid.src").write_bytes(b"a\xffb\n"), id="no UTF-8"),
        pytest.param(lambda at: (at / "test.src").write_bytes(b"one\n"), id="unequal"),
        pytest.param(lambda at: (at / "valid.tgt").write_bytes(b"\n" * 9), id="blank"),
        pytest.param(lambda at: (at / "run").write_bytes(b""), id="run_dir is a file"),
    ],
)
def test_check_and_train_refuse_data_with_the_same_message(
    call: Call, small_corpus: Path, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    damage(tmp_path)
    result = call("check", small_corpus)
    refused(result)
    assert call("train", small_corpus) == result


@pytest.mark.parametrize(
    "overrides", [["data.max_length=1"], ["vocabulary.size=90000"], ["vocabulary.size=many"]]
)
def test_check_and_train_refuse_configs_with_the_same_message(
    call: Call, small_corpus: Path, overrides: list[str]
) -> None:
    result = call("check", small_corpus, *overrides)
    assert (result.code, result.out) == (2, b"")
    assert call("train", small_corpus, *overrides) == result


@pytest.mark.thorough
@pytest.mark.usefixtures("few_steps")
def test_check_shows_progress_on_a_terminal(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl
    import pty
    import struct
    import termios

    terminal, stderr = pty.openpty()
    fcntl.ioctl(stderr, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    output = b""

    def read() -> None:
        nonlocal output
        with suppress(OSError):  # the terminal is closed
            while data := os.read(terminal, 4096):
                output += data

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(stderr, "w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stderr", file)
        assert main(["check", str(small_corpus), "--device", "cpu"]) == 0
    reader.join()
    os.close(terminal)
    for stage in ("reading the text", "measuring the alignment", "measuring training steps"):
        assert f"check: {stage}".encode() in output


def test_check_refuses_a_json_file_it_cannot_write(call: Call, small_corpus: Path) -> None:
    refused(call("check", small_corpus, "--json", "nowhere/x.json"), "no folder nowhere")
