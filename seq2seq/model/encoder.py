"""Encoder: a uni- or bidirectional recurrent network over the source."""

from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.model.layers import Dropout, DropoutRates, EmbeddingDropout
from seq2seq.model.recurrent import LSTMLayer, RecurrentLayer, RecurrentStack, last_of
from seq2seq.model.state import EncoderOutput


class Encoder(nn.Module):
    """Recurrent encoder: source ids to one vector per position (Bahdanau et al. 2015, section 3.2).

    Each direction has layers of its own, over the padded batch. The backward direction reads each
    source reversed within its own length, so padding comes last in both directions and never
    reaches a real position. A unidirectional encoder with `reverse` is the backward one and ends at
    the first word (Sutskever et al. 2014, section 3.3), having read end-of-sentence first. Outputs
    are always in source order. Bahdanau's units are `GRULayer`, Sutskever's `LSTMLayer`; of several
    bidirectional layers each reads both directions of the layer below.
    """

    def __init__(  # noqa: PLR0913
        self,
        embedding: nn.Embedding,
        hidden_size: int,
        num_layers: int,
        bidirectional: bool,
        dropout: float | DropoutRates,
        reverse: bool = False,
        residual: bool = False,
        layer_class: type[RecurrentLayer] = LSTMLayer,
    ) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        if hidden_size % directions:
            raise ValueError(f"hidden_size {hidden_size} must be even for two directions")
        if bidirectional and reverse:
            raise ValueError("a bidirectional encoder already reads the source reversed")
        self.embedding = embedding
        rates = DropoutRates.of(dropout)
        self.embedding_dropout = EmbeddingDropout(rates)
        self.dropout = Dropout(rates.hidden)
        self.reversed = [False, True] if bidirectional else [reverse]  # one for each direction
        self.direction_size = hidden_size // directions
        sizes = [embedding.embedding_dim] + [hidden_size] * (num_layers - 1)
        self.forward_layers, self.backward_layers = (
            RecurrentStack(layer_class, input_sizes, self.direction_size, residual)
            for input_sizes in (sizes, sizes if bidirectional else [])
        )

    @property
    def directions(self) -> list[RecurrentStack]:
        """Return the layers of each direction."""
        return [self.forward_layers, self.backward_layers][: len(self.reversed)]

    def forward(self, src: Tensor, src_lengths: Tensor) -> EncoderOutput:
        """Encode source ids [B, S] with lengths [B]."""
        return self.run(self.embedding_dropout(self.embedding(src)), src_lengths)

    def run(self, inputs: Tensor, src_lengths: Tensor) -> EncoderOutput:
        """Run all layers over inputs [B, S, E] of the lowest one, with lengths [B]."""
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        pad_mask = positions >= src_lengths[:, None]  # [B, S]
        reversal = (src_lengths[:, None] - 1 - positions).where(~pad_mask, positions)  # [B, S]
        outputs = inputs
        states = []
        below = None
        for layers in zip(*self.directions, strict=True):
            ends = []
            for layer, is_reversed in zip(layers, self.reversed, strict=True):
                start = layer.zero_state(src_lengths.shape[0])
                read = _reorder(outputs, reversal) if is_reversed else outputs
                hiddens, cell = layer.run(read, start, pad_mask)  # [B, S, D], [B, D]
                hidden = last_of(hiddens, src_lengths)  # [B, D]
                ends.append((_reorder(hiddens, reversal) if is_reversed else hiddens, hidden, cell))
            outputs, hidden, cell = (torch.cat(parts, dim=-1) for parts in zip(*ends, strict=True))
            if self.forward_layers.residual:
                outputs = below = outputs if below is None else outputs + below
            outputs = self.dropout(outputs)  # [B, S, H]
            states.append((hidden, cell))
        hidden, cell = (torch.stack(parts, dim=1) for parts in zip(*states, strict=True))
        outputs.masked_fill_(pad_mask[:, :, None], 0)
        return EncoderOutput(outputs, hidden, cell, pad_mask)


def _reorder(inputs: Tensor, order: Tensor) -> Tensor:
    """Reorder the positions of inputs [B, S, *] by `order` [B, S], which is its own inverse."""
    firsts = order.shape[1] * torch.arange(order.shape[0], device=order.device)
    reordered: Tensor = _Reordered.apply(  # type: ignore[no-untyped-call]
        inputs.flatten(0, 1), (order + firsts[:, None]).flatten()
    )
    return reordered.view_as(inputs)


class _Reordered(torch.autograd.Function):
    """Permutation of rows that is its own inverse, so the backward pass applies it again."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        return grads[0].index_select(0, order), None
