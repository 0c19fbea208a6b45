"""Variants trained on the same data and seeds, translated and scored: `seq2seq compare`."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import numpy as np

from seq2seq.analysis.compare.length_buckets import Bucket, buckets
from seq2seq.analysis.compare.variants import Plan, Variant
from seq2seq.config.schema import Config
from seq2seq.data.corpus import ParallelText, read_pairs, usable
from seq2seq.data.training_data import checksum_of_text, training_data
from seq2seq.evaluation import bootstrap
from seq2seq.evaluation import metrics as evaluation
from seq2seq.evaluation.bootstrap import Counts, Difference
from seq2seq.evaluation.metrics import Scores
from seq2seq.inference.translator import Translator
from seq2seq.runs.checkpoint import BEST
from seq2seq.runs.provenance import Header
from seq2seq.runs.run_folder import TIMING, check_folder, resumed_state, run_lives
from seq2seq.runs.tensor_file import read_header
from seq2seq.runs.training_state import check_texts, read_state
from seq2seq.runtime.console import logger
from seq2seq.runtime.device import choose_device, deterministic
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.files import atomic_write
from seq2seq.training.loop import train
from seq2seq.training.reporting import read_metrics
from seq2seq.training.session import other_texts
from seq2seq.training.stopping import has_ended


class Task(NamedTuple):
    """What is translated, and how it is scored."""

    split: str  # valid or test
    text: ParallelText
    longest: int  # words of the longest source that any variant learns from
    device: str
    beam: int | None  # None: that of the config
    lowercase: bool


class Scored(NamedTuple):
    """Translations by one run or by an ensemble, kept in a file, and their scores."""

    file: Path
    scores: Scores
    counts: Counts


class Cost(NamedTuple):
    """What a training took; no speed is known of one that ended before its first report."""

    updates: int
    minutes: float
    tokens_per_second: float | None


class Run(NamedTuple):
    """A variant with one seed."""

    seed: int
    folder: Path
    scored: Scored
    cost: Cost
    curve: list[tuple[int, float]]  # update, greedy BLEU of the validation set


class Outcome(NamedTuple):
    """A variant with all seeds."""

    variant: Variant
    runs: list[Run]
    ensemble: Scored | None  # of all seeds; None of a single one
    parameters: int
    difference: Difference | None  # to the first variant; None of the first
    by_length: list[float]  # mean BLEU over seeds of each bucket


class Result(NamedTuple):
    """All that is told of a comparison."""

    plan: Plan
    task: Task
    buckets: list[Bucket]
    outcomes: list[Outcome]


def check(plan: Plan, split: str, device: str, beam: int | None, lowercase: bool) -> Task:
    """Look at all folders, data and vocabularies before the first training.

    Raises UserError where a run could not begin or go on.
    """
    data = plan.variants[0].config.data
    files = data.valid if split == "valid" else data.test
    if files is None:
        raise UserError("--split test: the config has no data.test; set it, or leave this out")
    chosen = choose_device(device)
    wanted = any(each.config.training.deterministic for each in plan.trained())
    with deterministic(chosen, wanted):  # asked before any of them starts CUDA
        pass
    headers: dict[Path, Header] = {}
    for variant in plan.trained():
        for seed in plan.seeds:
            run_config = plan.run_config(variant, seed)
            headers[run_config.run_dir] = _check_run(run_config)
    seen: dict[str, _Learnt] = {}
    for variant in plan.trained():
        config = plan.run_config(variant, plan.seeds[0])
        of = repr((config.data, config.vocabulary))
        if of not in seen:
            seen[of] = _learnt(config)
        for seed in plan.seeds:
            folder = plan.run_config(variant, seed).run_dir
            check_texts(folder, headers[folder], seen[of].checksums)
    text = read_pairs(files)
    return Task(split, text, max(each.longest for each in seen.values()), device, beam, lowercase)


def _check_run(config: Config) -> Header:
    """Return the header of a run's training state; it is empty where nothing was trained yet.

    Raises UserError for a run of another config, or trained further than this one asks for.
    """
    lives = run_lives(config.run_dir)
    try:
        check_folder(config, resume=lives, overwrite=False)
        state = resumed_state(config) if lives else None
    except UserError as error:
        raise UserError(
            f"{error}\n  give another folder (-o), or remove that run" if lives else str(error)
        ) from None
    if state is None:
        return {}
    limits, progress = config.training, state.progress
    epochs = progress.epoch + (progress.batch > 0)  # begun
    for key, most, done in (
        ("max_steps", limits.max_steps, progress.step),
        ("max_epochs", limits.max_epochs, epochs),
    ):
        if most is not None and done > most:
            raise UserError(
                f"{config.run_dir}: was trained to {done}, beyond training.{key} {most}; "
                "give another folder (-o), or remove that run"
            )
    return state.header


class _Learnt(NamedTuple):
    """What training reads."""

    longest: int  # words of a source
    checksums: dict[str, str]  # of train and valid


def _learnt(config: Config) -> _Learnt:
    """All that training reads is checked."""
    with training_data(config.data.train, config.run_dir) as data:
        text = data.text
        valid, _ = usable(other_texts(config.data, text)[0])
        pairs = data.pairs(data.vocabularies(config.vocabulary), config.data.max_length)
        if not len(pairs):
            raise UserError(
                f"{config.name}: data.max_length: every training pair is longer than "
                f"{config.data.max_length} pieces; raise it"
            )
        longest = max(len(line.split()) for line in pairs.src_texts)
        return _Learnt(longest, {"train": data.checksum, "valid": checksum_of_text(valid)})


def train_all(plan: Plan, device: str) -> None:
    """Train what is not trained to its end, all variants with one seed before the next.

    Raises RunError where a run fails, and Interrupted as `train` does.
    """
    configs = [plan.run_config(each, seed) for seed in plan.seeds for each in plan.trained()]
    for number, config in enumerate(configs, start=1):
        if has_ended(config):
            logger.info(f"Run {number} of {len(configs)}: {config.run_dir} is trained")
            continue
        logger.info(f"Run {number} of {len(configs)}: {config.run_dir}")
        try:
            train(config, device, resume=run_lives(config.run_dir))
        except UserError as error:
            raise RunError(f"{error}") from None


def score_all(plan: Plan, task: Task) -> Result:
    """Translate with every run and every ensemble, and score; all runs are trained."""
    cut = buckets(task.text.src, task.longest)
    outcomes: list[Outcome] = []
    first_drawn = None
    for variant in plan.variants:
        folders = [plan.run_config(variant, seed).run_dir for seed in plan.seeds]
        runs = [_run(plan, task, variant, *each) for each in zip(plan.seeds, folders, strict=True)]
        counts = [run.scored.counts for run in runs]
        (drawn,) = bootstrap.resample([counts])
        first_drawn = drawn if first_drawn is None else first_drawn
        tested = None
        if outcomes:
            first, own = bleus(outcomes[0].runs), bleus(runs)
            tested = bootstrap.difference(first, own, first_drawn, drawn)
        name = f"{variant.name}-ensemble"
        outcomes.append(
            Outcome(
                variant,
                runs,
                _scored(plan, task, variant, folders, name) if len(runs) > 1 else None,
                sum(math.prod(shape) for shape in read_header(folders[0] / BEST)[1].values()),
                tested,
                [mean(bootstrap.bleu(each[bucket.rows]) for each in counts) for bucket in cut],
            )
        )
    return Result(plan, task, cut, outcomes)


def bleus(runs: Sequence[Run]) -> list[float]:
    """The BLEU of each."""
    return [run.scored.scores.bleu.score for run in runs]


def _run(plan: Plan, task: Task, variant: Variant, seed: int, folder: Path) -> Run:
    scored = _scored(plan, task, variant, [folder], f"{variant.name}-seed{seed}")
    metrics = read_metrics(folder)
    curve = {
        int(line["step"]): line["valid_bleu"]
        for line in metrics
        if {"step", "valid_bleu"} <= line.keys()
    }
    return Run(seed, folder, scored, _cost(plan.run_config(variant, seed)), list(curve.items()))


def _scored(plan: Plan, task: Task, variant: Variant, folders: Sequence[Path], name: str) -> Scored:
    """Translate as the variant's section `decoding` says, and keep the translations."""
    translator = Translator.load(*folders, device=task.device)
    translator.decoding = variant.config.decoding
    translations = translator.translate(task.text.src, task.beam, text_only=True)
    hypotheses = [each.text for each in translations]
    file = plan.folder / f"{name}.{task.split}.hyp"
    atomic_write(file, "".join(f"{line}\n" for line in hypotheses).encode())
    references = task.text.tgt
    tokenize = evaluation.tokenizer_of(variant.config.data.tgt_lang)
    scores = evaluation.score(hypotheses, [references], task.lowercase, tokenize, bootstrap=0)
    logger.info(f"{file}: BLEU {scores.bleu.score:.1f}")
    if cut := sum(each.parts > 1 for each in translations):
        logger.info(f"note: translated in parts, longer than data.max_length: {cut} lines")
    counts = bootstrap.bleu_counts(hypotheses, references, task.lowercase, tokenize)
    return Scored(file, scores, counts)


def _cost(config: Config) -> Cost:
    """What the training of a run took; speed is the median over its reports."""
    state = read_state(config.run_dir)
    assert state is not None, "it is trained"
    progress = state.progress
    speeds = []
    try:
        lines = (config.run_dir / TIMING).read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        try:
            speeds.append(float(json.loads(line)["target_tokens_per_second"]))
        except (ValueError, KeyError, TypeError):  # of validation, or cut short by a crash
            continue
    finite = [speed for speed in speeds if np.isfinite(speed)]
    return Cost(progress.step, progress.seconds / 60, median(finite) if finite else None)
