"""`seq2seq help` and `configs`: what there is, without training anything."""

import re
import tomllib
from pathlib import Path

import pytest
from cases.commands import printed

from seq2seq.__main__ import GROUPS, main
from seq2seq.cli.configs import GROUPS as GROUPS_OF_CONFIGS
from seq2seq.cli.parser import commands_of
from seq2seq.config.document import shipped_configs
from seq2seq.config.schema import load_config

COMMANDS = commands_of(GROUPS)


ROOT = Path(__file__).resolve().parents[2]


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
    error = (
        "data/multi30k/train.en.gz: no such file; `seq2seq download multi30k` fetches this corpus\n"
    )
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
