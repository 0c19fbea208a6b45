"""Errors name the arguments of functions, each caller's way."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from seq2seq.__main__ import GROUPS
from seq2seq.cli.arguments import option
from seq2seq.cli.parser import Parser, command_module, commands_of
from seq2seq.runtime import errors
from seq2seq.runtime.errors import UserError, argument, arguments_spelled

PACKAGE = Path(__file__).resolve().parents[2] / "seq2seq"
COMMAND_LINES = (  # which write them
    PACKAGE / "tools/distillation/steps.py",
    PACKAGE / "tools/analysis/compare/cell.py",
)
COMMAND = re.compile(r"`[^`\n]*`|\b(?:seq2seq|iconv|xz|python3) [a-z-]+.*")  # for a shell


@pytest.mark.parametrize(
    ("name", "value", "in_python", "on_command_line"),
    [
        ("n_best", 3, "n_best=3", "--n-best 3"),
        ("device", "cuda:9", "device='cuda:9'", "--device cuda:9"),
        ("init_from", Path("runs/a"), "init_from=runs/a", "--init-from runs/a"),
        ("resume", True, "resume=True", "--resume"),
        ("beam_size", None, "beam_size", "-b"),
    ],
)
def test_an_error_spells_its_argument_as_its_caller_does(
    name: str, value: object, in_python: str, on_command_line: str
) -> None:
    error = UserError("is refused", argument=name, value=value)
    assert (str(error), error.argument) == (f"{in_python}: is refused", name)
    with arguments_spelled(option):
        assert str(UserError("is refused", argument=name, value=value)) == (
            f"{on_command_line}: is refused"
        )
        assert argument(name, value) == on_command_line
    assert argument(name, value) == in_python


def test_options_are_spelled_by_the_command_line_alone() -> None:
    parsers = [
        subparser(name, command_module(name, package))
        for name, (package, _) in commands_of(GROUPS).items()
    ]
    options = {text for parser in parsers for text in parser._option_string_actions} - {"-h", "-m"}
    option_pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(options))})(?![\w-])")
    named_options = {
        f"{path.relative_to(PACKAGE)}: {match}"
        for path in PACKAGE.rglob("*.[py]*")
        if path.suffix in (".py", ".yaml")
        and not {"cli", "commands"}.intersection(path.parts)
        and path.name != "search_options.py"  # which declares them
        and path not in COMMAND_LINES
        for match in option_pattern.findall(COMMAND.sub("", path.read_text("utf-8")))
    }
    assert not named_options


def subparser(name: str, module: ModuleType) -> Parser:
    parser = Parser(prog=name)
    module.add_arguments(parser)
    return parser


def test_a_missing_file_is_looked_for_beside_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths are relative to the working directory; the file of a stem is the one meant."""
    monkeypatch.chdir(tmp_path)
    errors.remember_config(Path("c.yaml"))
    Path("sub").mkdir()
    for name in ("tc", "c.yaml", "sub/t.en", ".u.en"):
        Path(name).touch()
    assert errors.suggest_file(Path("c")) == "; did you mean 'c.yaml'?"
    assert errors.suggest_file(Path("t.en")) == ""
    assert errors.suggest_file(Path("u.en")) == ""  # but for a hidden file
    assert errors.suggest_file(Path(".v.en")) == "; did you mean '.u.en'?"
    assert "write the folder out" in errors.suggest_file(Path("~/t.en"))
    errors.remember_config(Path("here.yaml"))
    errors.remember_config(Path("sub/c.yaml"))
    assert errors.suggest_file(Path("t.en")) == (
        "; sub/t.en exists, but paths are relative to the working directory: cd sub"
    )


def test_a_missing_file_that_a_command_of_the_config_makes(tmp_path: Path) -> None:
    """It is none of a download, and none that a similar name means."""
    config = tmp_path / "c.yaml"
    command = f"seq2seq split -i {tmp_path}/train.gz -o {tmp_path}/cut-{{}}.gz"
    config.write_text(f"# Tatoeba\n#   {command}\nname: x\n", encoding="utf-8")
    (tmp_path / "test.gz").touch()
    errors.remember_config(config)
    hint = f"; the comments of {config} have the commands that make it"
    assert errors.suggest_file(tmp_path / "cut-test.gz") == hint
    assert "did you mean" in errors.suggest_file(tmp_path / "tset.gz")
    corpus = tmp_path / "anki-eng-fra"
    text = "; `seq2seq download anki-eng-fra` fetches this corpus"
    assert errors.suggest_file(corpus / "train.gz") == text
    config.write_text("# {} [\n#\n\n", encoding="utf-8")
    assert errors.suggest_file(corpus / "train.gz") == text


def test_messages_without_torch_install_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package itself would bring PyTorch with CUDA; its extras do, too."""
    absent = {"torch", "pydantic", "yaml"}
    monkeypatch.setattr(errors, "is_installed", lambda name: name not in absent)
    serving = str(errors.not_installed("serve needs fastapi", "serve"))
    assert serving.startswith("serve needs fastapi. Run: pip install fastapi ")
    assert "uvicorn" in serving
    assert "torch" not in serving
    message = errors.missing_extra(ModuleNotFoundError(name="pydantic"), "check")
    assert str(message).endswith("(pydantic). Run: pip install pydantic pyyaml")
    message = errors.missing_extra(ModuleNotFoundError(name="torch"), "train")
    assert "download.pytorch.org/whl/cpu; with CUDA: pip install seq2seq-attention" in str(message)
    absent.clear()
    assert "'seq2seq-attention[serve]'" in str(errors.not_installed("it", "serve"))
