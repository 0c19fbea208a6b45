"""BLEU, chrF and TER by sacrebleu, with signatures, 95% intervals and significance tests.

`cli/evaluate.py` prints them, `tools/commands/compare.py` those of several runs.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seq2seq.evaluation import bootstrap as resampling
from seq2seq.evaluation.bootstrap import MIN_SENTENCES, RESAMPLES, Counts, Resamples, SystemScores
from seq2seq.evaluation.segmentation import (
    BY_SPACES,
    Segmentation,
    check_tokenizer,
    quiet_sacrebleu,
)
from seq2seq.runtime.errors import UserError

MAX_TER_WORDS = 300  # words of a line on either side; TER of a longer line may take minutes
_TOKENIZED_LINES = 100  # lines ending in " ." from which sacrebleu takes a text for tokenized


class Score(NamedTuple):
    """A corpus score in percentage points, with its 95% bootstrap interval.

    No interval without bootstrap, and for fewer than `bootstrap.MIN_SENTENCES` lines.
    """

    score: float
    ci: tuple[float, float] | None
    signature: str


Scores = dict[str, Score]  # by the keys of METRICS, without those that are not computed


class SentenceScore(NamedTuple):
    """BLEU with effective order (no n-grams longer than the hypothesis), and chrF2, in points."""

    bleu: float
    chrf: float


class Resampled(NamedTuple):
    """A corpus score, the mean of its bootstrap resamples, and `ci` as in `Score`."""

    score: float
    mean: float | None
    ci: tuple[float, float] | None


class Paired(NamedTuple):
    """One metric of two systems; no p-value without `ci` or if too few sentences differ."""

    baseline: Resampled
    system: Resampled
    p_value: float | None
    signature: str


Comparison = dict[str, Paired]  # paired bootstrap test (Koehn 2004); keys as in `Scores`


class MetricKind(NamedTuple):
    """A metric: the name that sacrebleu gives it, and how to make it for some references."""

    name: str
    make: Callable[[Sequence[Sequence[str]] | None, bool, Segmentation], Metric]


METRICS = {  # BLEU and chrF2 (character 1- to 6-grams): higher is better; TER: lower
    "bleu": MetricKind(
        "BLEU", lambda refs, lower, words: BLEU(lower, tokenize=words.tokenize, references=refs)
    ),
    "chrf": MetricKind("chrF2", lambda refs, lower, _: CHRF(lowercase=lower, references=refs)),
    "ter": MetricKind(  # only for texts without lines of more than MAX_TER_WORDS
        "TER",
        lambda refs, lower, words: TER(
            words.asian, asian_support=words.asian, case_sensitive=not lower, references=refs
        ),
    ),
}


def check_line_counts(texts: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Raise UserError unless all (name, lines) have the same number of lines, at least one."""
    first_name, first_lines = texts[0]
    for name, lines in texts:
        if not lines:
            raise UserError(f"{name} is empty: there are no lines to score")
        if len(lines) != len(first_lines):
            text = f"{first_name} has {len(first_lines)} lines but {name} has {len(lines)}:"
            raise UserError(f"{text} line n of one must belong to line n of the other")


def tokenized_note(hypotheses: Sequence[str]) -> str | None:
    """Return a note if the hypotheses appear to be tokenized, by sacrebleu's rule."""
    if (suspects := sum(line.rstrip().endswith(" .") for line in hypotheses)) < _TOKENIZED_LINES:
        return None
    note = f"{suspects} of {len(hypotheses)} hypotheses end in ' .', so they seem to be tokenized:"
    return f"{note} only scores of detokenized text are comparable with published ones"


def not_nfc_note(name: str, lines: Sequence[str]) -> str | None:
    """Return a note if a text is not in Unicode's NFC, the normal form of translations."""
    if not (count := sum(not unicodedata.is_normalized("NFC", line) for line in lines)):
        return None
    note = f"{name}: {count:,} of {len(lines):,} lines are not in Unicode's NFC, unlike"
    note += " translations, so that equal words may count as different; scored unchanged."
    return f"{note} To convert the file: uconv -x nfc < OLD > NEW"


def long_line_note(
    texts: Sequence[tuple[str, Sequence[str]]], segmentation: Segmentation
) -> str | None:
    """Return a note if a line of the named texts is too long for TER."""
    for name, lines in texts:
        for number, line in enumerate(lines, start=1):
            if (words := segmentation.ter_words(line)) > MAX_TER_WORDS:
                rule = f"TER is computed only for texts without lines of more than {MAX_TER_WORDS}"
                note = f"{name}:{number}: the line has {words:,} words; {rule} words"
                return f"{note}, since such a line may take minutes"
    return None


def few_lines_note(lines: int) -> str | None:
    """Return a note if there are too few lines for intervals and p-values."""
    text = f"no intervals and p-values for fewer than {MIN_SENTENCES} lines (here: {lines})"
    return text if lines < MIN_SENTENCES else None


def few_differences_note(comparison: Comparison) -> str | None:
    """Return a note if the systems differ in too few lines for some metric's p-value."""
    untested = [
        METRICS[key].name
        for key, pair in comparison.items()
        if pair.p_value is None and pair.system.ci is not None
    ]
    lines = f"the systems differ in fewer than {MIN_SENTENCES} lines"
    names = " and ".join(filter(None, (", ".join(untested[:-1]), *untested[-1:])))
    return f"no p-value of {names}: {lines}" if untested else None


@quiet_sacrebleu()
def counts_by(
    key: str,
    hypotheses: Sequence[str],
    references: Sequence[str],
    lowercase: bool = False,
    segmentation: Segmentation = BY_SPACES,
) -> Counts:
    """Return the statistics of each sentence, with one reference, whose sums determine a score.

    `key` is one of METRICS.
    """
    return _counts(METRICS[key].make([references], lowercase, segmentation), hypotheses)


def score_of(key: str, counts: Counts) -> float:
    """Return the corpus score of counted sentences by one of METRICS."""
    return _score_of(_SCORERS[key], counts)


@quiet_sacrebleu()
def score_by(
    key: str,
    hypotheses: Sequence[str],
    references: Sequence[str],
    segmentation: Segmentation = BY_SPACES,
) -> float:
    """Return the cased score by one of METRICS against one reference per line, for validation."""
    check_line_counts([("hypotheses", hypotheses), ("references", references)])
    metric = METRICS[key].make([references], False, segmentation)
    return _score_of(metric, _counts(metric, hypotheses))


@quiet_sacrebleu()
def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    lowercase: bool = False,
    segmentation: Segmentation = BY_SPACES,
    bootstrap: int = RESAMPLES,
) -> Scores:
    """Score detokenized hypotheses against one or more lists of references.

    `lowercase` ignores case in all three metrics (sacrebleu's TER does so by default);
    `bootstrap` is the number of resamples, without intervals below 2; their seed is that of
    `Resamples`. Raises UserError for no references, unequal numbers of lines or a bad tokenizer.
    """
    resamples = Resamples(len(hypotheses), bootstrap)
    metrics = _metrics([("hypotheses", hypotheses)], references, lowercase, segmentation)
    return {key: _score(metric, hypotheses, resamples) for key, metric in metrics.items()}


@quiet_sacrebleu()
def compare(  # noqa: PLR0913
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[Sequence[str]],
    lowercase: bool = False,
    segmentation: Segmentation = BY_SPACES,
    bootstrap: int = RESAMPLES,
) -> Comparison:
    """Test a system against a baseline by the paired bootstrap; as `score` otherwise."""
    return compare_all(baseline, [system], references, lowercase, segmentation, bootstrap)[0]


@quiet_sacrebleu()
def compare_all(  # noqa: PLR0913
    baseline: Sequence[str],
    systems: Iterable[Sequence[str]],
    references: Sequence[Sequence[str]],
    lowercase: bool = False,
    segmentation: Segmentation = BY_SPACES,
    bootstrap: int = RESAMPLES,
) -> list[Comparison]:
    """Test several systems against a baseline, whose sentences are counted once, as `compare`."""
    resamples = Resamples(len(baseline), bootstrap)
    first = dict[str, SystemScores]()
    comparisons = list[Comparison]()
    for system in systems:
        texts = [("baseline", baseline), ("system", system)]
        metrics = _metrics(texts, references, lowercase, segmentation)
        for key, metric in metrics.items():
            if key not in first:
                first[key] = _system_scores(metric, baseline, resamples)
        comparisons.append(
            {key: _paired(metric, first[key], system, resamples) for key, metric in metrics.items()}
        )
    return comparisons


@quiet_sacrebleu()
def sentence_scores(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    lowercase: bool = False,
    segmentation: Segmentation = BY_SPACES,
) -> list[SentenceScore]:
    """Score each sentence against its one or more references; raises UserError as `score` does."""
    _metrics([("hypotheses", hypotheses)], references, lowercase, segmentation)  # checks
    bleu = BLEU(lowercase=lowercase, tokenize=segmentation.tokenize, effective_order=True)
    chrf = CHRF(lowercase=lowercase)
    return [
        SentenceScore(*(metric.sentence_score(line, answers).score for metric in (bleu, chrf)))
        for line, *answers in zip(hypotheses, *references, strict=True)
    ]


# Score counted sentences; their tokenizers are not used.
_SCORERS = {key: kind.make(None, False, BY_SPACES) for key, kind in METRICS.items()}


def _metrics(
    texts: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[Sequence[str]],
    lowercase: bool,
    segmentation: Segmentation,
) -> dict[str, Metric]:
    """Check the texts and return the metrics, which hold the references."""
    if not references:
        raise UserError("no reference to score against: give at least one")
    numbered = [(f"reference {n}", lines) for n, lines in enumerate(references, start=1)]
    check_line_counts([*texts, *numbered])
    check_tokenizer(segmentation.tokenize)
    too_long = long_line_note([*texts, *numbered], segmentation) is not None
    return {
        key: kind.make(references, lowercase, segmentation)
        for key, kind in METRICS.items()
        if not (key == "ter" and too_long)
    }


def _counts(metric: Metric, hypotheses: Sequence[str]) -> Counts:
    """Return the statistics of each sentence against the references that the metric holds."""
    return np.array(metric._extract_corpus_statistics(hypotheses, None), dtype=np.float64)


def _score_of(metric: Metric, counts: Counts) -> float:
    return float(metric._compute_score_from_stats(counts.sum(axis=0).tolist()).score)


def _score(metric: Metric, hypotheses: Sequence[str], resamples: Resamples) -> Score:
    result = _resampled(_system_scores(metric, hypotheses, resamples))
    return Score(result.score, result.ci, _signature(metric, resamples))


def _paired(
    metric: Metric, first: SystemScores, system: Sequence[str], resamples: Resamples
) -> Paired:
    second = _system_scores(metric, system, resamples)
    p_value = resampling.difference(first, second, resamples).p_value
    return Paired(_resampled(first), _resampled(second), p_value, _signature(metric, resamples))


def _system_scores(metric: Metric, hypotheses: Sequence[str], resamples: Resamples) -> SystemScores:
    """Return the scores of a system of one seed."""
    return resamples.of_system([_counts(metric, hypotheses)], partial(_score_of, metric))


def _resampled(system: SystemScores) -> Resampled:
    """Return the score of a system of one seed, with the mean and interval of its resamples."""
    mean = None if system.resampled is None else float(system.resampled.mean())
    return Resampled(system.scores[0], mean, system.ci)


def _signature(metric: Metric, resamples: Resamples) -> str:
    """Return sacrebleu's signature, with the resamples if there are any."""
    signature = metric.get_signature()
    if resamples.suffice:
        signature.update("bs", resamples.count)
        signature.update("seed", resampling.seed_name())
    return str(signature)
