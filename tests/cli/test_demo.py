"""`seq2seq demo` in an empty folder, and again in the same one."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from seq2seq.__main__ import main
from seq2seq.cli import schema
from seq2seq.cli.demo import DEMOS, _preparation
from seq2seq.runtime.console import printable

SENTENCES = DEMOS["en-fr"].sentences
SHORT = (
    *("training.max_steps=4", "decoding.beam_size=1", "decoding.max_length=9"),
    *("model.embedding_size=16", "model.hidden_size=32"),
)


def test_a_wrong_override_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "model.dropuot=3"]) == 2
    assert "model.dropuot (override): unknown key" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_demo_says_what_makes_its_commands_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    folder = tmp_path / ".venv/bin"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PATH", "")
    assert _preparation() == f", with `{sys.executable} -m seq2seq` for `seq2seq`"
    (folder / "activate").touch()
    assert _preparation() == ", after `source .venv/bin/activate`"
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert _preparation() == f", after `source {folder / 'activate'}`"
    (folder / "seq2seq").touch(0o755)
    monkeypatch.setenv("PATH", str(folder))
    assert _preparation() == ""


@pytest.mark.thorough
def test_demo_trains_translates_and_evaluates_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", *SHORT]) == 0
    out = capsys.readouterr().out
    for command in ("train", "translate", "evaluate", "attention"):
        assert f"$ seq2seq {command} " in out
    assert "BLEU " in out
    translations = Path("runs/demo/handful.fr").read_text(encoding="utf-8").splitlines()
    assert len(translations) == len(SENTENCES)
    assert all(f"-> {printable(line)}\n" in out for line in translations)
    assert len(Path("runs/demo/test.hyp.fr").read_text("utf-8").splitlines()) == 500
    assert Path("runs/demo/attention.html").stat().st_size > 1000
    assert Path("configs", schema.FILE).is_file()  # path in the config
    for line in out.split("What to try next:")[0].splitlines():
        name = line.split()[0] if line.startswith("  ") else ""
        assert not name.startswith(("runs/", "configs/")) or Path(name).exists()
    expected = "" if shutil.which("seq2seq") else ", after `source "
    assert f"What to try next{expected}" in out
    entries = out.partition("Done. Files:\n")[2].partition("\n\n")[0].splitlines()
    assert all(line.startswith("  ") for line in entries)
    assert (
        len({line.index(re.split(" {2,}", line.strip())[1]) for line in entries}) == 1
    )  # one column
    weights = Path("runs/demo/best.safetensors").read_bytes()
    assert main(["demo", *SHORT]) == 2
    error = capsys.readouterr().err
    assert "runs/demo: already exists; replace it with seq2seq demo --overwrite, or" in error
    resume = error.rstrip().rpartition("seq2seq ")[2].split()
    assert Path("runs/demo/best.safetensors").read_bytes() == weights
    main([*resume, *SHORT])
    assert "Training has already finished" in capsys.readouterr().err
    config = Path("configs/demo.yaml")
    config.write_text(config.read_text("utf-8").replace("seed: 1", "") + "seed: 2\n", "utf-8")
    assert main(["demo", "--overwrite", *SHORT]) == 0
    assert "seed: 2" in config.read_text("utf-8")
    assert Path("runs/demo/best.safetensors").read_bytes() != weights


@pytest.mark.thorough
def test_the_second_pair_is_shown_by_its_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--pair", "en-mr", *SHORT]) == 0
    out = capsys.readouterr().out
    assert "$ seq2seq train configs/demo-en-mr.yaml " in out
    assert '  seq2seq translate -m runs/demo-en-mr "Rahul is a good boy."\n' in out
    lines = Path("runs/demo-en-mr/handful.mr").read_text("utf-8").splitlines()
    assert len(lines) == len(DEMOS["en-mr"].sentences)
    assert len(Path("runs/demo-en-mr/test.hyp.mr").read_text("utf-8").splitlines()) == 400


def test_a_failure_ends_the_demo_with_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "training.max_stepz=4"]) == 2
    assert "max_stepz" in capsys.readouterr().err
    assert not Path("runs").exists()
