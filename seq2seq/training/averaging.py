"""Average checkpoints of a run, or of several, and measure the result as validation does."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from seq2seq.data.corpus import ParallelText, read_pairs, usable
from seq2seq.engines.torch.graphs import engine_for
from seq2seq.inference.translator import Translator
from seq2seq.runs import averaging
from seq2seq.runs.checkpoint import LoadedRun
from seq2seq.runtime.console import hides_bars, one_line
from seq2seq.runtime.device import choose_device
from seq2seq.runtime.errors import UserError
from seq2seq.training import validation


def average(
    runs: Sequence[Path],
    folder: Path,
    device: str = "auto",
    last: int | None = None,
    overwrite: bool = False,
    report: Callable[[str], object] = print,
) -> list[str]:
    """Write a run folder with the mean of the weights of checkpoints; return notes for the user.

    Reports the greedy validation BLEU of all, if the data can be read. Raises UserError for
    checkpoints of several models, and for a `folder` that contains anything else.
    """
    paths = averaging.select_checkpoints(runs, last)
    averaging.check_destination(folder, paths, overwrite)
    checkpoints = averaging.load_checkpoints(paths, choose_device(device))
    valid, notes = None, []
    try:
        valid = read_pairs(checkpoints[0].config.data.valid)
        usable(valid)  # raises if no pair has text
    except UserError as error:
        notes.append(f"note: no validation BLEU was measured: {error}")
    if len(seeds := {checkpoint.config.seed for checkpoint in checkpoints}) > 1:
        notes.append(
            f"warning: the runs have different seeds ({', '.join(map(str, sorted(seeds)))}), so "
            "they started from different weights, whose mean rarely translates well; "
            "use them as an ensemble (`seq2seq translate -m RUN -m RUN`) instead"
        )
    model = averaging.average_models([checkpoint.model for checkpoint in checkpoints])
    names = [f"{checkpoint.path}, step {checkpoint.step}" for checkpoint in checkpoints]
    names.append(f"{folder}, the average of {len(paths)}")
    averaged = replace(checkpoints[0], model=model)
    scores = []
    for name, checkpoint in zip(names, (*checkpoints, averaged), strict=True):
        scores.append(None if valid is None else _bleu(checkpoint, valid))
        report(
            one_line(name if scores[-1] is None else f"{name}: validation BLEU {scores[-1]:.2f}")
        )
    bleu = scores.pop()
    averaging.save_average(folder, model, checkpoints, bleu, overwrite)
    best, path = max((score or 0.0, path) for score, path in zip(scores, paths, strict=True))
    if bleu is not None and bleu <= best:
        notes.append(f"note: the average is no better than {path} (validation BLEU {best:.2f})")
    return notes


def _bleu(run: LoadedRun, valid: ParallelText) -> float:
    device, config = next(run.model.parameters()).device, run.config
    translator = Translator(
        engine_for(run.model.eval(), device),
        run.vocabularies,
        run.limit,
        config.decoding,
        config.data.max_length,
        device,
        run.source,
    )
    with tqdm(
        desc="translated", total=len(valid), unit=" lines", leave=False, disable=hides_bars()
    ) as bar:
        bleu, _ = validation.greedy_bleu(
            translator, valid, config.data.tgt_lang, on_translated=bar.update
        )
    return bleu
