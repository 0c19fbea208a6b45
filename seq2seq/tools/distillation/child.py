"""Run a command of `seq2seq` as the child of another process, and stop it when that one ends.

    python -m seq2seq.tools.distillation.child train CONFIG

Standard input is a pipe that the parent holds open. Its end, however the parent was killed, is a
SIGTERM to this process: a training saves its state, and a translation keeps its journal.
"""

import os
import signal
import sys
import threading

from seq2seq.__main__ import main


def _stop_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # not by the buffer of stdin, whose lock would outlive the end
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    sys.exit(main(sys.argv[1:]))
