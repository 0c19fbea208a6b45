"""Files of an engine, in a run folder and as an export, and the JSON file that describes them.

torch is not needed to read them. In a run folder they belong to the best weights, by checksum.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.source_profile import SourceProfile
from seq2seq.data.vocabulary.files import load_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.runs.exported_files import DESCRIPTION, VOCABULARY
from seq2seq.runtime import argument_types
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import check_paths, check_readable

FORMAT = 2  # version of the description
_DAMAGED = "export the run again"
_MAX_BYTES = 1 << 31  # of a graph, as protocol buffers allow
_MAX_DESCRIPTION = 1 << 24
_LARGEST = 1 << 20  # of the numbers of the description


class Files(NamedTuple):
    """Names of the two graphs of one model."""

    encoder: str
    decoder: str


@dataclass(frozen=True)
class Decoding:
    """The `decoding` section of a run's config."""

    beam_size: int
    length_penalty: float
    coverage_penalty: float
    no_repeat_ngram: int
    replace_unknown: bool
    max_length: int | None
    min_length: int
    repetition_penalty: float


class Description(NamedTuple):
    """Contents of the description that the runtime reads."""

    models: list[Files]
    int8: bool
    languages: tuple[str, str]  # codes of source and target
    limit: LengthLimit
    max_length: int
    decoding: Decoding
    decoding_schema: dict[str, Any]  # JSON Schema of each key of `decoding`
    source: SourceProfile
    vocabularies: dict[str, str]  # SHA-256 by stem
    sha256: dict[str, str]  # checksums of the graphs, by name

    @property
    def direction(self) -> str:
        """Return the languages as messages name them, such as "en to de"."""
        return " to ".join(self.languages)


def is_export(folder: Path) -> bool:
    """Return whether a folder holds an exported model."""
    check_paths(folder)
    with suppress(OSError):  # a folder that may not be searched is refused when it is read
        return (folder / DESCRIPTION).is_file()
    return False


def read_description(folder: Path) -> Description:
    """Read the description of an exported model; raises UserError if it is damaged."""
    path = folder / DESCRIPTION
    check_readable(path)
    try:
        stored = json.loads(path.read_bytes())
        if stored["format"] != FORMAT:
            raise UserError(
                f"{path}: has format {stored['format']}, and this version of seq2seq reads "
                f"{FORMAT}; {_DAMAGED} with this version"
            )
        return Description(
            [Files(**each) for each in stored["models"]],
            stored["int8"],
            (stored["src_lang"], stored["tgt_lang"]),
            LengthLimit(**stored["limit"]),
            stored["max_length"],
            Decoding(**stored["decoding"]),
            stored["decoding_schema"],
            SourceProfile(**stored["source"]),
            stored["vocabularies"],
            stored["sha256"],
        )
    except (KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: is damaged ({reason}); {_DAMAGED}") from None


def read_graph(folder: Path, name: str, checksum: str | None) -> bytes:
    """Read a graph; raises UserError if it is missing or damaged."""
    path = folder / name
    check_readable(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; {_DAMAGED}")
    content = read_bounded(path, _MAX_BYTES)
    if hashlib.sha256(content).hexdigest() != checksum:
        raise UserError(f"{path}: is damaged, its checksum differs from {DESCRIPTION}; {_DAMAGED}")
    return content


def read_vocabularies(folder: Path, description: Description) -> Vocabularies:
    """Load the vocabularies; raises UserError if they are missing or damaged."""
    return load_vocabularies(folder / VOCABULARY, checksums=description.vocabularies)


def overridden(description: Description, overrides: Iterable[str]) -> Decoding:
    """Return the decoding settings with overrides such as "decoding.length_penalty=0.6".

    Values are JSON, checked by the schema of the run's config. Raises UserError for other keys and
    for values that the schema refuses.
    """
    given: dict[str, Any] = {}
    for each in argument_types.text_list(overrides, "overrides", "such as decoding.beam_size=3"):
        name, _, text = each.partition("=")
        key = name.removeprefix("decoding.")
        if not name.startswith("decoding.") or key not in description.decoding_schema:
            keys = ", ".join(f"decoding.{each}" for each in description.decoding_schema)
            raise UserError(f"{each}: an exported model takes other values of these keys: {keys}")
        given[key] = _checked(each, text, description.decoding_schema[key])
    decoding = replace(description.decoding, **given)
    longest = decoding.max_length
    if longest is not None and decoding.min_length > longest:
        raise UserError(
            f"decoding.min_length: {decoding.min_length} is larger than max_length ({longest})"
        )
    return decoding


def _checked(override: str, text: str, schema: Mapping[str, Any]) -> object:
    """Return the value of an override, or raise UserError."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    choices = schema.get("anyOf", [schema])
    if any(_allows(each, value) for each in choices):
        return float(value) if schema.get("type") == "number" else value
    expected = " or ".join(_describe(each) for each in choices)
    raise UserError(f"{override}: must be {expected}")


def _allows(schema: Mapping[str, Any], value: object) -> bool:
    """Return whether the schema of a number, a boolean or null allows a value."""
    kind = schema["type"]
    if kind in ("null", "boolean"):
        return value is None if kind == "null" else isinstance(value, bool)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (kind == "integer" and not isinstance(value, int)):
        return False
    assert isinstance(value, int | float), "checked"
    return (
        schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
        and value > schema.get("exclusiveMinimum", -math.inf)
        and value < schema.get("exclusiveMaximum", math.inf)
        and math.isfinite(value)
    )


def _describe(schema: Mapping[str, Any]) -> str:
    bounds = [  # releases of pydantic differ in writing 0 or 0.0
        f"{text} {int(schema[key]) if float(schema[key]).is_integer() else schema[key]}"
        for key, text in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "more than"),
            ("maximum", "at most"),
        )
        if key in schema
    ]
    kinds = {"null": "null", "boolean": "true or false", "integer": "an integer"}
    return f"{kinds.get(schema['type'], 'a number')} {' and '.join(bounds)}".strip()
