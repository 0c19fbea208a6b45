"""BLEU, chrF and TER by sacrebleu: scores, 95 % intervals, signatures and the paired test."""

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
from sacrebleu.significance import PairedTest, Result

from seq2seq.runtime.errors import UserError

METRIC_NAMES = ("BLEU", "chrF2", "TER")  # as sacrebleu calls them, in the order of `Scores`
_CHINESE = ("zh", "zho", "chi", "cmn", "yue")
_UNSPACED = ("ja", "jpn", "th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod")
TOKENIZED_LINES = 100  # from so many lines ending in " ." on, sacrebleu takes a text for tokenized


class Score(NamedTuple):
    """A corpus score in percentage points.

    `ci` is (low, high): the mean of sacrebleu's bootstrap minus and plus the half-width that it
    reports for 95 % of the resamples; None where no bootstrap was asked for.
    """

    score: float
    ci: tuple[float, float] | None
    signature: str


class Scores(NamedTuple):
    """BLEU and chrF2 (six character orders, no words), higher is better; TER, lower is better."""

    bleu: Score
    chrf: Score
    ter: Score


class Resampled(NamedTuple):
    """A corpus score, the mean of its bootstrap resamples and `ci` as in `Score`."""

    score: float
    mean: float
    ci: tuple[float, float]


class Paired(NamedTuple):
    """One metric of two systems; `p_value`: how often chance alone makes such a difference.

    Without any difference `p_value` is 1; sacrebleu's count would give its smallest value there.
    """

    baseline: Resampled
    system: Resampled
    p_value: float
    signature: str


class Comparison(NamedTuple):
    """A paired bootstrap test of a system against a baseline."""

    bleu: Paired
    chrf: Paired
    ter: Paired


def check_line_counts(texts: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Refuse (name, lines) pairs of unequal or no length; blank lines count as lines.

    Raises:
        UserError: names two texts and their numbers of lines.
    """
    first_name, first_lines = texts[0]
    for name, lines in texts:
        if not lines:
            raise UserError(f"{name} is empty: there is no line to score")
        if len(lines) != len(first_lines):
            raise UserError(
                f"{first_name} has {len(first_lines)} lines but {name} has {len(lines)}: "
                "line N of one must belong to line N of the other"
            )


def check_tokenizer(tokenize: str) -> None:
    """Refuse a BLEU tokenizer that is unknown or cannot be loaded here.

    Raises:
        UserError: lists the known names, or says what is missing.
    """
    if tokenize not in BLEU.TOKENIZERS:
        raise UserError(
            f"unknown BLEU tokenizer {tokenize!r}: choose one of {', '.join(BLEU.TOKENIZERS)}"
        )
    try:
        with quiet_sacrebleu():
            BLEU(tokenize=tokenize)
    except OSError as error:
        raise UserError(
            f"BLEU tokenizer {tokenize!r} needs a model that sacrebleu could not download ({error})"
        ) from error
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"BLEU tokenizer {tokenize!r} cannot be used here: {reason}") from error


def check_seed() -> None:
    """Refuse a SACREBLEU_SEED that sacrebleu could not read; raises UserError."""
    seed = os.environ.get("SACREBLEU_SEED", "none").lower()
    if seed != "none" and not re.fullmatch("[0-9]+", seed):
        raise UserError(f"SACREBLEU_SEED={seed}: must be a whole number, or none")


def tokenized_note(hypotheses: Sequence[str]) -> str | None:
    """Say so if the hypotheses look tokenized, by the rule of sacrebleu."""
    suspects = sum(line.rstrip().endswith(" .") for line in hypotheses)
    if suspects < TOKENIZED_LINES:
        return None
    return (
        f"{suspects} of {len(hypotheses)} hypotheses end in ' .' and so look tokenized: "
        "scores compare with those of others only on detokenized text"
    )


def not_nfc_note(name: str, lines: Sequence[str]) -> str | None:
    """Say so if a text that scores compare is not in the form that translations have."""
    count = sum(not unicodedata.is_normalized("NFC", line) for line in lines)
    if not count:
        return None
    return (
        f"{name}: {count:,} of {len(lines):,} lines are not in Unicode's NFC, as translations are: "
        "there equal words count as different; scored as they are; to compare like with like, "
        "convert the file (uconv -x nfc < OLD > NEW)"
    )


def tokenizer_of(language: str) -> str:
    """The BLEU tokenizer for a language code: 13a, but where no spaces stand between words.

    Chinese has sacrebleu's `zh`; of the others (Japanese, Thai ...) each character is a word.
    """
    code = re.split("[-_]", language.lower())[0]
    return "zh" if code in _CHINESE else "char" if code in _UNSPACED else "13a"


def bleu_score(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> float:
    """Give cased BLEU against one reference a line, without an interval: for validation."""
    check_line_counts([("hypotheses", hypotheses), ("references", references)])
    with quiet_sacrebleu():
        return float(BLEU(tokenize=tokenize).corpus_score(hypotheses, [references]).score)


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    lowercase: bool = False,
    tokenize: str = "13a",
    bootstrap: int = 1000,
) -> Scores:
    """Score detokenized hypotheses against one or more lists of references.

    `lowercase` folds case in all three metrics (left to itself, sacrebleu's TER always does);
    `tokenize` names the tokenizer of BLEU; `bootstrap` counts resamples, and below 2 there are no
    intervals. The seed is sacrebleu's: 12345, or SACREBLEU_SEED of the environment.

    Raises:
        UserError: no reference, unequal or no lines, or a tokenizer that cannot be used.
    """
    _check_texts([("hypotheses", hypotheses)], references)
    metrics = _metrics(references, lowercase, tokenize)
    with quiet_sacrebleu():
        return Scores(*(_score(metric, hypotheses, bootstrap) for metric in metrics))


def compare(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[Sequence[str]],
    lowercase: bool = False,
    tokenize: str = "13a",
    bootstrap: int = 1000,
) -> Comparison:
    """Test a system against a baseline by sacrebleu's paired bootstrap; arguments as in `score`.

    Raises:
        UserError: as `score` does.
    """
    _check_texts([("baseline", baseline), ("system", system)], references)
    metrics = _metrics(references, lowercase, tokenize)
    with quiet_sacrebleu():
        test = PairedTest(
            [("baseline", baseline), ("system", system)],
            dict(zip(METRIC_NAMES, metrics, strict=True)),
            references=None,  # the metrics hold them, tokenized once
            test_type="bs",
            n_samples=bootstrap,
        )
        signatures, results = test()
    return Comparison(*(_paired(results[name], str(signatures[name])) for name in METRIC_NAMES))


def _check_texts(
    texts: Sequence[tuple[str, Sequence[str]]], references: Sequence[Sequence[str]]
) -> None:
    if not references:
        raise UserError("there is no reference to score against: give at least one")
    numbered = ((f"reference {n}", lines) for n, lines in enumerate(references, start=1))
    check_line_counts([*texts, *numbered])


def _metrics(
    references: Sequence[Sequence[str]], lowercase: bool, tokenize: str
) -> tuple[BLEU, CHRF, TER]:
    check_tokenizer(tokenize)
    with quiet_sacrebleu():
        return (
            BLEU(lowercase=lowercase, tokenize=tokenize, references=references),
            CHRF(lowercase=lowercase, references=references),
            TER(case_sensitive=not lowercase, references=references),
        )


def _score(metric: Metric, hypotheses: Sequence[str], bootstrap: int) -> Score:
    try:
        result = metric.corpus_score(hypotheses, references=None, n_bootstrap=bootstrap)
    except TypeError:
        # Resamples without any match score Python's floats, the others NumPy's: sacrebleu cannot
        # take the mean of both.
        _score_plain_floats(metric)
        result = metric.corpus_score(hypotheses, references=None, n_bootstrap=bootstrap)
    ci = _bounds(result._mean, result._ci) if bootstrap > 1 else None
    return Score(float(result.score), ci, str(metric.get_signature()))


def _score_plain_floats(metric: Metric) -> None:
    compute = metric._compute_score_from_stats

    def plain(stats: list[int]) -> Any:
        result = compute(stats)
        result.score = float(result.score)
        return result

    metric._compute_score_from_stats = plain  # type: ignore[method-assign]


def _paired(results: Sequence[str | Result], signature: str) -> Paired:
    baseline, system = results
    assert isinstance(baseline, Result)
    assert isinstance(system, Result)
    assert system.p_value is not None
    first, second = _resampled(baseline), _resampled(system)
    return Paired(first, second, 1.0 if first == second else float(system.p_value), signature)


def _resampled(result: Result) -> Resampled:
    assert result.mean is not None
    assert result.ci is not None
    return Resampled(float(result.score), float(result.mean), _bounds(result.mean, result.ci))


def _bounds(mean: float, half_width: float) -> tuple[float, float]:
    return float(mean) - float(half_width), float(mean) + float(half_width)  # float32 after a test


@contextmanager
def quiet_sacrebleu() -> Iterator[None]:
    """Keep sacrebleu's progress and hints out of the log; what matters is a note of ours."""
    logger = logging.getLogger("sacrebleu")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
