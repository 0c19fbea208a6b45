"""Compare configs: the keys whose change prevents a run from being resumed."""

import re
from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from seq2seq.config.compound import Compound, show_value
from seq2seq.config.document import Tree
from seq2seq.config.schema import Config
from seq2seq.config.unknown_keys import KeyPath, section_class

_LENGTH = ("training.max_epochs", "training.max_steps")
_FREE = (
    "run_dir.",
    "data.test.",
    "data.embeddings.",  # read at the start of a run alone
    "decoding.",
    "vocabulary.model.",  # checksums of the vocabulary are recorded
    "training.max_minutes.",
    "training.patience.",
    "training.keep.",
    "training.save_every.",
    "training.log_every.",
    "training.batch_workers.",
)
# Keys of the content of a text, of which the training state records a checksum.
_TEXT = re.compile(r"data\.(train|valid)\.([0-9]+\.)?(src|tgt|file|columns|tag|alignment)")


def changed_keys(old: Config, new: Config) -> list[str]:
    """List the changed keys that a resumed run must keep, as `model.dropout: 0.3 -> 0.2`.

    The run folder, the files of the texts, logging, decoding and length of training may change; but
    a linear or cosine learning rate depends on max_epochs and max_steps from the first step on.
    """
    return changed_since(recorded_keys(old), new)


def recorded_keys(config: Config) -> dict[str, object]:
    """Return the keys that a resumed run must keep: JSON values by dotted key."""
    leaves = {".".join(path): value for path, value in _leaves(config.model_dump(mode="json"))}
    return {key: _fixed(key, value) for key, value in leaves.items() if not _is_free(key)}


def _fixed(key: str, value: object) -> object:
    """Return the part of a value that may not change: of the metric, its name."""
    return next(iter(value)) if key == "training.metric" and isinstance(value, dict) else value


def _is_free(key: str) -> bool:
    return f"{key}.".startswith(_FREE) or _TEXT.fullmatch(key) is not None


def changed_since(recorded: Mapping[str, object], new: Config) -> list[str]:
    """List, as `changed_keys` does, the keys that differ from recorded ones.

    A key that the recording version lacked counts as having had its default.
    """
    now = recorded_keys(new)
    recorded = {key: each for key, each in recorded.items() if not _is_free(key)}
    added = now.keys() - recorded.keys()
    recorded = {**recorded, **{key: value for key, value in _defaults() if key in added}}
    free = () if new.training.decay in ("linear", "cosine") else _LENGTH
    return [
        f"{key}: {show_value(recorded.get(key))} -> {show_value(now.get(key))}"
        for key in {**recorded, **now}
        if recorded.get(key) != now.get(key) and key not in free
    ]


def _defaults(schema: type[BaseModel] = Config, above: str = "") -> Iterator[tuple[str, object]]:
    for name, info in schema.model_fields.items():
        if (section := section_class(info.annotation)) is not None:
            yield from _defaults(section, f"{above}{name}.")
        elif not info.is_required():
            default = info.get_default()
            compound = (each for each in info.metadata if isinstance(each, Compound))
            yield f"{above}{name}", next((each.dump(default) for each in compound), default)


def _leaves(tree: Tree, above: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Yield the keys with a value; a map below a section other than `data` is one."""
    for key, value in tree.items():
        if isinstance(value, dict) and (not above or above[0] == "data"):
            yield from _leaves(value, (*above, key))
        elif isinstance(value, list) and all(isinstance(each, dict) for each in value):
            entries = {str(number): each for number, each in enumerate(value, start=1)}
            yield from _leaves(entries, (*above, key))
        else:
            yield (*above, key), value
