"""The typed config: a YAML file and `section.key=value` overrides become a complete `Config`.

YAML scalars are read as text and get their type from the schema alone, so `3e-4` is a number where
a number belongs and `no` (Norwegian) stays a language code. Only an unquoted `null`, `~` or nothing
at all means None.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError, ValidationInfo, field_validator

from seq2seq.config.document import apply_override, read_document, rename_keys
from seq2seq.config.errors import ConfigError, ConfigIssue, describe, section_class, summary
from seq2seq.config.fields import (
    Bool,
    Count,
    FilePath,
    Fraction,
    Int,
    NonEmptyStr,
    NotNegative,
    Positive,
)
from seq2seq.config.model_section import ModelConfig
from seq2seq.config.section import LoadContext, Section, ignore

VARIANTS = "variants"  # a file with this key is for `seq2seq compare`


class ParallelFiles(Section):
    """Where a parallel text is: two files of equally many lines, or one with two columns."""

    src: FilePath | None = None  # source side, one sentence a line; `.gz` is read as well
    tgt: FilePath | None = None  # target side; its line n translates line n of `src`
    tsv: FilePath | None = None  # instead of both: column 1 source, column 2 target

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

    src_lang: NonEmptyStr  # code of the source language, such as en
    tgt_lang: NonEmptyStr  # code of the target language, such as de
    train: ParallelFiles  # learnt from
    valid: ParallelFiles  # chooses the best weights
    test: ParallelFiles | None = None  # only for the final score
    max_length: Count = 100  # tokens a side; longer pairs are skipped, longer lines split

    @property
    def direction(self) -> str:
        """As people say it."""
        return f"{self.src_lang} to {self.tgt_lang}"

    def paths(self) -> list[Path]:
        """All files that are read."""
        splits = [files for files in (self.train, self.valid, self.test) if files is not None]
        named = [path for each in splits for path in (each.src, each.tgt, each.tsv)]
        return [path for path in named if path is not None]


class VocabularyConfig(Section):
    """How text is cut into pieces."""

    type: Literal["unigram", "bpe", "word", "char"] = "unigram"  # unigram and bpe: subwords
    size: Annotated[Int, Field(ge=16, le=1_000_000)] = (
        8000  # pieces of each vocabulary, special ones included
    )
    joint: Bool = True  # one vocabulary for both languages
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


class TrainingConfig(Section):
    """How long and how to train; an update is one step of the optimizer."""

    max_epochs: Count | None = None  # passes over the training data
    max_steps: Count | None = None  # updates
    max_minutes: Positive | None = None  # of wall time, validations included
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"  # adamw: weight decay apart from Adam
    learning_rate: Positive = 1e-3  # the highest of the schedule
    weight_decay: NotNegative = 0.0  # coefficient given to the optimizer
    warmup_steps: Annotated[Int, Field(ge=0)] = 0  # updates in which the rate rises
    decay: Literal["constant", "inverse_sqrt", "linear", "cosine"] = "constant"  # after the warm-up
    clip_norm: Positive = 1.0  # largest norm of the gradient
    label_smoothing: Fraction = 0.1  # share of the probability spread over all pieces
    consistency: NotNegative = 0.0  # R-Drop's weight: two passes agree; each update costs both
    batch_tokens: Count = 1500  # target tokens of a batch
    accumulate: Count = 1  # batches of an update
    average: Fraction = 0.0  # decay of the weights' moving average an update; 0: no average
    validate_every: Count | None = None  # updates between validations; null: once an epoch
    keep: Annotated[Int, Field(ge=0)] = 0  # snapshots of the weights, of the newest validations
    patience: Count | None = None  # validations without a better BLEU until training ends
    precision: Literal["float32", "bf16"] = "float32"  # bf16: mixed, weights stay float32
    log_every: Annotated[Count, Field(le=10_000)] = 50  # updates between two lines of the log
    # Most memory, GiB; a batch that needs more is done in pieces.
    memory_gb: Annotated[Positive, Field(le=1_000_000)] | None = None
    # Scheduled sampling: how the share of true inputs falls from 1; null: they are all true.
    scheduled_sampling: Literal["linear", "exponential", "inverse_sigmoid"] | None = None
    scheduled_sampling_steps: Count | None = None  # updates, the k of its formula
    deterministic: Bool = False  # CUDA too gives the same bits for the same seed, if more slowly

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

    @field_validator("scheduled_sampling_steps")
    @classmethod
    def _paces_a_schedule(cls, steps: int | None, info: ValidationInfo) -> int | None:
        schedule = info.data.get("scheduled_sampling", "refused")
        if steps is None and schedule not in (None, "refused"):
            raise ValueError(f"scheduled_sampling {schedule} needs scheduled_sampling_steps")
        if steps is not None and schedule is None:
            raise ValueError("belongs to scheduled_sampling, which is not set")
        return steps


class DecodingConfig(Section):
    """How translations are searched for."""

    beam_size: Annotated[Count, Field(le=1_000_000)] = 5  # hypotheses kept at each step; 1: greedy
    length_penalty: Annotated[NotNegative, Field(le=10)] = (
        1.0  # a log-probability is divided by length to this power
    )
    coverage_penalty: NotNegative = 0.0  # how much a beam minds source words not looked at; 0: off
    no_repeat_ngram: Annotated[Int, Field(ge=0)] = 0  # n pieces occur once only; 0: off
    replace_unknown: Bool = False  # unknown words become the source words they look at most
    max_length: Count | None = None  # pieces; null: a limit learnt from the training data


class Config(Section):
    """Everything that a run depends on, complete: no default is left to be decided later."""

    name: NonEmptyStr  # what the run is called in logs and plots
    run_dir: FilePath  # the run folder; relative to the working directory
    seed: Annotated[Int, Field(ge=0, lt=2**63)] = 1  # of everything random
    data: DataConfig
    vocabulary: VocabularyConfig = VocabularyConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig
    decoding: DecodingConfig = DecodingConfig()

    @field_validator("training")
    @classmethod
    def _passes_differ(cls, training: TrainingConfig, info: ValidationInfo) -> TrainingConfig:
        model = info.data.get("model")
        if model is not None and model.dropout == 0 and training.consistency > 0:
            raise ValueError("consistency needs model.dropout above 0, or both passes are the same")
        return training

    @field_validator("decoding")
    @classmethod
    def _fit_to_model(cls, decoding: DecodingConfig, info: ValidationInfo) -> DecodingConfig:
        model = info.data.get("model")
        if model is None or model.decoder != "none":
            return decoding
        refused, off = [], {"coverage_penalty": 0.0, "replace_unknown": False}
        for key in off:
            value, reason = getattr(decoding, key), f"decoder none has no attention for {key}"
            try:
                if value:
                    ignore(("decoding", key), value, reason, info)
            except ValueError:
                refused.append(key)
        if refused:
            raise ValueError(f"decoder none has no attention for {' and '.join(refused)}")
        return decoding.model_copy(update=off)


# ------------------------------------------------------------------------------------ public calls


def load_config(
    path: Path, overrides: Sequence[str] = (), accept_renamed: bool = False
) -> tuple[Config, list[str]]:
    """Read a YAML file, apply overrides such as `model.dropout=0.2`, and check the whole.

    The last override of a key counts; its value is taken as it is written, `null` means None.
    A renamed key of an earlier version is refused unless `accept_renamed` (for a run's own config).
    Returns the config and notes: keys of the file that were ignored because the decoder has no use
    for them. Raises ConfigError with every mistake of the file and of the overrides at once.
    """
    document = read_document(path)
    if VARIANTS in document.tree:
        raise ConfigError(f"{path}: lists variants: it is for `seq2seq compare`")
    if accept_renamed:
        rename_keys(document)
    mistakes = document.mistakes
    context = LoadContext()
    for override in overrides:
        try:
            context.overridden.add(apply_override(document.tree, override))
        except ValueError as error:
            mistakes.append(ConfigIssue(None, f"{override} (command line): {error}", True))
    for key, info in Config.model_fields.items():
        if section_class(info.annotation) and document.tree.get(key) is None:
            document.tree[key] = {}
    try:
        config = Config.model_validate(document.tree, context=context)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            mistake = describe(details, Config, document.lines, context.overridden)
            if mistake.command_line or not document.broken:
                mistakes.append(mistake)
    if mistakes:
        raise ConfigError(summary(path, mistakes), mistakes)
    return config, context.notes


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
