"""Diagnosis of a finished training: likely problems, and the config key to change."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from seq2seq.data.vocabulary import UNKNOWN

MIN_LINES = 8  # too few lines to judge below
FEW_STEPS = 500
NO_BLEU, LOW_BLEU = 2.0, 10.0
_LOOP = re.compile(r"(.{2,40}?)\1{3,}")  # four repetitions in a row

Metrics = Sequence[Mapping[str, float]]  # the lines of metrics.jsonl


class ValidationResult(NamedTuple):
    """The last validation of a run, line by line, and all its metrics."""

    sources: Sequence[str]
    references: Sequence[str]
    hypotheses: Sequence[str]
    metrics: Metrics


def diagnose(result: ValidationResult) -> list[str]:
    """Return a line for each suspected problem, the most informative first."""
    found: list[str] = []
    if len(result.hypotheses) >= MIN_LINES:
        found = list(_check_text(result)) or list(_check_score(result))
    return [*found, *_check_losses(result.metrics)]


def _check_text(result: ValidationResult) -> Iterator[str]:
    """Check the hypotheses by themselves."""
    sources, references, hypotheses, metrics = result
    early, of_them = _early(metrics), "of the last validation's translations"
    if (share := _share(_is_blank, hypotheses) - _share(_is_blank, references)) > 0.2:
        yield (
            f"{share:.0%} {of_them} are empty: "
            f"{early or 'the model ends at once'}; check for blank or misaligned targets "
            "(seq2seq check), else lower training.learning_rate"
        )
    if (share := _unknown(hypotheses) - _unknown(references)) > 0.2:
        yield (
            f"{share:.0%} of the words of the last validation's translations are unknown "
            f"({UNKNOWN}), not in the vocabulary: raise vocabulary.size, set "
            "vocabulary.type=unigram, or let decoding.replace_unknown copy source words"
        )
    elif (share := _most_frequent(hypotheses)) > max(0.5, 2 * _most_frequent(references)):
        yield (
            f"{share:.0%} {of_them} are one and the same: "
            f"{early or 'the model ignores its source'}; check that the two sides "
            "translate one another (seq2seq check), else lower training.learning_rate"
        )
    elif (share := _share(_LOOP.search, hypotheses)) > 0.1 + 2 * _share(_LOOP.search, references):
        yield (
            f"{share:.0%} {of_them} repeat themselves: "
            f"{early or 'attention does not advance'}; train longer (training.max_epochs), "
            "lower training.learning_rate, or use model.decoder=bahdanau"
        )
    elif (share := _copied(sources, hypotheses)) > 0.5 > _copied(sources, references):
        yield (
            f"{share:.0%} {of_them} are copies of their source: "
            "the training targets may be in the source language; check data.train.tgt"
        )


def _check_score(result: ValidationResult) -> Iterator[str]:
    """Check length and BLEU of hypotheses that are plausible by themselves."""
    _, references, hypotheses, metrics = result
    early = _early(metrics)
    ratio = sum(map(len, hypotheses)) / max(1, sum(map(len, references)))
    if not 0.6 < ratio < 1.7:
        side, other = ("short", "raise") if ratio < 1 else ("long", "lower")
        yield (
            f"the last validation's translations are too {side}, {ratio:.2f} times as long as the "
            f"references: "
            f"{early or 'the training targets may differ from those of validation'}; "
            f"compare their lengths (seq2seq check), or {other} decoding.max_length if it is set"
        )
    bleus, losses = _series(metrics, "valid_bleu"), _series(metrics, "valid_loss")
    if not bleus or max(bleus) >= NO_BLEU:
        return
    bleu = f"BLEU is {bleus[-1]:.1f}"
    words = [word for line in references for word in line.split()]
    if sum(map(len, words)) > 12 * max(1, len(words)):
        yield (
            f"{bleu}, but the references have no spaces between words, and so BLEU counts a line "
            "as a word: judge by chrF, or give seq2seq evaluate a tokenizer "
            "(--tokenize zh, ja-mecab, ko-mecab or char)"
        )
    elif early:
        yield f"{bleu}: {early}; raise training.max_epochs or max_steps"
    elif losses[-1] < 0.9 * losses[0]:
        yield (
            f"the validation loss fell from {losses[0]:.2f} to {losses[-1]:.2f}, but {bleu}: the "
            "model learns, but its output does not match the references; train longer "
            "(training.max_epochs), or check that data.valid.tgt is written like data.train.tgt "
            "(script, case, tokenization)"
        )
    else:
        yield (
            f"{bleu} and the validation loss has hardly fallen: the sides may not "
            "translate one another (seq2seq check), or training.learning_rate is far off"
        )


def _check_losses(metrics: Metrics) -> Iterator[str]:
    """Check for losses that do not fall, that rise from the start, or that are far apart."""
    valid, train = _series(metrics, "valid_loss"), _series(metrics, "train_loss")
    learned = max(_series(metrics, "valid_bleu"), default=0.0) >= LOW_BLEU
    if not learned and len(train) >= 4 and min(train[1:]) > 0.95 * train[0]:
        yield (
            f"the training loss has hardly fallen ({train[0]:.2f} to {train[-1]:.2f}): "
            "change training.learning_rate by a factor of ten, down first"
        )
    elif len(valid) >= 3 and valid[-1] > 1.05 * valid[0] and all(b > a for a, b in pairwise(valid)):
        yield (
            f"the validation loss has risen from the first validation ({valid[0]:.2f} to "
            f"{valid[-1]:.2f}) while the training loss fell: the model overfits, or the validation "
            "data differ from the training data; check the data (seq2seq check), raise "
            "model.dropout, lower model.hidden_size"
        )
    elif valid and train and min(valid) > train[-1] + max(2.0, 0.5 * train[-1]):
        yield (
            f"the validation loss ({min(valid):.2f} at its best) is far above the training loss "
            f"({train[-1]:.2f}): the validation data differ from the training data (swapped sides, "
            "language, domain or tokenization), or there is too little text; check data.valid "
            "(seq2seq check), raise model.dropout"
        )


def _series(metrics: Metrics, key: str) -> list[float]:
    return [line[key] for line in metrics if key in line]


def _early(metrics: Metrics) -> str | None:
    """Return the explanation that training was short, if it was."""
    steps = int(max(_series(metrics, "step"), default=0))
    if steps >= FEW_STEPS:
        return None
    return f"{steps} steps are few, as attention forms in hundreds or thousands"


def _share(test: Callable[[str], object], lines: Sequence[str]) -> float:
    return sum(bool(test(line)) for line in lines) / len(lines)


def _is_blank(line: str) -> bool:
    return not line.strip()


def _unknown(lines: Sequence[str]) -> float:
    words = [word for line in lines for word in line.split()]
    return sum(UNKNOWN in word for word in words) / max(1, len(words))


def _most_frequent(lines: Sequence[str]) -> float:
    filled = [line for line in lines if line.strip()]
    return max(Counter(filled).values(), default=0) / len(lines)


def _copied(sources: Sequence[str], lines: Sequence[str]) -> float:
    return sum(a.strip() == b.strip() for a, b in zip(sources, lines, strict=True)) / len(lines)
