"""What every section of the config is, and what is known of where its values come from."""

from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, ValidationInfo

from seq2seq.config.errors import KeyPath, show


@dataclass
class LoadContext:
    """Which keys the command line set, and the notes gathered while the config was checked."""

    overridden: set[KeyPath] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


class Section(BaseModel):
    """A part of the config: frozen, refuses unknown keys, checks its defaults like any value.

    A check that concerns several keys stands on the last of them and is left out where an earlier
    one was refused itself, so that one load reports every mistake and no mistake twice.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def ignore(path: KeyPath, value: object, reason: str, info: ValidationInfo) -> None:
    """Note that a value of the YAML file is ignored; refuse one that the command line set."""
    if not isinstance(info.context, LoadContext) or path in info.context.overridden:
        raise ValueError(reason)
    info.context.notes.append(f"{'.'.join(path)}: {show(value)} is ignored: {reason}")
