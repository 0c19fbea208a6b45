"""Diagnosis of a finished training: likely problems, and what to change."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from seq2seq.config.schema import Config
from seq2seq.data.corpus import has_text
from seq2seq.data.vocabulary.vocabulary import UNKNOWN
from seq2seq.text.characters import is_blank
from seq2seq.training.stopping import raise_limits

MIN_LINES = 8  # too few lines to judge below
FEW_STEPS = 500  # too few for attention, as a rule
NO_BLEU = 2.0
LOW_BLEU = 10.0
_LOOP = re.compile(r"(.{2,40}?)\1{3,}")  # four repetitions in a row

Metrics = Sequence[Mapping[str, float]]  # the lines of metrics.jsonl


class ValidationResult(NamedTuple):
    """The last validation of a run, line by line, and all its metrics."""

    sources: Sequence[str]
    references: Sequence[str]
    hypotheses: Sequence[str]
    metrics: Metrics
    ended_by: str | None = None  # the limit of the training section that was met, if known


def diagnose(result: ValidationResult, config: Config) -> list[str]:
    """Return a line for each suspected problem of losses, and of lines with text on both sides."""
    train = _series(result.metrics, "train_loss")
    rate = f"lower training.learning_rate (now {config.training.learning_rate:g})"
    if len(train) > 1 and train[-1] > 1.5 * train[0] + 1.0:
        return [
            f"the training loss rose from {train[0]:.2f} to {train[-1]:.2f}, so the training "
            f"diverged: {rate} or training.clip_norm (now {config.training.clip_norm:g})"
        ]
    lines = zip(result.sources, result.references, result.hypotheses, strict=False)
    filled_lines = [line for line in lines if has_text(*line[:2])]
    findings: list[str] = []
    if len(filled_lines) >= MIN_LINES:
        sources, references, hypotheses = zip(*filled_lines, strict=True)
        result_with_text = result._replace(
            sources=sources, references=references, hypotheses=hypotheses
        )
        remedy = f"train longer: {raise_limits(config.training, result.ended_by)}"
        findings = [*_text_findings(result_with_text, rate, remedy)][:1]
    return [*findings, *_loss_findings(result, config)]


def _text_findings(result: ValidationResult, rate: str, remedy: str) -> Iterator[str]:
    """Yield what is wrong with the hypotheses, the most informative first."""
    sources, references, hypotheses, metrics, _ = result
    steps = int(max(_series(metrics, "step"), default=0))
    early = f"{steps} steps are few, {remedy}" if steps < FEW_STEPS else ""
    of_them = "of the last validation's translations"
    if (share := _share(is_blank, hypotheses) - _share(is_blank, references)) > 0.2:
        yield f"{share:.0%} {of_them} are empty: {early or f'the model ends at once; {rate}'}"
    if (share := _unknown(hypotheses) - _unknown(references)) > 0.2:
        remedy = "raise vocabulary.size, or set vocabulary.type=unigram"
        yield f"{share:.0%} of the words {of_them} are unknown ({UNKNOWN}): {remedy}"
    if (share := _most_frequent(hypotheses)) > max(0.5, 2 * _most_frequent(references)):
        cause = f"check that the sides translate one another (seq2seq check), else {rate}"
        yield f"{share:.0%} {of_them} are one and the same: {early or cause}"
    if (share := _share(_LOOP.search, hypotheses)) > 0.1 + 2 * _share(_LOOP.search, references):
        cause = f"attention does not advance; {remedy}, or use model.score=coverage"
        yield f"{share:.0%} {of_them} repeat themselves: {early or cause}"
    if (share := _copied(sources, hypotheses)) > 0.5 > _copied(sources, references):
        yield f"{share:.0%} {of_them} are copies of their source: check the targets of data.train"
    ratio = sum(map(len, hypotheses)) / max(1, sum(map(len, references)))
    if not 0.6 < ratio < 1.7:
        text = f"the last validation's translations are too {'short' if ratio < 1 else 'long'}"
        cause = early or "compare training and validation text (seq2seq check)"
        yield f"{text}, {ratio:.2f} times as long as the references: {cause}"
    bleus = _series(metrics, "valid_bleu")
    losses = _series(metrics, "valid_loss")
    if bleus and losses and max(bleus) < NO_BLEU:
        learns = f"the loss fell from {losses[0]:.2f} to {losses[-1]:.2f}; {remedy}, or check that"
        cause = learns if losses[-1] < 0.9 * losses[0] else "the loss has hardly fallen; check that"
        cause = early or f"{cause} the sides translate one another (seq2seq check)"
        yield f"BLEU is {bleus[-1]:.1f}: {cause}"


def _loss_findings(result: ValidationResult, config: Config) -> Iterator[str]:
    """Yield what is wrong with the losses, which are without label smoothing."""
    valid, train = (_series(result.metrics, key) for key in ("valid_loss", "train_loss"))
    learned = max(_series(result.metrics, "valid_bleu"), default=0.0) >= LOW_BLEU
    rising = len(valid) >= 3 and all(b > a for a, b in pairwise(valid))
    if not learned and len(train) >= 4 and min(train[1:]) > 0.95 * train[0]:
        key = f"training.learning_rate (now {config.training.learning_rate:g})"
        text = f"the training loss has hardly fallen ({train[0]:.2f} to {train[-1]:.2f})"
        yield f"{text}: change {key} by a factor of ten, down first"
    elif rising and valid[-1] > 1.05 * valid[0] and train and train[-1] < train[0]:
        yield (
            f"the validation loss has risen from the first validation ({valid[0]:.2f} to "
            f"{valid[-1]:.2f}) while the training loss fell ({train[0]:.2f} to {train[-1]:.2f}): "
            "the model overfits, or the validation data differ from the training data; check the "
            "data (seq2seq check), raise model.dropout or lower model.hidden_size"
        )
    elif valid and train and min(valid) > train[-1] + max(2.0, 0.5 * train[-1]):
        text = f"the validation loss ({min(valid):.2f} at its best) is far above the training loss"
        cause = "the validation data may differ from the training data; check data.valid"
        yield f"{text} ({train[-1]:.2f}): {cause} (seq2seq check), or raise model.dropout"


def _series(metrics: Metrics, key: str) -> list[float]:
    return [value for line in metrics if (value := line.get(key)) is not None]


def _share(test: Callable[[str], object], lines: Sequence[str]) -> float:
    return sum(bool(test(line)) for line in lines) / len(lines)


def _unknown(lines: Sequence[str]) -> float:
    words = [word for line in lines for word in line.split()]
    return sum(UNKNOWN in word for word in words) / max(1, len(words))


def _most_frequent(lines: Sequence[str]) -> float:
    lines_with_text = [line for line in lines if not is_blank(line)]
    return max(Counter(lines_with_text).values(), default=0) / len(lines)


def _copied(sources: Sequence[str], lines: Sequence[str]) -> float:
    return sum(a.strip() == b.strip() for a, b in zip(sources, lines, strict=True)) / len(lines)
