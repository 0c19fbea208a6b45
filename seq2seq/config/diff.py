"""What of two configs differs, and matters to a run that goes on."""

from collections.abc import Iterator, Mapping

from seq2seq.config.document import Tree
from seq2seq.config.errors import RENAMED, KeyPath, section_class, show
from seq2seq.config.schema import Config

_LENGTH = ("training.max_epochs", "training.max_steps")
_FREE = (
    "run_dir.",
    "data.test.",
    "decoding.",
    "training.max_minutes.",
    "training.patience.",
    "training.keep.",
    "training.log_every.",
    "training.memory_gb.",
    "training.deterministic.",
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
    recorded = {RENAMED.get(key, key): value for key, value in recorded.items()}
    unknown = {
        key: each for key, each in _defaults().items() if key in now.keys() - recorded.keys()
    }
    recorded = {**recorded, **unknown}
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
