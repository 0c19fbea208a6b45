"""Calls of the command line, in this process or in one that a signal ends, and their outcome."""

import subprocess
import sys
from collections.abc import Callable, Collection
from typing import NamedTuple

import pytest

from cases.environment import project_environment
from seq2seq.__main__ import main


class Result(NamedTuple):
    """Output and exit code of a call."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        """Return the lines of stdout, each of which ends in a line feed."""
        *lines, end = self.out.decode().split("\n")
        assert end == ""
        return lines


Call = Callable[..., Result]


def exit_code(run: Callable[[], object]) -> int:
    try:
        code = run()
    except SystemExit as stop:
        code = stop.code
    assert isinstance(code, int)
    return code


def refused(result: Result, *parts: object) -> None:
    """Check for exit code 2 and a one-line message."""
    assert result.code == 2, result.err
    assert result.out == b""
    assert result.err.startswith("seq2seq: error: ")
    assert result.err.count("\n") == 1
    for part in parts:
        assert str(part) in result.err


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        code: object = main(words)
    except SystemExit as stop:  # as --help does
        code = stop.code
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


def signalled(words: list[str], steps: Collection[str], number: int) -> str:
    """Send a signal to a command once it has reported these steps; return its messages from then.

    They end when its children have ended, which have its stderr, too.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "seq2seq", *words],
        env=project_environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        missing = set(steps)
        for line in process.stderr:
            missing.discard(line.partition(",")[0])
            if not missing:
                break
        process.send_signal(number)
        return process.stderr.read()
