"""BLEU, chrF and TER by sacrebleu, with signatures, 95 % intervals and significance tests."""

import logging
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from seq2seq.runtime.errors import UserError

METRIC_NAMES = ("BLEU", "chrF2", "TER")  # sacrebleu's names, in the order of `Scores`
RESAMPLES = 1000  # bootstrap resamples, sacrebleu's default
_CHINESE = ("zh", "zho", "chi", "cmn", "yue")
_UNSPACED = ("ja", "jpn", "th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod")
_TOKENIZED_LINES = 100  # lines ending in " ." from which sacrebleu takes a text for tokenized


class Score(NamedTuple):
    """A corpus score in percentage points.

    `ci` is its 95 % confidence interval (low, high): sacrebleu's bootstrap mean minus and plus its
    half-width; None without bootstrap.
    """

    score: float
    ci: tuple[float, float] | None
    signature: str


class Scores(NamedTuple):
    """BLEU and chrF2 (character 1- to 6-grams), higher is better; TER, lower is better."""

    bleu: Score
    chrf: Score
    ter: Score


class Resampled(NamedTuple):
    """A corpus score, the mean of its bootstrap resamples, and `ci` as in `Score`."""

    score: float
    mean: float
    ci: tuple[float, float]


class Paired(NamedTuple):
    """One metric of two systems, and the p-value of their difference.

    It is 1 if both systems are equal, where sacrebleu reports its smallest possible value.
    """

    baseline: Resampled
    system: Resampled
    p_value: float
    signature: str


class Comparison(NamedTuple):
    """Paired bootstrap test (Koehn 2004) of a system against a baseline."""

    bleu: Paired
    chrf: Paired
    ter: Paired


@contextmanager
def quiet_sacrebleu() -> Iterator[None]:
    """Suppress sacrebleu's progress and hints; the relevant ones are notes of ours."""
    logger = logging.getLogger("sacrebleu")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def check_line_counts(texts: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Check that all (name, lines) have the same number of lines, at least one.

    Blank lines count. Raises UserError.
    """
    first_name, first_lines = texts[0]
    for name, lines in texts:
        if not lines:
            raise UserError(f"{name} is empty: there are no lines to score")
        if len(lines) != len(first_lines):
            raise UserError(
                f"{first_name} has {len(first_lines)} lines but {name} has {len(lines)}: "
                "line N of one must belong to line N of the other"
            )


@quiet_sacrebleu()
def check_tokenizer(tokenize: str) -> None:
    """Check that a BLEU tokenizer is known to sacrebleu and can be loaded; raises UserError."""
    if tokenize not in BLEU.TOKENIZERS:
        raise UserError(
            f"unknown BLEU tokenizer {tokenize!r}: choose one of {', '.join(BLEU.TOKENIZERS)}"
        )
    try:
        BLEU(tokenize=tokenize)
    except OSError as error:
        raise UserError(
            f"BLEU tokenizer {tokenize!r} needs a model that sacrebleu could not download ({error})"
        ) from error
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"BLEU tokenizer {tokenize!r} cannot be used here: {reason}") from error


def check_seed() -> None:
    """Check that sacrebleu can parse SACREBLEU_SEED; raises UserError."""
    seed = os.environ.get("SACREBLEU_SEED", "none").lower()
    if seed != "none" and not re.fullmatch("[0-9]+", seed):
        raise UserError(f"SACREBLEU_SEED={seed}: must be a non-negative integer or none")


def tokenized_note(hypotheses: Sequence[str]) -> str | None:
    """Return a note if the hypotheses appear to be tokenized, by sacrebleu's rule."""
    suspects = sum(line.rstrip().endswith(" .") for line in hypotheses)
    if suspects < _TOKENIZED_LINES:
        return None
    return (
        f"{suspects} of {len(hypotheses)} hypotheses end in ' .', so they seem to be tokenized: "
        "only scores of detokenized text are comparable with published ones"
    )


def not_nfc_note(name: str, lines: Sequence[str]) -> str | None:
    """Return a note if a text is not in Unicode's NFC, the normal form of translations."""
    count = sum(not unicodedata.is_normalized("NFC", line) for line in lines)
    if not count:
        return None
    return (
        f"{name}: {count:,} of {len(lines):,} lines are not in Unicode's NFC, unlike translations, "
        "so that equal words may count as different; scored unchanged. "
        "To convert the file: uconv -x nfc < OLD > NEW"
    )


def tokenizer_of(language: str) -> str:
    """Return the BLEU tokenizer for a language code: 13a for languages that separate words.

    Chinese has sacrebleu's `zh`; the others without spaces (Japanese, Thai, ...) are scored by
    character.
    """
    code = re.split("[-_]", language.lower())[0]
    return "zh" if code in _CHINESE else "char" if code in _UNSPACED else "13a"


@quiet_sacrebleu()
def bleu_score(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> float:
    """Return cased BLEU against one reference per line, without an interval, for validation."""
    check_line_counts([("hypotheses", hypotheses), ("references", references)])
    return float(BLEU(tokenize=tokenize).corpus_score(hypotheses, [references]).score)


@quiet_sacrebleu()
def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    lowercase: bool = False,
    tokenize: str = "13a",
    bootstrap: int = RESAMPLES,
) -> Scores:
    """Score detokenized hypotheses against one or more lists of references.

    `lowercase` ignores case in all three metrics (sacrebleu's TER does so by default); `tokenize`
    names BLEU's tokenizer; `bootstrap` is the number of resamples, without intervals below 2. The
    seed is sacrebleu's: 12345, or the environment's SACREBLEU_SEED. Raises UserError for missing
    references, unequal numbers of lines or an unusable tokenizer.
    """
    _check_texts([("hypotheses", hypotheses)], references)
    metrics = _metrics(references, lowercase, tokenize)
    return Scores(*(_score(metric, hypotheses, bootstrap) for metric in metrics))


@quiet_sacrebleu()
def compare(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[Sequence[str]],
    lowercase: bool = False,
    tokenize: str = "13a",
    bootstrap: int = RESAMPLES,
) -> Comparison:
    """Test a system against a baseline by sacrebleu's paired bootstrap; as `score` otherwise."""
    _check_texts([("baseline", baseline), ("system", system)], references)
    metrics = _metrics(references, lowercase, tokenize)
    signatures, results = PairedTest(
        [("baseline", baseline), ("system", system)],
        dict(zip(METRIC_NAMES, metrics, strict=True)),
        references=None,  # already given to the metrics, so tokenized once
        test_type="bs",
        n_samples=bootstrap,
    )()
    return Comparison(*(_paired(results[name], str(signatures[name])) for name in METRIC_NAMES))


def _check_texts(
    texts: Sequence[tuple[str, Sequence[str]]], references: Sequence[Sequence[str]]
) -> None:
    if not references:
        raise UserError("no reference to score against: give at least one")
    numbered = ((f"reference {n}", lines) for n, lines in enumerate(references, start=1))
    check_line_counts([*texts, *numbered])


@quiet_sacrebleu()
def _metrics(
    references: Sequence[Sequence[str]], lowercase: bool, tokenize: str
) -> tuple[BLEU, CHRF, TER]:
    check_tokenizer(tokenize)
    return (
        BLEU(lowercase=lowercase, tokenize=tokenize, references=references),
        CHRF(lowercase=lowercase, references=references),
        TER(case_sensitive=not lowercase, references=references),
    )


def _score(metric: Metric, hypotheses: Sequence[str], bootstrap: int) -> Score:
    try:
        result = metric.corpus_score(hypotheses, references=None, n_bootstrap=bootstrap)
    except TypeError:
        # sacrebleu cannot average NumPy scores with the Python float of a resample without matches.
        _return_python_floats(metric)
        result = metric.corpus_score(hypotheses, references=None, n_bootstrap=bootstrap)
    ci = _bounds(result._mean, result._ci) if bootstrap > 1 else None
    return Score(float(result.score), ci, str(metric.get_signature()))


def _return_python_floats(metric: Metric) -> None:
    compute = metric._compute_score_from_stats

    def plain(stats: list[int]) -> Any:
        result = compute(stats)
        result.score = float(result.score)
        return result

    metric._compute_score_from_stats = plain  # type: ignore[method-assign]


def _paired(results: Sequence[Any], signature: str) -> Paired:
    baseline, system = map(_resampled, results)
    p_value = 1.0 if baseline == system else float(results[1].p_value)
    return Paired(baseline, system, p_value, signature)


def _resampled(result: Any) -> Resampled:
    return Resampled(float(result.score), float(result.mean), _bounds(result.mean, result.ci))


def _bounds(mean: float, half_width: float) -> tuple[float, float]:
    center, half = float(mean), float(half_width)  # float32 from a paired test
    return center - half, center + half
