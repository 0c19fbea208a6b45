"""The typed config: a YAML file and `section.key=value` overrides become a complete `Config`.

YAML scalars are read as text and get their type from the schema alone, so `3e-4` is a number where
a number belongs and `no` (Norwegian) stays a language code. Only an unquoted `null`, `~` or nothing
at all means None.
"""

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails

from seq2seq.errors import UserError

KeyPath = tuple[str, ...]
Tree = dict[str, object]


class ConfigError(UserError):
    """A config that cannot be used; the message has a line for each of its mistakes."""


# ---------------------------------------------------------------------------------------- schema


def _read_whole(value: object) -> object:
    """Read `4000`, `4e3` and `4000.0` alike; the schema refuses any other text."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return int(value)
        with contextlib.suppress(ValueError):
            number = float(value)
            return int(number) if number.is_integer() else value
    return value


def _read_flag(value: object) -> object:
    """Read the words of YAML for true and false; the schema refuses any other text."""
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def _refuse_empty(value: object) -> object:
    if value == "":
        raise ValueError("must not be empty")
    return value


Whole = Annotated[int, BeforeValidator(_read_whole)]
Count = Annotated[Whole, Field(ge=1)]
Flag = Annotated[bool, Strict(), BeforeValidator(_read_flag)]
Text = Annotated[str, BeforeValidator(_refuse_empty)]
File = Annotated[Path, BeforeValidator(_refuse_empty), PlainSerializer(Path.as_posix)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]

Decoder = Literal["bahdanau", "luong", "none"]
Score = Literal["additive", "dot", "general", "concat", "scaled_dot"]


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
    size: Annotated[Whole, Field(ge=16)] = 8000  # pieces of each vocabulary, special ones included
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
    embedding_size: Count = 256  # of both languages
    bidirectional: Flag = True  # each direction of the encoder then has half of hidden_size
    hidden_size: Count = 512  # of the decoder and of the encoder's outputs
    attention_size: Count | None = None  # additive, concat, scaled_dot only; null: hidden_size // 2
    num_layers: Count = 1  # of the encoder and of the decoder
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
        info.context.notes.append(f"model.{key}: {_show(value)} is ignored: {reason}")
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
    document = _read_document(path)
    mistakes = document.mistakes
    origin = _Origin()
    for override in overrides:
        try:
            origin.overridden.add(_apply_override(document.tree, override))
        except ValueError as error:
            mistakes.append(_Mistake(None, f"{override} (command line): {error}", True))
    for key, info in Config.model_fields.items():
        if _section_class(info.annotation) and document.tree.get(key) is None:
            document.tree[key] = {}
    try:
        config = Config.model_validate(document.tree, context=origin)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            mistake = _describe(details, document.lines, origin.overridden)
            if mistake.command_line or not document.broken:
                mistakes.append(mistake)
    if mistakes:
        raise ConfigError(_summary(path, mistakes))
    return config, origin.notes


def dump_config(config: Config) -> str:
    """Write every key as YAML, in the order of the schema; `load_config` reads an equal config."""
    tree = config.model_dump()
    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=10_000))


def changed_keys(old: Config, new: Config) -> list[str]:
    """Say which keys differ that must not when a run is resumed, as `model.dropout: 0.3 -> 0.2`.

    Left out are the folder, the test data, logging, decoding and the length of training; but a rate
    that falls linearly or as a cosine depends on max_epochs and max_steps from the first update.
    """
    free = {"run_dir", "data.test", "decoding", "training.max_minutes"}
    free |= {"training.patience", "training.log_every"}
    if new.training.decay not in ("linear", "cosine"):
        free |= {"training.max_epochs", "training.max_steps"}
    before, after = dict(_leaves(old.model_dump())), dict(_leaves(new.model_dump()))
    return [
        f"{'.'.join(path)}: {_show(before.get(path))} -> {_show(after.get(path))}"
        for path in {**before, **after}
        if before.get(path) != after.get(path)
        and free.isdisjoint(".".join(path[:end]) for end in range(1, len(path) + 1))
    ]


def _leaves(tree: Tree, above: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


# ---------------------------------------------------------------------------------------- reading


_PLAIN_TAGS = ("str", "map", "seq")
_NULLS = ("", "~", "null", "Null", "NULL")


class _Mistake(NamedTuple):
    """One line of a ConfigError, and the line of the YAML file that it is about."""

    line: int | None
    text: str
    command_line: bool = False


@dataclass
class _Origin:
    """Which keys the command line set, and the notes gathered while the config was checked."""

    overridden: set[KeyPath] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


@dataclass
class _Document:
    """The YAML file: text by key, the line of each key (from 1), and what was wrong so far."""

    tree: Tree = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)
    mistakes: list[_Mistake] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)  # nodes read, to tell an alias by
    broken: bool = False  # not all of it could be read


def _read_document(path: Path) -> _Document:
    document = _Document()
    try:
        # The plainest of PyYAML's loaders: it makes no objects, and each scalar stays text.
        root = yaml.compose(_read_text(path), Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        column = f"column {mark.column + 1}: " if mark else ""
        text = f"{column}this is not YAML: {error.problem or error.context}"
        document.mistakes.append(_Mistake(mark.line + 1 if mark else None, text))
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        document.mistakes.append(_Mistake(None, f"this is not YAML: {reason}"))
    else:
        if isinstance(root, yaml.MappingNode):
            document.tree = _read_mapping(root, (), document)
            return document
        reason = "it is empty" if root is None else "its top level is not `key: value` lines"
        document.mistakes.append(
            _Mistake(None, f"{reason}; a config has lines such as `name: my-run`")
        )
    document.broken = True
    return document


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        names = [entry.name for entry in _entries(path.parent)]
        raise ConfigError(f"{path}: no such file{_did_you_mean(path.name, names)}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = error.object[error.start]
        reason = f"line {line}: byte 0x{byte:02x} is not UTF-8; save the file as UTF-8"
        raise ConfigError(f"{path}: {reason}") from None
    except OSError as error:
        reason = "is a folder, not a config file" if path.is_dir() else str(error.strerror)
        raise ConfigError(f"{path}: {reason}") from None


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read_mapping(node: yaml.MappingNode, above: KeyPath, document: _Document) -> Tree:
    """Turn a YAML mapping into a dict; a key set twice, a tag and an alias become mistakes."""
    tree: Tree = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.mistakes.append(_Mistake(line, "a key is a single word"))
            continue
        path = (*above, key_node.value)
        if path in document.lines:
            first = document.lines[path]
            text = f"{'.'.join(path)}: set twice, first on line {first}; keep one of the two"
            document.mistakes.append(_Mistake(line, text))
            continue
        document.lines[path] = line
        tree[key_node.value] = _read_value(value_node, path, document)
    return tree


def _read_value(node: yaml.Node, path: KeyPath, document: _Document) -> object:
    """Turn a YAML value into text, None, a dict or a list, whatever type it looks like."""
    if id(node) in document.seen or node.tag.removeprefix("tag:yaml.org,2002:") not in _PLAIN_TAGS:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        what = "an alias (*)" if id(node) in document.seen else f"the tag {tag}"
        text = f"{'.'.join(path)}: {what} is not read here; write the value itself"
        document.mistakes.append(_Mistake(document.lines[path], text))
        document.broken = True
        return None
    document.seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        return _read_mapping(node, path, document)
    if isinstance(node, yaml.ScalarNode):
        return None if node.style is None and node.value in _NULLS else str(node.value)
    return []  # a list, whatever is in it: no key takes one, and the schema says so


def _apply_override(tree: Tree, override: str) -> KeyPath:
    """Set the key that `section.key=value` names and return its path, or raise ValueError."""
    keys, equals, value = override.partition("=")
    path, value = tuple(keys.strip().split(".")), value.strip()
    if not equals or not all(path):
        raise ValueError("an override is written section.key=value, such as model.dropout=0.2")
    section = tree
    for depth, key in enumerate(path[:-1], start=1):
        if section.get(key) is None:
            section[key] = {}
        below = section[key]
        if not isinstance(below, dict):
            raise ValueError(f"{'.'.join(path[:depth])} is a single value and has no keys")
        section = below
    section[path[-1]] = None if value in _NULLS else value
    return path


# ---------------------------------------------------------------------------------------- mistakes


_REASONS = {
    "missing": "missing; it has no default",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "path_type": "must be a file name",
    "model_type": "must be a section, with keys of its own",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
}


def _describe(
    details: ErrorDetails, lines: dict[KeyPath, int], overridden: set[KeyPath]
) -> _Mistake:
    """Say in a newcomer's words what pydantic found wrong with a value, and where it was set."""
    path: KeyPath = tuple(str(key) for key in details["loc"])
    kind, value, bounds = details["type"], details["input"], details.get("ctx", {})
    typed = any(override[: len(path)] == path for override in overridden)
    if kind == "extra_forbidden":
        reason = f"unknown key{_suggest_key(path)}"
    else:
        reason = _REASONS.get(kind, details["msg"]).format(**bounds)
        if kind == "value_error" and value is None:
            path = path[:-1]  # nobody wrote that key: the mistake is its section's
        elif kind != "missing" and value != "":
            reason += f"; got {_show(value)}"
        if kind == "literal_error":
            reason += _did_you_mean(str(value), re.findall(r"'(.+?)'", bounds["expected"]))
    where = ".".join(path) + (" (command line)" if typed else "")
    return _Mistake(None if typed else lines.get(path), f"{where}: {reason}", typed)


def _suggest_key(path: KeyPath) -> str:
    """Name the key that was probably meant: one of the same section, or the same name elsewhere."""
    *above, key = path
    section: type[BaseModel] = Config
    for name in above:
        section = _section_class(section.model_fields[name].annotation) or section
    known = {
        name: f"{parent}.{name}"
        for parent, info in Config.model_fields.items()
        for name in getattr(_section_class(info.annotation), "model_fields", ())
    }
    known |= {name: name for name in section.model_fields}
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean '{known[close[0]]}'?" if close else ""


def _section_class(annotation: object) -> type[Section] | None:
    """The section class of a field's type, `ParallelFiles | None` included; None: a plain value."""
    for option in (annotation, *get_args(annotation)):
        if isinstance(option, type) and issubclass(option, Section):
            return option
    return None


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def _show(value: object) -> str:
    """Print a value of the YAML file as it would be written there, cut where it is long."""
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = value.as_posix() if isinstance(value, Path) else str(value)
    text = text if text.isprintable() and text else repr(text)
    return text if len(text) <= 60 else text[:57] + "..."


def _summary(path: Path, mistakes: list[_Mistake]) -> str:
    ordered = sorted(mistakes, key=lambda mistake: (mistake.line is None, mistake.line or 0))
    count = f"{len(ordered)} mistake{'s' if len(ordered) > 1 else ''}"
    lines = [
        f"  line {mistake.line}: {mistake.text}" if mistake.line else f"  {mistake.text}"
        for mistake in ordered
    ]
    return "\n".join([f"{path}: {count}", *lines])
