"""Reports of a run: progress bar, train.log, metrics.jsonl, timing.jsonl and TensorBoard events.

metrics.jsonl holds what the seed determines, so that two runs of one config can be compared byte
for byte; what the clock determines goes to the other files.
"""

import json
import logging
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

from tqdm import tqdm

from seq2seq.config.schema import Config
from seq2seq.inference.translation import Translation
from seq2seq.runs.layout import (
    LOG,
    METRICS,
    METRICS_TABLE,
    SAMPLES,
    TENSORBOARD,
    TIMING,
    write_failure,
)
from seq2seq.runs.metrics_file import MAX_BYTES, LineCount, metrics_table
from seq2seq.runtime.console import hides_bars, logger, one_line
from seq2seq.runtime.errors import RunError
from seq2seq.runtime.files import atomic_write, read_bounded, sync
from seq2seq.runtime.folders import open_to_append
from seq2seq.training.board import write_hyperparameters, write_samples, write_scalars
from seq2seq.training.callbacks import Callback
from seq2seq.training.samples import Sample

# Line ends of some readers beside the line feed: escaped, so that each object is one line.
_LINE_ENDS = {ord(each): f"\\u{ord(each):04x}" for each in "\x85\u2028\u2029"}


class Reporter:
    """Writer of a run's logs and metrics, with a progress bar on a terminal's stderr.

    Methods that write raise RunError if the disk refuses.
    """

    def __init__(
        self,
        folder: Path,
        step: int,
        last_step: int | None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """Continue from `step`, after `restore_metrics`; drop later lines of metrics.jsonl."""
        self._folder, self._callbacks = folder, callbacks
        with self._writing(METRICS):
            self.count = LineCount(truncate_metrics(folder / METRICS, step))
        with self._writing(SAMPLES):
            truncate_metrics(folder / SAMPLES, step)
        self._files = {name: self._open(name) for name in (METRICS, SAMPLES, TIMING, LOG)}
        if step:
            self._write_table()
        self._thread_hook = threading.excepthook
        with self._writing(TENSORBOARD):
            self._board, problem = _tensorboard(folder)
        threading.excepthook = _ignore_write_errors
        self.bar = tqdm(
            total=last_step,
            initial=step,
            unit="step",
            dynamic_ncols=True,
            leave=False,
            disable=hides_bars(),
            miniters=1,
            bar_format="{percentage:3.0f}%|{bar}| {desc}",
        )
        self._shown = -math.inf  # time of the last description
        if problem:
            self.log(problem)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
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

    def log(self, text: str) -> None:
        """Log a line, on a console above the bar, and write it with the time to train.log."""
        text = one_line(text)  # also in train.log, which a terminal may show
        logger.log(logging.WARNING if text.startswith("warning: ") else logging.INFO, text)
        self._write_log(text)
        for each in self._callbacks:
            each.on_log(text)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write figures that the seed determines, without those that are not finite."""
        line = _json_line(step, values)
        self._write(METRICS, line)
        self.count.add(line.encode())
        self._plot(step, values)
        for each in self._callbacks:
            each.on_metrics(step, values)

    def timing(self, step: int, values: Mapping[str, float]) -> None:
        """Write figures that the clock determines."""
        self._write(TIMING, _json_line(step, values))
        self._plot(step, values)
        for each in self._callbacks:
            each.on_metrics(step, values)

    def read_metrics(self) -> list[dict[str, float]]:
        """Return the metrics written so far."""
        return read_metrics(self._folder)

    def sync(self) -> None:
        """Flush the metrics to disk: a saved state must not count lines that a crash may lose."""
        for name in (METRICS, SAMPLES):
            with self._writing(name):
                sync(self._files[name])
        self._write_table()

    @property
    def draws_attention(self) -> bool:
        """True if TensorBoard shows the attention weights of samples."""
        return self._board is not None

    def samples(
        self,
        step: int,
        samples: Sequence[Sample],
        attention: Sequence[Translation],
    ) -> None:
        """Report sample translations, and their attention weights if `draws_attention`."""
        for sample in samples:
            self.log(str(sample))
            text = json.dumps({"step": step, **sample._asdict()}, ensure_ascii=False)
            self._write(SAMPLES, text.translate(_LINE_ENDS))
        if self._board is not None:
            with self._writing(TENSORBOARD):
                write_samples(self._board, step, samples, attention)
        for each in self._callbacks:
            each.on_samples(step, samples)

    def hyperparameters(self, config: Config) -> None:
        """Record the config for TensorBoard's table of hyperparameters."""
        if self._board is not None:
            with self._writing(TENSORBOARD):
                write_hyperparameters(self._board, config)

    def log_step(self, step: int, text: str) -> None:
        """Log the figures of a step; below a bar, which shows them, in train.log only."""
        if self.bar.disable:
            self.log(f"step {step}, {text}")
        else:
            self._write_log(one_line(f"step {step}, {text}"))

    def bar_is_due(self) -> bool:
        """Return whether there is a bar whose text is more than a second old."""
        return not self.bar.disable and time.monotonic() - self._shown >= 1

    def describe(self, text: str, last_step: int | None) -> None:
        """Show text behind the bar, which is full at `last_step`."""
        self._shown, self.bar.total = time.monotonic(), last_step
        with self._drawing():
            self.bar.set_description_str(text)

    def roll_back(self, step: int) -> None:
        """Remove the metrics of later steps and move the bar back to `step`."""
        for name in (METRICS, SAMPLES):
            with self._writing(name):
                self._files[name].close()
                kept = truncate_metrics(self._folder / name, step)
            self._files[name] = self._open(name)
            if name == METRICS:
                self.count = LineCount(kept)
        self._write_table()
        self.bar.n = step
        with self._drawing():
            self.bar.refresh()
        for each in self._callbacks:
            each.on_roll_back(step)

    def advance(self, step: int) -> None:
        """Move the bar by one step, to `step`."""
        with self._drawing():
            self.bar.update()
        last = self.bar.total
        for each in self._callbacks:
            each.on_step(step, None if last is None else int(last))

    def _open(self, name: str) -> IO[str]:
        with self._writing(name):
            # Folder names appear in the log and may be invalid UTF-8.
            descriptor = open_to_append(self._folder / name)
            file = os.fdopen(
                descriptor, "a", encoding="utf-8", errors="backslashreplace", newline="\n"
            )
            if not _ends_with_line(self._folder / name):  # cut short, by a kill or a full disk
                file.write("\n")
            return file

    def _write_log(self, text: str) -> None:
        self._write(LOG, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    def _write(self, name: str, line: str) -> None:
        with self._writing(name):
            self._files[name].write(line + "\n")
            self._files[name].flush()

    def _plot(self, step: int, values: Mapping[str, float]) -> None:
        if self._board is not None:
            with self._writing(TENSORBOARD):
                write_scalars(self._board, step, values)

    def _write_table(self) -> None:
        """Write metrics.csv, made of metrics.jsonl, so that it is exact after every resume."""
        with self._writing(METRICS_TABLE):
            table = metrics_table(self.read_metrics())
            atomic_write(self._folder / METRICS_TABLE, table.encode())

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Keep training if the reader of stderr, a terminal or a pipe, is gone."""
        try:
            yield
        except OSError:
            self.bar.disable = True

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise write_failure(self._folder / name, self._folder, error) from None

    @contextmanager
    def _closing(self, name: str, earlier: BaseException | None) -> Iterator[None]:
        """Raise a failure to close only if no earlier error is being raised."""
        try:
            with self._writing(name):
                yield
        except RunError:
            if earlier is None:
                raise


class NullReporter(Reporter):
    """Reporter of a rank other than the main process: writes nothing."""

    def __init__(
        self,
        folder: Path,
        step: int,
        last_step: int | None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """Open no file and draw no bar."""
        self._folder, self._files, self._board = folder, {}, None
        self._callbacks = callbacks
        self.count = LineCount()
        self._thread_hook = threading.excepthook
        self.bar = tqdm(total=last_step, initial=step, disable=True)

    def log(self, text: str) -> None:
        """Write nothing."""

    def read_metrics(self) -> list[dict[str, float]]:
        """Return no metrics."""
        return []

    def sync(self) -> None:
        """Flush nothing."""

    def samples(
        self,
        step: int,
        samples: Sequence[Sample],
        attention: Sequence[Translation],
    ) -> None:
        """Report nothing."""

    def roll_back(self, step: int) -> None:
        """Remove nothing."""

    def _write(self, name: str, line: str) -> None:
        """Write nothing."""


class Clock:
    """Time trained, over all processes of a run, and speed in target tokens."""

    def __init__(self, before: float) -> None:
        """Start with the seconds trained by earlier processes."""
        self._began = time.monotonic() - before
        self.saved_seconds = before  # at the last save
        self._process_began = self._window = time.monotonic()
        self._tokens = 0
        self.steps, self._pauses, self._paused = 0, 0, 0.0  # counted by this process

    @property
    def seconds(self) -> float:
        """Wall time since training began, validations included."""
        return time.monotonic() - self._began

    def count(self, tokens: int) -> None:
        """Count a step and its target tokens."""
        self._tokens += tokens
        self.steps += 1

    def leave_out(self, seconds: float) -> None:
        """Exclude the seconds of a validation from the speed."""
        self._window += seconds
        self._paused += seconds
        self._pauses += 1

    @property
    def step_seconds(self) -> float:
        """Mean seconds per step of this process, without validations."""
        return (time.monotonic() - self._process_began - self._paused) / max(1, self.steps)

    @property
    def validation_seconds(self) -> float:
        """Mean seconds per validation of this process; 0 before the first."""
        return self._paused / max(1, self._pauses)

    def speed(self) -> float:
        """Return the target tokens per second since the last call."""
        now = time.monotonic()
        speed = self._tokens / max(now - self._window, 1e-9)
        self._window, self._tokens = now, 0
        return speed


def minutes(seconds: float) -> str:
    """Format seconds as minutes:seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def fixed(value: float, digits: int) -> str:
    """Format a loss with `digits` decimals, or with an exponent if it is very large."""
    return f"{value:.{digits}f}" if abs(value) < 1e4 else f"{value:.3g}"


def read_metrics(folder: Path, name: str = METRICS) -> list[dict[str, float]]:
    """Return the lines of a run's metrics.jsonl or timing.jsonl, without damaged ones."""
    kept = []
    for line in (folder / name).read_bytes().split(b"\n"):
        with suppress(ValueError, RecursionError):
            if isinstance(values := json.loads(line), dict):
                kept.append(values)
    return kept


def truncate_metrics(path: Path, step: int) -> list[bytes]:
    """Remove lines of later steps and damaged lines from a JSON-lines file; return the others."""
    kept: list[bytes] = []
    if not path.exists():
        return kept
    for line in read_bounded(path, MAX_BYTES).split(b"\n"):
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    atomic_write(path, b"".join(line + b"\n" for line in kept))
    return kept


def _ends_with_line(path: Path) -> bool:
    """Return whether a file is empty or ends with a line feed."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read() in (b"", b"\n")


def _json_line(step: int, values: Mapping[str, float]) -> str:
    """Return a line of strict JSON, which has no nan or infinity: such figures are left out."""
    finite = {key: value for key, value in values.items() if math.isfinite(value)}
    return json.dumps({"step": step, **finite}, allow_nan=False)


def _ignore_write_errors(failure: threading.ExceptHookArgs) -> None:
    """Print no traceback if TensorBoard's thread cannot write: its next call raises again."""
    if not issubclass(failure.exc_type, OSError):
        threading.__excepthook__(failure)


def _tensorboard(folder: Path) -> tuple[Any, str]:
    """Open a TensorBoard writer, or return None if the package is missing; and the problem."""
    try:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(folder / TENSORBOARD)), ""
    except OSError:
        raise  # the folder is not writable
    except Exception as error:  # for example, it does not fit the installed protobuf
        if isinstance(error, ModuleNotFoundError) and str(error.name).endswith("tensorboard"):
            return None, ""
        reason = str(error).partition("\n")[0]
        return None, f"no TensorBoard: its package fails ({reason}); reinstall it"
