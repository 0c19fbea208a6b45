"""Base class of the config's sections, and the types of their values."""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    ValidationInfo,
)

from seq2seq.config.errors import show
from seq2seq.config.unknown_keys import KeyPath
from seq2seq.runtime.files import LONE_SURROGATE


@dataclass
class LoadContext:
    """Keys set on the command line, and the notes collected during validation."""

    overridden: set[KeyPath] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


class Section(BaseModel):
    """Section of the config: frozen, without unknown keys, its defaults validated like values.

    A check across keys belongs to the last of them and is skipped if an earlier one is invalid, so
    that a single load reports every error once.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def key(default: Any, description: str) -> Any:
    """Declare a key with its default and its description in the JSON schema."""
    return Field(default, description=description)


def ignore(path: KeyPath, value: object, reason: str, info: ValidationInfo) -> None:
    """Add a note that the YAML value is ignored; raise ValueError if the command line set it."""
    if not isinstance(info.context, LoadContext) or path in info.context.overridden:
        raise ValueError(reason)
    info.context.notes.append(f"{'.'.join(path)}: {show(value)} is ignored: {reason}")


def _parse_int(value: object) -> object:
    """Read `4000`, `4e3` and `4000.0` as integers; leave other text to the schema to refuse."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return int(value)
        with contextlib.suppress(ValueError):
            number = float(value)
            return int(number) if number.is_integer() else value
    return value


def read_auto(value: object) -> object:
    """Read the word `auto` as None, and refuse null, which means nothing here."""
    if value is None:
        raise ValueError("must be an integer, or auto")
    return None if value == "auto" else value


def dump_auto(value: object) -> object:
    """Write None as `auto`."""
    return "auto" if value is None else value


def _parse_bool(value: object) -> object:
    """Read YAML's words for true and false; leave other text to the schema to refuse."""
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def _check_text(value: object) -> object:
    """Refuse empty text and undecodable bytes of the command line, which no YAML can hold."""
    if value == "":
        raise ValueError("must not be empty")
    if isinstance(value, str) and LONE_SURROGATE.search(value):
        raise ValueError("is not UTF-8; use another name")
    return value


def check_path(value: object) -> object:
    """Refuse a NUL character; expand `~/` as a shell does."""
    if isinstance(value, str) and "\0" in value:
        raise ValueError("must not contain a NUL character")
    if not (isinstance(value, str) and value.startswith("~/")):
        return value
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError("cannot expand '~': no home directory; use an absolute path") from None


Int = Annotated[int, BeforeValidator(_parse_int)]
Count = Annotated[Int, Field(ge=1)]
CountOrZero = Annotated[Int, Field(ge=0)]
Size = Annotated[Int, Field(ge=1, le=65_536)]  # a larger layer exceeds any memory
Bool = Annotated[bool, Strict(), BeforeValidator(_parse_bool)]
NonEmptyStr = Annotated[str, BeforeValidator(_check_text)]
FilePath = Annotated[
    Path,
    BeforeValidator(check_path),
    BeforeValidator(_check_text),  # runs first
    PlainSerializer(Path.as_posix),
]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
