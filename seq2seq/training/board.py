"""TensorBoard: scalars in groups, hyperparameters, sample translations and attention maps."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq.config.fields import show
from seq2seq.config.schema import Config
from seq2seq.inference.translation import Translation
from seq2seq.runs.layout import TENSORBOARD
from seq2seq.runtime.console import printable
from seq2seq.training.samples import Sample

_CELL = 16  # pixels of an attention weight in each direction
_MAX_TOKENS = 100  # per side of an attention map, which grows with their product


def open_board(folder: Path) -> tuple[Any, str]:
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


def write_scalars(board: Any, step: int, values: Mapping[str, float]) -> None:
    """Plot figures by the names of metrics.jsonl and timing.jsonl."""
    for name, value in values.items():
        board.add_scalar(tag(name), value, step)


def write_hyperparameters(board: Any, config: Config) -> None:
    """Record all keys but paths and names, with validation loss and BLEU as metrics."""
    from torch.utils.tensorboard.summary import hparams

    tree = config.model_dump(mode="json", exclude={"name", "run_dir", "data"})
    values = {
        f"{section}.{key}": value if isinstance(value, str | int | float) else show(value)
        for section, keys in tree.items()
        if isinstance(keys, dict)
        for key, value in keys.items()
    }
    metrics = {tag("valid_bleu"): 0.0, tag("valid_loss"): 0.0}
    for summary in hparams({"seed": config.seed, **values}, metrics):
        board.file_writer.add_summary(summary)


def write_samples(
    board: Any, step: int, samples: Sequence[Sample], translations: Sequence[Translation]
) -> None:
    """Show sample translations as text, and their attention maps as images.

    A map has a row for each target token and a column for each source token, dark for 1.
    """
    for number, sample in enumerate(samples, start=1):
        texts = (sample.source, sample.reference, sample.translation)
        source, reference, translation = (escape(printable(text)) for text in texts)
        board.add_text(
            f"samples/{number}",
            f"source: {source}  \nreference: {reference}  \ntranslation: {translation}",
            step,
        )
    for number, hypothesis in enumerate(translations, start=1):
        longest = max(len(hypothesis.src_tokens), len(hypothesis.tokens))
        if longest > _MAX_TOKENS or (weights := hypothesis.attention) is None:
            continue
        image = 1 - weights
        with suppress(ImportError):  # Pillow, without which TensorBoard draws no images
            board.add_image(
                f"attention/{number}",
                np.kron(image, np.ones((_CELL, _CELL), np.float32)),
                step,
                dataformats="HW",
            )
