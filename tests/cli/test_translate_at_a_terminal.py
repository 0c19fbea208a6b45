"""`seq2seq translate` at a terminal: a prompt, editing, history, and an end without an error."""

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cases.environment import project_environment

pytest.importorskip("readline")
UP = b"\x1b[A"
CTRL_C = b"\x03"
CTRL_D = b"\x04"
LEFT = b"\x1b[D"


class Terminal:
    """Pseudo-terminal of a process."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor, self.process = descriptor, process
        self.unread = b""

    def write(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def until(self, text: bytes) -> bytes:
        """Return what is shown up to a text, and wait for that."""
        while text not in self.unread:
            ready, _, _ = select.select([self._descriptor], [], [], 600)
            assert ready, self.unread
            self.unread += self._read()
        text_before, _, self.unread = self.unread.partition(text)
        return text_before

    def interrupt(self) -> None:
        """Press Ctrl-C until the process ends: Python may not yet wait for keys."""
        while self.process.poll() is None:
            self.write(CTRL_C)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1)

    def rest(self) -> bytes:
        """Return what is shown until the process ends."""
        while part := self._read():
            self.unread += part
        self.process.wait(timeout=600)
        return self.unread

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, 1 << 16)
        except OSError:  # the process has ended
            return b""


@contextmanager
def terminal(folder: Path, *arguments: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    (settings := folder / "inputrc").write_text("set enable-bracketed-paste off\n")
    environment = {**project_environment(), "TERM": "xterm", "INPUTRC": str(settings)}
    with subprocess.Popen(
        [sys.executable, "-m", "seq2seq", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),  # Ctrl-C interrupts it
    ) as process:
        os.close(theirs)
        try:
            yield Terminal(ours, process)
        finally:
            process.kill()
            os.close(ours)


@pytest.mark.race
def test_typed_lines_are_edited_and_remembered(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    """Arrow keys move in the line, or bring back an earlier one: nothing of them is translated."""
    with terminal(tmp_path, "translate", "-m", str(tiny_runs["luong"])) as shell:
        shell.until(b"end with Ctrl-D.\r\n> ")
        shell.write(b"ba o." + 2 * LEFT + b"l\n")
        shell.until(b"\n")
        first = shell.until(b"\r\n> ")
        shell.write(UP + b"\n")
        shell.until(b"ba lo.")
        shell.until(b"\n")
        assert shell.until(b"\r\n> ").split(b"\n")[-1] == first.split(b"\n")[-1]
        shell.write(CTRL_D)
        assert b"error" not in shell.rest()
        assert shell.process.returncode == 0


@pytest.mark.race
def test_an_interruption_at_the_prompt_is_no_error(
    tiny_runs: dict[str, Path], tmp_path: Path
) -> None:
    with terminal(tmp_path, "translate", "-m", str(tiny_runs["luong"])) as shell:
        shell.until(b"end with Ctrl-D.\r\n> ")
        shell.interrupt()
        output = shell.rest()
        assert (b"error" in output, b"Traceback" in output) == (False, False)
        assert shell.process.returncode == 130
