"""Attributes of HTML that are translated: texts such as `alt`, and the language of the document."""

import re
from collections.abc import Sequence
from html import escape, unescape
from typing import NamedTuple

from seq2seq.text.line_properties import has_letters

TRANSLATED = ("alt", "title")
LANGUAGES = ("lang", "xml:lang")  # of the root element
_SHEETS = ("link", "style")  # their titles are names of style sheets
_ATTRIBUTE = re.compile(
    r"(?P<name>[^\s\"'>/=]+)(?:\s*=\s*(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+))?"
)
_MARK = "\0"
_MARKED = re.compile(f"{_MARK}([0-9]+){_MARK}\n*")
_QUOTES = {'"': "&quot;", "'": "&#39;"}


class AttributeValue(NamedTuple):
    """Value of an attribute as it is written, with its quotation marks, and what it says."""

    raw: str
    text: str  # with single spaces; "" for that of a language
    place: int  # in the document

    def written(self, text: str) -> str:
        """Return another text in the place of this one."""
        if text == self.text:
            return self.raw
        quote = self.raw[0] if self.raw[0] in _QUOTES else '"'
        return f"{quote}{escape(text, quote=False).replace(quote, _QUOTES[quote])}{quote}"


class SetAsideAttributes:
    """Values of a document that are translated apart, each with a mark in its place.

    A document that has the character of marks itself keeps its attributes.
    """

    def __init__(self, document: str) -> None:
        self._is_possible = _MARK not in document
        self._has_root = False
        self._values: list[AttributeValue] = []
        self.texts: list[AttributeValue] = []  # those with a text

    def set_aside(self, tag: str, name: str, place: int) -> str:
        """Return a start tag of an element, at a place of the document, with marks."""
        is_root = name == "html" and not self._has_root
        self._has_root = self._has_root or is_root
        if not self._is_possible or name in _SHEETS or "=" not in tag:
            return tag
        parts = [tag[: 1 + len(name)]]
        position = len(parts[0])
        for attribute in _ATTRIBUTE.finditer(tag, position):
            value = attribute["value"]
            if value is None:
                continue
            start, end = attribute.span("value")
            is_language = is_root and attribute["name"].lower() in LANGUAGES
            is_text = attribute["name"].lower() in TRANSLATED
            text = " ".join(unescape(value.strip("\"'")).split()) if is_text else ""
            if is_language or has_letters(text):
                parts += [
                    tag[position:start],
                    self._mark(AttributeValue(value, text, place + start)),
                ]
                position = end
        return "".join([*parts, tag[position:]])

    def _mark(self, value: AttributeValue) -> str:
        """Return the mark of a value, which has its line ends."""
        self._values.append(value)
        if value.text:
            self.texts.append(value)
        return f"{_MARK}{len(self._values) - 1}{_MARK}" + "\n" * value.raw.count("\n")

    def restored(self, document: str, texts: Sequence[str], language: str) -> str:
        """Return a document with the translated texts, and a language if one is given."""
        next_texts = iter(texts)
        written = [
            value.written(next(next_texts) if value.text else language)
            if value.text or language
            else value.raw
            for value in self._values
        ]
        return _MARKED.sub(lambda mark: written[int(mark[1])], document)
