"""What a run tells: the bar, train.log, metrics.jsonl, timing.jsonl and TensorBoard events.

`metrics.jsonl` holds what the seed determines, so that two runs of one config can be compared byte
for byte; what the clock determines goes elsewhere.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tqdm import tqdm

from seq2seq.runtime.errors import RunError
from seq2seq.runtime.files import atomic_write, read_bounded, sync

METRICS, TIMING, LOG, TENSORBOARD = "metrics.jsonl", "timing.jsonl", "train.log", "tensorboard"
_MOST_BYTES = 1 << 30  # of a file of metrics: no run writes as many


class Reporter:
    """Writes a run's files and draws its bar on stderr: lines, where that is no terminal."""

    def __init__(self, folder: Path, step: int, last_step: int | None) -> None:
        """Go on from `step`: later lines of metrics.jsonl, left by a killed run, are cut off.

        Raises RunError, as all methods that write do, where the disk does not take it.
        """
        self._folder = folder
        with self._writing(METRICS):
            cut_back(folder / METRICS, step)
        self._files = {name: self._open(name) for name in (METRICS, TIMING, LOG)}
        self._thread_hook = threading.excepthook
        with self._writing(TENSORBOARD):
            self._board, trouble = _tensorboard(folder)
        threading.excepthook = _tell_later
        self.bar = tqdm(
            total=last_step,
            initial=step,
            unit="update",
            dynamic_ncols=True,
            leave=False,
            disable=None,
        )
        if trouble:
            self.say(trouble)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._drawing():
            self.bar.close()
        for name, file in self._files.items():
            with self._closing(name, error):
                file.close()
        try:
            with self._closing(TENSORBOARD, error):
                if self._board is not None:
                    self._board.close()
        finally:
            threading.excepthook = self._thread_hook

    def say(self, text: str) -> None:
        """A line for people: to stderr, above the bar, and to train.log with the time."""
        with self._drawing():
            tqdm.write(text, file=sys.stderr)
        self._write(LOG, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Figures that follow from the seed."""
        self._write(METRICS, json.dumps({"step": step, **values}))
        self._draw(step, values)

    def timing(self, step: int, values: Mapping[str, float]) -> None:
        """Figures that follow from the clock."""
        self._write(TIMING, json.dumps({"step": step, **values}))
        self._draw(step, values)

    def sync(self) -> None:
        """Let the metrics reach the disk: no checkpoint may count lines that a power cut takes."""
        with self._writing(METRICS):
            sync(self._files[METRICS])

    def describe(self, step: int, text: str) -> None:
        """How it goes, behind the bar, or as a line where there is no bar."""
        if self.bar.disable:
            self.say(f"update {step}, {text}")
        else:
            with self._drawing():
                self.bar.set_postfix_str(text, refresh=False)

    def roll_back(self, step: int) -> None:
        """Take back what was told of the updates after `step`."""
        with self._writing(METRICS):
            self._files[METRICS].close()
            cut_back(self._folder / METRICS, step)
        self._files[METRICS] = self._open(METRICS)
        self.bar.n = step
        with self._drawing():
            self.bar.refresh()

    def advance(self) -> None:
        """Move the bar by one update."""
        with self._drawing():
            self.bar.update()

    def _open(self, name: str) -> IO[str]:
        with self._writing(name):
            # A folder's name may be no text, and the log tells of folders.
            return (self._folder / name).open(
                "a", encoding="utf-8", errors="backslashreplace", newline="\n"
            )

    def _write(self, name: str, line: str) -> None:
        with self._writing(name):
            self._files[name].write(line + "\n")
            self._files[name].flush()

    def _draw(self, step: int, values: Mapping[str, float]) -> None:
        if self._board is not None:
            with self._writing(TENSORBOARD):
                for name, value in values.items():
                    self._board.add_scalar(name, value, step)

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Whoever read stderr may be gone, with a terminal or a pipe: training goes on."""
        try:
            yield
        except OSError:
            self.bar.disable = True

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(
                f"{self._folder / name}: cannot be written ({error.strerror or error}); "
                "the last checkpoint is whole: mend that, and --resume goes on from it"
            ) from None

    @contextmanager
    def _closing(self, name: str, earlier: BaseException | None) -> Iterator[None]:
        """Of several failures the first is told."""
        try:
            with self._writing(name):
                yield
        except RunError:
            if earlier is None:
                raise


class NullReporter(Reporter):
    """Takes the place of a Reporter on ranks that do not report."""

    def __init__(self) -> None:
        """Open and draw nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close nothing."""

    def say(self, text: str) -> None:
        """Say nothing."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write nothing."""

    def timing(self, step: int, values: Mapping[str, float]) -> None:
        """Write nothing."""

    def sync(self) -> None:
        """Nothing was written."""

    def describe(self, step: int, text: str) -> None:
        """Draw nothing."""

    def roll_back(self, step: int) -> None:
        """Take nothing back."""

    def advance(self) -> None:
        """Draw nothing."""


class Clock:
    """Seconds trained, over all processes of a run, and how fast target tokens went by."""

    def __init__(self, before: float) -> None:
        self._began = time.monotonic() - before
        self._window = time.monotonic()
        self._tokens = 0

    @property
    def seconds(self) -> float:
        """Wall time since training began, validations included."""
        return time.monotonic() - self._began

    def now(self) -> str:
        """The time trained, as minutes:seconds."""
        return minutes(self.seconds)

    def count(self, tokens: int) -> None:
        """Target tokens that went by."""
        self._tokens += tokens

    def leave_out(self, seconds: float) -> None:
        """Seconds that were not spent on training tokens."""
        self._window += seconds

    def speed(self) -> float:
        """Target tokens a second since last asked."""
        now = time.monotonic()
        speed = self._tokens / max(now - self._window, 1e-9)
        self._window, self._tokens = now, 0
        return speed


def minutes(seconds: float) -> str:
    """Seconds as minutes:seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The lines of a run's metrics.jsonl; one that is damaged is left out."""
    kept = []
    for line in (folder / METRICS).read_bytes().split(b"\n"):
        with suppress(ValueError, RecursionError):
            if isinstance(values := json.loads(line), dict):
                kept.append(values)
    return kept


def cut_back(path: Path, step: int) -> None:
    """Keep the lines of a JSON-lines file up to `step`, and nothing of one a crash cut short."""
    if not path.exists():
        return
    kept = []
    for line in read_bounded(path, _MOST_BYTES).split(b"\n"):
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + b"\n")
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    atomic_write(path, b"".join(kept))


def _tell_later(failure: threading.ExceptHookArgs) -> None:
    """Print no traceback where TensorBoard's thread cannot write: its next call tells."""
    if not issubclass(failure.exc_type, OSError):
        threading.__excepthook__(failure)


def _tensorboard(folder: Path) -> tuple[Any, str]:
    """A writer of TensorBoard events, or None where the package is not installed; what is wrong."""
    try:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(folder / TENSORBOARD)), ""
    except OSError:
        raise  # of the folder
    except Exception as error:  # it does not go with the protobuf that is installed, say
        if isinstance(error, ModuleNotFoundError) and str(error.name).endswith("tensorboard"):
            return None, ""
        reason = str(error).partition("\n")[0]
        return None, f"no TensorBoard: its package fails ({reason}); install it anew"
