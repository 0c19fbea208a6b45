"""Lines from a stream: available as soon as they arrive, none lost, numbered in order."""

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cases.tiers import one_quick

from seq2seq.__main__ import main
from seq2seq.cli.input import LineReport, numbered
from seq2seq.cli.output import check_output
from seq2seq.inference.translation import Translation
from seq2seq.runtime.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def test_batches_have_the_number_of_their_first_line() -> None:
    lines = [b"%d\n" % number for number in range(1, 6)]
    batches = list(numbered(iter(lines), 2, 11))
    assert batches == [(11, lines[:2]), (13, lines[2:4]), (15, lines[4:])]


class Stream(io.RawIOBase):
    """Standard input whose lines arrive one by one, each when it is awaited."""

    def __init__(self, lines: Sequence[bytes], on_awaited: Callable[[], object]) -> None:
        super().__init__()
        self._lines = iter(lines)
        self._on_awaited = on_awaited

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._on_awaited()
        line = next(self._lines, b"")
        buffer[: len(line)] = line
        return len(line)


@pytest.mark.parametrize(("options", "written"), [(["--stream"], [0, 1, 2, 3]), ([], [0, 0, 0, 0])])
def test_a_stream_is_translated_before_its_next_line_is_awaited(
    tiny_runs: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    written: list[int],
) -> None:
    """`written` has the lines of output each time that a line is awaited."""
    output = [""]
    counts = list[int]()

    def count() -> None:
        output[0] += capsys.readouterr().out
        counts.append(output[0].count("\n"))

    lines = Stream([b"buda ki.\n", b"\n", b"more\n"], count)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(lines)))
    assert main(["translate", "-m", str(tiny_runs["luong"]), "-b", "1", *options]) == 0
    assert counts == written


@contextmanager
def streaming(run: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `seq2seq translate --stream` with pipes."""
    command = [sys.executable, "-m", "seq2seq", "translate", "-m", str(run), "--stream", *arguments]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.skipif(os.name != "posix", reason="reads pipes as POSIX has them")
def test_a_line_is_translated_while_the_stream_stays_open(tiny_runs: dict[str, Path]) -> None:
    with streaming(tiny_runs["luong"], "-b", "1") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        texts = []
        for line in (b"buda ki.\n", b"\n", b"mo\xffre\n", b"buda ki.\nzu\n"):
            process.stdin.write(line)
            texts += [process.stdout.readline() for _ in range(line.count(b"\n"))]
            if b"\xff" in line:
                message = process.stderr.readline().decode()
                assert message.startswith("note: bytes that are not UTF-8 were replaced in ")
                assert message.endswith(" 1 line (3) of standard input\n")
        assert texts[1] == b"\n"
        assert texts[0] == texts[3] != texts[4]
        assert process.poll() is None
        process.stdin.write(b"last")
        process.stdin.close()
        assert process.stdout.read().count(b"\n") == 1
        assert process.stderr.read() == b""
        assert process.wait() == 0


@one_quick("how", ["", "--stream"])
def test_a_closed_reader_ends_the_command_quietly(
    tiny_runs: dict[str, Path], tmp_path: Path, how: str
) -> None:
    """The remaining output exceeds the capacity of a pipe."""
    source = tmp_path / "in"
    source.write_bytes(b"buda ki more ta zu.\n\n\n\n" * 3000)
    python = shlex.quote(sys.executable)
    run = shlex.quote(str(tiny_runs["none"]))
    command = f"{python} -m seq2seq translate -m {run} -b 1 --n-best 1 {how}"
    pipeline = f'cat "{source}" | {command} | head -n 1; echo "${{PIPESTATUS[1]}}" >&2'
    process = subprocess.run(["bash", "-c", pipeline], cwd=ROOT, capture_output=True, check=True)
    assert process.stdout.count(b"\n") == 1
    assert process.stderr.decode() == "0\n"


def test_a_device_in_a_folder_without_write_permission_is_an_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only root may create files in /dev, but everyone may write to its devices."""
    monkeypatch.setattr(os, "access", lambda path, _: str(path) != "/dev")
    check_output(Path("/dev/null"))
    with pytest.raises(UserError, match="no permission to write in the folder /dev"):
        check_output(Path("/dev/new"))


def test_a_note_quotes_what_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    """Notes of one kind are one message, whatever characters they quote."""
    report = LineReport(Path("lines"))
    parts = ["hardly any: c's", "plain {0}", "hardly any: d"]  # in a single line
    notes = (["hardly any: {a}: b"], ["plain {0}"], [], parts)
    report.note_translations(1, [Translation(notes=entry) for entry in notes])
    with caplog.at_level("INFO", logger="seq2seq"):
        report.log()
    assert [record.getMessage() for record in caplog.records] == [
        "note: hardly any: 2 lines (1 '{a}: b', 4 \"c's, d\")",
        "note: plain {0}: 2 lines (2, 4)",
    ]


def test_a_line_that_two_models_note_is_listed_once(caplog: pytest.LogCaptureFixture) -> None:
    """`attention --beside` translates each line twice."""
    with caplog.at_level("INFO"), LineReport("text") as report:
        for _ in range(2):
            for number in (3, 7):
                report.note("strange: {lines}", number)
        report.note("strange: {lines}", 3, detail="a word")
    assert caplog.messages == ["note: strange: 2 lines (3, 7, 3 'a word')"]
