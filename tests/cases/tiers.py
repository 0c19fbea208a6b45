"""Parametrizations of which only the thorough tier tests all values."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def one_quick(
    names: str | tuple[str, ...],
    values: Iterable[Any],
    quick: int | Collection[int] = 0,
    **options: Any,
) -> pytest.MarkDecorator:
    """Parametrize a test; the cases of all values but those at some indices are `thorough`."""
    several = isinstance(names, tuple)
    return pytest.mark.parametrize(names, quick_values(values, quick, several), **options)


def quick_values(
    values: Iterable[Any], quick: int | Collection[int] = 0, several: bool = False
) -> list[Any]:
    """Return values with all but those at some indices marked `thorough`.

    With `several`, each is the values of several parameters.
    """
    indices = {quick} if isinstance(quick, int) else quick
    return [
        value if index in indices else _marked(value, several) for index, value in enumerate(values)
    ]


def _marked(value: Any, several: bool) -> Any:
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, marks=(*value.marks, pytest.mark.thorough), id=value.id)
    return pytest.param(*(value if several else (value,)), marks=pytest.mark.thorough)
