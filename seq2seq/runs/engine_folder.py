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

from seq2seq.data.source_profile import LengthLimit, SourceProfile
from seq2seq.data.vocabulary.vocabulary import Vocabularies, load_vocabularies
from seq2seq.engines.onnx.files import GraphFiles
from seq2seq.runtime import argument_types
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import atomic_write, check_paths, check_readable, read_bounded

DESCRIPTION, VOCABULARY, TOPK = "export.json", "vocabulary", "topk.onnx"  # in an export
ENGINE = "engine"  # folder in a run folder
FORMAT = 2  # version of the description
_DAMAGED = "export the run again"
_MAX_BYTES = 1 << 31  # maximum size of a graph, as protocol buffers allow
_MAX_DESCRIPTION = 1 << 24
_LARGEST = 1 << 20  # maximum of the numbers in a description
_MAX_BEAM = 1_000  # likewise of the beam, whose memory is large; the command line has no limit
_ENGINE_JSON = "engine.json"


class Files(NamedTuple):
    """Names of the two graphs of one model."""

    encoder: str
    decoder: str


_DECODING = {
    "beam_size": int,
    "length_penalty": float,
    "coverage_penalty": float,
    "no_repeat_ngram": int,
    "replace_unknown": bool,
    "max_length": int,
    "min_length": int,
    "repetition_penalty": float,
}


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
        stored = json.loads(read_bounded(path, _MAX_DESCRIPTION))
        if stored["format"] != FORMAT:
            raise UserError(
                f"{path}: has format {stored['format']!a:.20}, and this version of seq2seq reads "
                f"{FORMAT}; {_DAMAGED} with this version"
            )
        _check_types(stored)
        return Description(
            [Files(**names) for names in stored["models"]],
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
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, OSError) as error:
        reason = ascii(" ".join(str(error).split())[:200])
        raise UserError(f"{path}: is damaged ({reason}); {_DAMAGED}") from None


def _check_types(stored: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError for fields of another type, or of numbers beyond reason."""
    texts = [stored["src_lang"], stored["tgt_lang"]]
    texts += [name for names in stored["models"] for name in names.values()]
    for checksums in (stored["sha256"], stored["vocabularies"]):
        texts += [*checksums, *checksums.values()]
    if not stored["models"] or not all(isinstance(text, str) for text in texts):
        raise TypeError("names and checksums are not texts")
    if any(Path(name).name != name for names in stored["models"] for name in names.values()):
        raise ValueError("a file of another folder")
    if not isinstance(stored["int8"], bool):
        raise TypeError("int8")
    for values, types in (
        (stored["limit"], {"ratio": float, "extra": int}),
        (stored["decoding"], _DECODING),
        ({"max_length": stored["max_length"]}, {"max_length": int}),
    ):
        for key, kind in types.items():
            _check_number(key, values[key], kind)
    if not 1 <= stored["decoding"]["beam_size"] <= _MAX_BEAM:
        raise ValueError("beam_size")


def _check_number(key: str, value: object, kind: type) -> None:
    if kind is bool or (key == "max_length" and value is None):
        is_valid = value is None or isinstance(value, bool)
    else:
        is_valid = isinstance(value, int | float if kind is float else int)
        is_valid = is_valid and not isinstance(value, bool)
    if not is_valid or (value is not None and not 0 <= float(value) <= _LARGEST):  # type: ignore[arg-type]
        raise ValueError(f"{key}: {value!a:.40}")


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


def stored_graphs(run: Path, weights: str) -> GraphFiles | None:
    """Return the graphs in a run folder that were made of weights with this checksum.

    None if there are none, they are of other weights, or they are damaged.
    """
    folder = run / ENGINE
    with suppress(
        OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, UserError
    ):
        stored = json.loads(read_bounded(folder / _ENGINE_JSON, _MAX_DESCRIPTION))
        if stored["format"] != FORMAT or stored["weights"] != weights:
            return None
        names = (f"{part}.onnx" for part in GraphFiles._fields)
        return GraphFiles(*(read_graph(folder, name, stored["sha256"][name]) for name in names))
    return None


def store_graphs(run: Path, weights: str, graphs: GraphFiles) -> None:
    """Write the graphs of weights with this checksum into a run folder; raises OSError.

    The file that says which weights they are of is written last, each file at once: whatever is
    written halfway belongs to no weights.
    """
    folder = run / ENGINE
    folder.mkdir(exist_ok=True)
    files = {f"{part}.onnx": content for part, content in graphs._asdict().items()}
    for name, content in files.items():
        atomic_write(folder / name, content)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    description = {"format": FORMAT, "weights": weights, "sha256": sums}
    atomic_write(folder / _ENGINE_JSON, json.dumps(description).encode())


def read_vocabularies(folder: Path, description: Description) -> Vocabularies:
    """Load the vocabularies; raises UserError if they are missing or damaged."""
    return load_vocabularies(folder / VOCABULARY, checksums=description.vocabularies)


def overridden(description: Description, overrides: Iterable[str]) -> Decoding:
    """Return the decoding settings with overrides such as "decoding.length_penalty=0.6".

    Values are JSON, checked by the schema of the run's config. Raises UserError for other keys and
    for values that the schema refuses.
    """
    values: dict[str, Any] = {}
    for override in argument_types.text_list(
        overrides, "overrides", "such as decoding.beam_size=3"
    ):
        name, _, text = override.partition("=")
        key = name.removeprefix("decoding.")
        if not name.startswith("decoding.") or key not in description.decoding_schema:
            keys = ", ".join(f"decoding.{key}" for key in description.decoding_schema)
            raise UserError(
                f"{override}: an exported model takes other values of these keys: {keys}"
            )
        values[key] = _checked(override, text, description.decoding_schema[key])
    decoding = replace(description.decoding, **values)
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
    if any(_allows(choice, value) for choice in choices):
        return float(value) if schema.get("type") == "number" else value
    expected = " or ".join(_describe(choice) for choice in choices)
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
