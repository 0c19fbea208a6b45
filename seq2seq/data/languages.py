"""Codes of languages and their English names."""

from functools import cache
from pathlib import Path

_LANGUAGES = Path(__file__).with_name("languages.tsv")  # code, English name, other codes


def folded(code: str) -> str:
    """Return a code in lower case, with hyphens, without spaces around it."""
    return code.strip().lower().replace("_", "-")


def language(code: str) -> str:
    """Return the code of a language without its region or script, of two letters if it has one."""
    without_region = folded(code).partition("-")[0]
    return _known()[1].get(without_region, without_region)


def language_name(code: str) -> str:
    """Return the English name of a language, or its code if it has none."""
    return _known()[0].get(code.replace("_", "-"), code)


def unknown_code_hint(code: str) -> str | None:
    """Return the hint for a text that is no language code, "" if none is close; None for a code."""
    names, _ = _known()
    if language(code) in names:
        return None
    meant = next((key for key, name in names.items() if name.lower() == code.lower()), None)
    return f"; did you mean '{meant}'?" if meant else ""


@cache
def _known() -> tuple[dict[str, str], dict[str, str]]:
    """Return the English name of each code, and the code that replaces each other one."""
    lines = _LANGUAGES.read_text("utf-8").splitlines()[1:]
    rows = [(*line.split("\t"), "")[:3] for line in lines]
    names = {code: name for code, name, _ in rows}
    return names, {alias: code for code, _, aliases in rows for alias in aliases.split()}
