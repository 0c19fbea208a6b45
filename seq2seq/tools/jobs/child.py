"""Run a command as the child of another process, and stop it when that one ends.

    python -m seq2seq.tools.jobs.child MODULE train CONFIG

MODULE has a function `main` that takes the command and returns an exit code: seq2seq.__main__ for
the commands of `seq2seq`. Standard input is a pipe that the parent holds open. Its end, however the
parent was killed, is a SIGTERM to this process: a training saves its state, and a translation keeps
its journal.
"""

import os
import signal
import sys
import threading
from importlib import import_module


def _stop_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # not by the buffer of stdin, whose lock would outlive the end
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    module = import_module(sys.argv[1])
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    sys.exit(module.main(sys.argv[2:]))
