"""Values that are one word or number, or a map if there is more to say.

`layers: 2` means `layers: {encoder: 2, decoder: 2}`, and `window: local_p` for
`window: {local_p: 10}`, a choice with its parameter. An override writes a map as YAML does:
`'model.layers={encoder: 1, decoder: 4}'`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import yaml
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from seq2seq.config.errors import show

REQUIRED = object()  # as the default of a choice's parameter


class Compound:
    """Reads a value of one word, or a map, as a named tuple, and writes it back as short."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            lambda value: value if isinstance(value, tuple) else self.read(as_map_of(value)),
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(self.dump),
        )

    def __get_pydantic_json_schema__(
        self, _schema: core_schema.CoreSchema, _handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return self.json_schema()

    def read(self, value: object) -> object:
        """Return the fields of the named tuple; raise ValueError for another form."""
        raise NotImplementedError

    def dump(self, value: Any) -> object:
        """Return the value as a config file writes it."""
        raise NotImplementedError

    def as_map(self, value: object) -> object:
        """Return the map, as text of a config file, to which an override adds a field."""
        raise NotImplementedError

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of both forms."""
        raise NotImplementedError


def as_map_of(value: object) -> object:
    """Return the map written as text in braces, or the value itself.

    Raises ValueError for a key that is set twice, and a value that is nested too deeply.
    """
    if not (isinstance(value, str) and value.startswith("{")):
        return value
    try:
        node = yaml.compose(value, Loader=yaml.BaseLoader)
        assert isinstance(node, yaml.MappingNode), "starts with a brace"
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if repeated := [key for key, count in keys.items() if count > 1]:
            raise ValueError(f"{repeated[0]} is set twice; remove one of the two")
        return yaml.BaseLoader(value).get_single_data()
    except yaml.YAMLError:
        return value
    except RecursionError:
        raise ValueError("is nested too deeply") from None


@dataclass(frozen=True, eq=False)
class OneOrEach(Compound):
    """One value for all fields of a named tuple, or a map of some, whose others have defaults.

    A single value leaves the fields `apart` at their defaults.
    """

    defaults: Mapping[str, object]
    schema: Mapping[str, Any]  # JSON schema of a field
    example: str
    apart: tuple[str, ...] = ()

    def read(self, value: object) -> object:
        """Return the fields of the named tuple; raise ValueError for another key."""
        if not isinstance(value, Mapping):
            return {**self.defaults, **dict.fromkeys(self._together(), value)}
        if unknown := [str(name) for name in value if name not in self.defaults]:
            raise ValueError(f"has no {unknown[0]}; write a single value, or {self.example}")
        return {**self.defaults, **value}

    def dump(self, value: Any) -> object:
        """Return one value if all fields have it, or a map."""
        fields: dict[str, object] = value._asdict()
        values = {fields[name] for name in self._together()}
        own = [name for name in self.apart if fields[name] == self.defaults[name]]
        if len(values) == 1 and len(own) == len(self.apart):
            return values.pop()
        return {name: each for name, each in fields.items() if name not in own}

    def as_map(self, value: object) -> object:
        """Return a map with the fields of a single value, or the map itself."""
        value = as_map_of(value)
        return value if isinstance(value, Mapping) else dict.fromkeys(self._together(), value)

    def _together(self) -> list[str]:
        """Return the fields that a single value sets."""
        return [name for name in self.defaults if name not in self.apart]

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of both forms."""
        return _either(self.schema, dict.fromkeys(self.defaults, self.schema))


@dataclass(frozen=True, eq=False)
class Choice(Compound):
    """A named choice, or a map of it to its parameter; the fields of a named tuple of two."""

    defaults: Mapping[str, object]  # parameter of each choice; REQUIRED, or None without one
    schema: Mapping[str, Any]  # JSON schema of the parameter
    example: str

    def read(self, value: object) -> object:
        """Return the fields of the named tuple; raise ValueError for a wrong parameter."""
        valid = [each for each in self.defaults.values() if each is not REQUIRED]
        any_parameter = None if None in valid else [*valid, 1][0]
        name, parameter = value, self.defaults.get(str(value), any_parameter)
        if isinstance(value, Mapping):
            if len(value) != 1:
                raise ValueError(f"takes one choice with its parameter, such as {self.example}")
            ((name, parameter),) = value.items()
            if self.defaults.get(name, any_parameter and REQUIRED) is None:
                raise ValueError(f"{name} has no parameter; write it alone")
        elif parameter is REQUIRED:
            raise ValueError(f"needs a parameter, such as {self.example}")
        return name, parameter

    def dump(self, value: Any) -> object:
        """Return the choice alone if its parameter is the default, or a map."""
        name, parameter = value
        return name if parameter == self.defaults.get(name) else {name: parameter}

    def as_map(self, _value: object) -> object:
        """Return an empty map: another choice replaces the value."""
        return {}

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of both forms."""
        alone = [name for name, default in self.defaults.items() if default is not REQUIRED]
        with_parameter = [name for name, default in self.defaults.items() if default is not None]
        schema = _either({"enum": alone}, dict.fromkeys(with_parameter, self.schema))
        schema["anyOf"][1] |= {"minProperties": 1, "maxProperties": 1}
        return schema


class Named(str):
    """A named choice, equal to its name in comparisons with text, with its parameter."""

    __slots__ = ("parameter",)
    parameter: Any

    def __new__(cls, name: str, parameter: object = None) -> "Named":
        named = super().__new__(cls, name)
        named.parameter = parameter
        return named

    def __getnewargs__(self) -> tuple[str, Any]:  # type: ignore[override]
        return str(self), self.parameter

    def __eq__(self, other: object) -> bool:
        same = not isinstance(other, Named) or self.parameter == other.parameter
        return same and str.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, _handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.str_schema()  # for defaults in the JSON schema


@dataclass(frozen=True, eq=False)
class NamedChoice(Choice):
    """A choice that is read as `Named`; `pair` is a named tuple with the types of both fields."""

    pair: Any

    def __get_pydantic_core_schema__(
        self, _source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        validated = core_schema.no_info_after_validator_function(
            lambda pair: Named(*pair), handler.generate_schema(self.pair)
        )
        return core_schema.no_info_before_validator_function(
            self.read,
            validated,
            serialization=core_schema.plain_serializer_function_ser_schema(self.dump),
        )

    def read(self, value: object) -> object:
        """Return name and parameter; raise ValueError for a wrong parameter."""
        if isinstance(value, Named):
            return str(value), value.parameter
        return super().read(as_map_of(value))

    def dump(self, value: Any) -> object:
        """Return the choice alone if its parameter is the default, or a map."""
        return super().dump((str(value), value.parameter))


def _either(single: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {"anyOf": [dict(single), fields]}


def show_map(value: Mapping[Any, Any] | Sequence[Any]) -> str:
    """Format a map or a list of single values on one line, as YAML does."""
    tree = dict(value) if isinstance(value, Mapping) else list(value)
    text: str = yaml.safe_dump(tree, default_flow_style=True, sort_keys=False, width=10_000)
    return text.strip()


def show_value(value: object) -> str:
    """Format any value of a key on one line, as YAML does."""
    return show_map(value) if isinstance(value, dict | list | tuple) else show(value)


def compound_of(annotation: object, metadata: Iterable[object] = ()) -> Compound | None:
    """Return the compound in the type of a key, also of `X | None`, if there is one."""
    options = [*metadata, *get_args(annotation)]
    options += [each for option in options for each in get_args(option)]
    return next((each for each in options if isinstance(each, Compound)), None)
