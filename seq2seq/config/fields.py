"""The types of the config's single values: how their text is read, and what is allowed."""

import contextlib
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, Strict


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


def _refuse_bytes(value: object) -> object:
    """A command line can hold bytes that are no text, which no config file can say again."""
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError("is not UTF-8; give it another name")
    return value


def _refuse_nul(value: object) -> object:
    if isinstance(value, str) and "\0" in value:
        raise ValueError("no file name has a NUL character")
    return value


def _at_home(value: object) -> object:
    """`~/` is the home folder, as a shell has it."""
    if not (isinstance(value, str) and value.startswith("~/")):
        return value
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError("nobody knows the home folder here; write it out") from None


Int = Annotated[int, BeforeValidator(_read_whole)]
Count = Annotated[Int, Field(ge=1)]
Size = Annotated[Int, Field(ge=1, le=65_536)]  # beyond, no machine has the memory
Bool = Annotated[bool, Strict(), BeforeValidator(_read_flag)]
NonEmptyStr = Annotated[str, BeforeValidator(_refuse_empty), BeforeValidator(_refuse_bytes)]
FilePath = Annotated[
    Path,
    BeforeValidator(_at_home),
    BeforeValidator(_refuse_bytes),
    BeforeValidator(_refuse_empty),
    BeforeValidator(_refuse_nul),
    PlainSerializer(Path.as_posix),
]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
