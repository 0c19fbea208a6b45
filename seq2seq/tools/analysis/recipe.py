"""Choose a recipe: vocabulary, sizes, regularisation and schedule for a text, machine and time.

The rules state what configs tuned by hand have in common; their constants were chosen on validation
text of Multi30k and Tatoeba (English to German and Marathi) and of English-Japanese sentences.
"""

import math
import random
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import yaml

from seq2seq.config.schema import Config, DataConfig, VocabularyConfig
from seq2seq.data import batching, corpus
from seq2seq.data.vocabulary.training import MIN_SIZE, auto_size, train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.runtime.console import counted, duration, one_line
from seq2seq.runtime.errors import UserError
from seq2seq.text.line_properties import scripts_of
from seq2seq.tools.analysis.check.forecast import Forecast, forecast
from seq2seq.training.diagnosis import FEW_STEPS
from seq2seq.training.session import new_session, session_data

SAMPLE = 20_000  # pairs, chosen at random
_SEED = 1
_WIDTH = 100

Section = dict[str, object]
Sections = dict[str, Section]

_PAIRS = 40_000  # a text of this size suits _EPOCHS epochs
_EPOCHS, _SHRINKAGE = 12, 0.45  # epochs = _EPOCHS * (_PAIRS / pairs) ** _SHRINKAGE
_FEWEST_EPOCHS = 2
_MOST_EPOCHS = 40
_VALIDATIONS = 5  # in a training shorter than as many epochs
_LONG = 0.99  # share of the pairs that data.max_length keeps at least
_REGULARIZED, _SAMPLED = 6, 10  # fewest epochs for more dropout, and for subword sampling
_MOST_TOKENS, _FEWEST_TOKENS = 1000, 50  # target tokens of a batch
_STEPS_PER_EPOCH = 120  # at least, as far as batches may be smaller
_ENOUGH_STEPS = FEW_STEPS * 6 // 5  # in a short training, as far as batches may be smaller
_TRAINING: Section = {
    "learning_rate": 2e-3,
    "warmup_steps": 200,
    "decay": "linear",
    "average": 0.998,
    "precision": "auto",
}


class TextFacts(NamedTuple):
    """Size, length and scripts of a parallel text, source first."""

    pairs: int  # with text on both sides
    words: tuple[float, float]  # mean of a line, divided at white space
    scripts: tuple[str, str]  # that of most words, such as "LATIN"; "" without any
    characters: tuple[int, int, int]  # distinct ones of either side, and of both
    sample: corpus.ParallelText

    @property
    def same_script(self) -> bool:
        """Return whether both sides are written in one script."""
        return self.scripts[0] == self.scripts[1]


def measure_text(pairs: Iterable[tuple[str, str]], name: str) -> TextFacts:
    """Count a text, and choose a sample of at most SAMPLE pairs; memory does not grow with it.

    A pure function of the pairs. Raises UserError, naming the text, if no pair has text.
    """
    rng = random.Random(_SEED)
    sample: list[tuple[str, str]] = []
    alphabets: tuple[set[str], set[str]] = set(), set()
    count = lines = 0
    for pair in pairs:
        lines += 1
        if not corpus.has_text(*pair):
            continue
        count += 1
        for alphabet, text in zip(alphabets, pair, strict=True):
            alphabet.update(text)
        if len(sample) < SAMPLE:
            sample.append(pair)
        elif (place := rng.randrange(count)) < SAMPLE:  # algorithm R of Vitter (1985)
            sample[place] = pair
    if not sample:
        raise corpus.no_usable_pair(name, lines)
    src, tgt = ([pair[side] for pair in sample] for side in (0, 1))
    return TextFacts(
        count,
        (_mean_words(src), _mean_words(tgt)),
        (_main_script(src), _main_script(tgt)),
        (len(alphabets[0]), len(alphabets[1]), len(set.union(*alphabets))),
        corpus.ParallelText(src, tgt, name),
    )


def _mean_words(lines: list[str]) -> float:
    return sum(len(line.split()) for line in lines) / len(lines)


def _main_script(lines: list[str]) -> str:
    counts = Counter(script for line in lines for script in scripts_of(line))
    return max(counts, key=lambda script: (counts[script], script)) if counts else ""


class Sizes(NamedTuple):
    """Sizes of a model, and the fewest epochs and steps for which they are worth their time."""

    model: Section
    epochs: float
    steps: int


_SIZES = (
    Sizes({"embedding_size": 256, "hidden_size": 512, "layers": 2}, 4.5, 2500),
    Sizes({"embedding_size": 256, "hidden_size": 512, "layers": 1}, 2, 1000),
    Sizes({"embedding_size": 192, "hidden_size": 320, "layers": 1}, 0, 700),
    Sizes({"embedding_size": 128, "hidden_size": 256, "layers": 1}, 0, _ENOUGH_STEPS),
)


class Recipe(NamedTuple):
    """Sections of a config, reasons by dotted key, and the expected cost of the training."""

    pairs: int
    sections: Sections
    reasons: dict[str, str]
    cost: Forecast
    epochs: float

    @property
    def seconds(self) -> float:
        """Return the expected training time, validation excluded."""
        return self.epochs * self.cost.epoch_seconds


class _Trial(NamedTuple):
    """A sample of a text as training sees it, to measure steps with."""

    data: DataConfig
    vocabularies: Vocabularies
    pairs: batching.EncodedPairs
    sample: corpus.ParallelText
    scale: float  # pairs of the text for each of the sample

    def forecast(self, sections: Sections, device: torch.device) -> Forecast:
        """Measure some training steps; the epoch of the result is one of the full text."""
        changed: Sections = {
            "data": {**self.data.model_dump(), **sections["data"]},
            "training": {**sections["training"], "max_epochs": 1},
        }
        config = Config.model_validate({"name": "init", "run_dir": "init", **sections, **changed})
        data = session_data(config, self.vocabularies, self.pairs, self.sample)
        cost = forecast(new_session(config, device, data))
        steps = round(cost.steps_per_epoch * self.scale)
        return cost._replace(epoch_seconds=cost.epoch_seconds * self.scale, steps_per_epoch=steps)


def choose(
    facts: TextFacts, data: DataConfig, minutes: float | None, device: torch.device
) -> Recipe:
    """Choose a config's sections for a text, by some training steps of each size on `device`.

    Without `minutes`, as many epochs as it is worth. Raises UserError if no vocabulary is possible.
    """
    vocabulary, vocabularies = _vocabulary(facts)
    pairs = batching.encode_pairs(facts.sample.src, facts.sample.tgt, vocabularies, None)
    trial = _Trial(data, vocabularies, pairs, facts.sample, facts.pairs / len(facts.sample))
    needed = _needed_epochs(facts.pairs)
    for sizes, batch_tokens in _attempts(int(np.sum(pairs.tgt.lengths[:])) * trial.scale):
        sections: Sections = {
            "data": _data(pairs),
            "vocabulary": vocabulary,
            "model": {"decoder": "luong", **sizes.model},
            "training": {"batch_tokens": batch_tokens, **_TRAINING},
        }
        cost = trial.forecast(sections, device)
        epochs = needed if minutes is None else min(needed, 60 * minutes / cost.epoch_seconds)
        steps = epochs * cost.steps_per_epoch
        if epochs >= min(sizes.epochs, needed) and steps >= sizes.steps:
            break
    _fit_to_length(sections, epochs, cost, minutes if epochs < needed else None)
    return Recipe(facts.pairs, sections, _reasons(facts, epochs, minutes), cost, epochs)


def _needed_epochs(pairs: int) -> int:
    """Return how many epochs a text is worth: fewer, the larger it is."""
    epochs = round(_EPOCHS * math.pow(_PAIRS / pairs, _SHRINKAGE))
    return max(_FEWEST_EPOCHS, min(_MOST_EPOCHS, epochs))


def _attempts(tokens: float) -> Iterator[tuple[Sizes, int]]:
    """Yield sizes of models and batches to try, for an epoch of target tokens, largest first."""
    batch_tokens = 50 * round(tokens / _STEPS_PER_EPOCH / 50)  # few tokens a batch make many steps
    batch_tokens = max(_FEWEST_TOKENS, min(_MOST_TOKENS, batch_tokens))
    yield from ((sizes, batch_tokens) for sizes in _SIZES)
    while (batch_tokens := batch_tokens // 2) >= _FEWEST_TOKENS:
        yield _SIZES[-1], batch_tokens


def _data(pairs: batching.EncodedPairs) -> Section:
    """Return `max_length` if its default is less than all but a few pairs need."""
    lengths = np.maximum(*(np.array(side.lengths[:]) for side in (pairs.src, pairs.tgt)))
    needed = 10 * math.ceil(float(np.quantile(lengths, _LONG)) / 10)
    return {"max_length": needed} if needed > DataConfig.model_fields["max_length"].default else {}


def _vocabulary(facts: TextFacts) -> tuple[Section, Vocabularies]:
    """Choose a vocabulary and train it on the sample; raise UserError if none is possible."""
    joint = facts.same_script
    characters = facts.characters[2] if joint else max(facts.characters[:2])
    size = auto_size(facts.pairs, characters)
    while True:
        section: Section = {"type": "unigram", "size": int(size), "joint": joint}
        try:
            config = VocabularyConfig.model_validate(section)
            return section, train_vocabularies(config, facts.sample.src, facts.sample.tgt)
        except UserError:
            smaller = max(int(0.8 * size), MIN_SIZE + characters)
            if smaller == size:
                raise
            size = smaller


def _fit_to_length(
    sections: Sections, epochs: float, cost: Forecast, minutes: float | None
) -> None:
    """Set what depends on the length of training: its end, regularisation and validations."""
    vocabulary, model, training = (sections[k] for k in ("vocabulary", "model", "training"))
    steps = epochs * cost.steps_per_epoch
    model["dropout"] = 0.1 if epochs < _REGULARIZED else 0.2
    if epochs >= _SAMPLED:
        vocabulary["sampling"] = 0.5
    training["warmup_steps"] = max(10, min(200, 10 * round(steps / 100)))
    training["average"] = 0.99 if steps < 2000 else 0.998
    if minutes is None:
        training["max_epochs"] = math.ceil(epochs)
    else:
        training["max_minutes"] = int(minutes) if minutes == int(minutes) else minutes
    if epochs < _VALIDATIONS:
        training["validate_every"] = max(1, round(steps / _VALIDATIONS))


def _reasons(facts: TextFacts, epochs: float, minutes: float | None) -> dict[str, str]:
    """Explain, by dotted key, the choices that depend on text, machine and time."""
    scripts = (name if name == "CJK" else name.title() or "no" for name in facts.scripts)
    names = " and ".join(dict.fromkeys(scripts))
    time = "" if minutes is None else f" in {counted(minutes, 'minute')}"
    passes = f"for {epochs:.1f} epochs{time}"
    return {
        "data.max_length": "99% of the pairs are no longer",
        "vocabulary.size": f"for {facts.pairs:,} pairs",
        "vocabulary.joint": f"{'one script' if facts.same_script else 'two scripts'}: {names}",
        "vocabulary.sampling": passes,
        "model.hidden_size": passes,
        "training.batch_tokens": "small enough for many steps",
        "model.dropout": passes,
        "training.precision": "bf16 where the device is faster with it",
        "training.max_minutes": "the learning rate falls to 0 at its end",
        "training.max_epochs": "the learning rate falls to 0 at its end",
    }


def as_yaml(path: Path, data: DataConfig, recipe: Recipe, command: str) -> str:
    """Format the config of a recipe, named after its file; comments give reasons of values.

    `command` trains it.
    """
    texts = {"train": data.train[0], "valid": data.valid, "test": data.test}
    files = {
        part: text.model_dump(mode="json", exclude_defaults=True)
        for part, text in texts.items()
        if text is not None
    }
    languages = {"src_lang": data.src_lang, "tgt_lang": data.tgt_lang}
    sections: Sections = {
        "": {"name": path.stem, "run_dir": f"runs/{path.stem}"},
        **recipe.sections,
        "data": {**languages, **files, **recipe.sections["data"]},
    }
    lines = [*_header(path, data, recipe, command), *_entries(sections, recipe.reasons)]
    return "\n".join(lines) + "\n"


def _header(path: Path, data: DataConfig, recipe: Recipe, command: str) -> Iterator[str]:
    cost = recipe.cost
    run = shlex.quote(f"runs/{path.stem}")
    text = (
        f"{data.src_lang} to {data.tgt_lang}, chosen by seq2seq init for {recipe.pairs:,} pairs: "
        f"{recipe.epochs:.1f} epochs of {counted(cost.steps_per_epoch, 'step')}, about "
        f"{duration(recipe.seconds)} at {cost.tokens_per_second:,.0f} target tokens/s "
        f"on {cost.hardware}."
    )
    commands = (
        f"  seq2seq check {shlex.quote(str(path))}",
        f"  seq2seq {command}",
        f"  seq2seq evaluate -m {run} --split valid",
    )
    for line in (*textwrap.wrap(one_line(text), _WIDTH - 2), *map(one_line, commands)):
        yield f"# {line}"


def _entries(sections: Sections, reasons: Mapping[str, str]) -> Iterator[str]:
    for section, keys in sections.items():
        if section:
            yield f"{section}:"
        for key, value in keys.items():
            text: str = yaml.safe_dump(
                value, default_flow_style=True, allow_unicode=True, width=1e9, sort_keys=False
            )
            entry = "  " * bool(section) + f"{key}: "
            entry += text.removesuffix("\n").removesuffix("\n...")
            reason = reasons.get(f"{section}.{key}")
            yield f"{entry}  # {reason}" if reason else entry
