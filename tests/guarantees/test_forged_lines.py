"""A line feed in the name of a file or key never makes a message appear as two."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from seq2seq.__main__ import main
from seq2seq.config.errors import ConfigError
from seq2seq.config.schema import load_config
from seq2seq.runs.layout import BEST, CONFIG, LOG
from seq2seq.runtime.console import aligned_table, console, logger, one_line
from seq2seq.runtime.errors import DamagedFile, RunError, UserError
from seq2seq.training.reporting import RunReporter

FORGED = "seq2seq: error: forged"
NAME = f"x\n{FORGED}\r\x1b[2K\u2028{FORGED}"


def yaml_key(text: str) -> str:
    """Return the text as a quoted YAML key."""
    escaped = (
        f"\\u{ord(character):04x}" if not character.isprintable() else character
        for character in text
    )
    return f'"{"".join(escaped)}"'


@pytest.fixture
def here(small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(small_corpus.parent)
    content = small_corpus.read_text(encoding="utf-8")
    Path("key.yaml").write_text(f"{content}\n{yaml_key(NAME)}: 1\n", encoding="utf-8")
    inner = content.replace("vocabulary: {", f"vocabulary: {{{yaml_key(NAME)}: 1, ")
    Path("inner.yaml").write_text(inner, encoding="utf-8")
    value = content.replace("decoder: bahdanau", f"decoder: {yaml_key(NAME)}")
    Path("value.yaml").write_text(value, encoding="utf-8")
    twice = f"{content}\n{yaml_key(NAME)}: 1\n{yaml_key(NAME)}: 1\n"
    Path("twice.yaml").write_text(twice, encoding="utf-8")
    listed = (
        f"base: config.yaml\nvariants:\n  {yaml_key(NAME)}: {{}}\n  b: {{{yaml_key(NAME)}: 1}}\n"
    )
    Path("variants.yaml").write_text(listed, encoding="utf-8")
    Path(f"empty {NAME}").touch()
    Path(f"run {NAME}").mkdir()
    (Path(f"run {NAME}") / CONFIG).write_text("name: x\n", encoding="utf-8")
    (Path(f"run {NAME}") / BEST).write_bytes(b"damaged")
    return small_corpus.parent


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("call", "lines"),
    [
        (["train", NAME], 1),
        (["train", f"{NAME}/{CONFIG}"], 1),
        (["train", "config.yaml", f"data.train.src={NAME}"], 1),
        (["train", "config.yaml", f"data.train.src=empty {NAME}"], 1),
        (["train", "config.yaml", f"{NAME}=1"], 1),
        (["train", "config.yaml", NAME], 1),
        (["train", "config.yaml", f"model.decoder={NAME}"], 1),
        (["train", "config.yaml", f"run_dir=empty {NAME}"], 1),
        (["train", "config.yaml", f"run_dir=run {NAME}"], 1),
        (["train", "config.yaml", "--init-from", NAME], 1),
        (["train", "config.yaml", f"--{NAME}"], 1),
        (["train", "config.yaml", "--device", NAME], 1),
        (["train", "key.yaml"], 1),
        (["train", "inner.yaml"], 1),
        (["train", "value.yaml"], 1),
        (["train", "twice.yaml"], 2),
        (["check", "config.yaml", f"data.valid.tgt={NAME}"], 1),
        (["compare", "variants.yaml"], 2),
        (["compare", "config.yaml", "--seeds", NAME], 1),
        (["translate", "-m", NAME, "-i", "test.src"], 1),
        (["translate", "-m", f"run {NAME}", "-i", "test.src"], 1),
        (["evaluate", "--hyp", NAME, "-r", "test.tgt"], 1),
        (["evaluate", "--hyp", "test.tgt", "-r", f"empty {NAME}"], 1),
        (["score", "-m", f"run {NAME}", "-i", "test.src", "-r", "test.tgt"], 1),
        (["average", NAME, "-o", "new"], 1),
        ([NAME], 1),
    ],
)
def test_a_message_has_no_forged_lines(
    capsys: pytest.CaptureFixture[str], call: Sequence[str], lines: int
) -> None:
    assert main(call) == 2
    printed = capsys.readouterr()
    assert FORGED in printed.err
    message_lines = printed.err.split("\n")
    assert message_lines.pop() == ""
    assert len(message_lines) == lines
    assert message_lines[0].startswith("seq2seq: error: ")
    assert not any(line.startswith(FORGED) for line in message_lines)
    assert not any(control in printed.err for control in "\r\x1b\u2028")
    assert printed.out == ""


def test_each_note_and_log_message_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with console():
        logger.info(f"note: {NAME}")
        with RunReporter(here, step=0, last_step=1) as reporter:
            reporter.log(f"warning: {NAME}")
    printed = capsys.readouterr().err.split("\n")
    assert printed == [f"note: {one_line(NAME)}", f"warning: {one_line(NAME)}", ""]
    (logged, end) = (here / LOG).read_text(encoding="utf-8").split("\n")
    assert logged.endswith(f" warning: {one_line(NAME)}")
    assert end == ""


def test_each_row_of_a_table_is_one_line() -> None:
    rows = aligned_table([("", "score"), (NAME, "1.0"), ("b", NAME)]).split("\n")
    assert len(rows) == 3


def test_an_error_has_one_line_for_each_argument() -> None:
    for kind in (UserError, RunError, DamagedFile, ConfigError):
        error = kind(f"{NAME}: is wrong", "  second")
        assert error.lines == [f"{one_line(NAME)}: is wrong", "  second"]
        assert str(error) == f"{one_line(NAME)}: is wrong\n  second"
        assert "\n" not in one_line(str(error))
    assert str(UserError()) == ""
    assert isinstance(UserError("x"), ValueError)
    assert isinstance(RunError("x"), RuntimeError)


@pytest.mark.thorough
@pytest.mark.usefixtures("few_steps")
def test_reports_on_stdout_name_files_on_one_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy("train.src", f"t{NAME}")
    shutil.copy("train.tgt", f"u{NAME}")
    files = [f"data.train.src=t{NAME}", f"data.train.tgt=u{NAME}"]
    assert main(["check", str(here / CONFIG), *files, "vocabulary.size=300", "--device=cpu"]) == 0
    out = capsys.readouterr().out
    assert not any(line.startswith(FORGED) for line in out.split("\n"))
    assert "\x1b" not in out


def test_from_python_messages_name_the_override_and_not_the_command_line(here: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(here / CONFIG, ["model.dropout=x", "nothing", "model.dropuot=1", "decoding=1"])
    lines = sorted(str(refused.value).splitlines())
    starts = ("decoding", "model.dropout", "model.dropuot", "nothing")
    assert [line.partition(": ")[0] for line in lines] == [
        f"{start} (override)" for start in starts
    ]
    assert lines[1].endswith(": must be a number; got x")
