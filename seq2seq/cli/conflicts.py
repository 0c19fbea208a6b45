"""Options that exclude or need one another: rows of a table, which `check_together` reads."""

from collections.abc import Callable
from typing import Any, NamedTuple

from seq2seq.runtime.errors import UserError

# names of fields with spaces between, one of which has a value; a function that says whether the
# condition holds; "" holds for every call
Condition = str | Callable[[Any], object]


class Conflict(NamedTuple):
    """Row of a table: options that cannot be given together."""

    this: Condition
    that: Condition
    text: str  # for the user, with the remedy; {options} are those of the call


class Need(NamedTuple):
    """Row of a table: an option that needs another one."""

    this: Condition
    that: Condition
    text: str


Rows = tuple[Conflict | Need, ...]


def check_together(options: object, rows: Rows) -> None:
    """Raise UserError for the first row that the options break."""
    for row in rows:
        refused = isinstance(row, Conflict)
        if _is_given(options, row.this) and _is_given(options, row.that) == refused:
            raise UserError(row.text.format(options=options))


def _is_given(options: object, condition: Condition) -> bool:
    """Return whether a condition holds for the options."""
    if callable(condition):
        return bool(condition(options))
    return not condition or any(getattr(options, name) for name in condition.split())
