"""Graph of the encoder and of the decoder's start: source ids to memory and first state."""

from collections.abc import Sequence

from onnx import TensorProto

from seq2seq.export.attention import joined_heads, memory_of
from seq2seq.export.copying import DIMS, POSITIONS, positions_of
from seq2seq.export.decoder import embed, known_decoder
from seq2seq.export.graph import INT, Graph
from seq2seq.export.recurrent import run_layer
from seq2seq.model.decoder import BahdanauDecoder, LuongDecoder, PlainDecoder
from seq2seq.model.encoder import Encoder
from seq2seq.model.seq2seq import Seq2Seq


def encoder_graph(model: Seq2Seq, int8: bool) -> Graph:
    """Return the graph `src [B, S], src_lengths [B] -> memory, first decoder state`.

    It computes `Seq2Seq.encode` and `Seq2Seq.start`.
    """
    graph = Graph("encoder", int8)
    src = graph.input("src", ["batch", "source"], INT)
    src_lengths = graph.input("src_lengths", ["batch"], INT)
    levels, hiddens, cells = _run(graph, model.encoder, src, src_lengths)
    outputs = graph.op("Transpose", levels[-1], perm=[1, 0, 2])
    decoder = known_decoder(model)
    if not isinstance(decoder, PlainDecoder):
        memory = memory_of(graph, decoder, outputs, src, src_lengths)
        for name, (value, dims) in memory.items():
            graph.output(value, name, dims)
        if model.copying is not None:
            values = joined_heads(graph, decoder, memory["values"][0])
            for name, value in positions_of(graph, model.copying, src, values).items():
                graph.output(value, name, DIMS, POSITIONS[name])
    layers = len(decoder.layers)
    hiddens, cells = _aligned(hiddens, layers), _aligned(cells, layers)
    if isinstance(decoder, BahdanauDecoder):
        hiddens, cells = _initial_hidden(graph, decoder, hiddens)
    if int8:  # rounding loses NaN
        hiddens[0] = graph.op("Add", hiddens[0], _nan_or_zero(graph, levels))
    size = decoder.layers.bottom.hidden_size
    for name, states in (("hidden", hiddens), ("cell", cells)):
        for level, value in enumerate(states):
            graph.output(value, f"{name}_{level}", ["batch", size])
    if isinstance(decoder, LuongDecoder) and decoder.input_feed_gates is not None:
        zeros = _zeros(graph, hiddens[0], decoder.input_feed_size)
        graph.output(zeros, "input_feed", ["batch", decoder.input_feed_size])
    return graph


def _run(
    graph: Graph, encoder: Encoder, src: str, src_lengths: str
) -> tuple[list[str], list[str], list[str]]:
    """Return the outputs [S, B, H], zero at padding, and final states [B, H] of each layer."""
    lengths = graph.op("Cast", src_lengths, to=TensorProto.INT32)
    outputs = embed(graph, encoder.embedding, graph.op("Transpose", src, perm=[1, 0]))  # [S, B, E]
    below: str | None = None
    levels: list[str] = []
    hiddens: list[str] = []
    cells: list[str] = []
    for layers in zip(*encoder.directions, strict=True):
        width = layers[0].hidden_size * len(layers)
        found, *finals = run_layer(graph, layers, encoder.reversed, outputs, lengths)
        joined = graph.op("Transpose", found, perm=[0, 2, 1, 3])  # [S, B, directions, D]
        outputs = graph.op("Reshape", joined, graph.constant([0, 0, width]))  # [S, B, H]
        if encoder.forward_layers.residual:
            outputs = below = outputs if below is None else graph.op("Add", outputs, below)
        levels.append(outputs)
        for final, states in zip(finals, (hiddens, cells), strict=False):
            batch_major = graph.op("Transpose", final, perm=[1, 0, 2])
            states.append(graph.reshape(batch_major, -1, width))  # [B, H]
    return levels, hiddens, cells


def _nan_or_zero(graph: Graph, levels: Sequence[str]) -> str:
    """Return NaN for sources of which a layer's outputs [S, B, H] contain NaN, and 0: [B, 1]."""
    axes = graph.constant([0, 2])
    sums = [graph.op("ReduceSum", outputs, axes, keepdims=0) for outputs in levels]
    total = graph.op("Mul", graph.sum(sums), graph.constant(0.0))
    return graph.unsqueeze(total, 1)


def _aligned(states: list[str], count: int) -> list[str]:
    """Return the encoder state from which each decoder layer starts, as `decoder.aligned`."""
    if not states:  # cells of layers that have none
        return []
    missing = count - len(states)
    return states[-missing:] if missing <= 0 else [states[0]] * missing + states


def _initial_hidden(
    graph: Graph, decoder: BahdanauDecoder, hiddens: list[str]
) -> tuple[list[str], list[str]]:
    """Return `s_0 = tanh(W h + b)`, with h the backward states, and any cells, zero."""
    layer, size = decoder.initial_hidden, decoder.direction_size
    first = []
    for hidden in hiddens:
        width = decoder.layers.bottom.hidden_size
        own = hidden if width == size else graph.split(hidden, [width - size, size])[1]
        first.append(graph.op("Tanh", graph.linear(own, layer.weight, layer.bias)))
    zero = graph.op("Mul", first[0], graph.constant(0.0))
    return first, [zero] * len(first) if decoder.layers.bottom.has_cell else []


def _zeros(graph: Graph, like: str, width: int) -> str:
    """Return zeros [B, width] for a value [B, *]."""
    dims = graph.op("Concat", graph.size(like, 0), graph.constant([width]), axis=0)
    return graph.op("ConstantOfShape", dims)
