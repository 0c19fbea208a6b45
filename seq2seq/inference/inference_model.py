"""Inference model: a `Seq2Seq` with precomputed tables and inference-only weight formats."""

import copy
from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.inference.weights import InferenceWeight
from seq2seq.model.attention import DotScore, GeneralScore
from seq2seq.model.copying import CopyOutputs, CopyStep
from seq2seq.model.decoder import BahdanauDecoder
from seq2seq.model.external_score import is_external
from seq2seq.model.gru import GRULayer
from seq2seq.model.lstm import LSTMLayer, NormedLSTMLayer
from seq2seq.model.recurrent import RecurrentLayer
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.model.state import DecoderState, EncoderOutput, Inputs, Memory, Step

MAX_TABLE_ENTRIES = 1 << 25  # larger tables of input gates take too long to compute


class InferenceLayer(RecurrentLayer):
    """Recurrent layer that computes one step after another, in place and without a graph.

    A base of the classes below, each beside the layer whose steps it computes.
    """

    input_gates: Tensor | None = None  # [V, gate_size], the gates of every token's embedding

    def gates(self, inputs: Tensor) -> Tensor:
        """Return the gates of inputs [..., input_size], or of ids [...] with a table."""
        if self.input_gates is None:
            return super().gates(inputs)
        return F.embedding(inputs, self.input_gates)

    def step(self, gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        return self.step_into(torch.empty_like(hidden), torch.empty_like(cell), gates, hidden, cell)

    def forward(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        # One product per step: its shape, and so its rounding, does not depend on the length.
        length = inputs.shape[1]
        hiddens = hidden.new_empty(length, *hidden.shape)
        cells = cell.new_empty(length, *cell.shape)
        for given, new_hidden, new_cell in zip(inputs.unbind(1), hiddens, cells, strict=True):
            hidden, cell = self.step_into(new_hidden, new_cell, self.gates(given), hidden, cell)
        return hiddens.transpose(0, 1), cells.transpose(0, 1)

    def run(
        self, inputs: Tensor, state: tuple[Tensor, Tensor], pad_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if inputs.is_cuda and self.input_gates is None:
            return super().run(inputs, state, pad_mask)
        return RecurrentLayer.run(self, inputs, state, pad_mask)


class InferenceLSTM(InferenceLayer, LSTMLayer):
    """LSTM layer in a model for inference."""


class InferenceNormedLSTM(InferenceLayer, NormedLSTMLayer):
    """LSTM layer with layer normalisation in a model for inference."""


class InferenceGRU(InferenceLayer, GRULayer):
    """Gated hidden unit in a model for inference."""


INFERENCE_CLASSES: dict[type[nn.Module], type[InferenceLayer]] = {
    LSTMLayer: InferenceLSTM,
    NormedLSTMLayer: InferenceNormedLSTM,
    GRULayer: InferenceGRU,
}


class InferenceModel:
    """A `Seq2Seq` in evaluation mode behind the calls of search; to be called without gradients.

    It has modules of its own but shares the parameters, so it follows a model in training. Once
    the weights are final, `replace_weights` and `precompute_input_gates` make it faster; from then
    on it no longer follows them.
    """

    def __init__(self, model: Seq2Seq) -> None:
        tensors = chain(model.parameters(), model.buffers())
        self.network = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors}).eval()
        for module in self.network.modules():
            if type(module) in INFERENCE_CLASSES:
                module.__class__ = INFERENCE_CLASSES[type(module)]
        score = type(getattr(self.network.decoder, "score", None))
        self._multiplies_keys = score in (DotScore, GeneralScore)
        # Other decoders read the embedding of the last token by its gates alone.
        self._reads_embeddings = isinstance(self.network.decoder, BahdanauDecoder)
        self._source_table = False  # True: the encoder reads ids, not embeddings
        self._target_gates: Tensor | None = None  # [V, 4H]

    def encode(self, src: Tensor, src_lengths: Tensor) -> EncoderOutput:
        """Encode source ids [B, S] with lengths [B]; padding beyond the longest costs no time."""
        # Reading the lengths from a GPU would wait for it.
        longest = int(src_lengths.max()) if src.device.type == "cpu" else src.shape[1]
        encoder, ids = self.network.encoder, src[:, :longest]
        encoded = encoder.run(ids if self._source_table else encoder.embedding(ids), src_lengths)
        encoded = encoded._replace(src=src)
        if (padding := src.shape[1] - longest) == 0:
            return encoded
        return encoded._replace(
            outputs=F.pad(encoded.outputs, (0, 0, 0, padding)),
            pad_mask=F.pad(encoded.pad_mask, (0, padding), value=True),
        )

    def start(self, encoded: EncoderOutput) -> tuple[Memory, DecoderState]:
        """Return the memory of the sentences and the state before the first target position."""
        memory, state = self.network.start(encoded)
        if self._multiplies_keys:
            # With neighbouring positions adjacent in memory, a CPU multiplies few queries by the
            # keys in half the time.
            memory = memory._replace(keys=memory.keys.mT.contiguous().mT)
        return memory, state

    def step(self, ids: Tensor, state: DecoderState, memory: Memory) -> Step | CopyStep:
        """Advance N = B * K hypotheses, given their last ids [N], by one target position."""
        if self._target_gates is None:
            return self.network.step(ids, state, memory)
        gates = self._target_gates.index_select(0, ids)
        embedded = self.network.embed(ids) if self._reads_embeddings else gates[:, :0]
        return self.network.advance(ids, Inputs(embedded, gates), state, memory)

    def project(self, outputs: Tensor | CopyOutputs) -> Tensor:
        """Return logits [..., V] for outputs [..., R], or log-probabilities [N, V] if copying."""
        if isinstance(outputs, CopyOutputs):
            return outputs.mix(self.project(outputs.outputs))
        weight, bias = self.network.projection.weight, self.network.projection.bias
        if outputs.device.type != "cpu" or isinstance(weight, InferenceWeight):
            return F.linear(outputs, weight, bias)
        return F.linear(outputs, weight).add_(bias)  # 10% faster on CPU than with the bias

    @torch.no_grad()
    def replace_weights(
        self,
        weight_format: Callable[[Tensor], InferenceWeight | Tensor],
        with_projection: bool = True,
    ) -> None:
        """Convert the weights of recurrent layers and linear layers with more than one output.

        The output projection is left out unless `with_projection`, and so is a score from outside,
        which may use its weights in other ways than a converted one has.
        """
        score = getattr(self.network.decoder, "score", None)
        skipped = set() if score is None or not is_external(score) else set(score.modules())
        if not with_projection:
            skipped.add(self.network.projection)
        for module in self.network.modules():
            names: tuple[str, ...] = ()
            if module in skipped:
                continue
            if isinstance(module, RecurrentLayer):
                names = module.weight_names
            elif isinstance(module, nn.Linear) and module.out_features > 1:
                names = ("weight",)
            for name in names:
                weight = getattr(module, name)
                delattr(module, name)
                setattr(module, name, weight_format(weight))

    @torch.no_grad()
    def precompute_input_gates(self) -> None:
        """Tabulate the gates of all tokens' embeddings in the lowest layers, unless too large.

        Also lay out the output projection as products of few rows read it, apart from an embedding
        to which it is tied.
        """
        network, projection = self.network, self.network.projection
        lowest = [layers.bottom for layers in network.encoder.directions]
        ids = _all_ids(network.encoder.embedding)
        entries = len(lowest) * len(ids) * lowest[0].gate_size
        if not ids.is_cuda and entries <= MAX_TABLE_ENTRIES:  # cuDNN reads embeddings
            embedded = network.encoder.embedding(ids)
            for layer in lowest:
                layer.input_gates = layer.gates(embedded)
            self._source_table = True
        ids = _all_ids(network.tgt_embedding)
        width = network.decoder.inputs(network.embed(ids[:1])).gates.shape[-1]
        if len(ids) * width <= MAX_TABLE_ENTRIES:
            self._target_gates = network.decoder.inputs(network.embed(ids)).gates
        if not isinstance(projection.weight, InferenceWeight):
            columns = projection.weight.t().contiguous().t()
            projection.weight = nn.Parameter(columns, requires_grad=False)


def _all_ids(embedding: nn.Embedding) -> Tensor:
    return torch.arange(embedding.num_embeddings, device=embedding.weight.device)
