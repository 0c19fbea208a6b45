"""Check the arguments that Python callers pass: one error with the argument, value and remedy."""

import operator
from collections.abc import Iterable, Mapping, Set
from typing import Any

from seq2seq.runtime.errors import UserError

_MAX_COUNT = 1_000_000


def text_list(value: Iterable[str], name: str, example: str = "one sentence each") -> list[str]:
    """Return the strings of any ordered iterable but a string; raise TypeError for others."""
    items = ordered(value, name, f"a list of str, {example}")
    for index, item in enumerate(items):
        text(item, f"{name}[{index}]")
    return items


def text(value: object, name: str) -> str:
    """Return a string; raise TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: must be a str, not {_kind(value)}")
    return value


def ordered(value: Any, name: str, expected: str) -> list[Any]:
    """Return the items of any iterable that has an order; raise TypeError for anything else."""
    unordered = isinstance(value, str | bytes | bytearray | Mapping | Set)
    if unordered or not isinstance(value, Iterable) or getattr(value, "ndim", 1) != 1:
        remedy = "; pass [text], or text.splitlines()" if isinstance(value, str) else ""
        raise TypeError(f"{name}: must be {expected}, not {_kind(value)}{remedy}")
    return value if isinstance(value, list) else list(value)


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def count(value: Any, name: str) -> int:
    """Return an integer from 1 to a million; raise TypeError or UserError for anything else."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: must be an int, not {value!r}")
    number = operator.index(value)
    if not 1 <= number <= _MAX_COUNT:
        limit = "least 1" if number < 1 else f"most {_MAX_COUNT}"
        raise UserError(f"{name}: must be at {limit}, not {number}")
    return number
