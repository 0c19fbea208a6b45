"""Base classes of the config's sections, and the types of their values."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args

import pydantic
import yaml
from pydantic import BeforeValidator, Field, PlainSerializer
from pydantic_core import core_schema

from seq2seq.config.search_options import Bounds
from seq2seq.runtime import errors, files

KeyPath = tuple[str, ...]
SIMILAR = 0.75  # least likeness of a key that is meant


@dataclass
class LoadContext:
    """Keys set on the command line, and the notes collected during validation."""

    overridden: set[KeyPath] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


class Section(pydantic.BaseModel):
    """Section of the config: frozen, without unknown keys, its defaults validated like values.

    A check across keys belongs to the last of them and is skipped if an earlier one is invalid, so
    that a single load reports every error once.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Shorthand(Section):
    """Section that may be written as a single value.

    The value is that of all keys in `SHARED`, as in `layers: 2`. Without such keys it is that of
    the first, and a map of it has the second: `optimizer: adamw`, `optimizer: {adamw: 0.01}`.
    """

    SHARED: ClassVar[tuple[str, ...]] = ()
    TAKES_SECOND: ClassVar[tuple[str, ...]] = ()  # values of the first that take the second

    @pydantic.model_validator(mode="before")
    @classmethod
    def _expand(cls, value: object) -> object:
        return cls.expand(value)

    @classmethod
    def expand(cls, value: object) -> object:
        """Return the keys that a value sets, or an instance as it is."""
        if isinstance(value, cls):
            return value
        first, *rest = cls.model_fields
        if not isinstance(value, Mapping):
            return dict.fromkeys(cls.SHARED or [first], value)
        names = [name for name in value if name not in cls.model_fields]
        if cls.SHARED or first in value or not names:
            return value
        if len(value) > 1:
            raise ValueError(f"takes one {first}, such as {show(dict([*value.items()][:1]))}")
        if meant := errors.did_you_mean(str(names[0]), cls.model_fields, SIMILAR):
            raise ValueError(f"has no key {show(names[0])}{meant}")
        return {first: names[0], rest[0]: value[names[0]]}

    @classmethod
    def opened(cls, value: object, name: str) -> object:
        """Return the map to which an override adds a key: empty if that replaces the value."""
        if name in cls.model_fields:
            return cls.expand(value)
        return value if cls.SHARED else {}

    @pydantic.model_validator(mode="after")
    def _check_second(self) -> Self:
        (_, first), *rest = self
        if self.TAKES_SECOND and first not in self.TAKES_SECOND:
            name, value = rest[0]
            if value != type(self).model_fields[name].default:
                raise ValueError(f"{name} belongs to {' and '.join(self.TAKES_SECOND)}")
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: core_schema.CoreSchema, handler: pydantic.GetJsonSchemaHandler
    ) -> dict[str, Any]:
        complete = {**handler.resolve_ref_schema(handler(core))}
        descriptions = {name: complete.pop(name) for name in ("title", "description")}
        keys = complete["properties"]
        first, *rest = keys
        hidden = ("title", "default", "description")
        single = {
            name: value
            for name, value in keys[cls.SHARED[0] if cls.SHARED else first].items()
            if name not in hidden
        }
        if cls.SHARED:
            return {**descriptions, "anyOf": [single, complete]}
        second = {name: value for name, value in keys[rest[0]].items() if name != "title"}
        pair: dict[str, Any] = {
            "type": "object",
            "properties": dict.fromkeys(cls.TAKES_SECOND or single["enum"], second),
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }
        return {**descriptions, "anyOf": [single, pair, complete]}


def section_class(annotation: object) -> type[Section] | None:
    """Return the section class in a field's type (also in `Section | None`), if there is one."""
    for option in (annotation, *get_args(annotation)):
        if isinstance(option, type) and issubclass(option, Section):
            return option
    return None


def section_at(schema: type[Section], path: KeyPath) -> type[Section] | None:
    """Return the class of the section at a path, None for a key with a value or an unknown one."""
    section: type[Section] | None = schema
    for name in path:
        if section is not None and not name.isdecimal():  # the number of an entry of a list
            info = section.model_fields.get(name)
            section = info and section_class(info.annotation)
    return section


def show(value: object) -> str:
    """Format a value on one line as in YAML; text and paths are shortened to 60 characters."""
    if isinstance(value, pydantic.BaseModel):
        value = value.model_dump()
    if isinstance(value, Mapping | list | tuple):
        return show_flow(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = value.as_posix() if isinstance(value, Path) else str(value)
    return errors.shorten(text if text.isprintable() and text else repr(text))


def show_flow(value: Mapping[Any, Any] | Sequence[Any]) -> str:
    """Format a map or a list on one line, as YAML does."""
    tree = dict(value) if isinstance(value, Mapping) else list(value)
    text: str = yaml.safe_dump(
        tree, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000
    )
    return text.strip()


def key(default: Any, description: str) -> Any:
    """Declare a key with its default and its description in the JSON schema."""
    return Field(default, description=description)


def within(bounds: Bounds) -> Any:
    """Restrict a number to the bounds of an option of search."""
    return Field(gt=bounds.above, ge=bounds.least, le=bounds.most)


def ignore(path: KeyPath, value: object, reason: str, info: pydantic.ValidationInfo) -> None:
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
    if isinstance(value, str) and files.LONE_SURROGATE.search(value):
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
Bool = Annotated[bool, pydantic.Strict(), BeforeValidator(_parse_bool)]
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
