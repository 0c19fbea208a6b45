"""Outputs of `translate` that are pipes, links, standard streams or broken."""

import gzip
import io
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cases.commands import Call, refused

from seq2seq.__main__ import main
from seq2seq.inference.translator import Translator
from seq2seq.runtime.errors import RunError

ROOT = Path(__file__).resolve().parents[2]


def test_a_failure_keeps_finished_translations_beside_the_output(
    call: Call, luong: Path, src_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Translator.stream
    out = tmp_path / "out"
    note = f"{out}.incomplete: the translations of the first 4 lines\n"
    out.write_text("what was there", encoding="utf-8")
    names_before = sorted(path.name for path in tmp_path.iterdir())
    for error, code, words in (
        (RunError("the roof is on fire"), 1, "seq2seq: error: the roof is on fire\n"),
        (KeyboardInterrupt(), 130, "seq2seq: error: interrupted\n"),
        (OSError(28, "No space left on device", "disk"), 1, "seq2seq: error: disk: No space left"),
        (
            RuntimeError("can't allocate memory"),
            1,
            "seq2seq: error: out of memory; translate with a smaller -b or --batch-size",
        ),
    ):
        calls: list[int] = []

        def fail_later(
            self: Translator,
            lines: Sequence[str],
            *arguments: Any,
            error: BaseException = error,
            calls: list[int] = calls,
            **options: Any,
        ) -> object:
            calls.append(len(lines))
            if len(calls) == 2:
                raise error
            return stream(self, lines, *arguments, **options)

        monkeypatch.setattr(Translator, "stream", fail_later)
        command = ("translate", "-m", luong, "-i", src_file, "-b", 1, "--batch-size", 4)
        result = call(*command, "-o", out)
        assert (result.code, result.out) == (code, b"")
        assert result.err.startswith(note + words)
        assert result.err.count("\n") == 2
        out.with_name("out.incomplete").unlink()
        assert out.read_text(encoding="utf-8") == "what was there"
        assert sorted(path.name for path in tmp_path.iterdir()) == names_before


def test_an_output_pipe_is_written_to_and_not_replaced(
    call: Call, luong: Path, src_file: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"  # like /dev/stdout or /dev/null
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        result = call("translate", "-m", luong, "-i", src_file, "-o", pipe)
        assert result.code == 0
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert os.read(reader, 1 << 16).count(b"\n") == 11
    finally:
        os.close(reader)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux has such links")
def test_output_may_be_a_link_to_a_pipe_like_dev_stdout(
    call: Call, luong: Path, src_file: Path, tmp_path: Path
) -> None:
    """The link target is `pipe:[1234]`, which does not exist as a file."""
    reader, writer = os.pipe()
    (tmp_path / "stdout").symlink_to(f"/proc/self/fd/{writer}")
    result = call("translate", "-m", luong, "-i", src_file, "-o", tmp_path / "stdout", "-b", 1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read().count(b"\n") == 11
    assert result.code == 0


@pytest.mark.parametrize("damage", ["cut off", "no gzip"])
def test_a_damaged_gzip_input_is_reported(
    call: Call, luong: Path, src_file: Path, tmp_path: Path, damage: str
) -> None:
    packed = tmp_path / "in.gz"
    packed.write_bytes(
        gzip.compress(src_file.read_bytes())[:-20] if damage == "cut off" else b"zu\n"
    )
    result = call("translate", "-m", luong, "-i", packed, "-o", tmp_path / "out")
    assert result.code == (1 if damage == "cut off" else 2)
    assert result.err.startswith(f"seq2seq: error: {packed}: ")
    assert result.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_utf_16_is_reported(call: Call, luong: Path, tmp_path: Path) -> None:
    text = tmp_path / "in"
    text.write_bytes("buda ki.\nzu\n".encode("utf-16-le"))
    result = call("translate", "-m", luong, "-i", text)
    assert (result.code, len(result.lines)) == (0, 3)
    lines = f"3 lines (1, 2, 3) of {text}\n"
    assert result.err == f"note: NUL characters (is the text UTF-16? Save it as UTF-8) in {lines}"


def test_the_file_behind_stdin_is_not_replaced(luong: Path, tmp_path: Path) -> None:
    text = tmp_path / "in"
    text.write_text("buda ki.\n", encoding="utf-8")
    command = [sys.executable, "-m", "seq2seq", "translate", "-m", str(luong), "-o", str(text)]
    with text.open("rb") as stdin:
        ended = subprocess.run(
            command, stdin=stdin, capture_output=True, text=True, check=False, cwd=ROOT
        )
    assert ended.returncode == 2
    assert f"{text}: is already read or written by this command" in ended.stderr
    assert text.read_text(encoding="utf-8") == "buda ki.\n"


@pytest.mark.parametrize("name", ["loop", "into/nowhere"])
def test_a_broken_link_is_refused_as_output(
    call: Call, luong: Path, src_file: Path, tmp_path: Path, name: str
) -> None:
    link = tmp_path / "loop"
    link.symlink_to(name)
    result = call("translate", "-m", luong, "-i", src_file, "-o", link)
    refused(result, link, "is a broken link; remove it")


def with_closed(name: str, *arguments: object) -> int:
    """Run the command with a closed stream, then close the stream that replaced it."""
    code = main([str(argument) for argument in arguments])
    getattr(sys, name).close()
    return code


def test_without_stderr_notes_are_dropped_and_not_mixed_with_translations(
    luong: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a stderr, Python prints messages for stderr on stdout."""
    src_file = tmp_path / "invalid"
    src_file.write_bytes(b"buda ki.\n\xff zu\nmo\n")
    monkeypatch.setattr(sys, "stderr", None)
    assert with_closed("stderr", "translate", "-m", luong, "-i", src_file, "-b", "1") == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 3
    assert "note" not in out


@pytest.mark.parametrize(("name", "option"), [("stdin", "-i FILE"), ("stdout", "-o FILE")])
def test_a_closed_stdin_or_stdout_is_reported(
    luong: Path,
    src_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    option: str,
) -> None:
    options = ["-i", src_file] if name == "stdout" else []
    with monkeypatch.context() as patch:
        patch.setattr(sys, name, None)
        assert with_closed(name, "translate", "-m", luong, "-b", "1", *options) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("seq2seq: error: standard ")
    assert line.endswith(f"is closed; give a file, {option}")


class BrokenStream(io.StringIO):
    """Stream for stderr whose reader has exited."""

    def write(self, _: str) -> int:
        raise OSError(5, "Input/output error")


def test_no_translation_is_lost_if_stderr_is_broken(
    luong: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    src_file = tmp_path / "invalid"
    src_file.write_bytes(b"\xff zu\nmo\n")
    monkeypatch.setattr(sys, "stderr", BrokenStream())
    assert main(["translate", "-m", str(luong), "-i", str(src_file), "-b", "1", "--stream"]) == 0
    assert capsys.readouterr().out.count("\n") == 2
