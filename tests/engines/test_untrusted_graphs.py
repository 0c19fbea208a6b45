"""Graphs of strangers: whatever ONNX Runtime would read, run for ever or allocate is refused."""

import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from cases.models import CASES, Case, S, V
from cases.tiers import one_quick
from cases.traced_models import graph_files
from onnx import ModelProto, TensorProto, helper, numpy_helper

from seq2seq.config.schema import read_config_file
from seq2seq.engines.engine import GraphFiles, Rows, StepOptions
from seq2seq.engines.onnx.network import load_network, quantized
from seq2seq.engines.onnx.trace import traced_graphs
from seq2seq.engines.onnx.untrusted_graphs import MAX_NODES, GraphError, check_graphs
from seq2seq.inference.translator import Translator
from seq2seq.model.builder import build_model
from seq2seq.runs.graphs import export_runs
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.text.source_profile import SourceProfile

CONFIGS = Path(__file__).parents[2] / "configs"
MUTATIONS = 60


@pytest.fixture(scope="module")
def graphs() -> GraphFiles:
    return graph_files(Case("luong", "general", True, 1))


def changed(content: bytes, change: Callable[[ModelProto], object]) -> bytes:
    model = onnx.load_from_string(content)
    change(model)
    return model.SerializeToString()


def external(model: ModelProto) -> None:
    tensor = max(model.graph.initializer, key=lambda tensor: np.prod(tensor.dims))
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret.txt")


def external_in_a_body(model: ModelProto) -> None:
    (loop, *_) = (node for node in model.graph.node if node.op_type == "Scan")
    body = next(attribute.g for attribute in loop.attribute if attribute.HasField("g"))
    tensor = numpy_helper.from_array(np.zeros(3, np.float32), "stolen")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret.txt")
    body.initializer.append(tensor)


def insert(*nodes: onnx.NodeProto, **weights: np.ndarray) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        model.graph.initializer.extend(
            numpy_helper.from_array(array, name) for name, array in weights.items()
        )
        for place, node in enumerate(nodes):
            model.graph.node.insert(place, node)

    return change


def endless(kind: str) -> onnx.NodeProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["condition"], ["again"])],
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("again", TensorProto.BOOL, [])],
    )
    return helper.make_node(kind, ["turns", "yes"], [], body=body)


def identity_body() -> onnx.GraphProto:
    return helper.make_graph(
        [helper.make_node("Identity", ["entry"], ["result"])],
        "body",
        [helper.make_tensor_value_info("entry", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, [])],
    )


def shortened(kind: int) -> list[onnx.NodeProto]:
    """Return operators that make a large shape of the difference to a number of another type."""
    return [
        helper.make_node("Cast", ["large"], ["short"], to=kind),
        helper.make_node("Cast", ["short"], ["number"], to=TensorProto.INT64),
        helper.make_node("Mul", ["number", "minus"], ["negative"]),
        helper.make_node("Add", ["negative", "rest"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["x"]),
    ]


LARGE = {"large": np.array([1 << 30]), "minus": np.array([-1]), "rest": np.array([(1 << 30) + 1])}


def twice(kind: str, inputs: list[str], other: str = "value") -> onnx.NodeProto:
    """Return an operator with two values."""
    value = numpy_helper.from_array(np.array([1]))
    node = helper.make_node(kind, inputs, ["x"], value=value)
    second = value if other == "value" else [1 << 30]
    node.attribute.append(helper.make_attribute(other, second))
    return node


HUGE = np.array([1 << 31, 1 << 31])
CHANGES: dict[str, Callable[[ModelProto], object]] = {
    "external weights": external,
    "loop": insert(endless("Loop"), turns=np.array(1 << 62), yes=np.array(True)),
    "another domain": insert(helper.make_node("Run", ["src"], ["x"], domain="ai.onnx.evil")),
    "contributed": insert(helper.make_node("Attention", ["src"], ["x"], domain="com.microsoft")),
    "unknown operator": insert(helper.make_node("Nonsense\x1b[31m", [], ["x"])),
    "constant of a huge shape": insert(
        helper.make_node("ConstantOfShape", ["shape"], ["x"]), shape=HUGE
    ),
    "expanded": insert(
        helper.make_node("Expand", ["one", "shape"], ["x"]), shape=HUGE, one=np.ones(1, np.float32)
    ),
    "tiled": insert(
        helper.make_node("Tile", ["one", "shape"], ["x"]),
        shape=HUGE[:1],
        one=np.ones(1, np.float32),
    ),
    "range": insert(
        helper.make_node("Range", ["zero", "end", "step"], ["x"]),
        zero=np.array(0),
        end=np.array(1 << 62),
        step=np.array(1),
    ),
    "padded": insert(
        helper.make_node("Pad", ["one", "pads"], ["x"]),
        one=np.ones(1, np.float32),
        pads=np.array([0, 1 << 40]),
    ),
    "doubled": insert(
        *(helper.make_node("Concat", [f"x{n}", f"x{n}"], [f"x{n + 1}"], axis=0) for n in range(28)),
        x0=np.ones(1, np.float32),
    ),
    "several large values": insert(
        *(helper.make_node("Expand", ["one", "shape"], [f"x{n}"]) for n in range(6)),
        shape=np.array([1 << 30]),
        one=np.ones(1, np.float32),
    ),
    "a large constant and its sum": insert(
        helper.make_node("ConstantOfShape", ["shape"], ["x"]),
        helper.make_node("ReduceSum", ["x", "last"], ["y"]),
        shape=np.array([1 << 30, 1]),
        last=np.array([-1]),
    ),
    "product of large constants": insert(
        helper.make_node("ConstantOfShape", ["shape"], ["x"]),
        helper.make_node("MatMul", ["x", "x"], ["y"]),
        shape=np.array([1 << 12, 1 << 12]),
    ),
    "many products": insert(
        helper.make_node("ConstantOfShape", ["shape"], ["x0"]),
        *(helper.make_node("MatMul", [f"x{n}", "x0"], [f"x{n + 1}"]) for n in range(3000)),
        shape=np.array([64, 64]),
    ),
    "loop over a constant": insert(
        helper.make_node("Expand", ["one", "shape"], ["x"]),
        helper.make_node("Scan", ["x"], ["y"], body=identity_body(), num_scan_inputs=1),
        shape=np.array([1 << 28]),
        one=np.ones(1, np.float32),
    ),
    "weights of fewer bytes than their size": lambda model: model.graph.initializer.append(
        TensorProto(name="x", data_type=TensorProto.INT64, dims=[1 << 62], raw_data=b"\0" * 8)
    ),
    "weights of a negative size": lambda model: model.graph.initializer.append(
        TensorProto(name="x", data_type=TensorProto.INT64, dims=[-1, -1], raw_data=b"\0" * 8)
    ),
    "range from far below": insert(
        helper.make_node("Shape", ["src"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["end"]),
        helper.make_node("Range", ["start", "end", "step"], ["x"]),
        zero=np.array(0),
        start=np.array(-(1 << 40)),
        step=np.array(1),
    ),
    "a size that falls as the inputs grow": insert(
        helper.make_node("Shape", ["src"], ["sizes"]),
        helper.make_node("Slice", ["weight", "sizes", "end"], ["part"]),
        helper.make_node("Shape", ["part"], ["length"]),
        helper.make_node("Concat", ["length"] * 6, ["lengths"], axis=0),
        helper.make_node("ConstantOfShape", ["lengths"], ["x"]),
        weight=np.ones(40, np.float32),
        end=np.array([40, 40]),
    ),
    "a size of the numbers of a source": insert(
        helper.make_node("ReduceMax", ["src"], ["x"], keepdims=0),
        helper.make_node("Unsqueeze", ["x", "zero"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["y"]),
        zero=np.array([0]),
    ),
    "growing with the square of a source": insert(
        helper.make_node("Shape", ["src"], ["sizes"]),
        helper.make_node("Slice", ["sizes", "one", "two"], ["source"]),
        helper.make_node("Concat", ["source"] * 4, ["shape"], axis=0),
        helper.make_node("ConstantOfShape", ["shape"], ["x"]),
        one=np.array([1]),
        two=np.array([2]),
    ),
    "a shape read backwards": insert(
        helper.make_node("Slice", ["numbers", "last", "first", "axis", "step"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["x"]),
        numbers=np.array([0, 1, 1 << 30]),
        last=np.array([2]),
        first=np.array([0]),
        axis=np.array([0]),
        step=np.array([-1]),
    ),
    "a sum beyond 32 bits": insert(
        helper.make_node("Add", ["least", "minus"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["number"], to=TensorProto.INT64),
        helper.make_node("Add", ["number", "rest"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["x"]),
        least=np.array([-(1 << 31)], np.int32),
        minus=np.array([-1], np.int32),
        rest=np.array([(1 << 31) + 2]),
    ),
    "a number as a truth value": insert(*shortened(TensorProto.BOOL), **LARGE),
    "the lowest bits of a number": insert(*shortened(TensorProto.UINT8), **LARGE),
    "a number as a float": insert(
        helper.make_node("Add", ["large", "small"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["number"], to=TensorProto.INT64),
        helper.make_node("Mul", ["number", "minus"], ["negative"]),
        helper.make_node("Add", ["negative", "rest"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["x"]),
        large=np.array([2.0**60], np.float32),
        small=np.array([2.0**30], np.float32),
        minus=np.array([-1]),
        rest=np.array([(1 << 60) + (1 << 30) + 1]),
    ),
    "a number beyond 64 bits": insert(
        helper.make_node("Shape", ["src"], ["sizes"]),
        helper.make_node("Mul", ["sizes", "many"], ["y"]),
        helper.make_node("Mul", ["y", "sizes"], ["product"]),
        helper.make_node("Div", ["product", "product"], ["one"]),
        helper.make_node("ConstantOfShape", ["one"], ["x"]),
        many=np.array([1 << 40]),
    ),
    "the first of no entries": insert(
        helper.make_node("Slice", ["src", "many", "end", "axis"], ["late"]),
        helper.make_node("Slice", ["late", "zero", "one", "axis"], ["first"]),
        helper.make_node("Shape", ["first"], ["sizes"]),
        helper.make_node("Slice", ["sizes", "one", "two"], ["size"]),
        helper.make_node("Mul", ["size", "negative"], ["y"]),
        helper.make_node("Add", ["y", "rest"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["x"]),
        many=np.array([40]),
        end=np.array([1 << 62]),
        axis=np.array([1]),
        zero=np.array([0]),
        one=np.array([1]),
        two=np.array([2]),
        negative=np.array([-(1 << 30)]),
        rest=np.array([(1 << 30) + 1]),
    ),
    "no entries joined with one": insert(
        helper.make_node("Slice", ["src_lengths", "one", "end"], ["late"]),
        helper.make_node("Add", ["late", "src_lengths"], ["sum"]),
        helper.make_node("Shape", ["sum"], ["size"]),
        helper.make_node("Shape", ["src_lengths"], ["batch"]),
        helper.make_node("Div", ["size", "batch"], ["quotient"]),
        helper.make_node("Mul", ["quotient", "negative"], ["y"]),
        helper.make_node("Add", ["y", "rest"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["x"]),
        one=np.array([1]),
        end=np.array([1 << 62]),
        negative=np.array([-(1 << 30)]),
        rest=np.array([(1 << 30) + 1]),
    ),
    "least integer over -1": insert(
        helper.make_node("Div", ["least", "minus"], ["x"]),
        least=np.array([-(1 << 63)]),
        minus=np.array([-1]),
    ),
    "remainder of integers by unknown ones": insert(
        helper.make_node("Mod", ["least", "divisors"], ["x"]),
        least=np.array([-(1 << 31)], np.int32),
        divisors=np.array([-1], np.int32),
    ),
    "weights in place of an input": lambda model: model.graph.initializer.append(
        numpy_helper.from_array(np.array([1]), model.graph.input[0].name)
    ),
    "two weights of one name": lambda model: model.graph.initializer.append(
        model.graph.initializer[0]
    ),
    "two results of one name": insert(
        *(helper.make_node("Identity", ["one"], ["x"]) for _ in range(2)), one=np.ones(1)
    ),
    "an attribute twice": insert(twice("ConstantOfShape", ["one"]), one=np.array([1])),
    "a constant of two values": insert(twice("Constant", [], "value_ints")),
    "texts": insert(helper.make_node("Cast", ["one"], ["x"], to=8), one=np.ones(1, np.float32)),
    "beyond all numbers": insert(
        *(helper.make_node("Tile", [f"x{n}", "many"], [f"x{n + 1}"]) for n in range(2000)),
        x0=np.ones(1, np.float32),
        many=np.array([1 << 40]),
    ),
    "a shape of many joined numbers": insert(
        helper.make_node("Concat", ["numbers"] * 100_000, ["x"], axis=0),
        numbers=np.ones(64, np.int64),
    ),
    "weights of many dimensions": lambda model: model.graph.initializer.append(
        numpy_helper.from_array(np.ones([1] * 9, np.float32), "x")
    ),
    "an output of many dimensions": lambda model: model.graph.output.append(
        helper.make_tensor_value_info("undefined", TensorProto.FLOAT, [1] * 100_000)
    ),
    "product over no entries, beside a weight of none": insert(
        helper.make_node("MatMul", ["rows", "columns"], ["x"]),
        rows=np.ones([1 << 15, 0], np.float32),
        columns=np.ones([0, 1 << 15], np.float32),
        none=np.ones([1 << 40, 0], np.float32),
    ),
    "padded by what is not there": insert(
        helper.make_node("Pad", ["none", "pads"], ["x"], mode="wrap"),
        none=np.ones([0], np.float32),
        pads=np.array([5, 5]),
    ),
    "many results": insert(
        helper.make_node("Split", ["weight"], [f"x{n}" for n in range(50_000)], num_outputs=50_000),
        weight=np.ones(50_000, np.float32),
    ),
    "many weights": lambda model: model.graph.initializer.extend(
        TensorProto(name=f"x{n}", data_type=TensorProto.INT64, int64_data=[n])
        for n in range(MAX_NODES)
    ),
    "operators of two versions": lambda model: model.opset_import.append(model.opset_import[0]),
    "function": lambda model: model.functions.add(name="f", domain=""),
    "sparse": lambda model: model.graph.sparse_initializer.add(),
    "another input": lambda model: model.graph.input.append(
        helper.make_tensor_value_info("other", TensorProto.FLOAT, ["batch"])
    ),
    "no output": lambda model: model.graph.output.pop(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_a_graph_that_could_do_harm_is_refused(
    part: str, change: Callable[[ModelProto], object], graphs: GraphFiles
) -> None:
    spoiled = graphs._replace(**{part: changed(getattr(graphs, part), change)})
    with pytest.raises(GraphError) as raised:
        check_graphs(*spoiled, V, 100)
    assert str(raised.value).isprintable()


def greedy_step(graphs: GraphFiles, int8: bool = False) -> None:
    """Compute the first step of a search that needs no log-probabilities."""
    network = load_network(graphs, int8)
    lengths = np.array([S, 2])
    memory, state = network.encode(np.full((2, S), 5, np.int64), lengths)
    rows = Rows(memory, state, 2, options=StepOptions(log_probs=False))
    assert network.step(rows, lengths).values.shape == (2, V)


def with_logits(count: int) -> Callable[[ModelProto], None]:
    """Add to the logits a product of weights that a number of operators pass on as they are."""

    def change(model: ModelProto) -> None:
        (last,) = (node for node in model.graph.node if node.op_type == "LogSoftmax")
        (logits,) = last.input
        nodes = [
            helper.make_node("Slice", [logits, "zero", "two", "axis"], ["part"]),
            helper.make_node("Softmax", ["part"], ["x0"]),
            *(helper.make_node("Identity", [f"x{n}"], [f"x{n + 1}"]) for n in range(count)),
            helper.make_node("MatMul", [f"x{count}", "matrix"], ["product"]),
            helper.make_node("Add", ["product", "bias"], ["other_logits"]),
        ]
        last.input[:] = ["other_logits"]
        numbers = {"zero": [0], "two": [2], "axis": [1]}
        weights = {name: np.array(entries) for name, entries in numbers.items()}
        weights |= {"matrix": np.ones((2, V), np.float32), "bias": np.ones(V, np.float32)}
        insert(**weights)(model)
        place = list(model.graph.node).index(last)
        for node in nodes[::-1]:
            model.graph.node.insert(place, node)

    return change


def test_a_long_chain_of_operators_is_followed(graphs: GraphFiles) -> None:
    """A recursion over it would end in a traceback, at the first step of a greedy search."""
    long = graphs._replace(decoder=changed(graphs.decoder, with_logits(sys.getrecursionlimit())))
    check_graphs(*long, V, S)
    greedy_step(long)


def test_a_graph_that_no_pass_expects_is_reported_in_a_line(graphs: GraphFiles) -> None:
    """Its bias has one entry, which the product in int8 does not take."""

    def change(model: ModelProto) -> None:
        with_logits(1)(model)
        (bias,) = (tensor for tensor in model.graph.initializer if tensor.name == "bias")
        bias.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "bias"))

    odd = graphs._replace(decoder=changed(graphs.decoder, change))
    check_graphs(*odd, V, S)
    with pytest.raises(RunError, match=r"the graphs cannot be computed .*; use another model"):
        greedy_step(odd)


@pytest.mark.thorough
def test_products_that_are_too_many_in_int8_are_refused(graphs: GraphFiles) -> None:
    """Each becomes some ten operators, and the time to prepare them grows with the square."""
    count = MAX_NODES // 5

    def change(model: ModelProto) -> None:
        with_logits(1)(model)
        (last,) = (node for node in model.graph.node if "product" in node.output)
        place = list(model.graph.node).index(last)
        for n in range(count):
            name = f"y{n - 1}" if n else "x1"
            model.graph.node.insert(place + n, helper.make_node("MatMul", [name, "w"], [f"y{n}"]))
        last.input[0] = f"y{count - 1}"
        insert(w=np.eye(2, dtype=np.float32))(model)

    many = graphs._replace(decoder=changed(graphs.decoder, change))
    check_graphs(*many, V, S)
    with pytest.raises(GraphError, match=r"has [\d,]+ operators, more than 10,000"):
        load_network(many, int8=True)


def test_outputs_have_the_sizes_that_are_declared(graphs: GraphFiles) -> None:
    def double(model: ModelProto) -> None:
        (last,) = (node for node in model.graph.node if "log_probs" in node.output)
        last.output[:] = ["once"]
        model.graph.node.append(helper.make_node("Concat", ["once"] * 2, ["log_probs"], axis=0))

    with pytest.raises(GraphError, match="output 'log_probs' of another size than it says"):
        check_graphs(graphs.encoder, changed(graphs.decoder, double), V, S)


@pytest.mark.parametrize("max_length", [1, 100, 100_000])
@one_quick("case", CASES, ids=str)
def test_graphs_of_every_model_pass(case: Case, max_length: int) -> None:
    for int8 in (False, True):
        check_graphs(*graph_files(case, int8), V, max_length)


@pytest.mark.thorough
def test_graphs_of_the_largest_shipped_config_pass() -> None:
    config = read_config_file(CONFIGS / "wmt16-en-de-gnmt.yaml").config
    vocabulary_size = config.vocabulary.size
    assert isinstance(vocabulary_size, int)
    model = build_model(config.model, vocabulary_size, vocabulary_size, joint=True)
    graphs = traced_graphs(model.eval())
    del model
    check_graphs(*graphs, vocabulary_size, config.data.max_length)
    check_graphs(*quantized(graphs), vocabulary_size, config.data.max_length)


def test_weights_in_another_file_are_refused_in_the_body_of_a_loop(graphs: GraphFiles) -> None:
    with pytest.raises(GraphError, match="weights in another file"):
        check_graphs(changed(graphs.encoder, external_in_a_body), graphs.decoder, V, S)


def test_graphs_of_another_vocabulary_are_refused(graphs: GraphFiles) -> None:
    check_graphs(*graphs, V, S)
    with pytest.raises(GraphError, match="log-probabilities of another vocabulary"):
        check_graphs(*graphs, V + 1, S)
    with pytest.raises(GraphError, match="not an ONNX file"):
        check_graphs(b"\xff" * 9, graphs.decoder, V, S)


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_mutated_graphs_are_refused_or_load(part: str, graphs: GraphFiles) -> None:
    """Only a GraphError is raised, whatever bytes of a file change."""
    content = getattr(graphs, part)
    draw = random.Random(part)
    for _ in range(MUTATIONS):
        spoiled = bytearray(content)
        for _ in range(draw.choice([1, 3, 20])):
            spoiled[draw.randrange(len(spoiled))] = draw.randrange(256)
        with suppress(GraphError):
            changed = graphs._replace(**{part: bytes(spoiled)})
            check_graphs(*changed, V, S)
            load_network(changed, int8=draw.random() < 0.3)


def test_a_spoiled_export_is_reported_in_one_line(
    tiny_runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checksums do not help: a stranger writes them, too."""
    folder = tmp_path / "export"
    export_runs([tiny_runs["luong"]], folder)
    path = folder / "decoder.onnx"
    path.write_bytes(changed(path.read_bytes(), external))
    description = (folder / "export.json").read_text(encoding="utf-8")
    description_tree = json.loads(description)
    description_tree["sha256"]["decoder.onnx"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "export.json").write_text(json.dumps(description_tree), encoding="utf-8")
    (tmp_path / "secret.txt").write_text("secret" * 10_000, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="cannot be used: has weights in another file; export"):
        Translator.load(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("decoding.beam_size", "5"),
        ("decoding.beam_size", 10**30),
        ("decoding.min_length", 10**30),
        ("decoding.max_length", 2**31 - 1),
        ("decoding.length_penalty", None),
        ("decoding.replace_unknown", 1),
        ("decoding", []),
        ("limit.extra", 1.5),
        ("limit", None),
        ("max_length", True),
        ("models", []),
        ("models", [{"encoder": "../encoder.onnx", "decoder": "decoder.onnx"}]),
        ("sha256", ["encoder.onnx"]),
        ("vocabularies", {"joint": 3}),
        ("source", {"sentences": "x"}),
        ("int8", "no"),
        ("format", "\x1b[31m"),
    ],
)
def test_a_description_of_other_types_is_reported_in_one_line(
    tiny_runs: dict[str, Path], tmp_path: Path, key: str, value: object
) -> None:
    folder = tmp_path / "export"
    export_runs([tiny_runs["luong"]], folder)
    path = folder / "export.json"
    description = json.loads(path.read_text(encoding="utf-8"))
    *sections, last = key.split(".")
    place = description[sections[0]] if sections else description
    place[last] = value
    path.write_text(json.dumps(description), encoding="utf-8")
    with pytest.raises((UserError, RunError)) as raised:
        Translator.load(folder).translate("ba")
    assert str(raised.value).isprintable()


PROFILE = {
    "scripts": None,
    "translated": 1.5,
    "tags": [4],
    "tagged": True,  # without tags
    "characters": [],
    "sentences": True,
    "wordless": "no",
}


@pytest.mark.parametrize(("key", "value"), PROFILE.items())
def test_a_source_profile_of_other_types_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValueError, match="the source profile"):
        SourceProfile(**{key: value})  # type: ignore[arg-type]


VALUES = (
    None,
    True,
    -1,
    0,
    1.5,
    10**30,
    2**31 - 1,
    "",
    "5",
    "\x1b[31m",
    [],
    {},
    [[]],
    ["a"],
    "../x",
)


def places(tree: object, parent_keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in a tree of JSON."""
    entries = tree.items() if isinstance(tree, dict) else ()
    for key, value in [*entries, *enumerate(tree if isinstance(tree, list) else ())]:
        yield (*parent_keys, key)
        yield from places(value, (*parent_keys, key))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(8))
def test_mutated_descriptions_translate_or_are_reported_in_one_line(
    seed: int, tiny_runs: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "export"
    draw = random.Random(seed)
    export_runs([tiny_runs["bahdanau"]], folder)
    path = folder / "export.json"
    content = path.read_text(encoding="utf-8")
    everywhere = list(places(json.loads(content)))
    for _ in range(25):
        description = json.loads(content)
        *parent_keys, last = draw.choice(everywhere)
        place = description
        for key in parent_keys:
            place = place[key]
        place[last] = draw.choice(VALUES)
        path.write_text(json.dumps(description), encoding="utf-8")
        messages = []
        try:
            Translator.load(folder).translate("ba lo.")
        except (UserError, RunError) as error:
            messages.append(str(error))
        assert all(map(str.isprintable, messages)), (parent_keys, last)
