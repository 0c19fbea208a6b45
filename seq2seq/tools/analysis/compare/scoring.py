"""Scores of trained variants: BLEU by run, ensemble and source length, and training costs."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import NamedTuple

from seq2seq.config.schema import Config
from seq2seq.data.corpus import ParallelText
from seq2seq.evaluation import bootstrap, metrics
from seq2seq.evaluation.bootstrap import Counts, Difference, Resamples, SystemScores
from seq2seq.evaluation.writing_notes import writing_notes
from seq2seq.inference.scoring import attend
from seq2seq.inference.translator import Translator
from seq2seq.runs.layout import BEST, METRICS, TIMING
from seq2seq.runs.metrics_file import read_metrics
from seq2seq.runs.run_folder import SavedProgress, read_progress, read_saved_metrics
from seq2seq.runs.tensor_file import read_header
from seq2seq.runtime import errors, files
from seq2seq.runtime.console import counted, logger
from seq2seq.tools.analysis.attention.alignment import GoldLine, align, alignment_error_rate
from seq2seq.tools.analysis.attention.plot import map_of
from seq2seq.tools.analysis.compare.variants import Plan, Variant
from seq2seq.tools.analysis.scored_text import (
    Bucket,
    LengthUnit,
    ScoredText,
    length_buckets,
    score_text,
)

COMPARED = ("bleu", "chrf")  # metrics of tables and tests


class ComparisonRequest(NamedTuple):
    """Options by which a comparison trains, translates and scores."""

    split: str = "valid"  # or test
    device: str = "auto"
    beam: int | None = None  # None: that of the variant's config
    lowercase: bool = False
    gold: Path | None = None  # alignments of the first lines of the text
    jobs: int = 1


class ScoringTask(NamedTuple):
    """The text to translate, and how to translate and score it."""

    request: ComparisonRequest
    text: ParallelText
    gold: list[GoldLine]
    unit: LengthUnit  # words or characters
    longest: int  # length of the longest source that any variant is trained on


class ScoredOutput(NamedTuple):
    """File of translations by one run or by an ensemble, and their scores."""

    file: Path
    text: ScoredText
    chrf_counts: Counts

    def counts(self, key: str) -> Counts:
        """Return the statistics of each sentence by a metric of COMPARED."""
        return self.text.counts if key == "bleu" else self.chrf_counts


class SeedResult(NamedTuple):
    """Result of a variant with one seed."""

    seed: int
    folder: Path
    output: ScoredOutput
    alignment_error: float | None  # in percent; None without gold alignments or attention
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
    scores: dict[str, SystemScores]  # by the metrics of COMPARED
    by_length: list[list[float]]  # BLEU of each bucket, by seed

    @property
    def alignment_errors(self) -> list[float]:
        """Return the alignment error rate of each seed; none without gold or attention."""
        return [run.alignment_error for run in self.runs if run.alignment_error is not None]


class VariantPair(NamedTuple):
    """Differences of a variant from another one, by the metrics of COMPARED."""

    baseline: str
    variant: str
    differences: dict[str, Difference]


class ComparisonResult(NamedTuple):
    """Results of all variants."""

    plan: Plan
    task: ScoringTask
    buckets: list[Bucket]
    variants: list[VariantResult]  # without failed runs
    pairs: list[VariantPair]  # all of these, the differences from the first variant first
    failed: dict[str, str]  # why runs of the other variants failed, by variant

    @property
    def request(self) -> ComparisonRequest:
        """Return how the comparison was made."""
        return self.task.request


def score_all(
    plan: Plan,
    task: ScoringTask,
    states: Mapping[Path, SavedProgress],
    failures: Mapping[Path, str],
) -> ComparisonResult:
    """Translate with every run and every ensemble, and score; `states` have been read already.

    Variants with `failures`, by run folder, are not scored. Raises RunError if none is left.
    """
    failed = _failed_variants(plan, failures)
    buckets = length_buckets(task.text.src, task.longest, task.unit)
    resamples = Resamples(len(task.text))
    results: list[VariantResult] = []
    for variant in plan.variants:
        if variant.name in failed:
            continue
        configs = [plan.run_config(variant, seed) for seed in plan.seeds]
        folders = [config.run_dir for config in configs]
        runs = [
            _score_run(plan, task, variant, config, states.get(config.run_dir))
            for config in configs
        ]
        ensemble = None
        if len(runs) > 1:
            ensemble = _score(plan, task, variant, folders, f"{variant.name}-ensemble")
        parameters = sum(math.prod(shape) for shape in read_header(folders[0] / BEST)[1].values())
        scores = {key: _system_scores(key, runs, resamples) for key in COMPARED}
        by_length = [[run.output.text.bleu(bucket) for run in runs] for bucket in buckets]
        results.append(VariantResult(variant, runs, ensemble, parameters, scores, by_length))
    pairs = [_pair(*both, resamples) for both in combinations(results, 2)]
    return ComparisonResult(plan, task, buckets, results, pairs, failed)


def _failed_variants(plan: Plan, failures: Mapping[Path, str]) -> dict[str, str]:
    """Return why runs of variants failed, with their seeds; raises RunError if all did."""
    failed = {}
    for variant in plan.variants:
        seeds = {plan.run_config(variant, seed).run_dir: seed for seed in plan.seeds}
        if seeds.keys() & failures.keys():
            reasons = (f"seed {seeds[run]}: {failures[run]}" for run in seeds if run in failures)
            failed[variant.name] = "; ".join(reasons)
    if len(failed) == len(plan.variants):
        raise errors.RunError(*(f"{name}: failed: {reason}" for name, reason in failed.items()))
    return failed


def _system_scores(key: str, runs: Sequence[SeedResult], resamples: Resamples) -> SystemScores:
    counts = [run.output.counts(key) for run in runs]
    return resamples.of_system(counts, partial(metrics.score_of, key))


def _pair(baseline: VariantResult, system: VariantResult, resamples: Resamples) -> VariantPair:
    differences = {
        key: bootstrap.difference(baseline.scores[key], system.scores[key], resamples)
        for key in COMPARED
    }
    return VariantPair(baseline.variant.name, system.variant.name, differences)


def _score_run(
    plan: Plan, task: ScoringTask, variant: Variant, config: Config, state: SavedProgress | None
) -> SeedResult:
    folder = config.run_dir
    state = state or read_progress(config)
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
    counters = state.counters
    key = "target_tokens_per_second"
    speeds = [line.get(key, math.nan) for line in read_metrics(folder, TIMING)]
    finite = [*filter(math.isfinite, speeds)]
    costs = counters.step, counters.seconds / 60, median(finite) if finite else None
    alignment_error = _alignment_error(task, folder)
    return SeedResult(config.seed, folder, output, alignment_error, *costs, sorted(curve.items()))


def _alignment_error(task: ScoringTask, folder: Path) -> float | None:
    """Return the error rate, in percent, of attention over the references of the gold lines."""
    if not task.gold:
        return None
    trained = Translator.load(folder, device=task.request.device).loaded
    if not trained.engine.attends:
        return None
    sources, references = (side[: len(task.gold)] for side in (task.text.src, task.text.tgt))
    translations = attend(trained, sources, references)
    links = [align(map_of(*pair)) for pair in zip(translations, sources, strict=True)]
    return 100 * alignment_error_rate(links, task.gold)


def _score(
    plan: Plan, task: ScoringTask, variant: Variant, folders: Sequence[Path], name: str
) -> ScoredOutput:
    """Translate with the `decoding` section of the variant; write and score the translations."""
    request = task.request
    trained = Translator.load(*folders, device=request.device).loaded
    translator = Translator(replace(trained, decoding=variant.config.decoding))
    translations = translator.translate(task.text.src, request.beam, text_only=True)
    hypotheses = [translation.text for translation in translations]
    file = plan.output_path(name, request.split)
    files.atomic_write(file, "".join(f"{line}\n" for line in hypotheses).encode())
    language = variant.config.data.tgt_lang
    scored = score_text(hypotheses, task.text.tgt, language, request.lowercase, bootstrap=0)
    how = request.lowercase, scored.segmentation
    chrf_counts = metrics.counts_by("chrf", hypotheses, task.text.tgt, *how)
    logger.info(f"{file}: BLEU {scored.scores['bleu'].score:.1f}")
    notes = Counter(
        note.partition(": ")[0] for translation in translations for note in translation.notes
    )
    for note, count in notes.items():
        logger.info(f"note: {note}: {counted(count, 'line')}")
    for note in writing_notes(hypotheses, task.text.tgt, task.request.lowercase):
        logger.info(f"note: {note}")
    return ScoredOutput(file, scored, chrf_counts)
