"""Console output: the logger of all packages, which writes to stderr, and aligned tables."""

import logging
import sys
from collections.abc import Sequence
from contextlib import suppress


class _StderrHandler(logging.Handler):
    """Write messages to the current stderr, above any progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message; work continues if the reader of stderr is gone."""
        text = self.format(record)
        with suppress(OSError):
            if (tqdm := sys.modules.get("tqdm")) is not None:
                tqdm.tqdm.write(text, file=sys.stderr)
            else:
                print(text, file=sys.stderr, flush=True)


logger = logging.getLogger("seq2seq")
logger.setLevel(logging.INFO)
logger.propagate = False  # the root logger's handlers would print each message a second time
logger.addHandler(_StderrHandler())


def aligned_table(rows: Sequence[Sequence[str]], align: str = "right") -> str:
    """Format rows of equal length as columns: the first left-aligned, the others as `align`."""
    from tabulate import tabulate

    columns = ("left", *[align] * (len(rows[0]) - 1))
    return tabulate(rows, tablefmt="plain", disable_numparse=True, colalign=columns)
