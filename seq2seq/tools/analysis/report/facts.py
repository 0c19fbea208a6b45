"""Facts about a run for its report: curves, scores, sentences."""

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from seq2seq.config.schema import Config, with_paths
from seq2seq.data.corpus import paths_of, read_pairs
from seq2seq.data.languages import language_name
from seq2seq.evaluation import metrics
from seq2seq.evaluation.metrics import Scores, SentenceScore
from seq2seq.evaluation.segmentation import Segmentation
from seq2seq.inference.attention_map import AttentionMap
from seq2seq.inference.translator import Translator
from seq2seq.runs import metrics_file, run_config, tensor_file
from seq2seq.runs.layout import BEST, LOG, SAMPLES, TIMING
from seq2seq.runtime import console, errors
from seq2seq.runtime.figures import Curve
from seq2seq.runtime.files import outside
from seq2seq.text.characters import is_blank
from seq2seq.tools.analysis.scored_text import LengthUnit, length_buckets, length_unit, score_text

Split = Literal["valid", "test"]
CHOSEN_BY = "This text has chosen the best weights: a test text gives a fairer score."
SHOWN_SENTENCES = 5  # worst sentences, or those that one of two runs translates better
SHOWN_VALIDATIONS = 5  # translations of a sample line
MIN_LENGTH = 8  # words or characters of sentences that are shown: a short one is soon all wrong
_CHARTS = {  # figures of training, with their names, by the title of the chart
    "Validation scores, greedy search": {"valid_bleu": "BLEU", "valid_chrf": "chrF2"},
    "Loss, nats a token": {"train_loss": "training", "valid_loss": "validation"},
    "Learning rate": {"learning_rate": "learning rate"},
}
_DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
_DEVICE = re.compile(r" parameters, on (.+)")


class ScoredSentence(NamedTuple):
    """A line of a text with its translation and its scores."""

    number: int
    source: str
    reference: str
    translation: str
    score: SentenceScore
    maps: Sequence[AttentionMap] = ()


class SampleHistory(NamedTuple):
    """A validation line and its translations during training: step and text."""

    number: int
    source: str
    reference: str
    translations: list[tuple[int, str]]


MapsOf = Callable[[Sequence[str]], list[list[AttentionMap]]]  # of translations of sources


class SplitScores(NamedTuple):
    """Scores of the translations of a text."""

    split: Split
    beam: int
    scores: Scores
    segmentation: Segmentation
    unit: LengthUnit
    buckets: list[tuple[str, int]]  # range of source lengths, and number of sentences
    bleu: list[float]  # by the same
    lines: list[ScoredSentence]  # without blank ones
    references: list[str]
    hypotheses: list[str]
    worst: list[ScoredSentence]  # with their attention, if the model has any
    maps_of: "MapsOf | None"  # None: the model has no attention
    is_quoted: bool = True  # otherwise the page shows none of its sentences


class Scoring(NamedTuple):
    """Options by which a report translates and scores a text."""

    split: Split | None  # None: test, or else valid
    beam: int | None
    device: str
    quotes_outside: bool = False  # shows sentences of files that the run names elsewhere
    on_translated: Callable[[int], object] | None = None


class RunFacts(NamedTuple):
    """All that a report shows."""

    config: Config  # with paths as they are shown
    run: Path
    parameters: int
    summary: dict[str, str]
    charts: dict[str, list[Curve]]  # by their titles
    samples: list[SampleHistory]
    scored: SplitScores | None
    unscored: str  # why there are no scores; empty if there are
    outside: list[Path]  # files of the text that lie outside of the run and the current folder
    distillation: Sequence[Sequence[Sequence[str]]] = ()  # tables, if the run was distilled


def gather(run: Path, how: Scoring) -> RunFacts:
    """Collect the facts of a run; score its test text, or else its validation text.

    Raises UserError without trained weights, and if a split that was asked for cannot be scored.
    """
    config = run_config.read_config(run)
    run_config.check_exists(run / BEST)
    header, shapes = tensor_file.read_header(run / BEST)
    scored = None
    unscored = ""
    default: Split = "test" if config.data.test is not None else "valid"
    split = how.split or default
    files = config.data.valid if split == "valid" else config.data.test
    elsewhere = outside(paths_of(files).values(), run) if files is not None else []
    try:
        translator = Translator.load(run, device=how.device)
        scored = _scored(translator, config, how._replace(split=split))
    except errors.UserError as error:
        if how.split is not None:
            raise
        unscored = str(error)
    if scored is not None and elsewhere and not how.quotes_outside:
        scored = scored._replace(lines=[], worst=[], is_quoted=False)
    figures = metrics_file.read_metrics(run)
    charts = {title: _curves(figures, names) for title, names in _CHARTS.items()}
    parameters = sum(map(math.prod, shapes.values()))
    here = Path.cwd()  # folders above it are left out: a report may be passed on

    def shown_path(path: Path) -> Path:
        return path.relative_to(here) if path.is_relative_to(here) else Path(path.name)

    return RunFacts(
        with_paths(config, shown_path),
        run,
        parameters,
        _summary(config, int(header["step"]), parameters, run),
        {title: curves for title, curves in charts.items() if curves},
        _samples(run / SAMPLES),
        scored,
        unscored,
        elsewhere,
    )


def _summary(config: Config, step: int, parameters: int, run: Path) -> dict[str, str]:
    languages = config.data.src_lang, config.data.tgt_lang
    rows = {
        "direction": " \N{RIGHTWARDS ARROW} ".join(map(language_name, languages)),
        "decoder": f"{config.model.decoder}, {parameters:,} parameters",
        "best weights": f"step {step:,}",
    }
    seconds = [line.get("seconds", math.nan) for line in metrics_file.read_metrics(run, TIMING)]
    if finite := [*filter(math.isfinite, seconds)]:
        rows["trained for"] = console.duration(max(finite))  # validation excluded
    log = run / LOG
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    if dated := [line for line in lines if _DATE.match(line)]:
        # After the last step there may be the log of a resumed run that had finished before.
        steps = [line for line in dated if line[20:25] == "step "]
        start = dated[0][:16]
        end = (steps or dated)[-1][:16]
        rows["trained"] = f"{start} to {end[11:] if end[:10] == start[:10] else end}"
    if devices := [match[1] for line in lines if (match := _DEVICE.search(line))]:
        rows["trained on"] = devices[-1]
    return rows


def _samples(path: Path) -> list[SampleHistory]:
    """Return the samples of a run, each at a few validations; damaged lines are left out."""
    samples: dict[int, SampleHistory] = {}
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        try:
            fields = json.loads(line)
            number = int(fields["line"])
            step = int(fields["step"])
            texts = [str(fields[key]) for key in ("source", "reference", "translation")]
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            continue
        sample = samples.setdefault(number, SampleHistory(number, texts[0], texts[1], []))
        sample.translations.append((step, texts[2]))
    for number, sample in samples.items():
        places = np.linspace(0, len(sample.translations) - 1, SHOWN_VALIDATIONS).round().astype(int)
        translations = [sample.translations[place] for place in sorted(set(places.tolist()))]
        samples[number] = sample._replace(translations=translations)
    return [*samples.values()]


def _curves(figures: Sequence[dict[str, float]], names: dict[str, str]) -> list[Curve]:
    """Return the curves of figures, by their names in the chart, that have finite values."""
    curves = []
    for key, name in names.items():
        lines = (line for line in figures if {"step", key} <= line.keys())
        points = sorted((line["step"], line[key]) for line in lines if math.isfinite(line[key]))
        curves += [Curve(name, points)] if points else []
    return curves


def _scored(translator: Translator, config: Config, how: Scoring) -> SplitScores:
    """Translate and score a text; raises UserError if it does not exist."""
    split: Split = how.split or "test"
    files = config.data.valid if split == "valid" else config.data.test
    if files is None:
        remedy = f"choose {errors.argument('split', 'valid')}"
        raise errors.UserError(f"{translator.name}: its config has no data.test; {remedy}")
    text = read_pairs(files)
    size = translator.beam_size(how.beam, 1)
    translations = translator.translate(
        text.src, size, text_only=True, on_translated=how.on_translated
    )
    hypotheses = [translation.text for translation in translations]
    scored = score_text(hypotheses, text.tgt, config.data.tgt_lang)
    sentences = metrics.sentence_scores(hypotheses, [text.tgt], segmentation=scored.segmentation)
    rows = zip(text.src, text.tgt, hypotheses, sentences, strict=True)
    lines = [
        ScoredSentence(number, *row)
        for number, row in enumerate(rows, start=1)
        if not (is_blank(row[0]) or is_blank(row[1]))
    ]
    unit = length_unit(text.src)
    buckets = length_buckets(text.src, max(map(unit.length, text.src)), unit)
    worst = sorted(shown(lines, unit), key=lambda line: line.score.chrf)[:SHOWN_SENTENCES]

    def maps_of(sources: Sequence[str]) -> list[list[AttentionMap]]:
        again = zip(sources, translator.translate(sources, size), strict=True)
        return [list(translation.attention_maps(source)) for source, translation in again]

    if translator.engine.attends:
        maps = maps_of([line.source for line in worst])
        worst = [line._replace(maps=line_maps) for line, line_maps in zip(worst, maps, strict=True)]
    return SplitScores(
        split,
        size,
        scored.scores,
        scored.segmentation,
        unit,
        [(bucket.label, len(bucket.rows)) for bucket in buckets],
        [scored.bleu(bucket) for bucket in buckets],
        lines,
        list(text.tgt),
        hypotheses,
        worst,
        maps_of if translator.engine.attends else None,
    )


def shown(lines: Sequence[ScoredSentence], unit: LengthUnit) -> list[ScoredSentence]:
    """Return the lines that are long enough to be shown, or all if there are too few of them."""
    long = [line for line in lines if unit.length(line.source) >= MIN_LENGTH]
    return long if len(long) >= SHOWN_SENTENCES else list(lines)
