"""Train variants of a config, each with several seeds, and score them on the same
data. Runs that are already trained are reused.

examples:
  seq2seq compare configs/compare-ladder.yaml
  seq2seq compare a.yaml b.yaml training.max_steps=2000 --seeds 1,2
  seq2seq compare study.yaml --jobs 4
  seq2seq compare study.yaml --split test --table latex
"""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from seq2seq.cli import arguments, conflicts, search_arguments
from seq2seq.cli.interruption import frozen_objects
from seq2seq.cli.options import CommandLine, Override, Words, override_or_path
from seq2seq.cli.output import check_output, write_report
from seq2seq.runtime import console, errors, files, process_group, threads

if TYPE_CHECKING:
    from seq2seq.tools.analysis.compare.scoring import ComparisonResult, ScoredOutput, VariantResult
    from seq2seq.tools.analysis.compare.variants import Plan

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
    text = "also write the tables as files in the folder of the runs"
    parser.add_argument("--table", choices=("latex", "markdown", "csv"), help=text)
    text = "gold alignments of the first lines of the text, as in attention: adds the error rate"
    parser.add_argument("--gold", type=Path, metavar="FILE", help=text)
    arguments.add_json_report(parser)
    search_arguments.add_beam(parser)
    arguments.add_lowercase(parser)
    arguments.add_jobs(parser, "trainings")
    arguments.add_training_options(parser)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    overrides: list[str]
    seeds: str | None
    output: Path | None
    split: str
    table: str | None
    gold: Path | None
    json: Path | None
    beam: int | None
    lowercase: bool
    jobs: int
    device: str
    threads: int | None
    scores: list[str]
    command_line: CommandLine


CONFLICTS = arguments.jobs_conflicts("compare")


def run(options: Options) -> int:
    if process_group.world_size() > 1:
        raise errors.UserError("compare runs in a single process; start it without torchrun")
    overrides = [word for word in options.overrides if isinstance(word, Override)]
    configs = [Path(word) for word in options.overrides if not isinstance(word, Override)]
    if not configs:
        raise errors.UserError("compare: give at least one config; see seq2seq compare --help")
    conflicts.check_together(options, CONFLICTS)
    threads.set_threads(options.threads)
    with frozen_objects():
        from seq2seq.evaluation.bootstrap import seed_name
        from seq2seq.tools.analysis.compare.charts import write_figures
        from seq2seq.tools.analysis.compare.compare import compare
        from seq2seq.tools.analysis.compare.scoring import ComparisonRequest
        from seq2seq.tools.analysis.compare.tables import write_tables
        from seq2seq.tools.analysis.compare.variants import read_plan

    plan = read_plan(configs, overrides, options.seeds, options.output)
    _check_outputs(options, plan, configs)
    for note in plan.notes:
        console.logger.info(f"note: {note}")
    seed_name()  # refused before the first training
    how = options.split, options.device, options.beam, options.lowercase, options.gold, options.jobs
    try:
        result = compare(plan, ComparisonRequest(*how))
    except KeyboardInterrupt:
        console.logger.info(f"Resume with: seq2seq {shlex.join(options.command_line.words)}")
        raise
    write_report(as_text(result), as_json(result), options.json)
    if options.table is not None:
        paths = write_tables(result, options.table, title_of(result), legend_of(result))
        console.logger.info(f"Tables: {', '.join(map(str, paths))}")
    console.logger.info(write_figures(result))
    return 1 if result.failed else 0


def _check_outputs(options: Options, plan: "Plan", configs: Sequence[Path]) -> None:
    """Raise UserError for an output that cannot be written, or would replace an input."""
    runs = [config.run_dir for config in plan.run_configs()]
    outputs = plan.output_paths(options.split, options.table)
    files.check_paths(*map(files.part_of, outputs), *runs)
    texts = (path for variant in plan.variants for path in variant.config.data.paths())
    inputs = [*configs, *texts, *filter(None, [options.gold])]
    for path in outputs:
        if any(files.same_file(path, source) for source in inputs):
            text = "would be replaced by an output; set another folder, -o FOLDER"
            raise errors.UserError(f"{path}: {text}")
    files.check_paths(*inputs)
    check_output(options.json, *inputs, *outputs, runs=map(str, runs))


def as_text(result: "ComparisonResult") -> str:
    """Format tables of variants, their differences and source lengths, and a legend."""
    from seq2seq.tools.analysis.compare.tables import tables_of

    tables = [table.as_text() for table in tables_of(result)]
    return "\n\n".join([title_of(result), *tables, legend_of(result)])


def title_of(result: "ComparisonResult") -> str:
    """Say what was scored, with which seeds, and how."""
    request = result.request
    seeds = result.plan.seeds
    beam = "beam size of the config" if request.beam is None else f"beam size {request.beam}"
    seed = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    case = "lowercased" if request.lowercase else "cased"
    return f"{request.split}: {len(result.task.text):,} sentences, {seed}, {beam}, {case}"


def legend_of(result: "ComparisonResult") -> str:
    """Explain the columns, a line for each thought; the last line has the signatures."""
    plan = result.plan
    task = result.task
    request = result.request
    scores = result.variants[0].runs[0].output
    lines = [
        "BLEU, chrF2: means over seeds; sd: sample standard deviation over seeds; values with * or "
        "in bold: the best of their column",
        *_legend_of_tests(result),
    ]
    if task.gold:
        lines.append(
            f"AER: alignment error rate in percent, of attention to the references of the first "
            f"{console.counted(len(task.gold), 'sentence')}; lower is better"
        )
    if any(bucket.beyond for bucket in result.buckets):
        text = f"more {task.unit.name} than any source in training ({task.longest})"
        lines.append(f"lengths with *: {text}")
    for variant in plan.variants:
        if (trained := plan.trained_as(variant).name) != variant.name:
            lines.append(f"{variant.name} shares the training of {trained}: only decoding differs")
    lines.append(f"translations: {plan.folder}/*.{request.split}.hyp")
    lines.append(_SPLIT_NOTES[request.split])
    signatures = scores.text.scores
    bleu = signatures["bleu"].signature
    chrf = signatures["chrf"].signature
    lines.append(f"BLEU {bleu}; chrF2 {chrf}")
    return "\n".join(map(console.one_line, lines))


def _legend_of_tests(result: "ComparisonResult") -> list[str]:
    """Explain intervals and p-values, or say why there are none."""
    from seq2seq.evaluation.bootstrap import MIN_SENTENCES, RESAMPLES

    if len(result.task.text) < MIN_SENTENCES:
        return [f"no intervals and p-values for fewer than {MIN_SENTENCES} sentences"]
    of_sentences = f"bootstrap over sentences, {RESAMPLES:,} resamples"
    lines = [f"95% interval: {of_sentences}, for these models"]
    if not result.pairs:
        return lines
    lines.append(f"p: two-sided paired {of_sentences}, for these models")
    if len(result.plan.seeds) > 1:
        text = "with seeds: for other seeds and other sentences, by the deviation over seeds, too"
        lines.append(f"{text}; report this one")
    else:
        lines.append("p says nothing about other seeds: pass --seeds 1,2,3")
    if len(result.pairs) > 1:
        lines.append(f"p is not corrected for {len(result.pairs)} comparisons")
    differences = [tested for pair in result.pairs for tested in pair.differences.values()]
    if any(tested.p_value is None for tested in differences):
        lines.append(f"no p where fewer than {MIN_SENTENCES} sentences differ")
    return lines


def as_json(result: "ComparisonResult") -> dict[str, Any]:
    plan = result.plan
    task = result.task
    request = result.request
    return {
        "split": request.split,
        "files": task.text.source_name,
        "sentences": len(task.text),
        "seeds": list(plan.seeds),
        "beam": request.beam,
        "lowercase": request.lowercase,
        "longest_source_in_training": task.longest,
        "variants": [_variant(result, variant) for variant in result.variants],
        "pairs": [
            {"variant": pair.variant, "minus": pair.baseline, **pair.differences}
            for pair in result.pairs
        ],
        "failed": result.failed,
        "lengths": [
            {
                task.unit.name: [bucket.first, bucket.last],
                "sentences": len(bucket.rows),
                "beyond_training": bucket.beyond,
                "bleu": {
                    variant.variant.name: mean(variant.by_length[i]) for variant in result.variants
                },
            }
            for i, bucket in enumerate(result.buckets)
        ],
    }


def _variant(result: "ComparisonResult", variant: "VariantResult") -> dict[str, Any]:
    bleu = variant.scores["bleu"]
    chrf = variant.scores["chrf"]
    config = variant.variant.config.model_dump(mode="json", exclude={"name", "run_dir", "seed"})
    errors = variant.alignment_errors
    return {
        "name": variant.variant.name,
        "trained_as": result.plan.trained_as(variant.variant).name,
        "config": config,
        "bleu_mean": bleu.mean,
        "bleu_deviation": bleu.deviation,
        "bleu_ci": bleu.ci,
        "chrf_mean": chrf.mean,
        "chrf_deviation": chrf.deviation,
        "chrf_ci": chrf.ci,
        "alignment_error_rate": mean(errors) if errors else None,
        "parameters": variant.parameters,
        "ensemble": None if variant.ensemble is None else _scored(variant.ensemble),
        "runs": [
            {
                "seed": run.seed,
                "folder": run.folder.as_posix(),
                "steps": run.steps,
                "minutes": run.minutes,
                "tokens_per_second": run.tokens_per_second,
                "alignment_error_rate": run.alignment_error,
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
