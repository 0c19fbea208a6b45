"""A vocabulary that segments translations as search found them."""

from collections.abc import Sequence

from seq2seq.data.vocabulary.vocabulary import Vocabulary
from seq2seq.inference.translation import Translation


class Respelled(Vocabulary):
    """Vocabulary that segments translations into the tokens that search found."""

    def __init__(self, plain: Vocabulary, found: Sequence[Translation]) -> None:
        super().__init__(plain.model)
        ids = {token: i for i, token in enumerate(plain.tokens(range(len(plain))))}
        self.found = [[ids[token] for token in each.tokens[:-1]] for each in found]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        assert len(texts) == len(self.found)
        return self.found
