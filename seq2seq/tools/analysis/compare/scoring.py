"""Scores of trained variants: BLEU by run, ensemble and source length, and training costs."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.config.schema import Config
from seq2seq.data.corpus import ParallelText
from seq2seq.evaluation import bootstrap, metrics
from seq2seq.evaluation.bootstrap import Difference, Resamples, differing_sentences
from seq2seq.evaluation.writing_notes import writing_notes
from seq2seq.inference.translator import Translator
from seq2seq.runs.layout import BEST, METRICS, TIMING
from seq2seq.runs.metrics_file import read_metrics
from seq2seq.runs.run_folder import SavedProgress, read_progress, read_saved_metrics
from seq2seq.runs.tensor_file import read_header
from seq2seq.runtime import errors, files
from seq2seq.runtime.console import counted, logger
from seq2seq.tools.analysis.compare.variants import Plan, Variant
from seq2seq.tools.analysis.scored_text import (
    Bucket,
    LengthUnit,
    ScoredText,
    length_buckets,
    score_text,
)


class ScoringTask(NamedTuple):
    """The text to translate, and how to translate and score it."""

    split: str  # valid or test
    text: ParallelText
    unit: LengthUnit  # words or characters
    longest: int  # length of the longest source that any variant is trained on
    device: str
    beam: int | None  # None: that of the variant's config
    lowercase: bool


class ScoredOutput(NamedTuple):
    """File of translations by one run or by an ensemble, and their scores."""

    file: Path
    text: ScoredText


class SeedResult(NamedTuple):
    """Result of a variant with one seed."""

    seed: int
    folder: Path
    output: ScoredOutput
    steps: int
    minutes: float
    tokens_per_second: float | None  # None if the run ended before its first report
    curve: list[tuple[int, float]]  # step, greedy validation BLEU


class VariantResult(NamedTuple):
    """Results of a variant."""

    variant: Variant
    runs: list[SeedResult]
    ensemble: ScoredOutput | None  # over all seeds; None for a single seed
    parameters: int
    difference: Difference | None  # to the first variant; None for the first
    by_length: list[float]  # BLEU of each bucket, mean over seeds


class ComparisonResult(NamedTuple):
    """Results of all variants."""

    plan: Plan
    task: ScoringTask
    buckets: list[Bucket]
    variants: list[VariantResult]  # without failed runs
    failed: dict[str, str]  # why runs of the other variants failed, by variant


def score_all(
    plan: Plan,
    task: ScoringTask,
    states: Mapping[Path, SavedProgress],
    failures: Mapping[Path, str],
) -> ComparisonResult:
    """Translate with every run and every ensemble, and score; `states` have been read already.

    Variants with `failures`, by run folder, are not scored. Raises RunError if none is left.
    """
    failed = {}  # why, with the seeds
    for variant in plan.variants:
        seeds = {plan.run_config(variant, seed).run_dir: seed for seed in plan.seeds}
        if seeds.keys() & failures.keys():
            reasons = (f"seed {seeds[run]}: {failures[run]}" for run in seeds if run in failures)
            failed[variant.name] = "; ".join(reasons)
    if len(failed) == len(plan.variants):
        raise errors.RunError(*(f"{name}: failed: {reason}" for name, reason in failed.items()))
    buckets = length_buckets(task.text.src, task.longest, task.unit)
    resamples = Resamples(len(task.text))
    results: list[VariantResult] = []
    baseline: NDArray[np.float64] | None = None
    for variant in plan.variants:
        if variant.name in failed:
            continue
        configs = [plan.run_config(variant, seed) for seed in plan.seeds]
        folders = [config.run_dir for config in configs]
        runs = [
            _score_run(plan, task, variant, config, states.get(config.run_dir))
            for config in configs
        ]
        means = _resampled_means(runs, resamples)
        baseline = baseline if results else means
        difference = _difference(results[0].runs, runs, baseline, means) if results else None
        ensemble = None
        if len(runs) > 1:
            ensemble = _score(plan, task, variant, folders, f"{variant.name}-ensemble")
        parameters = sum(math.prod(shape) for shape in read_header(folders[0] / BEST)[1].values())
        by_length = [mean(run.output.text.bleu(bucket) for run in runs) for bucket in buckets]
        results.append(VariantResult(variant, runs, ensemble, parameters, difference, by_length))
    return ComparisonResult(plan, task, buckets, results, failed)


def _resampled_means(
    runs: Sequence[SeedResult], resamples: Resamples
) -> NDArray[np.float64] | None:
    """Return the mean BLEU over seeds of each resample; None for too few sentences."""
    if not resamples.suffice:
        return None
    counts = (run.output.text.counts for run in runs)
    drawn = [resamples.scores(sentences, metrics.bleu_of) for sentences in counts]
    return np.asarray(np.stack(drawn).mean(axis=0))


def _difference(
    baseline: Sequence[SeedResult],
    runs: Sequence[SeedResult],
    baseline_resampled: NDArray[np.float64] | None,
    resampled: NDArray[np.float64] | None,
) -> Difference:
    counts = ([run.output.text.counts for run in system] for system in (baseline, runs))
    scores = bleu_scores(baseline), bleu_scores(runs)
    differing = differing_sentences(*counts)
    return bootstrap.difference(*scores, baseline_resampled, resampled, differing)


def bleu_scores(runs: Sequence[SeedResult]) -> list[float]:
    """Return the BLEU of each run."""
    return [run.output.text.scores["bleu"].score for run in runs]


def _score_run(
    plan: Plan, task: ScoringTask, variant: Variant, config: Config, state: SavedProgress | None
) -> SeedResult:
    folder, state = config.run_dir, state or read_progress(config)
    assert state is not None, "a trained run has a state"
    output = _score(plan, task, variant, [folder], f"{variant.name}-seed{config.seed}")
    _, lost = read_saved_metrics(folder, state.counters)
    if lost is not None and plan.trained_as(variant) == variant:  # once for each run
        logger.info(f"warning: {folder / METRICS}: {lost}; its curve lacks what is damaged or lost")
    curve = {
        int(line["step"]): line["valid_bleu"]
        for line in read_metrics(folder)
        if {"step", "valid_bleu"} <= line.keys()
    }
    counters, key = state.counters, "target_tokens_per_second"
    speeds = [line.get(key, math.nan) for line in read_metrics(folder, TIMING)]
    finite = [*filter(math.isfinite, speeds)]
    costs = counters.step, counters.seconds / 60, median(finite) if finite else None
    return SeedResult(config.seed, folder, output, *costs, sorted(curve.items()))


def _score(
    plan: Plan, task: ScoringTask, variant: Variant, folders: Sequence[Path], name: str
) -> ScoredOutput:
    """Translate with the `decoding` section of the variant; write and score the translations."""
    trained = Translator.load(*folders, device=task.device).loaded
    translator = Translator(replace(trained, decoding=variant.config.decoding))
    translations = translator.translate(task.text.src, task.beam, text_only=True)
    hypotheses = [translation.text for translation in translations]
    file = plan.output_path(name, task.split)
    files.atomic_write(file, "".join(f"{line}\n" for line in hypotheses).encode())
    language = variant.config.data.tgt_lang
    scored = score_text(hypotheses, task.text.tgt, language, task.lowercase, bootstrap=0)
    logger.info(f"{file}: BLEU {scored.scores['bleu'].score:.1f}")
    notes = Counter(
        note.partition(": ")[0] for translation in translations for note in translation.notes
    )
    for note, count in notes.items():
        logger.info(f"note: {note}: {counted(count, 'line')}")
    for note in writing_notes(hypotheses, task.text.tgt, task.lowercase):
        logger.info(f"note: {note}")
    return ScoredOutput(file, scored)
