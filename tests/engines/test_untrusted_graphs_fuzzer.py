"""Graphs of strangers, made at random: refused in one line, or computed within their bounds.

A seed decides everything, so that a finding can be repeated.
"""

import random
import tracemalloc
from contextlib import suppress

import numpy as np
import onnx
import pytest
from cases.models import Case, S, V
from cases.traced_models import graph_files
from onnx import NodeProto, helper, numpy_helper

from seq2seq.engines.engine import GraphFiles, Rows, StepOptions
from seq2seq.engines.onnx.network import load_network
from seq2seq.engines.onnx.size_rules import RULES
from seq2seq.engines.onnx.untrusted_graphs import GraphError, check_graphs
from seq2seq.runtime.errors import RunError

GRAPHS = 1_000
OTHERS = ("If", "Loop", "Scan", "NonZero", "RandomNormal", "Resize", "OneHot", "Nonsense", "")
SIZES = (-1, 0, 1, 2, 3, 7, 64, 1 << 12, 1 << 20, 1 << 31, 1 << 62)
MEMORY = 256 << 20  # bytes of Python's and NumPy's that a check of a small graph never needs


@pytest.fixture(scope="module")
def graphs() -> list[GraphFiles]:
    cases = [Case("luong", "general", True, 1), Case("bahdanau", "coverage", False, 1)]
    return [graph_files(case) for case in cases]


def spoil(model: onnx.ModelProto, draw: random.Random) -> None:
    """Change, add or remove a part of a graph."""
    graph = model.graph
    values = [name for node in graph.node for name in (*node.input, *node.output)]
    match draw.randrange(8):
        case 0:  # an operator whose result another one reads
            insert_growing(graph, draw, values)
        case 1:
            node = draw.choice(graph.node)
            node.op_type = draw.choice([*RULES, *OTHERS])
        case 2:
            node = draw.choice(graph.node)
            if node.input:
                node.input[draw.randrange(len(node.input))] = draw.choice(values)
        case 3:
            tensor = draw.choice(graph.initializer)
            dims = [draw.choice(SIZES) for _ in range(draw.randrange(4))]
            del tensor.dims[:]
            tensor.dims.extend(dims)
        case 4:
            tensor = draw.choice(graph.initializer)
            with suppress(ValueError):  # its dimensions have been spoiled before
                array = numpy_helper.to_array(tensor)
                if array.dtype == np.int64:
                    entries = np.array([draw.choice(SIZES) for _ in range(array.size)], np.int64)
                    changed = numpy_helper.from_array(entries.reshape(array.shape), tensor.name)
                    tensor.CopyFrom(changed)
        case 5:
            value = draw.choice([*graph.input, *graph.output])
            dims = value.type.tensor_type.shape.dim
            if dims:
                draw.choice(dims).dim_value = draw.choice(SIZES)
        case 6:
            node = draw.choice(graph.node)
            for item in node.attribute:
                item.i = draw.choice(SIZES)
        case _:
            del graph.node[draw.randrange(len(graph.node))]


def insert_growing(graph: onnx.GraphProto, draw: random.Random, values: list[str]) -> None:
    """Insert a chain of operators that grow, and let an operator read its end."""
    count = draw.choice([1, 3, 30, 300])
    kind = draw.choice(["Concat", "MatMul", "Tile", "Expand", "ConstantOfShape", "Einsum", "Mul"])
    sizes = np.array([draw.choice(SIZES) for _ in range(draw.choice([1, 2]))], np.int64)
    graph.initializer.append(numpy_helper.from_array(sizes, "fuzz.sizes"))
    last = draw.choice(values)
    for number in range(count):
        result = f"fuzz.{number}"
        inputs = [last, last]
        attributes = {}
        if kind in ("Tile", "Expand"):
            inputs = [last, "fuzz.sizes"]
        elif kind == "ConstantOfShape":
            inputs = ["fuzz.sizes"]
        elif kind == "Concat":
            attributes = {"axis": draw.choice([0, -1])}
        elif kind == "Einsum":
            attributes = {"equation": "ab,cd->abcd"}
        node: NodeProto = helper.make_node(kind, inputs, [result], **attributes)
        graph.node.insert(number, node)
        last = result
    reader = graph.node[draw.randrange(count, len(graph.node))]
    if reader.input:
        reader.input[0] = last


@pytest.mark.thorough
@pytest.mark.parametrize(
    "seed", [0, 1, 2, 3, *(pytest.param(seed, marks=pytest.mark.load) for seed in range(4, 10))]
)
def test_spoiled_graphs_are_refused_or_computed(seed: int, graphs: list[GraphFiles]) -> None:
    """Whatever is accepted computes a first step, or fails as RunError."""
    draw = random.Random(seed)
    messages = []
    src = np.full((2, S), 5, np.int64)
    lengths = np.array([S, 2])
    tracemalloc.start()
    for _ in range(GRAPHS // 10):
        original = draw.choice(graphs)
        part = draw.choice(original._fields)
        model = onnx.load_from_string(getattr(original, part))
        for _ in range(draw.choice([1, 1, 2, 5])):
            spoil(model, draw)
        spoiled = original._replace(**{part: model.SerializeToString()})
        try:
            check_graphs(*spoiled, V, 100)
            network = load_network(spoiled, int8=draw.random() < 0.3)
        except GraphError as error:
            messages.append(str(error))
            continue
        finally:
            assert tracemalloc.get_traced_memory()[1] < MEMORY
        with suppress(RunError):
            memory, state = network.encode(src, lengths)
            for options in (StepOptions(), StepOptions(log_probs=False)):
                network.step(Rows(memory, state, len(src), 1, options), lengths)
    tracemalloc.stop()
    assert 0 < len(messages) < GRAPHS // 10
    assert all(message.isprintable() and len(message) < 400 for message in messages)


def test_the_first_graphs_of_the_fuzzer(graphs: list[GraphFiles]) -> None:
    """A few in the quick tier, so that the fuzzer itself is tested."""
    draw = random.Random(0)
    for _ in range(20):
        model = onnx.load_from_string(graphs[0].decoder)
        spoil(model, draw)
        with suppress(GraphError):
            check_graphs(graphs[0].encoder, model.SerializeToString(), V, 100)
