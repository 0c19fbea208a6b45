"""Symbols: strings of the text, such as <2fr> or <num>, that are single tokens and never split."""

import re
from collections.abc import Iterable


def any_of(strings: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of any of these strings, the longest that matches; of none, no match."""
    longest_first = sorted(strings, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def inside(symbol: re.Pattern[str], text: str) -> set[int]:
    """Return the positions of a text's characters that belong to symbols."""
    return {n for match in symbol.finditer(text) for n in range(*match.span())}
