"""Config of a run: a YAML file and `section.key=value` overrides become a complete `Config`.

YAML scalars are read as text and take their type from the schema alone: `3e-4` is a number where a
number is expected, and `no` (Norwegian) remains a language code. Only an unquoted `null`, `~` or an
empty value means None.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import yaml
from pydantic import Field, ValidationError, ValidationInfo, field_validator

from seq2seq.config import fields
from seq2seq.config.corpora import Corpus as Corpus
from seq2seq.config.corpora import DataConfig as DataConfig
from seq2seq.config.corpora import ParallelFiles as ParallelFiles
from seq2seq.config.corpora import VocabularyConfig as VocabularyConfig
from seq2seq.config.decoding import DecodingConfig as DecodingConfig
from seq2seq.config.document import Tree, read_document
from seq2seq.config.errors import ConfigError, ConfigIssue, Places, describe_all, summary
from seq2seq.config.fields import FilePath, Int, NonEmptyStr, Section, key
from seq2seq.config.model import ATTENTIONAL
from seq2seq.config.model import ModelConfig as ModelConfig
from seq2seq.config.overrides import apply_override
from seq2seq.config.training import TrainingConfig as TrainingConfig
from seq2seq.runtime import argument_types, console, errors

VARIANTS = "variants"  # key of the files that `seq2seq compare` reads
SCHEMA_TITLE = "Config of seq2seq"
# pydantic's words for limits of strict integers, those of JSON Schema, and those for a reader.
_BOUNDS = {
    "ge": ("minimum", "at least"),
    "gt": ("exclusiveMinimum", "above"),
    "le": ("maximum", "at most"),
    "lt": ("exclusiveMaximum", "below"),
}
_LENGTH = ("training.max_epochs", "training.max_steps")
_FREE = (
    "run_dir.",
    "data.test.",
    "decoding.",
    "vocabulary.model.",  # checksums of the vocabulary are recorded
    "vocabulary.names.list.",
    "training.max_minutes.",
    "training.patience.",
    "training.metric.min_improvement.",
    "training.keep.",
    "training.save_every.",
    "training.log_every.",
    "training.batch_workers.",
)
# Keys of the content of a text, of which the training state records a checksum.
_TEXT = re.compile(r"data\.(train|valid)\.([0-9]+\.)?(src|tgt|file|columns|tag|alignment)")
Schema = dict[str, Any]
_UNBOUNDED = 2**62  # larger bounds say nothing to a reader
_TYPES = {"boolean": "`true`, `false`", "string": "text", "null": "`null`", "array": "list"}


class Config(Section):
    """Complete settings of a run, with decoder-dependent defaults resolved."""

    name: NonEmptyStr = Field(description="name of the run in logs and plots")
    run_dir: FilePath = Field(description="run folder, relative to the working directory")
    seed: Annotated[Int, Field(ge=0, lt=2**63)] = key(1, "seed of all randomness")
    data: DataConfig
    vocabulary: VocabularyConfig = VocabularyConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig
    decoding: DecodingConfig = DecodingConfig()

    @field_validator("model")
    @classmethod
    def _check_copying(cls, model: ModelConfig, info: ValidationInfo) -> ModelConfig:
        vocabulary = info.data.get("vocabulary")
        if model.copy and vocabulary is not None and not vocabulary.joint:
            needed = "vocabulary.joint: true, for source and target to share ids"
            raise ValueError(f"copy needs {needed}")
        return model

    @field_validator("training")
    @classmethod
    def _check_consistency(cls, training: TrainingConfig, info: ValidationInfo) -> TrainingConfig:
        model = info.data.get("model")
        if model is not None and training.losses.consistency > 0:
            if not any(rate for _, rate in model.dropout):
                needed = "model.dropout above 0; both passes are equal"
                raise ValueError(f"losses: consistency needs {needed}")
            if model.copy:
                raise ValueError("losses: consistency is not for model.copy; set one of them alone")
        with_coverage = model is None or (model.score and model.score.name == "coverage")
        if training.losses.coverage > 0 and not with_coverage:
            raise ValueError("losses: coverage needs model.score: coverage")
        if training.losses.guided_alignment > 0:
            _check_guided(info.data)
        return training

    @field_validator("decoding")
    @classmethod
    def _fit_to_model(cls, decoding: DecodingConfig, info: ValidationInfo) -> DecodingConfig:
        """Turn off what needs attention if the model has none; refuse it on the command line."""
        model = info.data.get("model")
        if model is None or model.decoder != "none":
            return decoding
        for name in ("coverage_penalty", "replace_unknown"):
            if value := getattr(decoding, name):
                reason = f"decoder none has no attention for {name}"
                fields.ignore(("decoding", name), value, reason, info)
        return replace(decoding, coverage_penalty=0.0, replace_unknown=False)


def _check_guided(sections: dict[str, Any]) -> None:
    """Raise ValueError if the keys before `training` do not allow guided alignment."""
    data, vocabulary, model = (sections.get(name) for name in ("data", "vocabulary", "model"))
    if model is not None and model.decoder == "none":
        needed = f"attention; set decoder to one of {ATTENTIONAL}"
        raise ValueError(f"losses: guided_alignment needs {needed}")
    if vocabulary is not None and vocabulary.names:
        needed = "vocabulary.names: null, which keeps all words"
        raise ValueError(f"losses: guided_alignment needs {needed}")
    if data is not None and not any(corpus.alignment for corpus in data.train):
        needed = "a file of alignments, data.train.alignment"
        raise ValueError(f"losses: guided_alignment needs {needed}")


class LoadedConfig(NamedTuple):
    """A config, and notes on keys of its file that have no effect with the decoder."""

    config: Config
    notes: list[str]


def load_config(path: Path | str, overrides: Iterable[str] = ()) -> Config:
    """Read a YAML file, apply overrides such as `model.dropout=0.2`, and validate the result.

    The last override of a key wins; its value is taken literally, `null` means None. Notes on keys
    that have no effect with the decoder go to the logger `seq2seq`. Raises ConfigError with every
    issue of the file and of the overrides at once, and TypeError for overrides of another type.
    """
    config, notes = read_config_file(path, overrides)
    for note in notes:
        console.logger.info(f"note: {note}")
    return config


def read_config_file(path: Path | str, overrides: Iterable[str] = ()) -> LoadedConfig:
    """Return the config as `load_config` does, and its notes, which are not logged."""
    path = Path(path)
    overrides = argument_types.text_list(overrides, "overrides", "such as ['model.dropout=0.2']")
    document = read_document(path)
    errors.remember_config(path)
    if VARIANTS in document.tree:
        raise ConfigError(f"{path}: has the key {VARIANTS}; use it with `seq2seq compare`")
    issues = document.issues
    context = fields.LoadContext()
    for override in overrides:
        try:
            context.overridden.add(apply_override(document.tree, override, Config))
        except ValueError as error:
            issues.append(ConfigIssue(None, f"{override} (override): {error}", True))
    for name, info in Config.model_fields.items():
        if fields.section_class(info.annotation) and document.tree.get(name) is None:
            document.tree[name] = {}
    try:
        config = Config.model_validate(document.tree, context=context)
    except ValidationError as error:
        places = Places(document.lines, context.overridden)
        issues += [
            issue
            for issue in describe_all(error, Config, places)
            if issue.command_line or not document.incomplete
        ]
    if issues:
        raise ConfigError(*summary(path, issues), issues=issues)
    return LoadedConfig(config, context.notes)


def dump_config(config: Config) -> str:
    """Return every key as YAML, in the order of the schema; `load_config` reads an equal config."""
    tree = config.model_dump()
    return str(yaml.dump(tree, None, _Dumper, sort_keys=False, allow_unicode=True, width=10_000))


_Files = TypeVar("_Files", ParallelFiles, Corpus)


def with_paths(config: Config, change: Callable[[Path], Path]) -> Config:
    """Return a config whose paths of run folder, data and models are what `change` returns."""

    def changed(files: _Files) -> _Files:
        return files.model_copy(update={key: change(path) for key, path in files.paths.items()})

    data = config.data
    vocabulary = config.vocabulary
    files = {
        "train": tuple(map(changed, data.train)),
        "valid": changed(data.valid),
        "test": data.test and changed(data.test),
    }
    updates: dict[str, object] = {"model": tuple(map(change, vocabulary.model))}
    if vocabulary.names is not None and vocabulary.names.list is not None:
        path = change(vocabulary.names.list)
        updates["names"] = vocabulary.names.model_copy(update={"list": path})
    changes = {
        "data": data.model_copy(update=files),
        "run_dir": change(config.run_dir),
        "vocabulary": vocabulary.model_copy(update=updates),
    }
    return config.model_copy(update=changes)


def changed_keys(old: Config, new: Config) -> list[str]:
    """List the changed keys that a resumed run must keep, as `model.dropout: 0.3 -> 0.2`.

    With a linear or cosine learning rate max_epochs and max_steps are among them.
    """
    return changed_since(recorded_keys(old), new)


def recorded_keys(config: Config) -> dict[str, object]:
    """Return the keys that a resumed run must keep: JSON values by dotted key."""
    values = leaves(config.model_dump(mode="json"))
    return {
        key: value
        for key, value in values.items()
        if not (f"{key}.".startswith(_FREE) or _TEXT.fullmatch(key))
    }


def changed_since(recorded: Mapping[str, object], new: Config) -> list[str]:
    """List, as `changed_keys` does, the keys that differ from recorded ones."""
    now = recorded_keys(new)
    free_keys = () if new.training.decay.name in ("linear", "cosine") else _LENGTH
    return [
        f"{key}: {fields.show(recorded.get(key))} -> {fields.show(now.get(key))}"
        for key in {**recorded, **now}
        if recorded.get(key) != now.get(key) and key not in free_keys
    ]


def leaves(tree: Tree, parent: str = "") -> dict[str, object]:
    """Return the keys with a value, by their dotted names; entries of lists count from 1."""
    values: dict[str, object] = {}
    for name, value in tree.items():
        if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            value = {str(number): entry for number, entry in enumerate(value, start=1)}
        values |= (
            leaves(value, f"{parent}{name}.") if isinstance(value, dict) else {parent + name: value}
        )
    return values


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a config file, with the description and default of every key."""
    schema: dict[str, Any] = _in_standard_words(Config.model_json_schema())
    schema["title"] = SCHEMA_TITLE
    texts = schema["$defs"]["DataConfig"]["properties"]
    as_list = {key: texts["train"].pop(key) for key in ("type", "items")}
    texts["train"]["anyOf"] = [as_list["items"], as_list]
    return schema


def _in_standard_words(schema: Any) -> Any:
    """Replace the limits that pydantic writes by its own names."""
    if isinstance(schema, list):
        return [_in_standard_words(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {_BOUNDS.get(key, [key])[0]: _in_standard_words(part) for key, part in schema.items()}


def section_of(value: Schema, schema: Schema) -> Schema | None:
    """Return the section that a key holds, one or a list of them; None for a plain value."""
    for option in (value, value.get("items", {}), *value.get("anyOf", ())):
        if "$ref" in option:
            section = _defined(option, schema)
            return section if "properties" in section else None  # else it may be a single value
    return None


def values_of(value: Schema, schema: Schema) -> str:
    """Describe the values that a key takes."""
    value = _defined(value, schema)
    if "anyOf" in value:
        return "; or ".join(values_of(option, schema) for option in value["anyOf"])
    if "enum" in value:
        return ", ".join(f"`{name}`" for name in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if value.get("format") == "path":
        return "path"
    kind = value["type"]
    if isinstance(kind, list):
        return " or ".join(values_of({**value, "type": name}, schema) for name in kind)
    if kind == "object":
        keys = [f"{name}: ..." for name in value["properties"]]
        maps = keys if value.get("maxProperties") == 1 else [", ".join(keys)]
        return " or ".join(f"`{{{text}}}`" for text in maps)
    bounds = [
        f"{word} {value[name]:,}"
        for name, word in _BOUNDS.values()
        if abs(value.get(name, _UNBOUNDED)) < _UNBOUNDED
    ]
    return ", ".join([_TYPES.get(kind, str(kind)), *bounds])


def _defined(value: Schema, schema: Schema) -> Schema:
    """Return the definition that a schema refers to, or the schema itself."""
    return schema["$defs"][value["$ref"].rpartition("/")[2]] if "$ref" in value else value


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes text doubly if single quotes would turn a character into a line break."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if "\x85" in text else None
    ),
)
