"""Detection of names: which capitalised words of a source line are names.

A word of the training text is a name if mining found its spelling. Ordinary are other words that
the training text has in lower case, unless they are capitalised within a sentence, and those that
it has capitalised more than once. All other capitalised words are names, but for titles before a
name and for greetings and interjections that begin a sentence, of languages in Latin script.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from seq2seq.text.characters import are_capitals
from seq2seq.text.names.words import SourceWord, any_of, source_words, symbol_positions

_TITLES, _GREETINGS = (
    frozenset(Path(__file__).with_name(name).read_text("utf-8").split())
    for name in ("titles.txt", "greetings.txt")
)


class NameDetector:
    """Decides which words of a line are names."""

    def __init__(
        self,
        names: Collection[str],
        lower: Mapping[str, int],
        capitalised: Mapping[str, int],
        symbols: Iterable[str] = (),
    ) -> None:
        self._names = names
        self._lower = lower
        self._capitalised = capitalised
        self._symbol = any_of(symbols)

    def names_in(self, line: str) -> list[SourceWord]:
        """Return the names of a line, in order; in capitals, or alone, unseen words are names."""
        words = source_words(line)
        if are_capitals(line):
            names = [word for word in words if self._is_unseen(word)]
        else:
            names = [word for word in words if word.capitalised and self._is_name(word)]
            if not names and len(words) == 1 and words[0].capitalised:
                names = [word for word in words if self._is_unseen(word)]
        symbols = symbol_positions(self._symbol, line)
        names = [word for word in names if word.start not in symbols]
        addresses = _addresses(line, words) if names else set()
        return [word for word in names if word.text in self._names or word.start not in addresses]

    def _is_unseen(self, word: SourceWord) -> bool:
        """Return whether neither the word nor its lower case occurs, unless as a name."""
        text = word.text
        return len(text) > 1 and text.lower() not in self._lower and text not in self._capitalised

    def _is_name(self, word: SourceWord) -> bool:
        text = word.text
        if text in self._names:
            return True
        if text.lower() in self._lower and (word.initial or text.isupper()):
            return False
        return len(text) > 1 and self._capitalised.get(text, 0) <= 1


def _addresses(line: str, words: Sequence[SourceWord]) -> set[int]:
    """Return where titles before a name begin, and greetings at the start of a sentence."""
    starts = set[int]()
    for word, following in zip(words, [*words[1:], None], strict=True):
        text = word.text.capitalize()
        text_after = line[word.end : following.start if following else None].strip()
        is_before_name = following is not None and following.capitalised and text_after in ("", ".")
        if (
            text in _TITLES and (is_before_name or (word.initial and text_after[:1] in (",", "!")))
        ) or (text in _GREETINGS and word.initial):
            starts.add(word.start)
    return starts
