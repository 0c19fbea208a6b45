"""Commands of `seq2seq` as processes of their own, one after the other or some at once.

Each step is a process, as it is a command: what it held in memory is free when it ends, trainings
side by side have their own threads, and a crash of one harms no other. A child is not of the
terminal's group, so that Ctrl-C reaches this process alone, which stops its children once.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import IO, NamedTuple, Protocol

from seq2seq.runtime.console import logger
from seq2seq.runtime.threads import VARIABLE

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


def starter(lock: int | None) -> Start:
    """Return the function that starts a command; children hold the descriptor of a lock, too."""

    def start(name: str, words: Sequence[str], jobs: int) -> Child:
        environment = {**os.environ, VARIABLE: "1"} if jobs > 1 else None
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.child", *words],
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
    for line in stream:
        logger.info(f"{name}: {line.decode(errors='replace').rstrip()}")


def wait_for_one(running: Iterable[Work], stops: Sequence[int]) -> None:
    """Wait until one of the commands, if there are any, has ended, or a signal has arrived."""
    running = list(running)
    while running and not stops and all(work.poll() is None for work in running):
        time.sleep(_POLL_SECONDS)


def stop_all(running: Iterable[Work], number: int) -> None:
    """Send a signal to all commands, and wait until they have ended."""
    running = list(running)
    for work in running:
        work.stop(number)
    while any(work.poll() is None for work in running):
        time.sleep(_POLL_SECONDS)
