"""Lexical shortlist: the few hundred target tokens that suit a source, of tens of thousands."""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.lexical_table import LexicalTable
from seq2seq.data.vocabulary.vocabulary import EOS_ID, FIRST_ID, NAME_IDS, PAD_ID, Ids, Vocabularies

MIN_TOKENS = 256  # listed for a source, and for each position of its padded length:
TOKENS_PER_POSITION = 8


class Shortlist:
    """The most probable target tokens of a source, by the lexical table of the training text."""

    def __init__(self, table: LexicalTable, same: NDArray[np.int64], fixed: int, size: int) -> None:
        """Take a table for `size` target tokens, of which the first `fixed` are always listed.

        `same` has for each source token the target token that is spelled alike, PAD_ID for none.
        """
        self.table, self.same, self.fixed, self.size = table, same, fixed, size

    @classmethod
    def of(cls, table: LexicalTable, vocabularies: Vocabularies) -> Self:
        """Return the shortlist for the vocabularies of a table."""
        src, tgt, names = vocabularies
        ids = {token: i for i, token in enumerate(tgt.tokens(range(len(tgt))))}
        same = [ids.get(token, PAD_ID) for token in src.tokens(range(len(src)))]
        fixed = FIRST_ID if names is None else NAME_IDS.stop
        return cls(table, np.array(same, np.int64), fixed, len(tgt))

    def length(self, width: int) -> int:
        """Return the number of tokens listed, at most, for sources of a padded length."""
        return min(self.size, MIN_TOKENS + TOKENS_PER_POSITION * width)

    def tokens(self, source: Ids, width: int) -> NDArray[np.int64]:
        """Return the tokens listed for a source of a padded length, in ascending order.

        They are the `fixed` first ones, those that are spelled as a source token, which names and
        numbers need, and those of the largest `sum of t(token | s)` over the source tokens s and
        the empty word: the probability that IBM model 1 gives a token anywhere in the translation.
        The row of end-of-sentence is that of the empty word, which explains the common tokens.
        """
        if (length := self.length(width)) == self.size:
            return np.arange(self.size)
        sources = sorted({*source, EOS_ID})
        rows = [self.table.row(token) for token in sources]
        tokens, probs = (np.concatenate(part) for part in zip(*rows, strict=True))
        scores = np.bincount(tokens, probs, self.size).astype(float)  # integers of empty rows
        scores[: self.fixed] = scores[self.same[sources]] = np.inf
        listed = scores.nonzero()[0]
        best = listed[np.argsort(-scores[listed], kind="stable")[:length]]
        best.sort()
        return best
