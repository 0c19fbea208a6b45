"""Values that are one word or number, or a map if there is more to say.

`layers: 2` means `layers: {encoder: 2, decoder: 2}`, and `window: local_p` for
`window: {local_p: 10}`, a choice with its parameter. An override writes a map as YAML does:
`'model.layers={encoder: 1, decoder: 4}'`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from seq2seq.config.errors import show
from seq2seq.config.fields import Count, Fraction, Size

REQUIRED = object()  # as the default of a choice's parameter


class Compound:
    """Reads a value of one word, or a map, as a named tuple, and writes it back as short."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            lambda value: value if isinstance(value, tuple) else self.read(_as_map(value)),
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

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of both forms."""
        raise NotImplementedError


def _as_map(value: object) -> object:
    """Return the map written as text in braces, or the value itself."""
    if not (isinstance(value, str) and value.startswith("{")):
        return value
    try:
        return yaml.load(value, Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        return value


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
        if len(values) == 1 and all(fields[name] == self.defaults[name] for name in self.apart):
            return values.pop()
        return fields

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
        any_parameter = next(each for each in self.defaults.values() if each is not REQUIRED)
        name, parameter = value, self.defaults.get(str(value), any_parameter)
        if isinstance(value, Mapping):
            if len(value) != 1:
                raise ValueError(f"takes one choice with its parameter, such as {self.example}")
            ((name, parameter),) = value.items()
            if self.defaults.get(name, REQUIRED) is None:
                raise ValueError(f"{name} has no parameter; write it alone")
        elif parameter is REQUIRED:
            raise ValueError(f"needs a parameter, such as {self.example}")
        return name, parameter

    def dump(self, value: Any) -> object:
        """Return the choice alone if its parameter is the default, or a map."""
        name, parameter = value
        return name if parameter == self.defaults[name] else {name: parameter}

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of both forms."""
        alone = [name for name, default in self.defaults.items() if default is not REQUIRED]
        with_parameter = [name for name, default in self.defaults.items() if default is not None]
        schema = _either({"enum": alone}, dict.fromkeys(with_parameter, self.schema))
        schema["anyOf"][1] |= {"minProperties": 1, "maxProperties": 1}
        return schema


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


class Layers(NamedTuple):
    """Numbers of layers of encoder and decoder."""

    encoder: Annotated[Count, Field(le=64)]
    decoder: Annotated[Count, Field(le=64)]


LAYERS = OneOrEach(
    {"encoder": 1, "decoder": 1},
    {"type": "integer", "minimum": 1, "maximum": 64},
    "{encoder: 2, decoder: 4}",
)


class DropoutConfig(NamedTuple):
    """Dropout probabilities of the parts of the network."""

    word: Fraction  # a token's complete embedding, in source and target
    embedding: Fraction  # each entry of the embeddings
    hidden: Fraction  # outputs of layers that other layers and the attention read
    output: Fraction  # the decoder's output layer


DROPOUT = OneOrEach(
    {"word": 0.0, "embedding": 0.3, "hidden": 0.3, "output": 0.3},
    {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    "{word: 0.1, embedding: 0.3, hidden: 0.3, output: 0.3}",
    apart=("word",),
)


class LocalWindow(NamedTuple):
    """Window of local attention: its kind, and the positions on each side of its centre."""

    kind: Literal["local_m", "local_p"]
    width: Size


_WIDTH = 10  # D of Luong et al. (2015), section 3.2
WINDOW = Choice(
    {"local_m": _WIDTH, "local_p": _WIDTH}, {"type": "integer", "minimum": 1}, "{local_p: 5}"
)
