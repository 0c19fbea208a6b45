"""Train the best model that one text gives, by knowledge distillation (Kim & Rush 2016):
teachers, a reversed model for back-translations (Sennrich et al. 2016), translations of
the training text by the teachers, and a student of all of these. Prints the plan first,
runs its steps, and leaves in run_dir the model with the best score on the validation
text: the student, or the plain training where teachers are too weak. If it is
interrupted, the same command resumes.

examples:
  seq2seq distill-train my-run.yaml --dry-run
  seq2seq distill-train my-run.yaml --hours 8
  seq2seq distill-train my-run.yaml run_dir=runs/distilled --jobs 2
"""

import argparse
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli import arguments, conflicts, number_types
from seq2seq.cli.input import check_texts
from seq2seq.cli.interruption import frozen_objects
from seq2seq.cli.options import CommandLine, Repeated
from seq2seq.runtime import console, process_group, threads
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import same_file

if TYPE_CHECKING:
    from seq2seq.tools.distillation.distillation import Distillation, Result
    from seq2seq.tools.distillation.steps import Step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    text = "hours for all steps: leaves out what does not fit (default: all)"
    parser.add_argument("--hours", type=number_types.positive, metavar="N", help=text)
    text = "2: also students of students, for twice the time (default: 1)"
    parser.add_argument("--generations", type=int, choices=(1, 2), default=1, help=text)
    text = "config of a teacher; repeat for an ensemble (default: two seeds of CONFIG)"
    parser.add_argument(
        "--teacher", action=Repeated, default=[], type=Path, metavar="CONFIG", help=text
    )
    text = "further text of the target language to back-translate, one sentence per line"
    parser.add_argument("--monolingual", type=Path, metavar="FILE", help=text)
    arguments.add_jobs(parser, "steps")
    text = "print the plan, and write nothing"
    parser.add_argument("--dry-run", action="store_true", help=text)
    text = "remove models and texts that only the result needed"
    parser.add_argument("--tidy", action="store_true", help=text)
    text = "replace the run in run_dir, and all that was made for it"
    parser.add_argument("--overwrite", action="store_true", help=text)
    arguments.add_training_options(parser)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    config: Path
    overrides: list[str]
    hours: float | None
    generations: int
    teacher: list[Path]
    monolingual: Path | None
    jobs: int
    dry_run: bool
    tidy: bool
    overwrite: bool
    device: str
    threads: int | None
    scores: list[str]
    command_line: CommandLine


CONFLICTS = arguments.jobs_conflicts("distill-train")


def run(options: Options) -> int:
    if process_group.world_size() > 1:
        text = "distill-train starts its own processes; start it without torchrun"
        raise UserError(text)
    conflicts.check_together(options, CONFLICTS)
    threads.set_threads(options.threads)
    distillation = _prepare(options)
    with frozen_objects():
        from seq2seq.tools.distillation.distillation import begin_again_note, distil

    if distillation.record.result is None:
        console.say(plan_table(distillation))
    else:
        console.logger.info(begin_again_note(distillation.config.run_dir))
    if options.dry_run:
        return 0
    try:
        result = distil(distillation, options.tidy)
    except KeyboardInterrupt:
        words = [word for word in options.command_line.words if word != "--overwrite"]
        console.logger.info(f"Resume with: seq2seq {shlex.join(words)}")
        raise
    console.say(result_table(result))
    for line in _closing(distillation, result):
        console.logger.info(line)
    return 0


def _prepare(options: Options) -> "Distillation":
    """Read the configs, check and plan."""
    config = arguments.resolve_config(options.config, options.overrides)
    teachers = tuple(arguments.resolve_config(path, []) for path in options.teacher)
    check_texts("distill-train --monolingual", options.monolingual)
    if (path := options.monolingual) is not None:
        if not path.is_file():
            raise UserError(f"distill-train --monolingual: {path}: give a regular file")
        codes = config.data.tgt_lang, config.data.src_lang
        arguments.check_named_languages([path], codes)
        if any(same_file(path, other) for other in config.data.paths()):
            text = "is a text of the config, whose targets are back-translated anyway"
            raise UserError(f"distill-train --monolingual: {path}: {text}. Leave it out")
    with frozen_objects():
        from seq2seq.inference.loaders.load import is_cpu
        from seq2seq.tools.distillation.distillation import log_plan_notes, prepare
        from seq2seq.tools.distillation.plan import DistillationRequest
        from seq2seq.tools.distillation.steps import FOLDER, Workplace

    device = options.device
    folder = config.run_dir / FOLDER
    place = Workplace(folder, device, int8=is_cpu(device), scores=tuple(options.scores))
    request = DistillationRequest(
        config, teachers, options.monolingual, generations=options.generations
    )
    distillation = prepare(request, place, options.hours, options.jobs, options.overwrite)
    log_plan_notes(distillation)
    return distillation


def plan_table(distillation: "Distillation") -> str:
    """Show each step with its expected time, and when all end by the clock."""
    from seq2seq.tools.distillation.costs import total_seconds
    from seq2seq.tools.distillation.runner import clock

    record = distillation.record
    expected = record.expected

    def cells(step: "Step") -> tuple[str, str, str]:
        finished = record.has_finished(step, distillation.place)
        time = "finished" if finished else f"about {console.duration(expected[step.name])}"
        return step.name, step.label, time

    plan = distillation.plan
    unfinished = [[step for step in part if cells(step)[2] != "finished"] for part in plan]
    seconds = total_seconds(unfinished, expected, distillation.jobs)
    count = console.counted(sum(map(len, unfinished)), "step")
    end = f"about {console.duration(seconds)}, until about {clock(seconds)}"
    rows = [("step", "command", "time"), *map(cells, plan.steps), ("all", count, end)]
    return console.aligned_table(rows, "left")


def result_table(result: "Result") -> str:
    """Show the scores on the validation text; a star marks the result."""
    rows = [("validation", "BLEU", "chrF2")]
    for name, scores in result.scores.items():
        mark = "*" if name == result.name else ""
        rows.append((f"{name}{mark}", f"{scores['bleu']:.1f}", f"{scores['chrf']:.1f}"))
    return console.aligned_table(rows)


def _closing(distillation: "Distillation", result: "Result") -> list[str]:
    """Say what the result is, by how much, and how to use it."""
    from seq2seq.tools.distillation.distillation import ensembles

    folder = distillation.config.run_dir
    gains = result.gains()
    unit = "chrF2" if result.metric == "chrf" else "BLEU"
    score = f"{unit} {result.scores[result.name][result.metric]:.1f}"
    compared = [f"{gain:+.1f} against {name}" for name, gain in gains.items()]
    lines = [f"{folder}: has {result.name}: {', '.join([score, *compared])}"]
    if result.stopped_early:
        from seq2seq.tools.distillation.best_model import LEAST_BLEU

        reason = f"with less than {LEAST_BLEU:g} BLEU teachers teach badly"
        lines.append(f"note: no student was trained: {reason}; more text helps more")
    for name, models in ensembles(distillation).items():
        if gains.get(name, 0.0) < 0 and distillation.place.folder.exists():
            words = shlex.join(distillation.place.models(models))
            lines.append(f"note: the ensemble is better, and slower: seq2seq translate {words}")
    quoted = shlex.quote(str(folder))
    lines.append(f"Translate:  seq2seq translate -m {quoted} -i FILE")
    if distillation.config.data.test is not None:
        lines.append(f"Evaluate:   seq2seq evaluate -m {quoted}")
    lines.append(f"Export:     seq2seq export -m {quoted} --int8 -o exported/{folder.name}")
    return lines
