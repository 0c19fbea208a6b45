"""The engine's files in a run folder: written with the weights, never used for others."""

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from cases.tiers import one_quick
from cases.toy_text import toy_pairs

from seq2seq.config.schema import load_config
from seq2seq.engines.onnx import trace
from seq2seq.engines.onnx.engine import OnnxEngine
from seq2seq.engines.onnx.graph import INT, Graph, make
from seq2seq.engines.onnx.trace import traced_graphs
from seq2seq.inference.translator import Translator
from seq2seq.runs import engine_folder, graphs, tensor_file
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.layout import BEST, CONFIG, ENGINE, VOCABULARY
from seq2seq.training.loop import train

LINES = toy_pairs(9, seed=2)[0]
COMMANDS = (
    "translate -m RUN -i TEXT -o OUT -b 2",
    "translate -m RUN --int8 -i TEXT",
    "evaluate -m RUN -i TEXT -r TEXT",
    "score -m RUN -i TEXT -r TEXT",
    "attention -m RUN -i TEXT -o OUT.html",
    "distill -m RUN -i TEXT -o OUT.tsv",
    "back-translate -m RUN -i TEXT -o OUT.jsonl",
    "export -m RUN -o OUT.export",
)
IN_PROCESS = """
import sys
from seq2seq.__main__ import main
for command in sys.argv[1:]:
    assert main(command.split()) == 0, command
    assert "torch" not in sys.modules, f"torch is imported by {command}"
"""
LOADED = """
import sys
import seq2seq
print(seq2seq.Translator.load(sys.argv[1], device="cpu").translate("ba").text)
assert "torch" not in sys.modules, "torch is imported"
"""


@pytest.fixture
def run(tiny_runs: dict[str, Path], tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    shutil.copytree(tiny_runs["luong"], folder)
    assert is_current(folder)
    return folder


@pytest.fixture(scope="module")
def expected(tiny_runs: dict[str, Path]) -> list[str]:
    """Return the translations of the run."""
    return texts(tiny_runs["luong"])


def texts(run: Path) -> list[str]:
    translator = Translator.load(run, device="cpu")
    assert isinstance(translator.engine, OnnxEngine)
    return [translation.text for translation in translator.translate(LINES)]


def is_current(run: Path) -> bool:
    header, _ = tensor_file.read_header(run / BEST)
    return engine_folder.stored_graphs(run, header["tensors"]) is not None


def test_training_writes_the_engine_with_the_best_weights(small_corpus: Path) -> None:
    overrides = ["training.max_epochs=1", "decoding.max_length=9", "training.average=0.9"]
    folder = small_corpus.parent / "trained"
    train(load_config(small_corpus, [*overrides, f"run_dir={folder}"]), "cpu")
    assert is_current(folder)


def test_no_command_imports_torch_on_a_cpu(run: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    places = {"RUN": str(run), "TEXT": str(tmp_path / "text"), "OUT": str(tmp_path / "out")}
    commands = [re.sub("[A-Z]{3,}", lambda name: places[name[0]], line) for line in COMMANDS]
    call = [sys.executable, "-c", IN_PROCESS, *commands]
    process = subprocess.run(call, capture_output=True, encoding="utf-8", check=False)
    assert process.returncode == 0, process.stderr


def test_a_report_and_a_server_import_no_torch() -> None:
    modules = "seq2seq.tools.analysis.report.page, seq2seq.tools.serving.app"
    code = f"import sys, {modules}\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_translator_in_python_imports_no_torch_on_a_cpu(run: Path) -> None:
    call = [sys.executable, "-c", LOADED, str(run)]
    process = subprocess.run(call, capture_output=True, encoding="utf-8", check=False)
    assert process.stderr == ""
    assert process.stdout.strip() == Translator.load(run, device="cpu").translate("ba").text


def test_a_folder_of_three_files_translates(run: Path, expected: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "few"
    folder.mkdir()
    for name in (BEST, CONFIG):
        shutil.copy(run / name, folder)
    shutil.copytree(run / VOCABULARY, folder / VOCABULARY)
    assert texts(folder) == expected
    assert is_current(folder)  # the next command needs no torch


def replace_weights(run: Path, factor: float) -> None:
    header, weights = tensor_file.read_file(run / BEST)
    del header["tensors"]
    changed = {name: factor * weight for name, weight in weights.items()}
    tensor_file.save_tensors(run / BEST, changed, header)


def test_replaced_weights_are_never_translated_by_the_engine_of_others(
    run: Path, expected: list[str], tmp_path: Path
) -> None:
    old = tmp_path / "old"
    first = expected
    shutil.copytree(run, old)
    replace_weights(run, -1)
    shutil.copytree(run, tmp_path / "new", ignore=shutil.ignore_patterns(ENGINE))
    changed = texts(tmp_path / "new")
    assert changed != first
    assert texts(run) == changed
    assert is_current(run)
    shutil.rmtree(run / ENGINE)
    shutil.copytree(old / ENGINE, run / ENGINE)  # copied from another run
    assert not is_current(run)
    assert texts(run) == changed


@one_quick(
    ("name", "how"),
    [
        *((name, "changed") for name in ("encoder.onnx", "decoder.onnx", "engine.json")),
        *(("encoder.onnx", "cut"), ("decoder.onnx", "missing"), ("engine.json", "folder")),
    ],
    quick=range(3),
)
def test_a_damaged_engine_is_rebuilt(run: Path, expected: list[str], name: str, how: str) -> None:
    path = run / ENGINE / name
    content = path.read_bytes()
    path.unlink()
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "changed":
        path.write_bytes(content[:-9] + bytes(9))
    elif how == "folder":
        path.mkdir()
    assert texts(run) == expected


def test_graphs_that_onnx_runtime_refuses_are_rebuilt(run: Path, expected: list[str]) -> None:
    """A product of 32-bit integers passes the checks, and ONNX Runtime has none."""
    folder = run / ENGINE
    graph = Graph.of(onnx.load(folder / "decoder.onnx").graph)
    for node in graph.nodes:
        node.input[:] = ["shifted" if name == "ids" else name for name in node.input]
    zero = graph.weight(np.zeros((1, 1), np.int32))
    graph.nodes[:0] = [
        make("Gemm", [zero, zero], ["product"]),
        make("Cast", ["product"], ["wide"], to=INT),
        make("Squeeze", ["wide"], ["offset"]),
        make("Add", ["ids", "offset"], ["shifted"]),
    ]
    (folder / "decoder.onnx").write_bytes(graph.content())
    description = json.loads((folder / "engine.json").read_bytes())
    description["sha256"]["decoder.onnx"] = hashlib.sha256(graph.content()).hexdigest()
    (folder / "engine.json").write_text(json.dumps(description), encoding="utf-8")
    assert engine_folder.stored_graphs(run, description["weights"]) is not None
    assert texts(run) == expected


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES])
def test_an_engine_that_cannot_be_written_is_kept_in_memory(
    run: Path, expected: list[str], error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(run / ENGINE)

    def fail(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(engine_folder, "atomic_write", fail)
    assert texts(run) == expected
    assert not is_current(run)


@pytest.mark.thorough
def test_a_process_killed_between_the_files_leaves_no_engine_of_other_weights(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any number of files, what is there is the old engine or none."""
    replace_weights(run, -1)
    traced_before = traced_graphs(load_model(run, torch.device("cpu")).model)
    monkeypatch.setattr(trace, "traced_graphs", lambda _: traced_before)
    real = engine_folder.atomic_write
    for written in range(3):
        left = [True] * written

        def stop(path: Path, content: bytes, left: list[bool] = left) -> None:
            if not left:
                raise KeyboardInterrupt
            left.pop()
            real(path, content)

        monkeypatch.setattr(engine_folder, "atomic_write", stop)
        with pytest.raises(KeyboardInterrupt):
            graphs.rebuild_engine(run)
        assert not is_current(run)
    monkeypatch.undo()
    graphs.rebuild_engine(run)
    assert is_current(run)


def test_graphs_are_traced_from_a_model_that_is_trained_further(run: Path) -> None:
    """Tracing changes neither the mode nor the gradients of a model."""
    model = load_model(run, torch.device("cpu")).model.train()
    for parameter in model.parameters():
        parameter.requires_grad_()
    traced_graphs(model)
    assert model.training
    assert model.dropout.training
    src = torch.ones(2, 3, dtype=torch.long)
    lengths = torch.tensor([3, 2])
    model(src, lengths, src).sum().backward()
    assert all(parameter.grad is not None for parameter in model.encoder.parameters())
