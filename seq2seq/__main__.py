"""The `seq2seq` command, also as `python -m seq2seq`."""

import signal
import sys


def main() -> int:
    """Run the command; Ctrl-C while its modules are imported ends the process at once."""
    waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if waits:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from seq2seq.cli.main import main as run_command

    if waits:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run_command()


if __name__ == "__main__":
    sys.exit(main())
