"""`seq2seq help`, `configs`, `runs` and `explain`: what there is, without training anything."""

import os
import re
import shutil
import tomllib
from functools import cache
from pathlib import Path

import pytest

from seq2seq.__main__ import GROUPS, main
from seq2seq.cli.configs import GROUPS as GROUPS_OF_CONFIGS
from seq2seq.cli.explain import explanations
from seq2seq.cli.parser import commands_of
from seq2seq.config.document import shipped_configs
from seq2seq.config.fields import section_class
from seq2seq.config.schema import Config, json_schema, load_config
from seq2seq.runtime.errors import UserError

COMMANDS = commands_of(GROUPS)
ROOT = Path(__file__).resolve().parents[2]


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        code: object = main(words)
    except SystemExit as stop:  # as --help does
        code = stop.code
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


def test_no_argument_and_help_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(["--help"], capsys)
    assert printed([], capsys) == printed(["help"], capsys) == printed(["help", "help"], capsys)
    assert printed(["help"], capsys) == text
    assert printed(["help", "split"], capsys) == printed(["split", "--help"], capsys)
    assert main(["help", "splitt"]) == 2
    assert "invalid choice: 'splitt'; did you mean 'split'?" in capsys.readouterr().err


def test_the_help_has_every_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed([], capsys)
    assert "\n\n\n" not in text
    names = re.findall(r"^ {4}(\S+)", text, re.MULTILINE)
    assert [name for name in names if name in COMMANDS] == list(COMMANDS)
    for heading, group in GROUPS.items():
        assert f"\n\n{heading}:\n    {next(iter(group))} " in text


def test_configs_are_listed_and_copied_with_their_corpora(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    *lines, blank, hint = printed(["configs"], capsys).splitlines()
    assert (blank, "seq2seq configs NAME" in hint) == ("", True)
    assert max(map(len, lines)) <= 88
    names = re.findall(r"^  (\S+)", "\n".join(lines), re.MULTILINE)
    headings = [line for line in lines if line and not line.startswith(" ")]
    assert headings == [f"{heading}:" for heading in GROUPS_OF_CONFIGS.values()]
    assert sorted(f"{name}.yaml" for name in names) == sorted(
        path.name for path in ROOT.glob("configs/*.yaml")
    )
    assert not any(line.endswith(" al") for line in lines)
    printed(["configs", "demo-en-mr", "configs/demo.yaml"], capsys)
    for name in ("demo-en-mr", "demo"):
        copy = Path("configs", f"{name}.yaml")
        assert copy.read_bytes() == (ROOT / copy).read_bytes()
        train = load_config(copy).data.train
        assert all(path.is_file() for text in train for path in text.paths.values())
    assert Path("configs/schema.json").is_file()
    assert main(["configs", "demo"]) == 2
    assert "configs/demo.yaml: exists; pass --overwrite" in capsys.readouterr().err
    assert main(["configs", "demo-mr"]) == 2
    assert "no config 'demo-mr'; did you mean 'demo-" in capsys.readouterr().err
    out = printed(["configs", "multi30k-en-de", "-o", "mine/here"], capsys)
    assert out.splitlines()[1] == "   seq2seq download multi30k"
    assert main(["train", "mine/here/multi30k-en-de.yaml"]) == 2
    error = "data/multi30k/train.en.gz: no such file; `seq2seq download multi30k` fetches it\n"
    assert capsys.readouterr().err == f"seq2seq: error: {error}"
    assert main(["train", "configs/compare-ladder.yaml"]) == 2
    hint = "; `seq2seq configs compare-ladder` copies it to configs/"
    assert f"configs/compare-ladder.yaml: no such file{hint}\n" in capsys.readouterr().err
    for _ in range(2):  # its base is copied with it, but does not replace one that is there
        printed(["configs", "compare-ladder"], capsys)
        copies = sorted(path.name for path in Path("configs").glob("*-[lw]*.yaml"))
        assert copies == ["compare-ladder.yaml", "multi30k-en-de-words.yaml"]
        Path("configs/compare-ladder.yaml").unlink()


def test_the_wheel_has_the_configs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"configs": "seq2seq/shipped_configs"}
    assert len(shipped_configs()) > 30


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


def test_a_key_is_explained_with_its_values_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(["explain", "training.label_smoothing", "precision"], capsys)
    first, second = text.rstrip("\n").split("\n\n")
    assert first.splitlines() == [
        "training.label_smoothing",
        "  probability mass spread over the vocabulary",
        "  values: number, at least 0, below 1",
        "  default: 0.1",
    ]
    assert second.startswith("training.precision\n  bf16, fp16: mixed, with float32 weights;")
    assert "values: float32, bf16, fp16, auto\n" in second
    (tied,) = explanations("tie_embeddings")
    assert "values: true, false" in tied
    section = explanations("vocabulary")
    assert len(section) > 4
    assert all(part.startswith("vocabulary.") for part in section)
    assert [part.split()[0] for part in explanations("name")] == ["name"]


def test_all_keys_are_listed_and_can_be_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seq2seq.cli.explain.json_schema", cache(json_schema))
    lines = printed(["explain"], capsys).splitlines()
    assert max(map(len, lines)) <= 88
    keys = [line.split()[0] for line in lines]
    assert all(len(line.split()) > 1 for line in lines)  # says what the key means
    for section, field in Config.model_fields.items():
        inner = section_class(field.annotation)
        for name in inner.model_fields if inner else ():
            assert f"{section}.{name}" in keys
    assert {"seed", "run_dir", "training.clip_norm", "data.test.src"} <= set(keys)
    assert all(explanations(key)[0].splitlines()[0] == key for key in keys)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("warm-up", ["training.warmup_steps", "training.decay"]),
        ("Warmup", ["training.warmup_steps"]),
        ("label smooth", ["training.label_smoothing"]),
    ],
)
def test_a_word_is_searched_in_the_keys_and_what_they_mean(
    word: str, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = [line.split()[0] for line in printed(["explain", word], capsys).splitlines()]
    assert set(expected) <= set(found)
    assert len(found) < 10


@pytest.mark.parametrize(
    ("key", "meant"), [("lr", "'training.learning_rate'"), ("model.hiden_size", "'hidden_size'")]
)
def test_an_unknown_key_is_answered_with_the_one_meant(key: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"unknown key '{key}'; did you mean {meant}"):
        explanations(key)
