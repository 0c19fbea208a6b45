"""Values of parametrizations that only the thorough tier tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def one_quick(values: Iterable[Any], quick: int = 0) -> list[Any]:
    """Return the values with all but the one at an index marked `thorough`."""
    return [
        value if index == quick else marked_thorough(value) for index, value in enumerate(values)
    ]


def marked_thorough(value: Any) -> Any:
    """Return a value marked `thorough`; a plain tuple is the values of several parameters."""
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, marks=(*value.marks, pytest.mark.thorough), id=value.id)
    values = value if type(value) is tuple else (value,)
    return pytest.param(*values, marks=pytest.mark.thorough)
