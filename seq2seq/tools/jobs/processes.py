"""Commands as processes of their own, one after the other or some at once.

What a command held in memory is free when it ends, trainings side by side have their own threads,
and a crash of one harms no other. A child is not of the terminal's group, so that Ctrl-C reaches
this process alone, which stops its children once.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple, Protocol

from seq2seq.runtime.console import logger
from seq2seq.runtime.threads import VARIABLE

COMMANDS = "seq2seq.__main__"  # module of the commands of `seq2seq`
_POLL_SECONDS = 0.1
Start = Callable[[str, Sequence[str], int], "Work"]  # name, command, jobs at once


class Work(Protocol):
    """A command that was started."""

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""

    def stop(self, number: int) -> None:
        """Send a signal."""


class Child(NamedTuple):
    """Process of a command; its messages are those of this process, or logged after its name."""

    process: subprocess.Popen[bytes]
    reader: threading.Thread | None

    def poll(self) -> int | None:
        """Return the exit code once the process has ended and its messages are logged."""
        code = self.process.poll()
        if code is not None:
            if self.reader is not None:
                self.reader.join()
            if self.process.stdin is not None:
                self.process.stdin.close()
        return code

    def stop(self, number: int) -> None:
        """Send a signal; nothing happens if the process has ended."""
        self.process.send_signal(number)


def starter(lock: int | None, module: str = COMMANDS) -> Start:
    """Return the function that starts a command; children hold the descriptor of a lock, too.

    `module` has the function `main` that runs the command, see `child`.
    """

    def start(name: str, words: Sequence[str], jobs: int) -> Child:
        environment = {**os.environ, VARIABLE: "1"} if jobs > 1 else None
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.child", module, *words],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE if jobs > 1 else None,
            env=environment,
            start_new_session=True,
            pass_fds=() if lock is None else (lock,),
        )
        if process.stderr is None:
            return Child(process, None)
        reader = threading.Thread(target=_log_lines, args=(name, process.stderr))
        reader.start()
        return Child(process, reader)

    return start


def _log_lines(name: str, stream: IO[bytes]) -> None:
    """Log the messages of a child that runs beside others."""
    start = f"{name}: "  # which the first message of a training has already
    with stream:
        for line in stream:
            message = line.decode(errors="replace").rstrip()
            logger.info(message if message.startswith(start) else start + message)


class Running(NamedTuple):
    """A command that runs."""

    work: Work
    began: float


class Ended(NamedTuple):
    """A command that has ended, or was stopped."""

    name: str
    code: int
    seconds: float


class JobPool:
    """Commands that run at once, by name, up to a number of jobs."""

    def __init__(self, start: Start, jobs: int) -> None:
        """Start commands by a function, which learns how many run at once."""
        self._start = start
        self._jobs = jobs
        self._running: dict[str, Running] = {}

    @property
    def names(self) -> list[str]:
        """Return the names of the commands that run."""
        return list(self._running)

    @property
    def has_room(self) -> bool:
        """Return whether another command may begin."""
        return len(self._running) < self._jobs

    def begin(self, name: str, words: Sequence[str]) -> None:
        """Start a command."""
        self._running[name] = Running(self._start(name, words, self._jobs), time.monotonic())

    def wait(self, stops: Sequence[int]) -> None:
        """Wait until a command, if there are any, has ended, or a signal has arrived."""
        running = [entry.work for entry in self._running.values()]
        while running and not stops and all(work.poll() is None for work in running):
            time.sleep(_POLL_SECONDS)

    def collect(self) -> list[Ended]:
        """Remove and return the commands that have ended."""
        ended = list[Ended]()
        for name, entry in list(self._running.items()):
            code = entry.work.poll()
            if code is not None:
                del self._running[name]
                ended.append(Ended(name, code, time.monotonic() - entry.began))
        return ended

    def stop(self, number: int) -> list[Ended]:
        """Send a signal to all commands; wait until they have ended, and return them."""
        for entry in self._running.values():
            entry.work.stop(number)
        ended = list[Ended]()
        while self._running:
            self.wait(())
            ended += self.collect()
        return ended
