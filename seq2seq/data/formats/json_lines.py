"""JSON lines: one object per line, flat or with a `translation` object of languages."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from seq2seq.data.formats.cells import as_line, format_hint, missing_column
from seq2seq.data.lines import iter_lines
from seq2seq.runtime.errors import UserError

NESTED = "translation"  # object of translations by language, as in Hugging Face's datasets


def iter_json_lines(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the values of two keys of each line's object, or of the object in its `translation`.

    A line break within a value becomes a space, null becomes blank text, and blank lines are
    skipped. Raises UserError as `iter_lines` does, for a line that is no object, a missing key and
    a value that is no text.
    """
    src, tgt = columns
    for number, line in enumerate(iter_lines(path), start=1):
        if line.strip():
            place = f"{path}:{number}"
            fields = _fields(line, place)
            yield _text(fields, src, path, place), _text(fields, tgt, path, place)


def _fields(line: str, place: str) -> dict[str, object]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        hint = ". Each line must be an object" + _array_hint(line, place)
        hint += format_hint(line, ".jsonl") if place.endswith(":1") else ""
        raise UserError(f"{place}: invalid JSON ({error}){hint}") from None
    except RecursionError:
        raise UserError(f"{place}: invalid JSON (nested too deeply)") from None
    if not isinstance(fields, dict):
        hint = _array_hint(line, place)
        raise UserError(f"{place}: each line must be a JSON object{hint}")
    return fields


def _array_hint(line: str, place: str) -> str:
    if not (line.lstrip().startswith("[") and place.endswith(":1")):
        return ""
    return ", not part of an array. Convert the file: jq -c '.[]' FILE > NEW.jsonl"


def _text(fields: dict[str, object], name: str, path: Path, place: str) -> str:
    nested = fields.get(NESTED)
    for values in (fields, nested):
        if isinstance(values, dict) and name in values:
            value = values[name]
            break
    else:
        names = list(nested) if isinstance(nested, dict) else list(fields)
        message = str(missing_column(path, name, names))
        raise UserError(message.replace(f"{path}:1: has no column", f"{place}: has no key", 1))
    if value is None:
        return ""
    if not isinstance(value, str):
        kind = {dict: "an object", list: "a list", bool: "true or false"}.get(type(value))
        raise UserError(f"{place}: the value of {name!r} is {kind or 'a number'}, not text")
    return as_line(value, place)
