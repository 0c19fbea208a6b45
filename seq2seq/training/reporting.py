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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from html import escape
from pathlib import Path
from typing import IO, Any, Self

from tqdm import tqdm

from seq2seq.runs import layout
from seq2seq.runs.metrics_file import LineCount, read_metrics, truncate_metrics
from seq2seq.runtime.console import hides_bars, logger, one_line, printable
from seq2seq.runtime.errors import RunError
from seq2seq.runtime.files import json_text, open_to_append, sync
from seq2seq.training.callbacks import Callback, Sample


class Reporter:
    """Reports of a training; this base, for ranks other than the main process, makes none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        pass

    @property
    def count(self) -> LineCount:
        """Number and checksum of the lines of metrics.jsonl."""
        return LineCount()

    def log(self, text: str) -> None:
        """Log a line, on a console above the bar, and write it with the time to train.log."""

    def log_step(self, step: int, text: str) -> None:
        """Log the figures of a step; below a bar, which shows them, in train.log only."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write figures that the seed determines, without those that are not finite."""

    def timing(self, step: int, values: Mapping[str, float]) -> None:
        """Write figures that the clock determines."""

    def read_metrics(self) -> list[dict[str, float]]:
        """Return the metrics written so far."""
        return []

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        """Report sample translations, one of them in the log."""

    def advance(self, step: int) -> None:
        """Move the bar by one step, to `step`."""

    def bar_is_due(self) -> bool:
        """Return whether there is a bar whose text is more than a second old."""
        return False

    def end_bar(self) -> None:
        """Remove the bar: what is logged from now on are the last messages."""

    def describe(self, text: str, last_step: int | None) -> None:
        """Show text behind the bar, which is full at `last_step`."""

    def sync(self) -> None:
        """Flush the metrics to disk: a saved state must not count lines that a crash may lose."""

    def roll_back(self, step: int) -> None:
        """Remove the metrics of later steps and move the bar back to `step`."""


class RunReporter(Reporter):
    """Writer of a run's logs, metrics and bar on stderr; raises RunError if the disk refuses."""

    def __init__(
        self, folder: Path, step: int, last_step: int | None, callbacks: Sequence[Callback] = ()
    ) -> None:
        """Continue from `step`, after `restore_metrics`; drop later lines of metrics.jsonl."""
        self._folder = folder
        self._callbacks = callbacks
        names = layout.METRICS, layout.SAMPLES, layout.TIMING, layout.LOG
        self._files = ReportFiles(folder, names)
        self._closing = ExitStack()  # of all files
        self._count = LineCount(self._files.truncate(layout.METRICS, step))
        self._files.truncate(layout.SAMPLES, step)
        for name in names:
            self._closing.callback(self._files.close, name)
        with self._files.writing(layout.TENSORBOARD):
            self._board, problem = open_board(folder)
        self._closing.callback(setattr, threading, "excepthook", threading.excepthook)
        threading.excepthook = ignore_write_errors
        if self._board is not None:
            self._closing.enter_context(self._files.writing(layout.TENSORBOARD))
            self._closing.callback(self._board.close)
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
        self._last_step = last_step
        self._reported = 0  # validations; they take turns with the samples that the log shows
        self._described = -math.inf  # time of the last description
        if problem:
            self.log(problem)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end_bar()
        try:
            self._closing.close()
        except RunError:
            if error is None:
                raise

    @property
    def count(self) -> LineCount:
        return self._count

    def log(self, text: str) -> None:
        text = one_line(text)  # also in train.log, which a terminal may show
        logger.log(logging.WARNING if text.startswith("warning: ") else logging.INFO, text)
        self._write_log(text)
        for callback in self._callbacks:
            callback.on_log(text)

    def log_step(self, step: int, text: str) -> None:
        if self.bar.disable:
            self.log(f"step {step}, {text}")
        else:
            self._write_log(one_line(f"step {step}, {text}"))

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        line = _json_line(step, values)
        self._files.write(layout.METRICS, line)
        self._count.add(line.encode())
        self._plot(step, values)

    def timing(self, step: int, values: Mapping[str, float]) -> None:
        self._files.write(layout.TIMING, _json_line(step, values))
        self._plot(step, values)

    def read_metrics(self) -> list[dict[str, float]]:
        return read_metrics(self._folder)

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        for row in samples[self._reported % len(samples)].rows() if samples else ():
            self.log(row)
        self._reported += 1
        for number, sample in enumerate(samples, start=1):
            self._files.write(layout.SAMPLES, json_text({"step": step, **sample._asdict()}))
            if self._board is not None:
                texts = sample._asdict().items()  # in Markdown
                lines = [f"{name}: {escape(printable(str(text)))}" for name, text in texts]
                with self._files.writing(layout.TENSORBOARD):
                    self._board.add_text(f"samples/{number}", "  \n".join(lines[1:]), step)
        for callback in self._callbacks:
            callback.on_samples(step, samples)

    def advance(self, step: int) -> None:
        with self._drawing():
            if self.bar.total is not None:  # an estimate
                self.bar.total = max(self.bar.total, step)
            self.bar.update()
        for callback in self._callbacks:
            callback.on_step(step, self._last_step)

    def bar_is_due(self) -> bool:
        return not self.bar.disable and time.monotonic() - self._described >= 1

    def end_bar(self) -> None:
        with self._drawing():
            self.bar.close()

    def describe(self, text: str, last_step: int | None) -> None:
        self._described = time.monotonic()
        self.bar.total = last_step and max(last_step, self.bar.n)
        with self._drawing():
            self.bar.set_description_str(text)

    def sync(self) -> None:
        for name in (layout.METRICS, layout.SAMPLES):
            self._files.sync(name)

    def roll_back(self, step: int) -> None:
        self._count = LineCount(self._files.truncate(layout.METRICS, step))
        self._files.truncate(layout.SAMPLES, step)
        self.bar.n = step
        with self._drawing():
            self.bar.refresh()
        for callback in self._callbacks:
            callback.on_roll_back(step)

    def _write_log(self, text: str) -> None:
        self._files.write(layout.LOG, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    def _plot(self, step: int, values: Mapping[str, float]) -> None:
        """Plot figures that were written, and pass them to the callbacks."""
        if self._board is not None:
            with self._files.writing(layout.TENSORBOARD):
                for name, value in values.items():
                    self._board.add_scalar(tag(name), value, step)
        for callback in self._callbacks:
            callback.on_metrics(step, values)

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Keep training if the reader of stderr, a terminal or a pipe, is gone."""
        try:
            yield
        except OSError:
            self.bar.disable = True


def _json_line(step: int, values: Mapping[str, float]) -> str:
    """Return a line of strict JSON, which has no nan or infinity: such figures are left out."""
    finite = {key: value for key, value in values.items() if math.isfinite(value)}
    return json.dumps({"step": step, **finite}, allow_nan=False)


def open_board(folder: Path) -> tuple[Any, str]:
    """Open a TensorBoard writer, or return None if the package is missing; and the problem."""
    try:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(folder / layout.TENSORBOARD)), ""
    except OSError:
        raise  # the folder is not writable
    except Exception as error:  # for example, it does not fit the installed protobuf
        if isinstance(error, ModuleNotFoundError) and str(error.name).endswith("tensorboard"):
            return None, ""
        reason = str(error).partition("\n")[0]
        return None, f"no TensorBoard: its package fails ({reason}); reinstall it"


def ignore_write_errors(failure: threading.ExceptHookArgs) -> None:
    """Print no traceback if TensorBoard's thread cannot write: its next call raises again."""
    if not issubclass(failure.exc_type, OSError):
        threading.__excepthook__(failure)


def tag(name: str) -> str:
    """Return the tag of a figure: `train/loss`, `valid/bleu`, `speed/seconds`."""
    group, _, figure = name.partition("_")
    if group in ("train", "valid"):
        return f"{group}/{figure}"
    return f"train/{name}" if name == "learning_rate" else f"speed/{name}"


class ReportFiles:
    """Open files of a run folder, flushed line by line; raises RunError if the disk refuses."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        """Open the files to append to, made if missing."""
        self._folder = folder
        self._files = {name: self._open(name) for name in names}

    def write(self, name: str, line: str) -> None:
        """Write a line, given without its line end."""
        with self.writing(name):
            self._files[name].write(line + "\n")
            self._files[name].flush()

    def sync(self, name: str) -> None:
        """Flush a file to the storage device."""
        with self.writing(name):
            sync(self._files[name])

    def truncate(self, name: str, step: int) -> list[bytes]:
        """Remove the lines of later steps from a JSON-lines file; return the others."""
        self.close(name)
        with self.writing(name):
            lines = truncate_metrics(self._folder / name, step)
        self._files[name] = self._open(name)
        return lines

    def close(self, name: str) -> None:
        """Close a file."""
        with self.writing(name):
            self._files[name].close()

    def writing(self, name: str) -> AbstractContextManager[None]:
        """Convert a failure to write a file of the run into a RunError."""
        return layout.writing(self._folder / name)

    def _open(self, name: str) -> IO[str]:
        with self.writing(name):
            # Folder names appear in the log and may be invalid UTF-8.
            descriptor = open_to_append(self._folder / name)
            file = os.fdopen(
                descriptor, "a", encoding="utf-8", errors="backslashreplace", newline="\n"
            )
            with (self._folder / name).open("rb") as written:
                written.seek(max(0, written.seek(0, os.SEEK_END) - 1))
                if written.read() not in (b"", b"\n"):  # cut short, by a kill or a full disk
                    file.write("\n")
            return file
