"""`seq2seq runs`: runs by date, with step and score."""

import os
import re
import shutil
from pathlib import Path

import pytest
from cases.commands import printed

from seq2seq.__main__ import main


def test_runs_are_listed_by_date_with_step_and_score(
    tiny_runs: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 2
    assert "runs: no such folder" in capsys.readouterr().err
    for name, day in (("luong", 3), ("group/bahdanau", 2)):
        folder = tmp_path / "runs" / name
        shutil.copytree(tiny_runs[folder.name], folder)
        lines = '{"step": 50, "train_loss": 2.5}\n{"step": 50, "valid_bleu": 31.25}\n'
        lines += 'damaged\n{"step": 1200, "valid_bleu": 30.0}\n'
        (folder / "metrics.jsonl").write_text(lines * (day == 3), encoding="utf-8")
        for path in (folder / "metrics.jsonl", folder / "config.yaml"):
            os.utime(path, (86400 * day, 86400 * day))
    (tmp_path / "runs/damaged").mkdir()
    (tmp_path / "runs/damaged/config.yaml").write_text("model: 3\n", encoding="utf-8")
    head, *rows = printed(["runs"], capsys).splitlines()
    names = ["run", "languages", "decoder", "logged step", "valid BLEU", "last trained"]
    assert re.split(" {2,}", head.strip()) == names
    assert rows[0].split()[:4] == ["group/bahdanau", "xx-yy", "bahdanau", "0"]
    assert rows[1].split()[:5] == ["luong", "xx-yy", "luong", "1,200", "31.2"]
    assert rows[1].split()[5].startswith("1970-01-0")
    assert rows[2].split()[:3] == ["damaged", "?", "?"]
    assert printed(["runs", "runs/luong"], capsys).splitlines()[1].startswith("runs/luong ")
    (tmp_path / "luong.txt").touch()  # a file is no run
    for name in ("luong", "luogn", "runs/luogn"):
        assert main(["translate", "-m", name, "a"]) == 2
        hint = "; did you mean 'runs/luong'?"
        assert f"{name}: no such run folder{hint}\n" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["runs", "empty"]) == 2
    assert "empty: has no runs" in capsys.readouterr().err
