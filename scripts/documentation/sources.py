"""Excerpts of the source on a page, read when the site is built."""

import importlib
import inspect
import re
import textwrap

_PLACE = re.compile(r"^<!-- source: ([\w.]+):([\w.]+) -->$", re.MULTILINE)


def insert_sources(markdown: str) -> str:
    """Replace each `<!-- source: MODULE:NAME -->` by the source of that object."""
    return _PLACE.sub(lambda place: _source(place[1], place[2]), markdown)


def _source(module: str, name: str) -> str:
    value: object = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    text = textwrap.dedent(inspect.getsource(value)).rstrip()  # type: ignore[arg-type]
    return f"```python\n{text}\n```"
