"""A vocabulary that segments translations as search found them."""

from collections.abc import Sequence

from seq2seq.data.vocabulary.vocabulary import Vocabulary
from seq2seq.inference.translation import Translation


class Respelled(Vocabulary):
    """Vocabulary that segments translations into the tokens that search found."""

    def __init__(self, plain: Vocabulary, translations: Sequence[Translation]) -> None:
        super().__init__(plain.model)
        ids = {token: i for i, token in enumerate(plain.tokens(range(len(plain))))}
        self.segmentations = [
            [ids[token] for token in translation.tokens[:-1]] for translation in translations
        ]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        assert len(texts) == len(self.segmentations)
        return self.segmentations
