"""Print a table of the runs in a folder and below it, the latest last: languages, decoder,
last logged step, best validation BLEU, and when it was last trained.
"""

import argparse
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from seq2seq.runs import layout
from seq2seq.runtime.console import aligned_table, fixed, say
from seq2seq.runtime.errors import UserError

_HEAD = ("run", "languages", "decoder", "logged step", "valid BLEU", "last trained")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "folder of runs (default: runs)"
    runs = Path("runs")
    parser.add_argument("folder", nargs="?", type=Path, default=runs, metavar="FOLDER", help=text)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    folder: Path


def run(options: Options) -> int:
    if not options.folder.is_dir():
        raise UserError(f"{options.folder}: no such folder; `seq2seq train` makes run folders")
    folders = [path.parent for path in options.folder.rglob(layout.CONFIG)]
    if not folders:
        raise UserError(f"{options.folder}: has no runs; `seq2seq train` makes them")
    folders.sort(key=_written)
    say(aligned_table([_HEAD, *(_row(folder, options.folder) for folder in folders)], "left"))
    return 0


def _written(folder: Path) -> float:
    metrics = folder / layout.METRICS
    return (metrics if metrics.exists() else folder / layout.CONFIG).stat().st_mtime


def _row(folder: Path, root: Path) -> tuple[str, ...]:
    from seq2seq.runs import metrics_file, run_config

    facts: tuple[str, str] = ("?", "?")
    with suppress(UserError):  # damaged, or of another version
        config = run_config.read_config(folder)
        facts = (f"{config.data.src_lang}-{config.data.tgt_lang}", config.model.decoder)
    metrics = metrics_file.read_metrics(folder)
    step = max((line["step"] for line in metrics if "step" in line), default=0)
    bleu = max((line["valid_bleu"] for line in metrics if "valid_bleu" in line), default=None)
    name = folder.relative_to(root) if folder != root else folder
    date = time.strftime("%Y-%m-%d %H:%M", time.localtime(_written(folder)))
    return str(name), *facts, f"{step:,}", "" if bleu is None else fixed(bleu, 1), date
