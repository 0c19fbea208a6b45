"""Plain text as Markdown."""

import re


def escape(text: str) -> str:
    """Return text on one line, with every character that Markdown would interpret escaped."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\*_{}\[\]|`])", r"\\\1", text)
