"""Argument parser: no abbreviated options, and suggestions."""

import argparse
import sys
from pathlib import Path

import pytest

from seq2seq.__main__ import GROUPS, main
from seq2seq.cli.parser import Parser, command_module, commands_of

COMMANDS = commands_of(GROUPS)

ARGUMENTS = {
    "demo": [],
    "download": ["multi30k"],
    "init": ["my.yaml", "--src-lang", "a", "--tgt-lang", "b", "--train", "t.tsv"],
    "check": ["config.yaml"],
    "split": ["-i", "a.tsv", "-o", "b.tsv"],
    "train": ["config.yaml"],
    "compare": ["config.yaml"],
    "translate": ["-m", "run"],
    "evaluate": [],
    "score": ["-m", "run", "-r", "ref"],
    "report": ["run"],
    "distill": ["-m", "run", "-o", "out.tsv"],
    "back-translate": ["-m", "run", "-i", "text", "-o", "out.tsv"],
    "average": ["run", "-o", "new"],
    "export": ["-m", "run", "-o", "new"],
    "attention": ["-m", "run", "-o", "out.html"],
    "serve": ["-m", "run"],
    "schema": [],
    "configs": [],
    "explain": ["seed"],
    "runs": [],
}


def long_options(command: str) -> list[tuple[str, argparse.Action]]:
    parser = Parser(prog=f"seq2seq {command}")
    command_module(command, COMMANDS[command][0]).add_arguments(parser)
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
def test_options_cannot_be_abbreviated(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every unambiguous abbreviation is refused, with a suggestion of the full option."""
    known = long_options(command)
    assert known or command in ("explain", "runs")  # which have no options
    for option, action in known:
        short = option[:-1]
        if any(other != option and other.startswith(short) for other, _ in known):
            continue
        value = [] if action.nargs == 0 else ["1"]
        error = refusal([command, *ARGUMENTS[command], short, *value], capsys)
        words = (
            " ".join([short, *value])
            if command not in ("translate", "attention", "configs", "demo")
            else short
        )  # "1" is parsed as TEXT
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
def test_the_option_closest_to_a_misspelt_one_is_suggested(
    word: str, suggestion: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refusal(["train", "config.yaml", "seed=3", word], capsys)
    hint = f"did you mean '{suggestion}'?" if suggestion else "see seq2seq train --help"
    assert error == f"seq2seq: error: unrecognized arguments: {word}; {hint}\n"


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--lr", "training.learning_rate"),
        ("--batch-size", "training.batch_tokens"),
        ("--hidden_size=3", "model.hidden_size"),
        ("--model.dropout=0.2", "model.dropout"),
        ("--seed", "seed"),
    ],
)
def test_an_option_that_is_a_key_of_the_config_is_recognized(
    option: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refusal(["train", "config.yaml", option], capsys)
    assert error.endswith(f"{option}; keys of the config are set without dashes: {key}=VALUE\n")


@pytest.mark.parametrize(
    ("command", "option", "suggestion"),
    [
        ("translate", "--nbest", "--n-best"),
        ("translate", "--n_best=5", "--n-best"),
        ("train", "--init_from", "--init-from"),
    ],
)
def test_an_option_spelt_in_another_way_is_suggested(
    command: str, option: str, suggestion: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refusal([command, *ARGUMENTS[command], option], capsys)
    assert error.endswith(f"{option}; did you mean '{suggestion}'?\n")


@pytest.mark.parametrize("command", ["train", "check"])
def test_overrides_are_not_required(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refusal([command], capsys)
    required = "the following arguments are required: CONFIG"
    assert error == f"seq2seq: error: {required}; see seq2seq {command} --help\n"


def printed_help(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_names_the_list_of_config_keys_if_they_can_be_overridden(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed_help(command, capsys)
    assert all(len(line) <= 100 for line in text.splitlines())
    overrides = command in ("train", "check", "compare", "demo")
    assert text.endswith("`seq2seq explain training.decay` describes one.\n") == overrides


def test_the_help_does_not_import_training_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "seq2seq.config.schema", None)
    monkeypatch.delitem(sys.modules, "seq2seq.cli.schema", raising=False)
    assert "--resume" in printed_help("train", capsys)


def test_a_config_may_have_an_equals_sign_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "lr=0.1.yaml"]) == 2
    assert "compare: give at least one config" in capsys.readouterr().err
    Path("lr=0.1.yaml").write_text("nam: a\n", encoding="utf-8")
    assert main(["compare", "lr=0.1.yaml"]) == 2
    assert "lr=0.1.yaml:1: nam: unknown key" in capsys.readouterr().err
