"""Training from Python: `train`, which returns a `TrainedRun`, and a live curve in a notebook."""

import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.config.schema import Config, with_paths
from seq2seq.model.trusted_scores import trusted_scores
from seq2seq.runs.metrics_file import read_metrics
from seq2seq.runtime.console import in_notebook
from seq2seq.runtime.figures import Curve, line_chart, matplotlib_note, save
from seq2seq.training import loop
from seq2seq.training.callbacks import Callback

if TYPE_CHECKING:
    from seq2seq.inference.translator import Translator

_CURVES = {"train_loss": "training loss", "valid_loss": "validation loss"}


class TrainedRun(PathLike[str]):
    """A trained run: its folder, its figures, and a translator with its best weights.

    It can be used as the path of its folder: `Translator.load(run)`, `run / "train.log"`.
    """

    def __init__(self, run_dir: Path, scores: Iterable[str | type] = ()) -> None:
        self.run_dir = run_dir
        self._scores = tuple(scores)

    @property
    def history(self) -> list[dict[str, float]]:
        """Return the lines of `metrics.jsonl`, such as {"step": 50, "train_loss": 5.9, ...}."""
        return read_metrics(self.run_dir)

    @cached_property
    def translator(self) -> "Translator":
        """Return the translator, loaded on first use."""
        from seq2seq.inference.translator import Translator

        return Translator.load(self.run_dir, scores=self._scores)

    def __fspath__(self) -> str:
        return str(self.run_dir)

    def __truediv__(self, name: str) -> Path:
        return self.run_dir / name

    __str__ = __fspath__

    def __repr__(self) -> str:
        return f"TrainedRun({str(self.run_dir)!r})"


def train(  # noqa: PLR0913
    config: Config,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    init_from: Path | str | None = None,
    callbacks: Iterable[Callback] = (),
    quiet: bool = False,
    scores: Iterable[str | type] = (),
) -> TrainedRun:
    """Train a model, in one process or in those that torchrun started.

    `resume` continues the run in the folder, or starts it if the folder is absent or empty. A new
    run is initialised from vocabulary and best weights of the run `init_from`, if given. `scores`
    are attention scores outside of the package, by class or by name ("my_scores:Cosine"), which the
    config may use; others are not imported.

    The main process reports to the callbacks and, unless `quiet`, on stderr; in a notebook on
    stdout, below a live curve of the losses. With `quiet`, messages go to the logger `seq2seq` at
    the levels INFO and WARNING, and nothing is printed unless the program configures `logging`.
    Files of the run are written in any case.

    Raises UserError before any work if data, folder or device are refused, RunError if training
    fails, and Interrupted, after the state was saved, on Ctrl-C or SIGTERM.
    """
    loop.check_is_config(config)
    called = list(callbacks)
    if in_notebook() and not quiet and matplotlib_note() is None:
        called.append(_LiveCurve())
    config = with_paths(config, Path.absolute)  # a callback may change the working directory
    with trusted_scores(scores) as trusted:
        run_dir = loop.train(config, device, resume, overwrite, init_from, called, quiet)
    return TrainedRun(run_dir, trusted)


class _LiveCurve(Callback):
    """Chart of the losses in the output of a notebook's cell, drawn again with new figures."""

    def __init__(self) -> None:
        self._points: dict[str, list[tuple[float, float]]] = {name: [] for name in _CURVES}
        self._shown: Any = None

    def on_metrics(self, step: int, values: Mapping[str, float]) -> None:
        if not (names := _CURVES.keys() & values.keys()):
            return
        for name in names:
            self._points[name].append((step, values[name]))
        curves = [Curve(_CURVES[name], points) for name, points in self._points.items() if points]
        picture = {"image/png": save(line_chart("Loss, nats a token", curves), ".png")[0]}
        if self._shown is None:
            display = sys.modules["IPython"].display.display
            self._shown = display(picture, raw=True, display_id=True)
        else:
            self._shown.update(picture, raw=True)

    def on_roll_back(self, step: int) -> None:
        for name, points in self._points.items():
            self._points[name] = [point for point in points if point[0] <= step]
