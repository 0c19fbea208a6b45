"""Train variants of a config, each with several seeds, and score them on the same
data. Runs that are already trained are reused.

examples:
  seq2seq compare configs/compare-ladder.yaml
  seq2seq compare a.yaml b.yaml training.max_steps=2000 --seeds 1,2
"""

import argparse
import shlex
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from seq2seq.cli import arguments
from seq2seq.cli.options import CommandLine, Override, Words, override_or_path
from seq2seq.cli.output import check_output, write_report
from seq2seq.runtime import console, errors, files, process_group, threads

if TYPE_CHECKING:
    from seq2seq.tools.analysis.compare.scoring import ComparisonResult, ScoredOutput, VariantResult

_SPLIT_NOTES = {
    "valid": "use valid to choose a variant, although it has already chosen the best checkpoints; "
    "then score the choice with --split test",
    "test": "use test for the final score only; choosing a variant by it biases its score",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "YAML file of variants, or several configs; section.key=value overrides a key of all"
    parser.add_argument(  # configs, too
        "overrides", action=Words, nargs="+", type=override_or_path, metavar="CONFIG", help=text
    )
    text = "seeds (default: those of the YAML file, or 1,2,3)"
    parser.add_argument("--seeds", metavar="N,N,...", help=text)
    text = "folder of runs, translations and figures (default: the YAML file's or runs/compare)"
    arguments.add_output_folder(parser, text)
    text = "text to score: valid to choose a variant (default), test for the final score"
    parser.add_argument("--split", choices=("valid", "test"), default="valid", help=text)
    arguments.add_json_report(parser)
    arguments.add_beam(parser)
    arguments.add_lowercase(parser)
    arguments.add_training_options(parser)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    overrides: list[str]
    seeds: str | None
    output: Path | None
    split: str
    json: Path | None
    beam: int | None
    lowercase: bool
    device: str
    threads: int | None
    scores: list[str]
    command_line: CommandLine


def run(options: Options) -> int:
    if process_group.world_size() > 1:
        raise errors.UserError("compare runs in a single process; start it without torchrun")
    overrides = [word for word in options.overrides if isinstance(word, Override)]
    configs = [Path(word) for word in options.overrides if not isinstance(word, Override)]
    if not configs:
        raise errors.UserError("compare: give at least one config; see seq2seq compare --help")
    threads.set_threads(options.threads)
    with arguments.frozen_objects():
        from seq2seq.evaluation.bootstrap import seed_name
        from seq2seq.tools.analysis.compare.compare import compare
        from seq2seq.tools.analysis.compare.results import write_figures
        from seq2seq.tools.analysis.compare.variants import read_plan

    plan = read_plan(configs, overrides, options.seeds, options.output)
    runs = [config.run_dir for config in plan.run_configs()]
    written = plan.output_paths(options.split)
    files.check_paths(*map(files.part_of, written), *runs)
    texts = (path for variant in plan.variants for path in variant.config.data.paths())
    inputs = [*configs, *texts]
    for path in written:
        if any(files.same_file(path, source) for source in inputs):
            text = "would be replaced by an output; set another folder, -o FOLDER"
            raise errors.UserError(f"{path}: {text}")
    files.check_paths(*inputs)
    check_output(options.json, *inputs, *written, runs=map(str, runs))
    for note in plan.notes:
        console.logger.info(f"note: {note}")
    seed_name()  # refused before the first training
    try:
        result = compare(plan, options.split, options.device, options.beam, options.lowercase)
    except KeyboardInterrupt:
        console.logger.info(f"Resume with: seq2seq {shlex.join(options.command_line.words)}")
        raise
    write_report(as_text(result), as_json(result), options.json)
    console.logger.info(write_figures(result))
    return 1 if result.failed else 0


def as_text(result: "ComparisonResult") -> str:
    """Format a table of variants, one of source lengths, and a legend."""
    from seq2seq.tools.analysis.compare.results import tables_of

    task, seeds = result.task, result.plan.seeds
    beam = "beam size of the config" if task.beam is None else f"beam size {task.beam}"
    seed = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    case = "lowercased" if task.lowercase else "cased"
    title = f"{task.split}: {len(task.text):,} sentences, {seed}, {beam}, {case}"
    return "\n\n".join([title, *tables_of(result), _legend(result)])


def _legend(result: "ComparisonResult") -> str:
    from seq2seq.evaluation.bootstrap import MIN_SENTENCES, RESAMPLES

    plan, task, scores = result.plan, result.task, result.variants[0].runs[0].output.text.scores
    lines = [
        "BLEU, chrF2: means over seeds; sd: sample standard deviation over seeds; values with *: "
        "the best of their column",
        f"translations: {plan.folder}/*.{task.split}.hyp",
    ]
    if len(result.variants) > 1:
        baseline = result.variants[0].variant.name
        text = f"p: two-sided paired bootstrap over sentences, {RESAMPLES:,} resamples"
        lines.append(f"difference: BLEU minus that of {baseline}; {text}")
        several = "p ignores the seeds: a difference within its sd may be due to them"
        single = "p says nothing about other seeds: pass --seeds 1,2,3"
        lines.append(several if len(plan.seeds) > 1 else single)
        if len(result.variants) > 2:
            lines.append(f"p is not corrected for {len(result.variants) - 1} comparisons")
        if any(v.difference is not None and v.difference.p_value is None for v in result.variants):
            lines.append(f"no p where fewer than {MIN_SENTENCES} sentences differ")
    if any(bucket.beyond for bucket in result.buckets):
        text = f"more {task.unit.name} than any source in training ({task.longest})"
        lines.append(f"lengths with *: {text}")
    for variant in plan.variants:
        if (trained := plan.trained_as(variant).name) != variant.name:
            lines.append(f"{variant.name} shares the training of {trained}: only decoding differs")
    lines.append(_SPLIT_NOTES[task.split])
    lines.append("BLEU {}; chrF2 {}".format(scores["bleu"].signature, scores["chrf"].signature))
    return "\n".join(map(console.one_line, lines))


def as_json(result: "ComparisonResult") -> dict[str, Any]:
    plan, task = result.plan, result.task
    return {
        "split": task.split,
        "files": task.text.source_name,
        "sentences": len(task.text),
        "seeds": list(plan.seeds),
        "beam": task.beam,
        "lowercase": task.lowercase,
        "longest_source_in_training": task.longest,
        "variants": [_variant(result, variant) for variant in result.variants],
        "failed": result.failed,
        "lengths": [
            {
                task.unit.name: [bucket.first, bucket.last],
                "sentences": len(bucket.rows),
                "beyond_training": bucket.beyond,
                "bleu": {variant.variant.name: variant.by_length[i] for variant in result.variants},
            }
            for i, bucket in enumerate(result.buckets)
        ],
    }


def _variant(result: "ComparisonResult", variant: "VariantResult") -> dict[str, Any]:
    from seq2seq.evaluation.bootstrap import deviation
    from seq2seq.tools.analysis.compare.scoring import bleu_scores

    scores = bleu_scores(variant.runs)
    config = variant.variant.config.model_dump(mode="json", exclude={"name", "run_dir", "seed"})
    return {
        "name": variant.variant.name,
        "trained_as": result.plan.trained_as(variant.variant).name,
        "config": config,
        "bleu_mean": mean(scores),
        "bleu_deviation": deviation(scores),
        "chrf_mean": mean(run.output.text.scores["chrf"].score for run in variant.runs),
        "difference": variant.difference,
        "parameters": variant.parameters,
        "ensemble": None if variant.ensemble is None else _scored(variant.ensemble),
        "runs": [
            {
                "seed": run.seed,
                "folder": run.folder.as_posix(),
                "steps": run.steps,
                "minutes": run.minutes,
                "tokens_per_second": run.tokens_per_second,
                **_scored(run.output),
                "curve": run.curve,
            }
            for run in variant.runs
        ],
    }


def _scored(scored: "ScoredOutput") -> dict[str, Any]:
    from seq2seq.evaluation.metrics import METRICS

    scores = {key: scored.text.scores.get(key) for key in METRICS}
    return {"translations": scored.file.as_posix(), **scores}
