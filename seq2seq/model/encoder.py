"""The encoder: a uni- or bidirectional LSTM over the source."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.model.layers import Dropout
from seq2seq.model.lstm import LSTMLayer, LSTMStack


class EncoderOutput(NamedTuple):
    """What the encoder says of a batch of sources."""

    outputs: Tensor  # [B, S, H], zero where padded
    hidden: Tensor  # [B, L, H]: final states, forward half then backward half
    cell: Tensor  # [B, L, H]
    pad_mask: Tensor  # [B, S], True = padding


class Encoder(nn.Module):
    """Source ids -> a vector a position, and the final states (Bahdanau et al. 2015, section 3.2).

    Each direction is an LSTM of its own over the padded batch; the backward one reads every source
    reversed within its own length, so that padding comes last in both and cannot reach a real
    position. Where there is one direction alone, `reverse` says that it is the backward one, which
    ends at the first word (Sutskever et al. 2014, section 3.3); outputs stand in the source's order
    all the same.
    """

    input_gates: Tensor | None  # [directions, V, 4D], where they were settled

    def __init__(
        self,
        embedding: nn.Embedding,
        hidden_size: int,
        num_layers: int,
        bidirectional: bool,
        dropout: float,
        reverse: bool = False,
    ) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        if hidden_size % directions:
            raise ValueError(f"hidden_size {hidden_size} must be even for two directions")
        if bidirectional and reverse:
            raise ValueError("an encoder of two directions reads the source reversed already")
        self.embedding = embedding
        self.dropout = Dropout(dropout)
        self.reads_back = [False, True] if bidirectional else [reverse]  # each direction
        self.direction_size = hidden_size // directions
        sizes = [embedding.embedding_dim] + [hidden_size] * (num_layers - 1)
        self.forward_layers = LSTMStack(sizes, self.direction_size)
        self.backward_layers = LSTMStack(sizes if bidirectional else [], self.direction_size)
        self.register_buffer("input_gates", None, persistent=False)

    @torch.no_grad()
    def settle(self, most: int) -> None:
        """Compute once what every piece adds to the lowest layers' gates, if so many numbers."""
        pieces, lowest = len(self.embedding.weight), next(self._levels())
        if len(lowest) * pieces * 4 * self.direction_size <= most:
            embedded = self.embedding(torch.arange(pieces, device=self.embedding.weight.device))
            self.input_gates = torch.stack([layer.gates(embedded) for layer in lowest])

    def forward(self, src: Tensor, src_lengths: Tensor) -> EncoderOutput:
        """`src` [B, S], its true lengths [B] -> EncoderOutput."""
        positions = torch.arange(src.shape[1], device=src.device)
        pad_mask = positions >= src_lengths[:, None]
        # Its own inverse.
        reversal = (src_lengths[:, None] - 1 - positions).where(~pad_mask, positions)
        outputs, states = self._first_inputs(src), []
        for layers in self._levels():
            ends = []
            for direction, (layer, back) in enumerate(zip(layers, self.reads_back, strict=True)):
                inputs = _reorder(outputs, reversal) if back else outputs
                hiddens, cells = self._read(direction, layer, inputs, src_lengths)
                hidden, cell = (_last(part, src_lengths) for part in (hiddens, cells))
                ends.append((_reorder(hiddens, reversal) if back else hiddens, hidden, cell))
            outputs, hidden, cell = (torch.cat(parts, dim=-1) for parts in zip(*ends, strict=True))
            outputs = self.dropout(outputs)
            states.append((hidden, cell))
        hidden, cell = (torch.stack(parts, dim=1) for parts in zip(*states, strict=True))
        outputs.masked_fill_(pad_mask[:, :, None], 0)
        return EncoderOutput(outputs, hidden, cell, pad_mask)

    def _levels(self) -> Iterator[tuple[LSTMLayer, ...]]:
        """The layers of one level after the other, lowest first: one of each direction."""
        stacks = (self.forward_layers, self.backward_layers)[: len(self.reads_back)]
        return zip(*stacks, strict=True)

    def _first_inputs(self, src: Tensor) -> Tensor:
        """What the lowest layers read: embeddings [B, S, E], or ids [B, S] where it is settled."""
        settled = self.input_gates is not None and not torch.is_grad_enabled()
        return src if settled else self.dropout(self.embedding(src))

    def _read(
        self, direction: int, layer: LSTMLayer, inputs: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One layer over inputs [B, S, *] or ids [B, S]: every hidden and cell [B, S, D]."""
        zero = layer.bias.new_zeros(len(lengths), layer.hidden_size)
        if torch.is_grad_enabled():
            whole: tuple[Tensor, Tensor] = layer(inputs, zero, zero)
            return whole
        longest = inputs.shape[1] if lengths.is_cuda else int(lengths.max())  # a GPU is not asked
        steps = inputs[:, :longest].transpose(0, 1)
        if self.input_gates is None or inputs.dim() > 2:
            # A step at a time: no product's shape, and no bit, hangs on the longest source.
            gates: Iterable[Tensor] = (layer.gates(each) for each in steps)
        else:
            gates = (F.embedding(ids, self.input_gates[direction]) for ids in steps)
        return layer.run(gates, inputs.shape[1], zero, zero)


def _last(states: Tensor, lengths: Tensor) -> Tensor:
    """Of states [B, S, D] each row's at its last real position: [B, D]."""
    return states[torch.arange(len(states), device=states.device), lengths - 1]


def _reorder(inputs: Tensor, order: Tensor) -> Tensor:
    """Inputs [B, S, *] with the positions of each row taken in `order` [B, S], its own inverse."""
    firsts = order.shape[1] * torch.arange(len(order), device=order.device)
    reordered: Tensor = _Reordered.apply(  # type: ignore[no-untyped-call]
        inputs.flatten(0, 1), (order + firsts[:, None]).flatten()
    )
    return reordered.view_as(inputs)


class _Reordered(torch.autograd.Function):
    """Rows in an order that is its own inverse, so that gradients take the same way back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        return grads[0].index_select(0, order), None
