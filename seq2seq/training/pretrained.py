"""Initialise embeddings from pretrained word vectors (`data.embeddings`)."""

from typing import NamedTuple

import torch
from torch import nn

from seq2seq.config.schema import Config
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.data.word_vectors import WordVectors, read_word_vectors
from seq2seq.model.seq2seq import Seq2Seq


class Pretrained(NamedTuple):
    """Vectors of both sides; None: random initial embeddings."""

    src: WordVectors | None = None
    tgt: WordVectors | None = None

    def notes(self) -> list[str]:
        """Return how many words were found, for the log."""
        return [vectors.note() for vectors in self if vectors is not None]

    def initialise(self, model: Seq2Seq) -> None:
        """Set the embeddings of the words that have vectors; all embeddings are trained."""
        for vectors, embedding in (
            (self.src, model.encoder.embedding),
            (self.tgt, model.tgt_embedding),
        ):
            if vectors is not None:
                _set_rows(embedding, vectors)


NOT_PRETRAINED = Pretrained()


def read_pretrained(config: Config, vocabularies: Vocabularies) -> Pretrained:
    """Read the files of `data.embeddings`; raises UserError as `read_word_vectors`."""
    files, size = config.data.embeddings, config.model.embedding_size
    if files is None:
        return NOT_PRETRAINED
    sides = ((files.src, vocabularies.src), (files.tgt, vocabularies.tgt))
    return Pretrained(
        *(
            None if path is None else read_word_vectors(path, vocabulary.word_ids(), size)
            for path, vocabulary in sides
        )
    )


@torch.no_grad()
def _set_rows(embedding: nn.Embedding, vectors: WordVectors) -> None:
    weight = embedding.weight
    ids = torch.tensor(vectors.ids, device=weight.device)
    weight[ids] = torch.from_numpy(vectors.scaled()).to(weight)
