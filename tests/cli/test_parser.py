"""The parser: no abbreviated options, suggestions, completion scripts of shells."""

import argparse
import shutil
import subprocess
import sys

import pytest

from seq2seq.cli.main import main
from seq2seq.cli.parser import COMMANDS, Parser, command_modules

ARGUMENTS = {
    "check": ["config.yaml"],
    "train": ["config.yaml"],
    "compare": ["config.yaml"],
    "translate": ["-m", "run"],
    "evaluate": [],
    "score": ["-m", "run", "-r", "ref"],
    "average": ["run", "-o", "new"],
    "attention": ["-m", "run", "-o", "out.html"],
}


def long_options(command: str) -> list[tuple[str, argparse.Action]]:
    parser = Parser(prog=f"seq2seq {command}")
    command_modules()[command].add_arguments(parser)
    return [
        (option, action)
        for option, action in parser._option_string_actions.items()
        if option.startswith("--") and option != "--help"
    ]


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("command", COMMANDS)
def test_no_option_can_be_abbreviated(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every unambiguous abbreviation is refused, and the full option suggested."""
    known = long_options(command)
    assert known
    for option, action in known:
        short = option[:-1]
        if any(other != option and other.startswith(short) for other, _ in known):
            continue
        value = [] if action.nargs == 0 else ["1"]
        error = refusal([command, *ARGUMENTS[command], short, *value], capsys)
        words = " ".join([short, *value])
        assert error == (
            f"seq2seq: error: unrecognized arguments: {words}; did you mean '{option}'?\n"
        )


def test_an_abbreviation_with_a_value_is_refused_too(capsys: pytest.CaptureFixture[str]) -> None:
    error = refusal(["translate", "-m", "run", "--bea=5"], capsys)
    assert "--bea=5; did you mean '--beam'?\n" in error


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [
        ("--over", "--overwrite"),
        ("--ressume", "--resume"),
        ("--int-from", "--init-from"),
        ("--colour", None),
        ("-z", None),
    ],
)
def test_a_misspelt_option_is_suggested(
    word: str, suggestion: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refusal(["train", "config.yaml", "seed=3", word], capsys)
    hint = f"did you mean '{suggestion}'?" if suggestion else "see seq2seq train --help"
    assert error == f"seq2seq: error: unrecognized arguments: {word}; {hint}\n"


def printed_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit) as stop:
        main(["--print-completion", shell])
    assert stop.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_completion_script_names_all_subcommands(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script = printed_completion(shell, capsys)
    assert all(command in script for command in COMMANDS)
    assert "overwrite" in script  # tcsh has the dashes apart


@pytest.mark.skipif(shutil.which("bash") is None, reason="runs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tra"], {"train", "translate"}),
        (["translate", "--pre"], {"--prefix", "--prefix-file"}),
        (["translate", "-i", "te"], {"text.en", "texts"}),  # files, and folders on the way
        (["translate", "-m", "te"], {"texts"}),  # a run is a folder
        (["train", "te"], {"text.en", "texts"}),
        (["compare", "--split", "v"], {"valid"}),
    ],
)
def test_bash_completes(
    words: list[str],
    expected: set[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    script = printed_completion("bash", capsys)
    folder = tmp_path_factory.mktemp("here")
    (folder / "text.en").touch()
    (folder / "texts").mkdir()
    line = " ".join(["seq2seq", *words])
    program = (
        f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; COMP_LINE='{line}'; "
        'COMP_POINT=${#COMP_LINE}; _shtab_seq2seq; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    assert {word.rstrip("/ ") for word in done.stdout.splitlines()} == expected


def test_without_shtab_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    error = refusal(["--print-completion", "bash"], capsys)
    assert error == (
        "seq2seq: error: --print-completion needs shtab: pip install 'seq2seq[completion]'\n"
    )


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'fish' (choose from" in refusal(["--print-completion", "fish"], capsys)
