"""Suggestions in error messages: the closest known name or file."""

import difflib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def did_you_mean(word: str, words: Iterable[str], similar: float = 0.6) -> str:
    """Return "; did you mean 'X'?" with the closest word, or nothing if none is close.

    `similar` is the minimum ratio of matching characters.
    """
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=similar)
    return f"; did you mean '{close[0]}'?" if close else ""


def suggest_file(path: Path) -> str:
    """Return the hint `did_you_mean` gives for a missing file, or that its folder is missing."""
    if not path.parent.is_dir():
        return f"; the folder {path.parent} does not exist"
    with suppress(OSError):
        return did_you_mean(path.name, sorted(entry.name for entry in path.parent.iterdir()))
    return ""


def shorten(text: str) -> str:
    """Return the first 60 characters of a text, the last of them "..." if there are more."""
    return text if len(text) <= 60 else text[:57] + "..."
