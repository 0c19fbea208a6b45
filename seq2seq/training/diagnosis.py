"""What looks wrong after a training, in words: the likely cause, and the key to turn.

Silent where nothing does. All of it follows from the texts and figures given.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from seq2seq.data.vocabulary import UNKNOWN

FEW_LINES = 8  # of which nothing can be said
FEW_UPDATES = 500
NO_BLEU, LOW_BLEU = 2.0, 10.0
_LOOP = re.compile(r"(.{2,40}?)\1{3,}")  # the same four times in a row

Metrics = Sequence[Mapping[str, float]]  # the lines of metrics.jsonl


class ValidationResult(NamedTuple):
    """The last validation of a run, line for line, and all its figures."""

    sources: Sequence[str]
    references: Sequence[str]
    hypotheses: Sequence[str]
    metrics: Metrics


def diagnose(outcome: ValidationResult) -> list[str]:
    """One line for each thing that looks wrong, the most telling first."""
    found = list(_text_complaints(outcome))
    if not found:
        found = list(_score_complaints(outcome))
    return [*found, *_loss_complaints(outcome.metrics)]


def _text_complaints(outcome: ValidationResult) -> Iterator[str]:
    """What the translations show by themselves; the first complaint says the most."""
    hypotheses, references = outcome.hypotheses, outcome.references
    if len(hypotheses) < FEW_LINES:
        return
    early = _early(outcome.metrics)
    if (share := _blank(hypotheses) - _blank(references)) > 0.2:
        yield (
            f"{_percent(share)} of the last validation's translations are empty: "
            f"{early or 'the model ends at once'}; look for blank or misaligned targets "
            "(seq2seq check), else lower training.learning_rate"
        )
    if (share := _unknown(hypotheses) - _unknown(references)) > 0.2:
        yield (
            f"{_percent(share)} of the words of the last validation's translations are unknown "
            f"({UNKNOWN}): the vocabulary lacks them; raise vocabulary.size, set "
            "vocabulary.type=unigram, or let decoding.replace_unknown copy source words"
        )
    elif (share := _commonest(hypotheses)) > max(0.5, 2 * _commonest(references)):
        yield (
            f"{_percent(share)} of the last validation's translations are one and the same: "
            f"{early or 'the model does not look at its source'}; check that the two sides "
            "translate one another (seq2seq check), else lower training.learning_rate"
        )
    elif (share := _looping(hypotheses)) > 0.1 + 2 * _looping(references):
        yield (
            f"{_percent(share)} of the last validation's translations repeat themselves: "
            f"{early or 'the model has lost its place'}; train longer (training.max_epochs), "
            "lower training.learning_rate, or take model.decoder=bahdanau"
        )
    elif (
        (share := _copied(outcome.sources, hypotheses)) > 0.5 > _copied(outcome.sources, references)
    ):
        yield (
            f"{_percent(share)} of the last validation's translations are copies of their source: "
            "the training targets may be in the source language; look at data.train.tgt"
        )


def _score_complaints(outcome: ValidationResult) -> Iterator[str]:
    """A low BLEU or odd lengths of translations that look sound by themselves."""
    hypotheses, references, metrics = outcome.hypotheses, outcome.references, outcome.metrics
    if len(hypotheses) < FEW_LINES:
        return
    ratio = sum(map(len, hypotheses)) / max(1, sum(map(len, references)))
    if not 0.6 < ratio < 1.7:
        side, other = ("short", "raise") if ratio < 1 else ("long", "lower")
        yield (
            f"the last validation's translations are too {side}, {ratio:.2f} times as long as the "
            f"references: "
            f"{_early(metrics) or 'the training targets may differ from those of validation'}; "
            f"compare their lengths (seq2seq check), or {other} decoding.max_length if you set it"
        )
    bleus, losses = _series(metrics, "valid_bleu"), _series(metrics, "valid_loss")
    if not bleus or max(bleus) >= NO_BLEU:
        return
    if _words_are_long(references):
        yield (
            f"BLEU is {bleus[-1]:.1f}, but the references have no spaces between words, and so "
            "BLEU takes a line for a word: judge by chrF, or give seq2seq evaluate a tokenizer "
            "(--tokenize zh, ja-mecab, ko-mecab or char)"
        )
    elif early := _early(metrics):
        yield f"BLEU is {bleus[-1]:.1f}: {early}; raise training.max_epochs or max_steps"
    elif losses[-1] < 0.9 * losses[0]:
        yield (
            f"the validation loss fell from {losses[0]:.2f} to {losses[-1]:.2f}, but BLEU is "
            f"{bleus[-1]:.1f}: the model learns, and yet its text is not that of the references; "
            "train longer (training.max_epochs), or look whether data.valid.tgt is written like "
            "data.train.tgt (script, case, tokens apart)"
        )
    else:
        yield (
            f"BLEU is {bleus[-1]:.1f} and the validation loss has hardly fallen: the sides may not "
            "translate one another (seq2seq check), or training.learning_rate is far off"
        )


def _loss_complaints(metrics: Metrics) -> Iterator[str]:
    """Losses that do not fall, rise from the first, or are far apart."""
    valid, train = _series(metrics, "valid_loss"), _series(metrics, "train_loss")
    learnt = max(_series(metrics, "valid_bleu"), default=0.0) >= LOW_BLEU
    if not learnt and len(train) >= 4 and min(train[1:]) > 0.95 * train[0]:
        yield (
            f"the training loss has hardly fallen ({train[0]:.2f} to {train[-1]:.2f}): "
            "change training.learning_rate tenfold, downwards first"
        )
    elif len(valid) >= 3 and valid[-1] > 1.05 * valid[0] and all(b > a for a, b in pairwise(valid)):
        yield (
            f"the validation loss has risen from the first validation ({valid[0]:.2f} to "
            f"{valid[-1]:.2f}) while the training loss fell: the model learns by heart, or "
            "validation is unlike training; look at the data (seq2seq check), raise "
            "model.dropout, lower model.hidden_size"
        )
    elif valid and train and min(valid) > train[-1] + max(2.0, 0.5 * train[-1]):
        yield (
            f"the validation loss ({min(valid):.2f} at its best) is far above the training loss "
            f"({train[-1]:.2f}): validation is unlike training (other sides, languages, field or "
            "tokens?), or there is too little text; look at data.valid (seq2seq check), raise "
            "model.dropout"
        )


def _series(metrics: Metrics, key: str) -> list[float]:
    return [line[key] for line in metrics if key in line]


def _early(metrics: Metrics) -> str | None:
    """That training was short, if it was."""
    updates = int(max((line["step"] for line in metrics), default=0))
    if updates >= FEW_UPDATES:
        return None
    return f"{updates} updates are few, as attention forms in hundreds or thousands"


def _blank(lines: Sequence[str]) -> float:
    return sum(not line.strip() for line in lines) / len(lines)


def _unknown(lines: Sequence[str]) -> float:
    words = [word for line in lines for word in line.split()]
    return sum(UNKNOWN in word for word in words) / max(1, len(words))


def _commonest(lines: Sequence[str]) -> float:
    filled = [line for line in lines if line.strip()]
    return max(Counter(filled).values(), default=0) / len(lines)


def _looping(lines: Sequence[str]) -> float:
    return sum(_LOOP.search(line) is not None for line in lines) / len(lines)


def _copied(sources: Sequence[str], lines: Sequence[str]) -> float:
    return sum(a.strip() == b.strip() for a, b in zip(sources, lines, strict=True)) / len(lines)


def _words_are_long(lines: Sequence[str]) -> bool:
    """Whether the script has no spaces between words."""
    words = [word for line in lines for word in line.split()]
    return sum(map(len, words)) > 12 * max(1, len(words))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
