"""Make a distilled model from a config: measure and plan, run the steps, choose the result."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from seq2seq.config.schema import Config
from seq2seq.data.corpus import check_directions, iter_pairs, read_pairs, usable
from seq2seq.runs import checkpoint, run_folder
from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import UserError, argument
from seq2seq.runtime.files import write_errors
from seq2seq.runtime.locks import FolderLock
from seq2seq.text.text_files import checksum_of_file, iter_lines
from seq2seq.tools.analysis.recipe import TextFacts, measure_text
from seq2seq.tools.distillation import best_model, configs, costs
from seq2seq.tools.distillation.plan import (
    SCORE,
    STUDENTS,
    TEACHERS,
    DistillationRequest,
    StepPlan,
    plan_of,
)
from seq2seq.tools.distillation.record import FILE, Record, request_keys
from seq2seq.tools.distillation.runner import Runner, extract_tables
from seq2seq.tools.distillation.steps import ModelScoring, Step, Workplace
from seq2seq.tools.jobs.processes import Start, starter


class Distillation(NamedTuple):
    """A planned distillation, whose record says how far it has come."""

    request: DistillationRequest
    place: Workplace
    plan: StepPlan
    record: Record
    jobs: int
    overwrites: bool  # what the run folder has: another run, or a distillation

    @property
    def config(self) -> Config:
        """Return the config of the user."""
        return self.request.config

    @property
    def metric(self) -> str:
        """Return the metric that chooses the result."""
        return "chrf" if self.config.training.metric.name == "chrf" else "bleu"


class Result(NamedTuple):
    """The chosen model, the scores of all, and whether students were given up."""

    name: str
    scores: dict[str, dict[str, float]]
    metric: str
    stopped_early: bool

    def gains(self) -> dict[str, float]:
        """Return how much better the result is than each other model or ensemble."""
        own_score = self.scores[self.name][self.metric]
        others = ((name, scores[self.metric]) for name, scores in self.scores.items())
        return {name: own_score - score for name, score in others if name != self.name}


def prepare(
    request: DistillationRequest,
    place: Workplace,
    hours: float | None = None,
    jobs: int = 1,
    overwrite: bool = False,
) -> Distillation:
    """Check a request, measure what it costs and plan it, or continue as the record has it.

    Writes no file. Raises UserError for what cannot be distilled, and for a run folder with another
    run or the distillation of another request.
    """
    config = request.config
    folder = config.run_dir
    _check_apart(request, place)
    record = None if overwrite else Record.read(folder)
    if record is None and not overwrite and run_folder.holds_run(folder):
        text = "already holds a run, which distill-train did not make"
        remedy = f"Replace it with {argument('overwrite', True)}, or set another run_dir"
        raise UserError(f"{folder}: {text}. {remedy}")
    run_folder.check_folder(config, resume=False, overwrite=True)  # its run is this command's own
    _check_configs(request)
    facts, request = _measured(request)
    checksum = None if request.monolingual is None else checksum_of_file(request.monolingual)[:12]
    options = {
        "hours": hours,
        "generations": request.generations,
        "monolingual (checksum)": checksum,
    }
    keys = request_keys(config, request.teachers, options)
    if record is not None:
        record.check_request(keys)
        plan = plan_of(request, record.outline, place)
        return Distillation(request, place, plan, record, jobs, overwrite)
    epochs = costs.measure(request, facts, place.device)
    outline = costs.outline_within(hours, request, place, epochs, jobs)
    plan = plan_of(request, outline, place)
    expected = {step.name: costs.seconds_of(step, epochs) for step in plan.steps}
    record = Record.begin(folder, keys, outline, expected)
    return Distillation(request, place, plan, record, jobs, overwrite)


def _check_apart(request: DistillationRequest, place: Workplace) -> None:
    """Raise UserError for a text in the folder that the steps write."""
    monolingual_files = () if request.monolingual is None else (request.monolingual,)
    for path in (*request.config.data.paths(), *monolingual_files):
        if place.folder.resolve() in path.resolve().parents:
            text = f"lies in {place.folder}, which this command writes. Move it away"
            raise UserError(f"{path}: {text}")


def _check_configs(request: DistillationRequest) -> None:
    """Raise UserError for configs that cannot be distilled, or not together."""
    checkpoint.check_score_class(request.config)
    configs.check_supported(request.config)
    for number, teacher in enumerate(request.teachers, start=1):
        where = f"teacher {number}: "
        configs.check_supported(teacher, where)
        for key in ("train", "valid", "src_lang", "tgt_lang"):
            if getattr(teacher.data, key) != getattr(request.config.data, key):
                text = f"data.{key}: is not that of the config. Teachers have the same text"
                raise UserError(f"{where}{text}")
        if not configs.fits_vocabulary(request.teachers[0], teacher):
            text = "vocabulary: is not that of teacher 1. An ensemble needs one vocabulary"
            raise UserError(f"{where}{text}")


def _measured(request: DistillationRequest) -> tuple[TextFacts, DistillationRequest]:
    """Read the texts; return facts of the training text, and the request with sizes of its parts.

    Raises UserError if a text has no usable pair, or its sides seem to be swapped.
    """
    data = request.config.data
    counts = [sum(1 for _ in iter_pairs(corpus)) for corpus in data.train]
    pairs = (pair for corpus in data.train for pair in iter_pairs(corpus))
    facts = measure_text(pairs, "data.train")
    held_out = [read_pairs(text) for text in (data.valid, data.test) if text is not None]
    usable(held_out[0])  # raises if it has no text
    check_directions(facts.sample, held_out, data.src_lang)
    lines = 0 if request.monolingual is None else sum(1 for _ in iter_lines(request.monolingual))
    return facts, request._replace(
        sizes=tuple(count / sum(counts) for count in counts), monolingual_size=lines / sum(counts)
    )


def distil(distillation: Distillation, tidies: bool = False, start: Start | None = None) -> Result:
    """Run what has not finished, copy the best model to the run folder, and return the result.

    `start` starts a command; by default as a process of its own. Raises RunError if a step fails,
    and Interrupted as a training does; the next call resumes.
    """
    folder = distillation.config.run_dir
    place = distillation.place
    record = distillation.record
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder, wait=True)  # children of a killed call hold it until they end
    try:
        if distillation.overwrites:
            _clear(folder, place)
        else:
            record.take_over(Record.read(folder))
        if record.result is None:
            _run(distillation, start or starter(lock.descriptor))
        if tidies and place.folder.exists():
            with write_errors(place.folder):
                shutil.rmtree(place.folder)
    finally:
        lock.close()
    assert record.result is not None, "recorded by `_run`, or before"
    return Result(record.result, record.scores, distillation.metric, record.stopped_early)


def _clear(folder: Path, place: Workplace) -> None:
    """Remove a distillation and its result."""
    run_folder.clear(folder)
    with write_errors(folder):
        (folder / FILE).unlink(missing_ok=True)
        if place.folder.exists():
            shutil.rmtree(place.folder)


def _run(distillation: Distillation, start: Start) -> None:
    """Run the teachers, the students unless the teachers are too weak, and publish the best."""
    plan = distillation.plan
    place = distillation.place
    record = distillation.record
    with write_errors(place.folder):
        place.folder.mkdir(exist_ok=True)
    record.write()
    extract_tables(distillation.request, place)
    runner = Runner(place, record, start, distillation.jobs)
    runner.run(plan.teachers, later_steps=plan.students)
    scores = _scores(distillation, plan.teachers)
    teachers_are_seeds = not distillation.request.teachers
    stops_early = bool(plan.students) and teachers_are_seeds and not best_model.pays(scores)
    if plan.students and not stops_early:
        runner.run(plan.students)
        scores |= _scores(distillation, plan.students)
    best = best_model.best_of(scores, distillation.metric, own=teachers_are_seeds)
    best_model.publish(place.run(best), plan.trainings()[best].config, distillation.config.run_dir)
    record.finish(best, scores, stops_early)


def _scores(distillation: Distillation, steps: tuple[Step, ...]) -> dict[str, dict[str, float]]:
    """Return the scores of models and ensembles, by name."""
    names = (step.name for step in steps if isinstance(step, ModelScoring))
    reports = {name.removeprefix(SCORE): distillation.place.report(name) for name in names}
    return {name: best_model.read_scores(report) for name, report in reports.items()}


def ensembles(distillation: Distillation) -> Mapping[str, tuple[str, ...]]:
    """Return the models of each ensemble that is scored."""
    scorings = (step for step in distillation.plan.steps if isinstance(step, ModelScoring))
    models = {step.name.removeprefix(SCORE): step.models for step in scorings}
    return {name: models[name] for name in (TEACHERS, STUDENTS) if name in models}


def begin_again_note(folder: Path) -> str:
    """Say how to make another distillation in a folder that has a finished one."""
    return f"{folder}: is finished. To begin again, pass {argument('overwrite', True)}"


def log_plan_notes(distillation: Distillation) -> None:
    """Log what of the request does not fit into the time."""
    requested = distillation.request.most
    outline = distillation.record.outline
    omissions = []
    if outline.generations < requested.generations:
        kinds = {0: "students", 1: "a second generation"}
        omissions.append(kinds[outline.generations])
    if outline.teachers < requested.teachers:
        omissions.append("further teachers")
    if outline.generations and not outline.has_reversed:
        omissions.append("the reversed model and back-translations")
    if omissions:
        logger.info(f"note: {argument('hours')} leaves no time for {', '.join(omissions)}")
