"""`seq2seq compare`: train variants on the same data and seeds, and report their scores."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.cli import arguments
from seq2seq.cli.output import check_output, write_report
from seq2seq.runtime.console import aligned_table, logger
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import check_paths, part_of, same_file
from seq2seq.runtime.process_group import world_size

if TYPE_CHECKING:
    from seq2seq.analysis.compare.scoring import ComparisonResult, ScoredOutput, VariantResult

_SPLIT_NOTES = {
    "valid": "use valid to choose a variant, although it has already chosen the best checkpoints; "
    "then score the choice with --split test",
    "test": "use test for the final score only; choosing a variant by it biases its score",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Train variants of a config, each with several seeds, and score them on the same\n"
        "data. Runs that are already trained are reused."
    )
    parser.epilog = """examples:
  seq2seq compare configs/compare-ladder.yaml
  seq2seq compare a.yaml b.yaml training.max_steps=2000 --seeds 1,2"""
    text = "YAML file of variants, or several configs; section.key=value overrides a key of all"
    parser.add_argument("overrides", nargs="+", metavar="CONFIG", help=text)  # configs, too
    text = "seeds (default: those of the YAML file, or 1,2,3)"
    parser.add_argument("--seeds", metavar="N,N,...", help=text)
    text = "folder of runs, translations and figures (default: the YAML file's or runs/compare)"
    arguments.add_output_folder(parser, text)
    text = "text to score: valid to choose a variant (default), test for the final score"
    parser.add_argument("--split", choices=("valid", "test"), default="valid", help=text)
    arguments.add_json_report(parser)
    arguments.add_beam(parser)
    arguments.add_lowercase(parser)
    arguments.add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Train what is not trained yet, score all runs, and report."""
    if world_size() > 1:
        raise UserError("compare runs in a single process; start it without torchrun")
    overrides = [word for word in options.overrides if "=" in word]
    configs = [Path(word) for word in options.overrides if "=" not in word]
    if not configs:
        raise UserError("compare: give at least one config; see seq2seq compare --help")
    check_output(options.json, *configs)
    from seq2seq.analysis.compare.variants import read_plan

    plan = read_plan(configs, overrides, options.seeds, options.output)
    runs = [each.run_dir for each in plan.run_configs()]
    check_paths(*map(part_of, plan.output_paths(options.split)), *runs)
    inputs = [*configs, *(path for each in plan.variants for path in each.config.data.paths())]
    for path in plan.output_paths(options.split):
        if any(same_file(path, each) for each in inputs):
            raise UserError(
                f"{path}: would be replaced by an output; set another folder, -o FOLDER"
            )
    check_paths(*inputs)
    check_output(options.json, *inputs, *plan.output_paths(options.split), runs=runs)
    for note in plan.notes:
        logger.info(f"note: {note}")
    from seq2seq.analysis.compare.compare import compare
    from seq2seq.analysis.compare.figure import write_figures
    from seq2seq.evaluation.bootstrap import seed_name

    seed_name()  # refused before the first training
    try:
        result = compare(plan, options.split, options.device, options.beam, options.lowercase)
    except KeyboardInterrupt:
        logger.info(f"Resume with: seq2seq {shlex.join(options.arguments)}")
        raise
    write_report(as_text(result), as_json(result), options.json)
    for line in write_figures(result):
        logger.info(line)
    return 0


def as_text(result: "ComparisonResult") -> str:
    """Format a table of variants, one of source lengths, and a legend."""
    parts = [_title(result), _variants(result), _lengths(result), _legend(result)]
    return "\n\n".join(part for part in parts if part)


def _title(result: "ComparisonResult") -> str:
    task, seeds = result.task, result.plan.seeds
    beam = "beam size of the config" if task.beam is None else f"beam size {task.beam}"
    return (
        f"{task.split}: {len(task.text):,} sentences, seed{'s' * (len(seeds) > 1)} "
        f"{', '.join(map(str, seeds))}, {beam}, {'lowercased' if task.lowercase else 'cased'}"
    )


def _variants(result: "ComparisonResult") -> str:
    from statistics import mean

    from seq2seq.analysis.compare.scoring import bleu_scores
    from seq2seq.evaluation.bootstrap import deviation

    head = ("variant", "BLEU", "sd", "chrF2", "ensemble", "difference", "sd", "p")
    rows = [(*head, "parameters", "tokens/s", "minutes")]
    for each in result.variants:
        scores, costs = bleu_scores(each.runs), [run.cost for run in each.runs]
        speeds = [cost.tokens_per_second for cost in costs if cost.tokens_per_second is not None]
        tested = each.difference
        rows.append(
            (
                each.variant.name,
                f"{mean(scores):.1f}",
                _number(deviation(scores), ".2f"),
                f"{mean(run.output.scores.chrf.score for run in each.runs):.1f}",
                _number(each.ensemble and each.ensemble.scores.bleu.score, ".1f"),
                _number(tested and tested.mean, "+.1f"),
                _number(tested and tested.deviation, ".2f"),
                _number(tested and tested.p_value, ".3f"),
                f"{each.parameters:,}",
                _number(mean(speeds) if speeds else None, ",.0f"),
                f"{mean(cost.minutes for cost in costs):.1f}",
            )
        )
    return aligned_table(rows)


def _lengths(result: "ComparisonResult") -> str:
    if not result.buckets:
        return ""
    rows = [
        ("source words", *(bucket.label for bucket in result.buckets)),
        ("sentences", *(f"{len(bucket.rows):,}" for bucket in result.buckets)),
    ]
    for each in result.variants:
        rows.append((each.variant.name, *(f"{score:.1f}" for score in each.by_length)))
    return aligned_table(rows)


def _legend(result: "ComparisonResult") -> str:
    from seq2seq.evaluation.bootstrap import MIN_SENTENCES, RESAMPLES

    plan, task, scores = result.plan, result.task, result.variants[0].runs[0].output.scores
    lines = [
        "BLEU, chrF2: means over seeds; sd: sample standard deviation over seeds",
        f"translations: {plan.folder}/*.{task.split}.hyp",
    ]
    if len(plan.variants) > 1:
        lines.append(
            f"difference: BLEU minus that of {plan.variants[0].name}; p: two-sided paired "
            f"bootstrap over sentences, {RESAMPLES:,} resamples"
        )
        lines.append("p ignores the seeds: a difference within its sd may be due to them")
        if len(task.text) < MIN_SENTENCES:
            lines.append(f"no p for fewer than {MIN_SENTENCES} sentences")
    if any(bucket.beyond for bucket in result.buckets):
        lines.append(f"*: more words than any source in training ({task.longest})")
    for variant in plan.variants:
        if (own := plan.trained_as(variant).name) != variant.name:
            lines.append(f"{variant.name} shares the training of {own}: only decoding differs")
    lines.append(_SPLIT_NOTES[task.split])
    lines.append(f"BLEU {scores.bleu.signature}; chrF2 {scores.chrf.signature}")
    return "\n".join(lines)


def as_json(result: "ComparisonResult") -> dict[str, Any]:
    """Arrange all results for JSON."""
    plan, task = result.plan, result.task
    return {
        "split": task.split,
        "files": task.text.source_name,
        "sentences": len(task.text),
        "seeds": list(plan.seeds),
        "beam": task.beam,
        "lowercase": task.lowercase,
        "longest_source_in_training": task.longest,
        "variants": [_variant(result, each) for each in result.variants],
        "lengths": [
            {
                "words": [bucket.first, bucket.last],
                "sentences": len(bucket.rows),
                "beyond_training": bucket.beyond,
                "bleu": {each.variant.name: each.by_length[i] for each in result.variants},
            }
            for i, bucket in enumerate(result.buckets)
        ],
    }


def _variant(result: "ComparisonResult", each: "VariantResult") -> dict[str, Any]:
    from statistics import mean

    from seq2seq.analysis.compare.scoring import bleu_scores
    from seq2seq.evaluation.bootstrap import deviation

    scores = bleu_scores(each.runs)
    return {
        "name": each.variant.name,
        "trained_as": result.plan.trained_as(each.variant).name,
        "config": each.variant.config.model_dump(mode="json", exclude={"name", "run_dir", "seed"}),
        "bleu_mean": mean(scores),
        "bleu_deviation": deviation(scores),
        "chrf_mean": mean(run.output.scores.chrf.score for run in each.runs),
        "difference": each.difference,
        "parameters": each.parameters,
        "ensemble": None if each.ensemble is None else _scored(each.ensemble),
        "runs": [
            {
                "seed": run.seed,
                "folder": run.folder.as_posix(),
                **run.cost._asdict(),
                **_scored(run.output),
                "curve": run.curve,
            }
            for run in each.runs
        ],
    }


def _scored(scored: "ScoredOutput") -> dict[str, Any]:
    return {"translations": scored.file.as_posix(), **scored.scores._asdict()}


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
