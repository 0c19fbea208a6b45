"""Diagnosis of a finished training: likely problems, and the config key to change.

Advice names only keys that apply to the config of the run, with their present values.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from seq2seq.config.schema import Config
from seq2seq.data.corpus import as_list, has_text
from seq2seq.data.lines import is_blank
from seq2seq.data.vocabulary.vocabulary import UNKNOWN
from seq2seq.evaluation.segmentation import BY_SPACES, segmentation_of
from seq2seq.training.stopping import raise_limits

MIN_LINES = 8  # too few lines to judge below
FEW_STEPS = 500  # too few for attention, as a rule
NO_BLEU, LOW_BLEU = 2.0, 10.0
MOSTLY_SEEN = 0.5  # share of validation pairs that are also in the training text
HIGH_DROPOUT = 0.5  # from which more dropout is not recommended
_LOOP = re.compile(r"(.{2,40}?)\1{3,}")  # four repetitions in a row

Metrics = Sequence[Mapping[str, float]]  # the lines of metrics.jsonl


class ValidationResult(NamedTuple):
    """The last validation of a run, line by line, and all its metrics."""

    sources: Sequence[str]
    references: Sequence[str]
    hypotheses: Sequence[str]
    metrics: Metrics
    overlap: Callable[[], float] = lambda: 0.0  # share of the pairs that are in the training text
    ended_by: str | None = None  # the limit of the training section that was met, if known


def diagnose(result: ValidationResult, config: Config) -> list[str]:
    """Return a line for each suspected problem, the most informative first.

    Pairs with a blank side are not judged.
    """
    if (divergence := _check_divergence(result.metrics, config)) is not None:
        return [divergence]
    lines = zip(result.sources, result.references, result.hypotheses, strict=False)
    filled_lines = [line for line in lines if has_text(*line[:2])]
    findings: list[str] = []
    if len(filled_lines) >= MIN_LINES:
        sources, references, hypotheses = zip(*filled_lines, strict=True)
        filled = result._replace(sources=sources, references=references, hypotheses=hypotheses)
        findings = list(_check_text(filled, config)) or list(_check_score(filled, config))
    return [*findings, *_check_losses(result, config)]


def _check_divergence(metrics: Metrics, config: Config) -> str | None:
    """Check for a training loss that rose far above its start."""
    train, settings = _series(metrics, "train_loss"), config.training
    if len(train) < 2 or train[-1] <= 1.5 * train[0] + 1.0:
        return None
    return (
        f"the training loss rose from {train[0]:.2f} to {train[-1]:.2f}, so the training diverged: "
        f"{_lower_rate(config)} or training.clip_norm (now {settings.clip_norm:g})"
    )


def _check_text(result: ValidationResult, config: Config) -> Iterator[str]:
    """Check the hypotheses by themselves."""
    sources, references, hypotheses, *_ = result
    early, of_them = _early(result, config), "of the last validation's translations"
    if (share := _share(is_blank, hypotheses) - _share(is_blank, references)) > 0.2:
        yield (
            f"{share:.0%} {of_them} are empty: "
            f"{early or 'the model ends at once'}; check for blank or misaligned targets "
            f"(seq2seq check), else {_lower_rate(config)}"
        )
    if (share := _unknown(hypotheses) - _unknown(references)) > 0.2:
        yield (
            f"{share:.0%} of the words of the last validation's translations are unknown "
            f"({UNKNOWN}), not in the vocabulary: {_fewer_unknown(config)}"
        )
    elif (share := _most_frequent(hypotheses)) > max(0.5, 2 * _most_frequent(references)):
        yield (
            f"{share:.0%} {of_them} are one and the same: "
            f"{early or 'the model ignores its source'}; check that the two sides "
            f"translate one another (seq2seq check), else {_lower_rate(config)}"
        )
    elif (share := _share(_LOOP.search, hypotheses)) > 0.1 + 2 * _share(_LOOP.search, references):
        advice = early or _less_repetition(result, config)
        yield f"{share:.0%} {of_them} repeat themselves: {advice}"
    elif (share := _copied(sources, hypotheses)) > 0.5 > _copied(sources, references):
        yield (
            f"{share:.0%} {of_them} are copies of their source: "
            f"the training targets may be in the source language; check {_target(config, 'train')}"
        )


def _check_score(result: ValidationResult, config: Config) -> Iterator[str]:
    """Check length and BLEU of hypotheses that are plausible by themselves."""
    _, references, hypotheses, metrics, *_ = result
    early = _early(result, config)
    ratio = sum(map(len, hypotheses)) / max(1, sum(map(len, references)))
    if not 0.6 < ratio < 1.7:
        yield (
            f"the last validation's translations are too {'short' if ratio < 1 else 'long'}, "
            f"{ratio:.2f} times as long as the references: "
            f"{early or 'the training targets may differ from those of validation'}; "
            f"compare their lengths (seq2seq check){_other_max_length(config, ratio)}"
        )
    bleus, losses = _series(metrics, "valid_bleu"), _series(metrics, "valid_loss")
    if not bleus or not losses or max(bleus) >= NO_BLEU:
        return
    bleu = f"BLEU is {bleus[-1]:.1f}"
    words = [word for line in references for word in line.split()]
    by_spaces = segmentation_of(config.data.tgt_lang, [references]).tokenize == BY_SPACES.tokenize
    if by_spaces and sum(map(len, words)) > 12 * max(1, len(words)):
        yield (
            f"{bleu}, but the references have hardly any spaces, and BLEU's tokenizer "
            f"{BY_SPACES.tokenize} splits words at spaces: judge by chrF, or run "
            "`seq2seq evaluate --tokenize char`"
        )
    elif early:
        yield f"{bleu}: {early}"
    elif losses[-1] < 0.9 * losses[0]:
        yield (
            f"the validation loss fell from {losses[0]:.2f} to {losses[-1]:.2f}, but {bleu}: the "
            "model learns, but its output does not match the references; "
            f"{_longer(result, config)}, or check that {_target(config, 'valid')} is written "
            f"like {_target(config, 'train')} (script, case, tokenization)"
        )
    else:
        yield (
            f"{bleu} and the validation loss has hardly fallen: the sides may not translate one "
            "another (seq2seq check), or training.learning_rate "
            f"(now {config.training.learning_rate:g}) is far off"
        )


def _check_losses(result: ValidationResult, config: Config) -> Iterator[str]:
    """Check for losses that do not fall, that rise from the start, or that are far apart.

    Both losses are mean negative log-likelihoods, without label smoothing.
    """
    valid, train = (_series(result.metrics, key) for key in ("valid_loss", "train_loss"))
    learned = max(_series(result.metrics, "valid_bleu"), default=0.0) >= LOW_BLEU
    rising = len(valid) >= 3 and all(b > a for a, b in pairwise(valid))
    if not learned and len(train) >= 4 and min(train[1:]) > 0.95 * train[0]:
        yield (
            f"the training loss has hardly fallen ({train[0]:.2f} to {train[-1]:.2f}): change "
            f"training.learning_rate (now {config.training.learning_rate:g}) by a factor of ten, "
            "down first"
        )
    elif rising and valid[-1] > 1.05 * valid[0] and train and train[-1] < train[0]:
        yield (
            f"the validation loss has risen from the first validation ({valid[0]:.2f} to "
            f"{valid[-1]:.2f}) while the training loss fell ({train[0]:.2f} to {train[-1]:.2f})"
            f"{_overfitting(result.overlap(), config)}"
        )
    elif valid and train and min(valid) > train[-1] + max(2.0, 0.5 * train[-1]):
        if result.overlap() > MOSTLY_SEEN:
            return
        yield (
            f"the validation loss ({min(valid):.2f} at its best) is far above the training loss "
            f"({train[-1]:.2f}): the validation data may differ from the training data (swapped "
            "sides, language, domain or tokenization), or there is too little text; check "
            f"data.valid (seq2seq check){_regularise(config)}"
        )


def _overfitting(overlap: float, config: Config) -> str:
    """Return the explanation of a rising validation loss, by the share of pairs trained on."""
    if overlap > MOSTLY_SEEN:
        return (
            f", although {overlap:.0%} of the validation pairs are in the training text: this "
            "validation cannot show overfitting; set data.valid to pairs that are not in data.train"
        )
    return (
        ": the model overfits, or the validation data differ from the training data; check the "
        f"data (seq2seq check){_regularise(config)}, or lower model.hidden_size "
        f"(now {config.model.hidden_size})"
    )


def _lower_rate(config: Config) -> str:
    return f"lower training.learning_rate (now {config.training.learning_rate:g})"


def _longer(result: ValidationResult, config: Config) -> str:
    return f"train longer: {raise_limits(config.training, result.ended_by)}"


def _fewer_unknown(config: Config) -> str:
    """Advise on unknown words: the vocabulary and, for word vocabularies, other types."""
    vocabulary = config.vocabulary
    advice = [f"raise vocabulary.size (now {vocabulary.size or 'auto'})"]
    if vocabulary.type != "word":
        return f"{advice[0]}, or add training text with the missing characters"
    advice.append("set vocabulary.type=unigram")
    if config.model.decoder != "none" and not config.decoding.replace_unknown:
        advice.append("let decoding.replace_unknown copy source words")
    return ", or ".join(advice)


def _less_repetition(result: ValidationResult, config: Config) -> str:
    """Advise on repetition: training, and attention that the model does not have yet."""
    model = config.model
    cause, alternative = "attention does not advance", ""
    if model.decoder == "none":
        cause, alternative = "the model has no attention", ", or use model.decoder=bahdanau"
    elif model.decoder == "luong" and not model.input_feeding:
        alternative = ", or set model.input_feeding=true"
    elif model.score is not None and model.score.name != "coverage":
        alternative = ", or use model.score=coverage"
    return f"{cause}; {_lower_rate(config)}, {_longer(result, config)}{alternative}"


def _other_max_length(config: Config, ratio: float) -> str:
    limit = config.decoding.max_length
    if limit is None:
        return ""
    return f", or {'raise' if ratio < 1 else 'lower'} decoding.max_length (now {limit})"


def _regularise(config: Config) -> str:
    dropout = max(rate for _, rate in config.model.dropout)
    return "" if dropout >= HIGH_DROPOUT else f", raise model.dropout (now {dropout:g})"


def _target(config: Config, split: str) -> str:
    """Return the key of the file that holds the target side of a split."""
    corpora = as_list(getattr(config.data, split))
    if len(corpora) > 1:
        return f"data.{split}"
    return f"data.{split}.{'file' if corpora[0].file else 'tgt'}"


def _series(metrics: Metrics, key: str) -> list[float]:
    return [value for line in metrics if (value := line.get(key)) is not None]


def _early(result: ValidationResult, config: Config) -> str | None:
    """Return the explanation that training was short, if it was, and the keys to change."""
    steps = int(max(_series(result.metrics, "step"), default=0))
    if steps >= FEW_STEPS:
        return None
    learner = "translation is learned" if config.model.decoder == "none" else "attention forms"
    return (
        f"{steps} steps are few, as {learner} in hundreds or thousands; {_longer(result, config)}"
    )


def _share(test: Callable[[str], object], lines: Sequence[str]) -> float:
    return sum(bool(test(line)) for line in lines) / len(lines)


def _unknown(lines: Sequence[str]) -> float:
    words = [word for line in lines for word in line.split()]
    return sum(UNKNOWN in word for word in words) / max(1, len(words))


def _most_frequent(lines: Sequence[str]) -> float:
    filled = [line for line in lines if not is_blank(line)]
    return max(Counter(filled).values(), default=0) / len(lines)


def _copied(sources: Sequence[str], lines: Sequence[str]) -> float:
    return sum(a.strip() == b.strip() for a, b in zip(sources, lines, strict=True)) / len(lines)
