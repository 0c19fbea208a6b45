"""Detection of names: which capitalised words of a source line are names.

A word of the training text is a name if mining found its spelling. Ordinary are other words that
the training text has in lower case, unless they are capitalised within a sentence, and those that
it has capitalised more than once. All other capitalised words are names.
"""

from collections.abc import Collection, Iterable, Mapping

from seq2seq.names.words import SourceWord, any_of, inside, source_words


class NameDetector:
    """Decides which words of a line are names."""

    def __init__(
        self,
        names: Collection[str],
        lower: Mapping[str, int],
        capitalised: Mapping[str, int],
        symbols: Iterable[str] = (),
    ) -> None:
        self._names, self._lower, self._capitalised = names, lower, capitalised
        self._symbol = any_of(symbols)

    def names_in(self, line: str) -> list[SourceWord]:
        """Return the names of a line, in order.

        Of a line in capitals, and of one that is a single word, words that the training text lacks
        are names.
        """
        words = source_words(line)
        if line.isupper():
            names = [word for word in words if self._is_unseen(word)]
        else:
            alone = len(words) == 1
            names = [
                word
                for word in words
                if word.capitalised and (self._is_name(word) or (alone and self._is_unseen(word)))
            ]
        symbols = inside(self._symbol, line)
        return [word for word in names if word.start not in symbols]

    def _is_unseen(self, word: SourceWord) -> bool:
        """Return whether neither the word nor its lower case occurs, unless as a name."""
        text = word.text
        return len(text) > 1 and text.lower() not in self._lower and text not in self._capitalised

    def _is_name(self, word: SourceWord) -> bool:
        """Return whether a capitalised word is a name."""
        text = word.text
        if text in self._names:
            return True
        if text.lower() in self._lower and (word.initial or text.isupper()):
            return False
        return len(text) > 1 and self._capitalised.get(text, 0) <= 1
