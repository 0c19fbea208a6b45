"""Complete network: encoder, decoder, embeddings and the projection to the vocabulary."""

import copy
from itertools import chain

import torch
from torch import Tensor, nn

from seq2seq.model.copying import Copying, CopyOutputs, CopyStep, continuation, first_positions
from seq2seq.model.decoder import Decoder
from seq2seq.model.encoder import Encoder
from seq2seq.model.layers import DropoutRates, EmbeddingDropout
from seq2seq.model.state import DecoderState, EncoderOutput, Inputs, Memory, Step, Unrolled


class Seq2Seq(nn.Module):
    """Encoder-decoder behind the calls of search and training.

    Search calls `encode`, `start`, `step` and `project`. Training calls `unroll`, whose outputs
    the loss projects to the vocabulary. With copying the outputs of a step are `CopyOutputs`, and
    `project` returns the log-probabilities of the mixture.
    """

    def __init__(  # noqa: PLR0913
        self,
        encoder: Encoder,
        decoder: Decoder,
        tgt_embedding: nn.Embedding,
        projection: nn.Linear,
        dropout: float | DropoutRates,
        copying: Copying | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.tgt_embedding = tgt_embedding
        self.projection = projection
        self.dropout = EmbeddingDropout(DropoutRates.of(dropout))
        self.copying = copying

    def encode(self, src: Tensor, src_lengths: Tensor) -> EncoderOutput:
        """Encode source ids [B, S] with lengths [B], end-of-sentence included."""
        encoded: EncoderOutput = self.encoder(src, src_lengths)
        return encoded._replace(src=src)

    def start(self, encoded: EncoderOutput) -> tuple[Memory, DecoderState]:
        """Return the memory of the sentences and the state before the first target position."""
        memory, state = self.decoder.start(encoded)
        if self.copying is not None:
            assert encoded.src is not None, "set by encode"
            memory = memory._replace(
                src=encoded.src,
                first=first_positions(encoded.src),
                position_scores=self.copying.position_scores(memory.values),
            )
            copied = torch.zeros_like(encoded.src, dtype=encoded.cell.dtype)
            state = state._replace(copied=copied)  # nothing has been copied
        return memory, state

    def step(self, ids: Tensor, state: DecoderState, memory: Memory) -> Step | CopyStep:
        """Advance N = B * K hypotheses, given their last ids [N], by one target position."""
        return self.advance(ids, self.decoder.inputs(self.embed(ids)), state, memory)

    def advance(
        self, ids: Tensor, inputs: Inputs, state: DecoderState, memory: Memory
    ) -> Step | CopyStep:
        """Advance N = B * K hypotheses, given last ids and their inputs, by one target position."""
        step = self.decoder.step(inputs, state, memory)
        if self.copying is None:
            return step
        weights = step.attention_weights
        assert weights is not None, "no copying without attention"
        assert state.copied is not None, "set by start"
        positions = memory.positions(ids.shape[0])
        continued = continuation(state.copied, ids, positions.src)
        copied, shares = self.copying(step.outputs, weights, continued, positions)
        state = step.state._replace(copied=shares)
        return CopyStep(copied, state, weights, step.head_weights)

    def project(self, outputs: Tensor | CopyOutputs) -> Tensor:
        """Return logits [..., V] for outputs [..., R], or log-probabilities [N, V] if copying."""
        if isinstance(outputs, CopyOutputs):
            return outputs.mix(self.projection(outputs.outputs))
        logits: Tensor = self.projection(outputs)
        return logits

    def unroll(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Unrolled:
        """Run all steps under teacher forcing: ids [B, S], lengths [B], ids [B, T]."""
        memory, state = self.start(self.encode(src, src_lengths))
        embedded = self.embed(tgt_in.t()).transpose(0, 1)  # time-major in memory, as unrolls read
        unrolled: Unrolled = self.decoder(embedded, state, memory)
        if self.copying is None:
            return unrolled
        assert unrolled.attention_weights is not None, "no copying without attention"
        positions = memory.positions(len(src))
        targets = unrolled.outputs, unrolled.attention_weights, tgt_in, positions
        return unrolled._replace(
            continued=self.copying.continuations(*targets), positions=positions
        )

    def forward(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Return the outputs [B, T, R] of `unroll`."""
        return self.unroll(src, src_lengths, tgt_in).outputs

    def embed(self, ids: Tensor) -> Tensor:
        """Return target embeddings [..., E] of ids [...], with dropout in training."""
        return self.dropout(self.tgt_embedding(ids))


def evaluation_copy(model: Seq2Seq) -> Seq2Seq:
    """Return the model in evaluation mode, on modules of its own that share all weights.

    It follows a model in training.
    """
    tensors = chain(model.parameters(), model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors}).eval()


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights by name, detached; a tied weight has one name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())
