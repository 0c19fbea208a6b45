"""Examine a parallel text and this machine, and write a commented config: vocabulary,
sizes, regularisation and schedule that the text and the time allow.

examples:
  seq2seq init my.yaml --src-lang en --tgt-lang de --train all.en all.de --minutes 30
  seq2seq init my.yaml --src-lang en --tgt-lang de --train train.tsv --valid valid.tsv
  seq2seq init my.yaml --src-lang en --tgt-lang de --train train.tsv --hours 8
"""

import argparse
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli import arguments, conflicts, number_types
from seq2seq.cli.conflicts import Conflict
from seq2seq.cli.interruption import frozen_objects
from seq2seq.cli.output import check_output, check_replaced, open_output
from seq2seq.data import languages
from seq2seq.data.corpus import check_directions, iter_pairs, read_pairs, source_name, usable
from seq2seq.runtime.console import counted, duration, logger, say
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import made_folders, part_of, same_file
from seq2seq.runtime.threads import set_threads

if TYPE_CHECKING:
    import torch

    from seq2seq.config.schema import DataConfig, ParallelFiles
    from seq2seq.tools.analysis.recipe import Recipe, TextFacts

_SEED = 1
_DISTILLED_EPOCHS = 4.5  # fewest of a teacher: the rest of the time is better spent on its own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="file to write")
    text = "language code of the source, such as en"
    parser.add_argument("--src-lang", required=True, metavar="CODE", help=text)
    text = "language code of the target, such as de"
    parser.add_argument("--tgt-lang", required=True, metavar="CODE", help=text)
    text = "two line-aligned files, or one with both sides, in the format of its ending"
    parser.add_argument("--train", type=Path, nargs="+", required=True, metavar="FILE", help=text)
    parser.add_argument("--valid", type=Path, nargs="+", metavar="FILE", help="validation text")
    text = "test text, for the final score only"
    parser.add_argument("--test", type=Path, nargs="+", metavar="FILE", help=text)
    text = "columns of texts in one file, by name or number, such as english,german or 2,1"
    parser.add_argument("--columns", metavar="SRC,TGT", help=text)
    text = (
        "pairs of the training text to hold out for validation, without --valid (default: "
        "1,000, or a twentieth of a small text); writes both parts to a new folder"
    )
    parser.add_argument("--hold-out", type=number_types.count, metavar="N", help=text)
    text = "time for training (default: as long as the text is worth)"
    parser.add_argument("--minutes", type=number_types.positive, metavar="N", help=text)
    text = "time for all of distill-train, whose command is named if the text fits into it"
    parser.add_argument("--hours", type=number_types.positive, metavar="N", help=text)
    arguments.add_device(parser)
    arguments.add_threads(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    config: Path
    src_lang: str
    tgt_lang: str
    train: list[Path]
    valid: list[Path] | None
    test: list[Path] | None
    columns: str | None
    hold_out: int | None
    minutes: float | None
    hours: float | None
    device: str
    threads: int | None
    overwrite: bool


CONFLICTS = (
    Conflict("valid", "hold_out", "init: give either --valid or --hold-out"),
    Conflict("minutes", "hours", "init: give either --minutes or --hours"),
)


def run(options: Options) -> int:
    """Hold out validation text if there is none, choose a recipe, write it and say what it is."""
    conflicts.check_together(options, CONFLICTS)
    _check_languages(options)
    texts = {
        part: arguments.parallel_files("init", f"--{part}", paths, options.columns)
        for part in ("train", "valid", "test")
        if (paths := getattr(options, part))
    }
    for files in texts.values():
        codes = options.src_lang, options.tgt_lang
        arguments.check_named_languages([*files.paths.values()], codes)
    inputs = [path for files in texts.values() for path in files.paths.values()]
    check_output(options.config, *inputs)
    check_replaced(options.config, options.overwrite)
    set_threads(options.threads)
    with frozen_objects():
        from seq2seq.runtime.device import choose_device
        from seq2seq.tools.analysis.recipe import measure_text

    device = choose_device(options.device)
    _data(options, {"valid": texts["train"], **texts})  # raises before any file is written
    held_out = [read_pairs(texts[part]) for part in ("valid", "test") if part in texts]
    for text in held_out:
        usable(text)  # raises if it has no text
    facts = measure_text(iter_pairs(texts["train"]), source_name(texts["train"]))
    check_directions(facts.sample, held_out, options.src_lang)
    for option, code in _codes(options).items():
        if languages.unknown_code_hint(code) is not None:
            logger.info(f"note: init {option}: {code!r} is not a language code known here")
    if "valid" not in texts:
        texts |= _hold_out(options, texts["train"], inputs)
        facts = measure_text(iter_pairs(texts["train"]), source_name(texts["train"]))
    data = _data(options, texts)
    _write(options.config, data, *_choose(options, facts, data, device))
    return 0


def _check_languages(options: Options) -> None:
    """Raise UserError for the name of a language in place of its code."""
    for option, code in _codes(options).items():
        if hint := languages.unknown_code_hint(code):
            raise UserError(f"init {option}: {code!r} is not the code of a language{hint}")


def _codes(options: Options) -> dict[str, str]:
    """Return the languages by their options."""
    return {"--src-lang": options.src_lang, "--tgt-lang": options.tgt_lang}


def _choose(
    options: Options, facts: "TextFacts", data: "DataConfig", device: "torch.device"
) -> "tuple[Recipe, str]":
    """Return a recipe for the time that is given, and the command that trains it.

    Of `--hours`, the plain training takes a part if that is long enough for it to be distilled.
    """
    from seq2seq.tools.analysis.recipe import choose
    from seq2seq.tools.distillation.costs import MULTIPLE

    name = shlex.quote(str(options.config))
    if options.hours is None:
        return choose(facts, data, options.minutes, device), f"train {name}"
    minutes = 60 * options.hours
    part = choose(facts, data, minutes / MULTIPLE, device)
    if part.epochs >= _DISTILLED_EPOCHS or "max_minutes" not in part.sections["training"]:
        return part, f"distill-train {name} --hours {options.hours:g}"
    return choose(facts, data, minutes, device), f"train {name}"


def _data(options: Options, texts: "dict[str, ParallelFiles]") -> "DataConfig":
    from pydantic import ValidationError

    from seq2seq.config.schema import DataConfig

    try:
        codes = {"src_lang": options.src_lang, "tgt_lang": options.tgt_lang}
        return DataConfig.model_validate({**codes, **texts})
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-")
        reason = first["msg"].removeprefix("Value error, ")
        raise UserError(f"init --{option}: {reason}") from None


def _hold_out(
    options: Options, files: "ParallelFiles", inputs: Sequence[Path]
) -> "dict[str, ParallelFiles]":
    """Divide a text; return the files of train and valid, in a new folder; raises UserError.

    What the same command wrote before it was killed is no file that it would have to overwrite.
    """
    from seq2seq.config.schema import ParallelFiles
    from seq2seq.tools.corpora import splitting

    folder = options.config.with_name(f"{options.config.stem}-data")
    sides = _sides(options)
    outputs = {part: [folder / f"{part}.{side}" for side in sides] for part in ("train", "valid")}
    for path in (*outputs["train"], *outputs["valid"]):
        if any(same_file(name, source) for name in (path, part_of(path)) for source in inputs):
            raise UserError(f"{path}: is read by this command; choose another name for CONFIG")
        check_replaced(path, overwrite=True)  # raises if it is no regular file
    sizes = {"valid": options.hold_out, "test": 0}
    names = {"valid": "--hold-out"}
    division = splitting.divide(iter_pairs(files), sizes, _SEED, source_name(files), names)
    for part, paths in outputs.items():
        for side, path in enumerate(paths):
            is_ours = path.exists() and splitting.holds_part(path, files, division, part, side)
            check_replaced(path, options.overwrite or is_ours)
    with made_folders(outputs["train"]):
        splitting.write_parts(files, division, outputs, sides)
    held_out = {part: ParallelFiles(src=src, tgt=tgt) for part, (src, tgt) in outputs.items()}
    train_pairs = counted(division.count(0), "pair")
    say(f"{folder}: {train_pairs} to train on, {division.count(1):,} held out for validation")
    return held_out


def _sides(options: Options) -> tuple[str, str]:
    """Return endings of the files of both sides: the language codes, if they can be."""
    codes = options.src_lang, options.tgt_lang
    usable = all(re.fullmatch(r"[A-Za-z0-9_-]+", code) for code in codes)
    return codes if usable and codes[0] != codes[1] else ("src", "tgt")


def _write(path: Path, data: "DataConfig", recipe: "Recipe", command: str) -> None:
    """Write a config; say what it is and how to train it."""
    from seq2seq.tools.analysis.recipe import as_yaml

    with open_output(path) as output:
        output.write(as_yaml(path, data, recipe, command))
    cost = recipe.cost
    name = shlex.quote(str(path))
    model = f"{recipe.sections['model']['decoder']} decoder, {cost.parameters:,} parameters"
    time = f"{recipe.epochs:.1f} epochs in about {duration(recipe.seconds)}"
    speed = f"{cost.tokens_per_second:,.0f} target tokens/s on {cost.hardware}"
    say(f"{path}: {model}, {time} ({speed})")
    say(f"Check it:  seq2seq check {name}\nTrain:     seq2seq {command}")
