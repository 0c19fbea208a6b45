"""The whole network: encoder, decoder, embeddings and the projection to the vocabulary."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.inference.approximate_logits import ApproximateLogits, ApproximateProjection
from seq2seq.model.decoder import Decoder
from seq2seq.model.encoder import Encoder, EncoderOutput
from seq2seq.model.layers import Dropout
from seq2seq.model.state import DecoderState, Inputs, Memory, Step

MOST_GATES = 1 << 25  # numbers kept of what pieces add to gates; they take time to compute
MIN_INT8_SHORTLIST_WEIGHTS = 1 << 18  # entries of a projection; a smaller one takes no time


class Seq2Seq(nn.Module):
    """The calls that training and search know: `encode`, `start`, `step`, `project`, `forward`."""

    input_gates: Tensor | None  # [V, 4H], where it was settled

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
        self.rough: ApproximateProjection | None = None
        self.register_buffer("input_gates", None, persistent=False)

    def encode(self, src: Tensor, src_lengths: Tensor) -> EncoderOutput:
        """Source ids [B, S], their lengths [B] (END counted) -> EncoderOutput."""
        encoded: EncoderOutput = self.encoder(src, src_lengths)
        return encoded

    def start(self, encoded: EncoderOutput) -> tuple[Memory, DecoderState]:
        """The memory of the sentences, and the state before the first target position."""
        return self.decoder.start(encoded)

    def step(self, ids: Tensor, state: DecoderState, memory: Memory) -> Step:
        """One target position: the last ids [N] of N = B * K hypotheses -> Step."""
        return self.decoder.step(self._inputs(ids), state, memory)

    @torch.no_grad()
    def settle(self) -> None:
        """Arrange what is constant while weights stay as they are, for steps of few rows.

        What every piece adds to the gates of the lowest layers is computed now, once, unless it is
        too large; and the projection is laid out in memory as products of few rows read it, apart
        from an embedding it is tied to.
        """
        self.encoder.settle(MOST_GATES)
        device = self.tgt_embedding.weight.device
        pieces = torch.arange(self.tgt_embedding.num_embeddings, device=device)
        width = self.decoder.inputs(self.embed(pieces[:1])).gates.shape[-1]
        if len(pieces) * width <= MOST_GATES:
            self.input_gates = self.decoder.inputs(self.embed(pieces)).gates
        weight = self.projection.weight
        if isinstance(weight, nn.Parameter):  # no stand-in, laid out already
            self.projection.weight = nn.Parameter(weight.t().contiguous().t(), requires_grad=False)

    def project(self, outputs: Tensor) -> Tensor:
        """Outputs [..., R] -> logits [..., V]."""
        weight, bias = self.projection.weight, self.projection.bias
        if outputs.is_cuda or not isinstance(weight, nn.Parameter):  # the latter: a stand-in
            return F.linear(outputs, weight, bias)
        return F.linear(outputs, weight).add_(bias)  # a CPU takes a tenth less so

    def project_approximately(self, outputs: Tensor) -> ApproximateLogits | None:
        """Outputs [N, R] -> logits [N, V] by int8 products; None if not enabled."""
        return None if self.rough is None else self.rough(outputs)

    @torch.no_grad()
    def enable_int8_shortlist(self) -> None:
        """Have the projection in eight bits, too, for `project_approximately`, if it is large."""
        weight, bias = self.projection.weight, self.projection.bias
        self.rough = (
            ApproximateProjection(weight, bias)
            if weight.numel() >= MIN_INT8_SHORTLIST_WEIGHTS
            else None
        )

    def forward(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Teacher forcing: ids [B, S], lengths [B], ids [B, T] -> outputs [B, T, R] for a loss."""
        memory, state = self.start(self.encode(src, src_lengths))
        embedded = self.embed(tgt_in.t()).transpose(0, 1)  # as loops over time read memory
        return self.decoder(embedded, state, memory)

    def embed(self, ids: Tensor) -> Tensor:
        """Target ids [...] -> embeddings [..., E], with dropout in training."""
        return self.dropout(self.tgt_embedding(ids))

    def _inputs(self, ids: Tensor) -> Inputs:
        embedded = self.embed(ids)
        if self.input_gates is None:
            return self.decoder.inputs(embedded)
        return Inputs(embedded, self.input_gates.index_select(0, ids))
