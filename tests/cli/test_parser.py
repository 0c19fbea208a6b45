"""Argument parser: no abbreviated options, and suggestions."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest

from seq2seq.__main__ import GROUPS, main
from seq2seq.cli.main import main as run_command
from seq2seq.cli.options import CommandLine, PathName, override_or_path
from seq2seq.cli.parser import Parser, command_module, commands_of, parse

COMMANDS = commands_of(GROUPS)

ARGUMENTS = {
    "demo": [],
    "download": ["multi30k"],
    "init": ["my.yaml", "--src-lang", "a", "--tgt-lang", "b", "--train", "t.tsv"],
    "check": ["config.yaml"],
    "split": ["-i", "a.tsv", "-o", "b.tsv"],
    "train": ["config.yaml"],
    "distill-train": ["config.yaml"],
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
    "completion": ["bash"],
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
    options = long_options(command)
    assert options or command in ("completion", "explain", "runs")  # which have no options
    for option, action in options:
        short = option[:-1]
        if any(
            other_option != option and other_option.startswith(short) for other_option, _ in options
        ):
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
    error = refusal(["translate", "-m", "run", "--beam-size", "5"], capsys)  # as in Python
    assert "--beam-size; did you mean '--beam'?\n" in error
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
    overrides = command in ("train", "distill-train", "check", "compare", "demo")
    assert text.endswith("`seq2seq explain training.decay` describes one.\n") == overrides


def test_a_call_makes_the_parser_of_its_command_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making those of all others took longer than the rest of a call that is refused."""
    made_parsers = list[str]()
    make = Parser.__init__

    def noted_make(self: Parser, **settings: Any) -> None:
        made_parsers.append(settings["prog"])
        make(self, **settings)

    monkeypatch.setattr(Parser, "__init__", noted_make)
    parse(["runs", "runs"], GROUPS)
    assert made_parsers == ["seq2seq", "seq2seq runs"]


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


def values_with_types(record: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields of a record and of those in it: name, value and declared type."""
    for field in fields(record):
        value = getattr(record, field.name)
        if is_dataclass(value):
            yield from values_with_types(value)
        else:
            yield field.name, value, field.type


def has_type(value: object, kind: Any) -> bool:
    """Return whether a value has an annotated type."""
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return any(has_type(value, member) for member in get_args(kind))
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) in (list, tuple):
        return isinstance(value, get_origin(kind)) and all(
            has_type(entry, member)
            for entry, member in zip(value, get_args(kind) * len(value), strict=False)
        )
    return isinstance(value, get_origin(kind) or kind)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_a_command_have_the_declared_types(command: str) -> None:
    """`parse` raises TypeError for a field without an argument, and the reverse."""
    words = [command, *ARGUMENTS[command]]
    call = parse(words, GROUPS)
    assert type(call.options).__module__ == call.run.__module__
    for name, value, kind in values_with_types(call.options):
        assert has_type(value, kind), f"{name}: {value!r} is no {kind}"
        if kind is CommandLine:
            assert value == CommandLine(words, GROUPS)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_name_of_a_file_is_refused(command: str) -> None:
    """A variable that is not set gives one, which would be the working folder."""
    parser = Parser()
    command_module(command, COMMANDS[command][0]).add_arguments(parser)
    for action in parser._actions:
        if action.type in (Path, PathName, override_or_path):
            with pytest.raises(argparse.ArgumentError, match=r"is empty; give a name$"):
                parser._get_value(action, "")


def test_an_empty_name_is_refused_by_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "-m", "en-fr", "-i", ""]) == 2
    usage = "see seq2seq translate --help"
    assert capsys.readouterr().err == (
        f"seq2seq: error: argument -i/--input: is empty; give a name; {usage}\n"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_the_rows_of_conflicts_name_options(command: str) -> None:
    module = command_module(command, COMMANDS[command][0])
    options = parse([command, *ARGUMENTS[command]], GROUPS).options
    for row in (*getattr(module, "SOURCES", ()), *getattr(module, "CONFLICTS", ())):
        row.text.format(options=options)
        for condition in (row.this, row.that):
            if callable(condition):
                condition(options)
            else:
                assert all(hasattr(options, name) for name in condition.split())


EXPERIMENT = """
from dataclasses import dataclass
from pathlib import Path

@dataclass(frozen=True)
class Options:
    run: Path
    model: str
    overrides: int
    decoding: float | None
    command: str | None

def add_arguments(parser):
    parser.add_argument("run", type=Path)
    parser.add_argument("--model", default="luong")
    parser.add_argument("--overrides", type=int, default=0)
    parser.add_argument("--decoding", type=float)
    parser.add_argument("--command")
    ADDED

def run(options):
    print(options)
    return 3
"""


def experiment(monkeypatch: pytest.MonkeyPatch, added_code: str = "") -> dict[str, Any]:
    """Return a table with a command `experiment`, which exists while the test runs."""
    module = ModuleType("experiments.experiment")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(EXPERIMENT.replace("ADDED", added_code), module.__dict__)
    return {"try": {"experiment": ("experiments", "tries something")}}


def test_an_argument_may_have_any_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = experiment(monkeypatch)
    words = ["--model", "bahdanau", "--overrides", "2", "--decoding", "0.5", "--command", "train"]
    assert run_command(groups, ["experiment", "runs/a", *words]) == 3
    fields_of_run = f"run={Path('runs/a')!r}, model='bahdanau', overrides=2, decoding=0.5"
    assert capsys.readouterr().out == f"Options({fields_of_run}, command='train')\n"
    assert run_command(groups, ["experiment", "a" * 300, "--model", "b" * 300]) == 2
    assert capsys.readouterr().err == f"seq2seq: error: {'a' * 300}: File name too long\n"


def test_options_and_arguments_must_have_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = experiment(monkeypatch, 'parser.add_argument("--more")')
    with pytest.raises(
        TypeError, match=r"^experiments\.experiment\.Options has no field for: more$"
    ):
        parse(["experiment", "runs/a"], groups)
    groups = experiment(
        monkeypatch, "parser._actions.pop(); del parser._option_string_actions['--command']"
    )
    with pytest.raises(TypeError, match=r"Options: no argument is command$"):
        parse(["experiment", "runs/a"], groups)


def test_an_option_in_place_of_a_default_list_replaces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables of the server give such defaults."""
    monkeypatch.setenv("SEQ2SEQ_MODEL", "a b")
    monkeypatch.setenv("SEQ2SEQ_SCORES", "mine:A mine:B")
    call = parse(["serve"], GROUPS)
    assert call.options.model == ["a", "b"]
    assert call.scores == ["mine:A", "mine:B"]
    call = parse(["serve", "-m", "c", "-m", "d", "--score", "mine:C"], GROUPS)
    assert call.options.model == ["c", "d"]
    assert call.scores == ["mine:C"]
