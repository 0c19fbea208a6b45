"""Graph of one decoder step: last ids, state and memory to log-probabilities and next state.

The equations are those of `step` in each decoder of `seq2seq.model`. Matrices that are multiplied
by parts of one vector are joined, so that each LSTM layer is one product.
"""

from typing import NamedTuple

from torch import nn

from seq2seq.export.attention import Values, attend, check_attention, declare_memory
from seq2seq.export.cells import Weights, cell_step
from seq2seq.export.copying import mixture
from seq2seq.export.graph import INT, Graph, without_onnx_form
from seq2seq.model.decoder import (
    HIDDEN_SCALE,
    OUTPUT_SCALE,
    BahdanauDecoder,
    LuongDecoder,
    PlainDecoder,
)
from seq2seq.model.gnmt_decoder import GNMTDecoder
from seq2seq.model.layers import ScaledEmbedding
from seq2seq.model.local_attention import MonotonicWindow
from seq2seq.model.recurrent import RecurrentLayer, RecurrentStack
from seq2seq.model.seq2seq import Seq2Seq

KnownDecoder = BahdanauDecoder | LuongDecoder | GNMTDecoder | PlainDecoder


class Stepped(NamedTuple):
    """Values after one step."""

    outputs: str  # [N, R]
    state: Values  # by the name of the input that it becomes
    weights: str | None  # [N, S], attention weights


def decoder_graph(model: Seq2Seq, int8: bool) -> Graph:
    """Return the graph of `Seq2Seq.step` and the log-softmax of `project`.

    With copying the log-probabilities are those of the mixture. Inputs are `ids` [N], the state
    and the memory; the outputs `log_probs` [N, V] and `attention_weights` [N, S], if any, are
    followed by `next_NAME` for each part of the state. In int8 there is `output_sum` [N, 1], which
    is NaN where a value is that a fixed scale rounded to integers.
    """
    graph, decoder = Graph("decoder", int8), known_decoder(model)
    ids = graph.input("ids", ["rows"], INT)
    embedded = embed(graph, model.tgt_embedding, ids)
    dims = state_dims(model)
    state = {
        name: graph.input(name, ["rows", width], bound=_state_bound(name))
        for name, width in dims.items()
    }
    memory: Values = {}
    if not isinstance(decoder, PlainDecoder):
        residual = model.encoder.forward_layers.residual
        memory = declare_memory(graph, decoder, None if residual else 1.0)
    stepped = _step(graph, decoder, embedded, state, memory)
    projection = model.projection
    logits = graph.linear(stepped.outputs, projection.weight, projection.bias)
    log_probs = graph.op("LogSoftmax", logits, axis=-1)
    if model.copying is not None:
        assert stepped.weights is not None, "no copying without attention"
        given = stepped.outputs, stepped.weights, state | {"ids": ids}
        log_probs, copied = mixture(graph, model.copying, log_probs, *given)
        stepped.state["copied"] = copied
    graph.output(log_probs, "log_probs", ["rows", model.projection.out_features])
    if int8:
        sums = [
            graph.op("ReduceSum", value, graph.constant([-1]), keepdims=1)
            for value in dict.fromkeys(graph.rounded or [stepped.outputs])
        ]
        graph.output(graph.sum(sums), "output_sum", ["rows", 1])
    if stepped.weights is not None:
        graph.output(stepped.weights, "attention_weights", ["rows", "source"])
    for name, value in stepped.state.items():
        graph.output(value, f"next_{name}", ["rows", dims[name]])
    return graph


def embed(graph: Graph, embedding: nn.Embedding, ids: str) -> str:
    """Return the embeddings [..., E] of ids [...]."""
    scaled = isinstance(embedding, ScaledEmbedding)
    return graph.rows(embedding.weight, ids, embedding.embedding_dim**0.5 if scaled else 1.0)


def known_decoder(model: Seq2Seq) -> KnownDecoder:
    """Return the decoder of a model; raises UserError if it has no ONNX form."""
    decoder = model.decoder
    if type(decoder) not in (BahdanauDecoder, LuongDecoder, GNMTDecoder, PlainDecoder):
        raise without_onnx_form(f"the decoder {type(decoder).__name__}")
    assert isinstance(decoder, KnownDecoder)
    if not isinstance(decoder, PlainDecoder):
        check_attention(decoder)
    return decoder


def _step(
    graph: Graph, decoder: KnownDecoder, embedded: str, state: Values, memory: Values
) -> Stepped:
    if isinstance(decoder, BahdanauDecoder):
        return _bahdanau(graph, decoder, embedded, state, memory)
    if isinstance(decoder, LuongDecoder):
        return _luong(graph, decoder, embedded, state, memory)
    if isinstance(decoder, GNMTDecoder):
        return _gnmt(graph, decoder, embedded, state, memory)
    return _plain(graph, decoder, embedded, state)


def state_dims(model: Seq2Seq) -> dict[str, int | str]:
    """Return the width of each part of the decoder state."""
    decoder = known_decoder(model)
    dims: dict[str, int | str] = {}
    for level in range(len(decoder.layers)):
        size = decoder.layers.bottom.hidden_size
        dims[f"hidden_{level}"] = size
        if decoder.layers.bottom.has_cell:
            dims[f"cell_{level}"] = size
    if isinstance(decoder, LuongDecoder) and decoder.input_feed_gates is not None:
        dims["input_feed"] = decoder.input_feed_size
    if not isinstance(decoder, PlainDecoder):
        if decoder.coverage is not None:
            dims["coverage"] = "source"
        if isinstance(decoder.window, MonotonicWindow):
            dims["position"] = 1
    if model.copying is not None:
        dims["copied"] = "source"
    return dims


def _state_bound(name: str) -> float | None:
    """Return the largest absolute value of a part of the state: of a tanh, gated or averaged."""
    return 1.0 if name.startswith("hidden_") or name == "input_feed" else None


def _bahdanau(
    graph: Graph, decoder: BahdanauDecoder, embedded: str, state: Values, memory: Values
) -> Stepped:
    """Attend with `s_{t-1}`, then `s_t = LSTM(s_{t-1}, [y_{t-1}; c_t])`."""
    attended = attend(graph, decoder, state[f"hidden_{len(decoder.layers) - 1}"], state, memory)
    lowest: Weights = {embedded: decoder.layers.bottom.input_weight}
    lowest[attended.context] = decoder.context_gates.weight
    top, new_state = _step_layers(graph, decoder.layers, lowest, state)
    last = state[f"hidden_{len(decoder.layers) - 1}"]
    read = last if decoder.maxout else top
    sizes = decoder.layers.bottom.hidden_size, decoder.score.context_size
    parts = {read: (sizes[0], HIDDEN_SCALE), attended.context: (sizes[1], HIDDEN_SCALE)}
    parts[embedded] = decoder.output_layer.in_features - sum(sizes), 1.0
    outputs = _output_layer(graph, decoder.output_layer, parts, decoder.maxout)
    return Stepped(outputs, new_state | attended.state, attended.weights)


def _luong(
    graph: Graph, decoder: LuongDecoder, embedded: str, state: Values, memory: Values
) -> Stepped:
    """`h_t = LSTM(h_{t-1}, [y_{t-1}; h~_{t-1}])`, then attend: `h~_t = tanh(W [c_t; h_t])`."""
    lowest: Weights = {embedded: decoder.layers.bottom.input_weight}
    if decoder.input_feed_gates is not None:
        lowest[state["input_feed"]] = decoder.input_feed_gates.weight
    top, new_state = _step_layers(graph, decoder.layers, lowest, state)
    attended = attend(graph, decoder, top, state, memory)
    weight = HIDDEN_SCALE * decoder.attentional.weight
    sizes = decoder.score.context_size, decoder.layers.bottom.hidden_size
    parts = dict(zip((attended.context, top), weight.split(sizes, dim=1), strict=True))
    vector = graph.op("Tanh", graph.linear_of_parts(parts))
    if decoder.input_feed_gates is not None:
        new_state["input_feed"] = vector
    outputs = graph.op("Mul", vector, graph.constant(OUTPUT_SCALE))
    return Stepped(outputs, new_state | attended.state, attended.weights)


def _gnmt(
    graph: Graph, decoder: GNMTDecoder, embedded: str, state: Values, memory: Values
) -> Stepped:
    """The lowest layer attends; the layers above read its context beside the output below."""
    lowest, *above = decoder.layers
    output, new_state = _layer_step(graph, lowest, {embedded: lowest.input_weight}, state, 0)
    attended = attend(graph, decoder, output, state, memory)
    for level, layer in enumerate(above, start=1):
        size = layer.input_weight.shape[1] - decoder.score.context_size
        own: Weights = {output: layer.input_weight[:, :size]}
        own[attended.context] = layer.input_weight[:, size:]
        hidden, new = _layer_step(graph, layer, own, state, level)
        output = graph.op("Add", hidden, output) if decoder.layers.residual else hidden
        new_state |= new
    sizes = lowest.hidden_size, decoder.score.context_size
    parts = {output: (sizes[0], HIDDEN_SCALE), attended.context: (sizes[1], HIDDEN_SCALE)}
    outputs = _output_layer(graph, decoder.output_layer, parts)
    return Stepped(outputs, new_state | attended.state, attended.weights)


def _plain(graph: Graph, decoder: PlainDecoder, embedded: str, state: Values) -> Stepped:
    lowest: Weights = {embedded: decoder.layers.bottom.input_weight}
    top, new_state = _step_layers(graph, decoder.layers, lowest, state)
    parts = {top: (decoder.layers.bottom.hidden_size, HIDDEN_SCALE)}
    return Stepped(_output_layer(graph, decoder.output_layer, parts), new_state, None)


def _step_layers(
    graph: Graph, layers: RecurrentStack, lowest: Weights, state: Values
) -> tuple[str, Values]:
    """Run one step through all layers; return the output [N, H] and the next state.

    `lowest` has the inputs of the lowest layer, each with the weights of its gates.
    """
    output, new_state = "", Values()
    for level, layer in enumerate(layers):
        inputs: Weights = {output: layer.input_weight} if level else lowest
        hidden, new = _layer_step(graph, layer, inputs, state, level)
        output = graph.op("Add", hidden, output) if level and layers.residual else hidden
        new_state |= new
    return output, new_state


def _layer_step(
    graph: Graph, layer: RecurrentLayer, inputs: Weights, state: Values, level: int
) -> tuple[str, Values]:
    """Return `h` of a layer's step and the next state of this layer."""
    cell = state.get(f"cell_{level}")
    new_hidden, new_cell = cell_step(graph, layer, inputs, state[f"hidden_{level}"], cell)
    new_state = {f"hidden_{level}": new_hidden}
    return new_hidden, new_state if new_cell is None else new_state | {f"cell_{level}": new_cell}


def _output_layer(
    graph: Graph, layer: nn.Linear, parts: dict[str, tuple[int, float]], maxout: bool = False
) -> str:
    """Return `2 tanh(W x + b)` of parts joined to x, or maxout of pairs.

    Each part has its size and the scale by which it is multiplied.
    """
    columns = layer.weight.split([size for size, _ in parts.values()], dim=1)
    weights = {
        part: scale * weight
        for (part, (_, scale)), weight in zip(parts.items(), columns, strict=True)
    }
    if maxout:
        pair = [
            graph.linear_of_parts(
                {part: weight[each::2] for part, weight in weights.items()}, layer.bias[each::2]
            )
            for each in (0, 1)
        ]
        activated = graph.op("Max", *pair)
    else:
        activated = graph.op("Tanh", graph.linear_of_parts(weights, layer.bias))
    return graph.op("Mul", activated, graph.constant(OUTPUT_SCALE))
