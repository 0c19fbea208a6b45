"""Compare configs: the keys whose change prevents a run from being resumed."""

import re
from collections.abc import Iterator, Mapping

from seq2seq.config.document import Tree
from seq2seq.config.fields import KeyPath, show
from seq2seq.config.schema import Config

_LENGTH = ("training.max_epochs", "training.max_steps")
_FREE = (
    "run_dir.",
    "data.test.",
    "decoding.",
    "vocabulary.model.",  # checksums of the vocabulary are recorded
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


def changed_keys(old: Config, new: Config) -> list[str]:
    """List the changed keys that a resumed run must keep, as `model.dropout: 0.3 -> 0.2`.

    The run folder, the files of the texts, logging, decoding and length of training may change; but
    a linear or cosine learning rate depends on max_epochs and max_steps from the first step on.
    """
    return changed_since(recorded_keys(old), new)


def recorded_keys(config: Config) -> dict[str, object]:
    """Return the keys that a resumed run must keep: JSON values by dotted key."""
    leaves = {".".join(path): value for path, value in _leaves(config.model_dump(mode="json"))}
    return {key: value for key, value in leaves.items() if not _is_free(key)}


def _is_free(key: str) -> bool:
    return f"{key}.".startswith(_FREE) or _TEXT.fullmatch(key) is not None


def changed_since(recorded: Mapping[str, object], new: Config) -> list[str]:
    """List, as `changed_keys` does, the keys that differ from recorded ones."""
    now = recorded_keys(new)
    free = () if new.training.decay.name in ("linear", "cosine") else _LENGTH
    return [
        f"{key}: {show(recorded.get(key))} -> {show(now.get(key))}"
        for key in {**recorded, **now}
        if recorded.get(key) != now.get(key) and key not in free
    ]


def _leaves(tree: Tree, above: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Yield the keys with a value."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        elif isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            entries = {str(number): entry for number, entry in enumerate(value, start=1)}
            yield from _leaves(entries, (*above, key))
        else:
            yield (*above, key), value
