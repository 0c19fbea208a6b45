"""Search settings of one call, beside the `decoding` section of the config."""

from collections.abc import Sequence
from dataclasses import dataclass

from seq2seq.inference.glossary import Glossary


@dataclass(frozen=True)
class SearchSettings:
    """Requirements on all translations of a call."""

    glossary: Glossary | None = None  # target phrases required by source phrases
    forbidden: tuple[str, ...] = ()  # words and phrases that no translation contains


DEFAULT_SETTINGS = SearchSettings()
Phrases = Sequence[str]  # that the translation of one line must contain
