"""`seq2seq average`: write a run folder with the mean of the weights of several checkpoints."""

import argparse
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli import arguments
from seq2seq.cli.loading import frozen_objects
from seq2seq.cli.output import open_output
from seq2seq.cli.progress import above_bar, progress
from seq2seq.runtime.console import logger, one_line
from seq2seq.runtime.errors import UserError

if TYPE_CHECKING:
    from seq2seq.data.corpus import ParallelText
    from seq2seq.runs.averaging import Checkpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write a run folder with the mean of the weights of several checkpoints."
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="one run: average its checkpoints step-N.safetensors (see training.keep); several "
        "runs: their best weights; also single checkpoint files",
    )
    arguments.add_output_folder(parser, "run folder to write", required=True)
    text = "average the newest N checkpoints of a single run (default: all)"
    parser.add_argument("--last", type=arguments.count, metavar="N", help=text)
    parser.add_argument("--overwrite", action="store_true", help="replace the run in FOLDER")
    arguments.add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Average the checkpoints and print the validation BLEU of each."""
    with open_output(None) as output:

        def report(line: str) -> None:
            with above_bar():
                output.write(f"{one_line(line)}\n")
                output.flush()

        notes = average(
            options.runs, options.output, options.device, options.last, options.overwrite, report
        )
    for note in notes:
        logger.info(note)
    logger.info(f"Translate:  seq2seq translate -m {shlex.quote(str(options.output))} -i FILE")
    return 0


def average(
    runs: Sequence[Path],
    folder: Path,
    device: str = "auto",
    last: int | None = None,
    overwrite: bool = False,
    report: Callable[[str], object] = print,
) -> list[str]:
    """Write a run folder with the mean of the weights of checkpoints; return notes for the user.

    Reports the greedy validation BLEU of each checkpoint and of the average, as in training, if the
    validation data can be read. Raises UserError if the checkpoints are not of one model or if
    `folder` contains anything else.
    """
    from seq2seq.data.corpus import read_pairs, usable

    with frozen_objects():
        from seq2seq.runs import averaging
    from seq2seq.runtime.device import choose_device

    paths = averaging.select_checkpoints(runs, last)
    averaging.check_destination(folder, paths, overwrite)
    checkpoints = averaging.load_checkpoints(paths, choose_device(device))
    valid, notes = None, []
    try:
        valid = read_pairs(checkpoints[0].config.data.valid)
        usable(valid)  # raises if no pair has text
    except UserError as error:
        notes.append(f"note: no validation BLEU was measured: {error}")
    if len(seeds := {each.config.seed for each in checkpoints}) > 1:
        notes.append(
            f"warning: the runs have different seeds ({', '.join(map(str, sorted(seeds)))}), so "
            "they started from different weights, whose mean rarely translates well; "
            "use them as an ensemble (-m RUN -m RUN) instead"
        )
    scores = []
    count = 0 if valid is None else len(valid) * (len(paths) + 1)
    with progress("translated", count, shown=valid is not None) as advance:
        for each in checkpoints:
            scores.append(_bleu(f"{each.path}, step {each.step}", each, valid, report, advance))
        model = averaging.average_models([each.model for each in checkpoints])
        averaged = checkpoints[0]._replace(model=model)
        bleu = _bleu(f"{folder}, the average of {len(paths)}", averaged, valid, report, advance)
    averaging.save_average(folder, model, checkpoints, bleu, overwrite)
    best, path = max((score or 0.0, path) for score, path in zip(scores, paths, strict=True))
    if bleu is not None and bleu <= best:
        notes.append(f"note: the average is no better than {path} (validation BLEU {best:.2f})")
    return notes


def _bleu(
    name: str,
    checkpoint: "Checkpoint",
    valid: "ParallelText | None",
    report: Callable[[str], object],
    on_translated: Callable[[int], object] | None,
) -> float | None:
    """Measure and report the validation BLEU; report only the name without validation text."""
    from seq2seq.engines.torch.graphs import engine_for
    from seq2seq.training.validation import greedy_bleu

    if valid is None:
        report(name)
        return None
    device = next(checkpoint.model.parameters()).device
    bleu, _ = greedy_bleu(
        engine_for(checkpoint.model.eval(), device),
        checkpoint.vocabularies,
        checkpoint.limit,
        checkpoint.source,
        checkpoint.config,
        valid,
        device,
        on_translated=on_translated,
    )
    report(f"{name}: validation BLEU {bleu:.2f}")
    return bleu
