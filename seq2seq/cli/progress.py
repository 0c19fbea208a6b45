"""Progress bar and summary of a command, on a terminal only."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from seq2seq.data.lines import is_compressed
from seq2seq.runtime.console import counted, duration, logger

_BLOCK_BYTES = 1 << 20


@contextmanager
def progress(
    task: str, total: int | None, unit: str = "line", visible: bool = True, done: int = 0
) -> Iterator[Callable[[int], object] | None]:
    """Yield a function that advances a bar on stderr; None if it is no terminal or not `visible`.

    The bar starts after what is `done` already, such as by an earlier call.

    After the block, the bar gives way to a summary, such as "translated 10,000 lines in 40.2 s".
    A runtime without tqdm shows no bar.
    """
    tqdm = _bar_class() if visible and sys.stderr.isatty() else None
    if tqdm is None:
        yield None
        return
    began = time.monotonic()
    with tqdm(
        desc=task, total=total, initial=done, unit=f" {unit}s", leave=False, dynamic_ncols=True
    ) as bar:
        yield bar.update
        count = int(bar.n) - done
    log_duration(task, count, unit, began)


def above_bar() -> AbstractContextManager[object]:
    """Return a context in which lines may be printed while a bar is shown."""
    if (tqdm := sys.modules.get("tqdm")) is None:
        return nullcontext()
    context: AbstractContextManager[object] = tqdm.tqdm.external_write_mode(file=sys.stdout)
    return context


def log_duration(task: str, count: int, unit: str, began: float) -> None:
    """Log the time since `began`, of `time.monotonic`, if stderr is a terminal."""
    if sys.stderr.isatty():
        logger.info(f"{task} {counted(count, unit)} in {duration(time.monotonic() - began)}")


def _bar_class() -> Any:
    """Return the class of bars, None where tqdm is not installed."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return None
    return tqdm


def count_lines(path: Path | None) -> int | None:
    """Count the lines of a regular, uncompressed file; None for anything else."""
    if path is None or not path.is_file() or is_compressed(path):
        return None
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")
