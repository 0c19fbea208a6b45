"""ONNX graphs in a run folder and in an export, and the JSON files that describe them.

torch is not needed to read them. In a run folder they belong to the best weights, by checksum.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq.config.search_options import Decoding, choices_of, fault_of
from seq2seq.data.length_limit import LengthLimit
from seq2seq.engines.engine import GraphFiles
from seq2seq.runs.layout import DESCRIPTION, ENGINE
from seq2seq.runs.tensor_file import known_fields
from seq2seq.runtime import argument_types
from seq2seq.runtime.errors import UserError, shorten
from seq2seq.runtime.files import atomic_write, check_paths, check_readable, read_bounded
from seq2seq.text.source_profile import SourceProfile

TOPK = "topk.onnx"  # in an export
FORMAT = 3  # version of the description
_DAMAGED = "export the run again"
_MAX_BYTES = 1 << 31  # maximum size of a graph, as protocol buffers allow
_MAX_DESCRIPTION = 1 << 24
_LARGEST = 1 << 20  # maximum of the numbers in a description
_MAX_BEAM = 1_000  # likewise of the beam, whose memory is large; the command line has no limit
_ENGINE_JSON = "engine.json"
_MALFORMED = (AttributeError, KeyError, TypeError, ValueError, RecursionError, OSError)


class Description(NamedTuple):
    """Contents of the description of an export that the runtime reads."""

    models: list[dict[str, str]]  # names of the files of both graphs
    int8: bool
    languages: tuple[str, str]  # codes of source and target
    limit: LengthLimit
    max_length: int
    decoding: Decoding
    source: SourceProfile
    vocabularies: dict[str, str]  # SHA-256 by stem
    sha256: dict[str, str]  # checksums of the graphs, by name


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
        description = json.loads(read_bounded(path, _MAX_DESCRIPTION))
        if description["format"] != FORMAT:
            text = f"has format {description['format']!a:.20}, and this version of seq2seq reads"
            raise UserError(f"{path}: {text} {FORMAT}; {_DAMAGED} with this version")
        _check_description(description)
        plain = ("models", "int8", "max_length", "vocabularies", "sha256")
        return Description(
            languages=(description["src_lang"], description["tgt_lang"]),
            limit=LengthLimit(**known_fields(LengthLimit, description["limit"])),
            decoding=_read_decoding(description["decoding"], path),
            source=SourceProfile(**known_fields(SourceProfile, description["source"])),
            **{name: description[name] for name in plain},
        )
    except UserError:
        raise
    except _MALFORMED as error:
        reason = ascii(" ".join(str(error).split())[:200])
        raise UserError(f"{path}: is damaged ({reason}); {_DAMAGED}") from None


def _read_decoding(entries: Mapping[str, Any], path: Path) -> Decoding:
    """Return the options of search of an export; a key that an older one lacks has its default.

    Raises UserError for a key of a newer version, and ValueError for what a stranger made up.
    """
    decoding = known_fields(Decoding, entries)
    for name in entries:
        if name not in decoding:
            key = shorten(ascii(f"decoding.{name}")[1:-1])
            remedy = "install a newer version or export again with this one"
            raise UserError(f"{path}: has {key}, which this version does not know; {remedy}")
    return _checked(Decoding(**decoding))


def _checked(decoding: Decoding) -> Decoding:
    """Return options of search; raises ValueError for other types and values out of range."""
    for item in fields(Decoding):
        if not choices_of(item):
            _check_type(item.name, getattr(decoding, item.name), item.type)
    if not 1 <= decoding.beam_size <= _MAX_BEAM:
        raise ValueError("beam_size")
    if decoding.min_length > (decoding.max_length or _LARGEST):
        raise ValueError("min_length is larger than max_length")
    for item in fields(Decoding):
        value = getattr(decoding, item.name)
        if fault_of(item, value) is not None:
            raise ValueError(f"{item.name}: {value!a:.40}")
    return decoding


def _check_description(description: Mapping[str, Any]) -> None:
    """Raise ValueError for fields of another type, or of numbers beyond reason."""
    names = [name for files in description["models"] for name in files.values()]
    texts = [description["src_lang"], description["tgt_lang"], *names]
    for checksums in (description["sha256"], description["vocabularies"]):
        texts += [*checksums, *checksums.values()]
    if not names or not all(isinstance(text, str) for text in texts):
        raise ValueError("names and checksums are not texts")
    if any(files.keys() != set(GraphFiles._fields) for files in description["models"]):
        raise ValueError("other graphs")
    if any(Path(name).name != name for name in names):
        raise ValueError("a file of another folder")
    numbers = {**description, **description["limit"]}
    for key, kind in (("int8", bool), ("ratio", float), ("extra", int), ("max_length", int)):
        _check_type(key, numbers[key], kind)


def _check_type(key: str, value: Any, kind: Any) -> None:
    """Raise ValueError for anything but a boolean, or a number from 0 to a million."""
    is_bool = isinstance(value, bool)
    is_valid = is_bool if kind is bool else isinstance(value, kind | int) and not is_bool
    if not is_valid or not 0 <= float(value or 0) <= _LARGEST:
        raise ValueError(f"{key}: {value!a:.40}")


def check_fit(paths: Sequence[Path], runs: Iterable[tuple[object, str]]) -> None:
    """Raise UserError unless all models have one vocabulary and one direction, as given."""
    (first_vocabulary, first_direction), *_ = runs = list(runs)
    for path, (vocabulary, direction) in zip(paths, runs, strict=True):
        if vocabulary != first_vocabulary:
            text = f"has another vocabulary than {paths[0]}; combine runs that share one"
            raise UserError(f"{path}: {text}")
        if direction != first_direction:
            text = f"translates {direction} but {paths[0]} {first_direction}"
            raise UserError(f"{path}: {text}; combine runs of one direction")


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
    """Return the undamaged graphs in a run folder of weights with this checksum, or None."""
    folder = run / ENGINE
    with suppress(*_MALFORMED, UserError):
        description = json.loads(read_bounded(folder / _ENGINE_JSON, _MAX_DESCRIPTION))
        if description["format"] == FORMAT and description["weights"] == weights:
            names = (f"{part}.onnx" for part in GraphFiles._fields)
            return GraphFiles(
                *(read_graph(folder, name, description["sha256"][name]) for name in names)
            )
    return None


def store_graphs(run: Path, weights: str, graphs: GraphFiles) -> None:
    """Write the graphs of weights with this checksum into a run folder; raises OSError.

    The file that says which weights they are of comes last: what is half written belongs to none.
    """
    folder = run / ENGINE
    folder.mkdir(exist_ok=True)
    files = {f"{part}.onnx": content for part, content in graphs._asdict().items()}
    for name, content in files.items():
        atomic_write(folder / name, content)
    description = {"format": FORMAT, "weights": weights, "sha256": checksums(files)}
    atomic_write(folder / _ENGINE_JSON, json.dumps(description).encode())


def checksums(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of files by name."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def overridden(decoding: Decoding, overrides: Iterable[str]) -> Decoding:
    """Return settings with overrides such as "decoding.beam_size=3"; raises UserError."""
    keys = {f"decoding.{item.name}": item.name for item in fields(Decoding)}
    for text in argument_types.text_list(overrides, "overrides", "such as decoding.beam_size=3"):
        key, _, value = text.partition("=")
        if key not in keys:
            names = ", ".join(keys)
            raise UserError(f"{text}: an exported model takes other values of these keys: {names}")
        try:
            decoding = _checked(replace(decoding, **{keys[key]: json.loads(value)}))
        except ValueError as error:
            raise UserError(f"{text}: not a value of {key} ({error})") from None
    return decoding
