"""Complete network: encoder, decoder, embeddings and the projection to the vocabulary."""

from torch import Tensor, nn

from seq2seq.model.decoder import Decoder
from seq2seq.model.encoder import Encoder
from seq2seq.model.layers import Dropout
from seq2seq.model.state import DecoderState, EncoderOutput, Memory, Step


class Seq2Seq(nn.Module):
    """Encoder-decoder behind the calls of search and training.

    Search calls `encode`, `start`, `step` and `project`. Training calls `forward`, whose outputs
    the loss projects to the vocabulary.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        tgt_embedding: nn.Embedding,
        projection: nn.Linear,
        dropout: float,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.tgt_embedding = tgt_embedding
        self.projection = projection
        self.dropout = Dropout(dropout)

    def encode(self, src: Tensor, src_lengths: Tensor) -> EncoderOutput:
        """Encode source ids [B, S] with lengths [B], end-of-sentence included."""
        encoded: EncoderOutput = self.encoder(src, src_lengths)
        return encoded

    def start(self, encoded: EncoderOutput) -> tuple[Memory, DecoderState]:
        """Return the memory of the sentences and the state before the first target position."""
        return self.decoder.start(encoded)

    def step(self, ids: Tensor, state: DecoderState, memory: Memory) -> Step:
        """Advance N = B * K hypotheses, given their last ids [N], by one target position."""
        return self.decoder.step(self.decoder.inputs(self.embed(ids)), state, memory)

    def project(self, outputs: Tensor) -> Tensor:
        """Return logits [..., V] for outputs [..., R]."""
        logits: Tensor = self.projection(outputs)
        return logits

    def forward(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Return outputs [B, T, R] under teacher forcing: ids [B, S], lengths [B], ids [B, T]."""
        memory, state = self.start(self.encode(src, src_lengths))
        embedded = self.embed(tgt_in.t()).transpose(0, 1)  # time-major in memory, as unrolls read
        return self.decoder(embedded, state, memory)

    def embed(self, ids: Tensor) -> Tensor:
        """Return target embeddings [..., E] of ids [...], with dropout in training."""
        return self.dropout(self.tgt_embedding(ids))


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights by name, detached; a tied weight has one name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())
