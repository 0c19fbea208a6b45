"""Entities in plain text, as some tokenizers write characters: `&quot;` is a quotation mark.

They are read as their characters, and written again as the training text writes these.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from typing import Self

_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z]\w{1,30});")
_ENTITY_GROUP = re.compile(f"({_ENTITY.pattern})")
_MARKUP = "<>&"  # of which an entity is no other form: it says that they are no markup


def character_of(entity: str) -> str:
    """Return the visible character, or the space, that an entity such as `&quot;` is, or ""."""
    character = unescape(entity)
    if len(character) != 1 or character == "\N{REPLACEMENT CHARACTER}":
        return ""
    category = unicodedata.category(character)
    is_line_break = category in ("Zl", "Zp")
    return "" if is_line_break or category[0] == "C" else character


def without_entities(text: str) -> str:
    """Replace all entities of a text by their characters."""
    if "&" not in text:  # as in most texts
        return text
    return _ENTITY.sub(lambda entity: character_of(entity[0]) or entity[0], text)


def letters_read(text: str) -> str:
    """Replace the entities of a text that are letters or digits, such as `&eacute;`."""
    return _ENTITY.sub(_letter_or_entity, text) if "&" in text else text


def _letter_or_entity(entity: re.Match[str]) -> str:
    character = character_of(entity[0])
    return character if character.isalnum() else entity[0]


def entities_blanked(text: str) -> str:
    """Return a text of the same length with spaces in the place of entities."""
    return _ENTITY.sub(lambda entity: " " * len(entity[0]), text) if "&" in text else text


@dataclass(frozen=True)
class Entities:
    """Entities that a text writes in the place of their characters."""

    usual: Sequence[str] = ()

    @classmethod
    def of(cls, lines: Sequence[str], least: float) -> Self:
        """Return those that more than `least` lines have, and fewer have as a character."""
        counts = Counter[str]()
        for line in lines:
            if "&" in line:
                counts.update(set(_ENTITY.findall(line)))
        entity_of = dict[str, str]()  # by character, the most frequent one
        for entity, count in counts.most_common():
            character = character_of(entity)
            if character and count > least and character not in entity_of:
                others = sum(character in _ENTITY.sub("", line) for line in lines)
                entity_of.update({character: entity} if count > others else {})
        return cls(sorted(entity_of.values()))

    def read(self, text: str) -> str:
        """Return a text with characters in the place of entities, but for markup that is escaped.

        That is kept where the training text does not write it in this way.
        """
        if "&" not in text:  # as in most texts
            return text
        return _ENTITY.sub(self._read, text)

    def written(self, text: str) -> str:
        """Return a text of characters with the usual entities; those that it has stay."""
        if not self.usual or self._characters.isdisjoint(text):
            return text
        texts = _ENTITY_GROUP.split(text)  # every second one is an entity
        texts[::2] = [part.translate(self._entities) for part in texts[::2]]
        return "".join(texts)

    def _read(self, entity: re.Match[str]) -> str:
        character = character_of(entity[0])
        is_kept = not character or (character in _MARKUP and character not in self._characters)
        return entity[0] if is_kept else character

    @cached_property
    def _characters(self) -> frozenset[str]:
        return frozenset(map(character_of, self.usual))

    @cached_property
    def _entities(self) -> dict[int, str]:
        return {ord(character_of(entity)): entity for entity in self.usual}
