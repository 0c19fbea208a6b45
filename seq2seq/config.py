"""The typed config: a YAML file and `section.key=value` overrides become a complete `Config`.

YAML scalars are read as text and get their type from the schema alone, so `3e-4` is a number where
a number belongs and `no` (Norwegian) stays a language code. Only an unquoted `null`, `~` or nothing
at all means None.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from seq2seq.config_file import Tree, apply_override, read_document
from seq2seq.config_mistakes import (
    ConfigError,
    KeyPath,
    Mistake,
    describe,
    section_class,
    show,
    summary,
)
from seq2seq.config_values import Count, File, Flag, NotNegative, Positive, Share, Size, Text, Whole

Decoder = Literal["bahdanau", "luong", "none"]
Score = Literal["additive", "dot", "general", "concat", "scaled_dot"]
_LENGTH = ("training.max_epochs", "training.max_steps")
_FREE = (
    "run_dir.",
    "data.test.",
    "decoding.",
    "training.max_minutes.",
    "training.patience.",
    "training.log_every.",
    "training.memory_gb.",
    "training.deterministic.",
)


@dataclass
class _Origin:
    """Which keys the command line set, and the notes gathered while the config was checked."""

    overridden: set[KeyPath] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


class Section(BaseModel):
    """A part of the config: frozen, refuses unknown keys, checks its defaults like any value.

    A check that concerns several keys stands on the last of them and is left out where an earlier
    one was refused itself, so that one load reports every mistake and no mistake twice.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class ParallelFiles(Section):
    """Where a parallel text is: two files of equally many lines, or one with two columns."""

    src: File | None = None  # source side, one sentence a line; `.gz` is read as well
    tgt: File | None = None  # target side; its line n translates line n of `src`
    tsv: File | None = None  # instead of both: column 1 source, column 2 target

    @field_validator("tsv")
    @classmethod
    def _one_form(cls, tsv: Path | None, info: ValidationInfo) -> Path | None:
        if not {"src", "tgt"} <= info.data.keys():
            return tsv
        sides = [info.data["src"] is not None, info.data["tgt"] is not None]
        if any(sides) if tsv else not all(sides):
            raise ValueError("give either src and tgt, or tsv alone (null turns a key off)")
        if all(sides) and info.data["src"] == info.data["tgt"]:
            raise ValueError("src and tgt are the same file; give the translation as tgt")
        return tsv


class DataConfig(Section):
    """The languages and the files of the three splits."""

    src_lang: Text  # code of the source language, such as en
    tgt_lang: Text  # code of the target language, such as de
    train: ParallelFiles  # learnt from
    valid: ParallelFiles  # chooses the best weights
    test: ParallelFiles | None = None  # only for the final score


class VocabularyConfig(Section):
    """How text is cut into pieces."""

    type: Literal["unigram", "bpe", "word", "char"] = "unigram"  # unigram and bpe: subwords
    size: Annotated[Whole, Field(ge=16, le=1_000_000)] = (
        8000  # pieces of each vocabulary, special ones included
    )
    joint: Flag = True  # one vocabulary for both languages
    # Subword regularisation in training, 0 = off. unigram: exponent of the distribution that
    # segmentations are drawn from (smaller = more varied); bpe: share of merges left out.
    sampling: Annotated[NotNegative, Field(le=1)] = 0.0

    @field_validator("sampling")
    @classmethod
    def _only_of_subwords(cls, sampling: float, info: ValidationInfo) -> float:
        kind = info.data.get("type")
        if sampling > 0 and kind in ("word", "char"):
            raise ValueError(f"must be 0 with type {kind}, which cuts a text in one way only")
        return sampling


class ModelConfig(Section):
    """Which model, and its sizes; complete once made: what the decoder decides is filled in."""

    decoder: Decoder = "bahdanau"  # none: no attention, the last encoder state alone
    score: Score | None = None  # null: additive (bahdanau), general (luong)
    input_feeding: Flag | None = None  # luong only; null: true
    embedding_size: Size = 256  # of both languages
    bidirectional: Flag = True  # each direction of the encoder then has half of hidden_size
    hidden_size: Size = 512  # of the decoder and of the encoder's outputs
    attention_size: Size | None = None  # additive, concat, scaled_dot only; null: hidden_size // 2
    num_layers: Annotated[Count, Field(le=64)] = 1  # of the encoder and of the decoder
    dropout: Share = 0.3  # probability
    tie_embeddings: Flag = True  # the target embedding is also the projection to the vocabulary

    @field_validator("hidden_size")
    @classmethod
    def _has_halves(cls, hidden_size: int, info: ValidationInfo) -> int:
        if info.data.get("bidirectional") and hidden_size % 2:
            raise ValueError("must be even where the encoder is bidirectional")
        return hidden_size

    @field_validator("score", "input_feeding", "attention_size")
    @classmethod
    def _fit_to_decoder(cls, value: object, info: ValidationInfo) -> object:
        """Fill in what is unset; refuse what has no use, or drop it where a YAML file set it."""
        key, earlier = str(info.field_name), info.data
        if "decoder" not in earlier or (key == "attention_size" and "score" not in earlier):
            return value
        reason = _why_unused(key, value, earlier["decoder"], earlier.get("score"))
        if value is None:
            return _model_default(key, earlier)
        if reason is None:
            return value
        if not isinstance(info.context, _Origin) or ("model", key) in info.context.overridden:
            raise ValueError(reason)
        info.context.notes.append(f"model.{key}: {show(value)} is ignored: {reason}")
        return _model_default(key, earlier)


_SIZED_SCORES = ("additive", "concat", "scaled_dot")


def _why_unused(key: str, value: object, decoder: Decoder, score: Score | None) -> str | None:
    """Why this decoder and score have no use for the value, or None where they have."""
    if decoder == "none":
        return "decoder none has no attention"
    if key == "score" and decoder == "bahdanau" and value != "additive":
        return "decoder bahdanau takes the additive scores only"
    if key == "input_feeding" and decoder == "bahdanau":
        return "input feeding belongs to decoder luong"
    if key == "attention_size" and score not in _SIZED_SCORES:
        return f"score {score} has no size of its own"
    return None


def _model_default(key: str, earlier: Tree) -> object:
    """What a key that follows from the decoder is where nobody sets it; None: it has no use."""
    decoder = earlier["decoder"]
    if key == "score":
        return {"bahdanau": "additive", "luong": "general", "none": None}[str(decoder)]
    if key == "input_feeding":
        return True if decoder == "luong" else None
    hidden_size = earlier.get("hidden_size")
    if earlier["score"] not in _SIZED_SCORES or not isinstance(hidden_size, int):
        return None
    return max(1, hidden_size // 2)


class TrainingConfig(Section):
    """How long and how to train; an update is one step of the optimizer."""

    max_epochs: Count | None = None  # passes over the training data
    max_steps: Count | None = None  # updates
    max_minutes: Positive | None = None  # of wall time, validations included
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"  # adamw: weight decay apart from Adam
    learning_rate: Positive = 1e-3  # the highest of the schedule
    weight_decay: NotNegative = 0.0  # coefficient given to the optimizer
    warmup_steps: Annotated[Whole, Field(ge=0)] = 0  # updates in which the rate rises
    decay: Literal["constant", "inverse_sqrt", "linear", "cosine"] = "constant"  # after the warm-up
    clip_norm: Positive = 1.0  # largest norm of the gradient
    label_smoothing: Share = 0.1  # share of the probability spread over all pieces
    batch_tokens: Count = 1500  # target tokens of a batch
    accumulate: Count = 1  # batches of an update
    average: Share = 0.0  # decay of the weights' moving average an update; 0: no average
    max_length: Count = 100  # pieces a side; longer pairs are not trained on
    validate_every: Count | None = None  # updates between validations; null: once an epoch
    patience: Count | None = None  # validations without a better BLEU until training ends
    precision: Literal["float32", "bf16"] = "float32"  # bf16: mixed, weights stay float32
    log_every: Count = 50  # updates between two lines of the log
    memory_gb: Positive | None = None  # most memory, GiB; a batch that needs more is done in pieces
    deterministic: Flag = False  # CUDA too gives the same bits for the same seed, if more slowly

    @field_validator("max_minutes")
    @classmethod
    def _ends(cls, max_minutes: float | None, info: ValidationInfo) -> float | None:
        others = [info.data.get(key, "refused") for key in ("max_epochs", "max_steps")]
        if max_minutes is None and others == [None, None]:
            raise ValueError("set at least one of max_epochs, max_steps and max_minutes")
        return max_minutes

    @field_validator("decay")
    @classmethod
    def _knows_its_end(cls, decay: str, info: ValidationInfo) -> str:
        ends = [info.data.get(key, "refused") for key in ("max_epochs", "max_steps")]
        if decay in ("linear", "cosine") and ends == [None, None]:
            raise ValueError(f"{decay} needs max_epochs or max_steps, to know where it ends")
        return decay


class DecodingConfig(Section):
    """How translations are searched for."""

    beam_size: Count = 5  # hypotheses kept at each step; 1: greedy
    length_penalty: NotNegative = 1.0  # a log-probability is divided by length to this power
    max_length: Count | None = None  # pieces; null: a limit learnt from the training data


class Config(Section):
    """Everything that a run depends on, complete: no default is left to be decided later."""

    name: Text  # what the run is called in logs and plots
    run_dir: File  # the run folder; relative to the working directory
    seed: Annotated[Whole, Field(ge=0, lt=2**63)] = 1  # of everything random
    data: DataConfig
    vocabulary: VocabularyConfig = VocabularyConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig
    decoding: DecodingConfig = DecodingConfig()


# ------------------------------------------------------------------------------------ public calls


def load_config(path: Path, overrides: Sequence[str] = ()) -> tuple[Config, list[str]]:
    """Read a YAML file, apply overrides such as `model.dropout=0.2`, and check the whole.

    The last override of a key counts; its value is taken as it is written, `null` means None.
    Returns the config and notes: keys of the file that were ignored because the decoder has no use
    for them. Raises ConfigError with every mistake of the file and of the overrides at once.
    """
    document = read_document(path)
    mistakes = document.mistakes
    origin = _Origin()
    for override in overrides:
        try:
            origin.overridden.add(apply_override(document.tree, override))
        except ValueError as error:
            mistakes.append(Mistake(None, f"{override} (command line): {error}", True))
    for key, info in Config.model_fields.items():
        if section_class(info.annotation) and document.tree.get(key) is None:
            document.tree[key] = {}
    try:
        config = Config.model_validate(document.tree, context=origin)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            mistake = describe(details, Config, document.lines, origin.overridden)
            if mistake.command_line or not document.broken:
                mistakes.append(mistake)
    if mistakes:
        raise ConfigError(summary(path, mistakes))
    return config, origin.notes


def dump_config(config: Config) -> str:
    """Write every key as YAML, in the order of the schema; `load_config` reads an equal config."""
    tree = config.model_dump()
    return str(yaml.dump(tree, None, _Dumper, sort_keys=False, allow_unicode=True, width=10_000))


class _Dumper(yaml.SafeDumper):
    """Quotes doubly what is read as a line break between single quotes."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if "\x85" in text else None
    ),
)


def changed_keys(old: Config, new: Config) -> list[str]:
    """Say which keys differ that must not when a run is resumed, as `model.dropout: 0.3 -> 0.2`.

    Left out are the folder, the test data, logging, decoding and the length of training; but a rate
    that falls linearly or as a cosine depends on max_epochs and max_steps from the first update.
    """
    return changed_since(recorded_keys(old), new)


def recorded_keys(config: Config) -> dict[str, object]:
    """The keys a run goes on with, dotted, and their values as JSON has them."""
    leaves = {".".join(path): value for path, value in _leaves(config.model_dump(mode="json"))}
    return {key: value for key, value in leaves.items() if not f"{key}.".startswith(_FREE)}


def changed_since(recorded: Mapping[str, object], new: Config) -> list[str]:
    """Say, as `changed_keys` does, which keys differ from the recorded ones.

    A key that an earlier version did not have yet counts as if it had had its default.
    """
    now = recorded_keys(new)
    recorded = {**{key: each for key, each in _defaults().items() if key in now}, **recorded}
    free = () if new.training.decay in ("linear", "cosine") else _LENGTH
    return [
        f"{key}: {show(recorded.get(key))} -> {show(now.get(key))}"
        for key in {**recorded, **now}
        if recorded.get(key) != now.get(key) and key not in free
    ]


def _defaults() -> dict[str, object]:
    return {
        f"{name}.{key}": field.get_default()
        for name, info in Config.model_fields.items()
        if (section := section_class(info.annotation)) is not None
        for key, field in section.model_fields.items()
        if not field.is_required()
    }


def _leaves(tree: Tree, above: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value
