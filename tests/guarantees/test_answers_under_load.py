"""Responses under load are byte for byte those of the command line, in any batch."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from cases.random_lines import fuzz_lines
from cases.server import serve
from cases.toy_text import toy_pairs

from benchmark_server import command_line, differences, mixed_requests, send_all
from seq2seq.inference.loaded_model import ModelOptions
from seq2seq.inference.loaders.load import languages_of
from seq2seq.inference.translation import Translation
from seq2seq.tools.serving.service import load_pairs
from seq2seq.tools.serving.translation_queue import TranslationQueue


@pytest.mark.thorough
@pytest.mark.parametrize("clients", [1, 4])
def test_answers_under_load_equal_those_of_the_command_line(
    clients: int, tiny_runs: dict[str, Path], tmp_path: Path
) -> None:
    check(tiny_runs["luong"], tmp_path, lines=40, requests=30 * clients, clients=clients)


@pytest.mark.thorough
@pytest.mark.parametrize("requests", [500, pytest.param(10_000, marks=pytest.mark.load)])
def test_64_clients_and_fuzz_lines(
    requests: int, tiny_runs: dict[str, Path], tmp_path: Path
) -> None:
    check(tiny_runs["bahdanau"], tmp_path, requests // 2, requests, clients=64)


def check(run: Path, folder: Path, lines: int, requests: int, clients: int) -> None:
    """Compare text of the toy language and fuzz lines, mixed, from several clients."""
    content = [line.encode() for line in toy_pairs(lines // 2, seed=9)[0]]
    content += fuzz_lines(lines - len(content), seed=clients)
    path = folder / "text"
    path.write_bytes(b"".join(line + b"\n" for line in content))
    texts = [line.decode("utf-8", errors="replace") for line in content]
    expected = command_line(run, path)
    assert len({json.dumps(answer) for answer in expected}) > lines // 3  # translations differ
    asked = mixed_requests(requests, len(texts))
    sizes = list[int]()
    search = TranslationQueue._search

    def counted(queue: TranslationQueue, batch: Any) -> list[Translation]:
        sizes.append(sum(map(len, batch.values())))
        return search(queue, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TranslationQueue, "_search", counted)
        with serve(load_pairs([str(run)], ModelOptions("cpu"))) as served:
            answers = send_all(served.address, languages_of(run), texts, asked, clients)
    assert len(answers) == len(asked)
    assert {number for request in asked for number in request.numbers} == set(range(len(texts)))
    assert differences(asked, answers, expected) == 0
    assert clients == 1 or sum(sizes) / len(sizes) > clients / 2  # requests share batches


@pytest.mark.thorough
def test_an_exported_model_is_served_like_a_run(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from seq2seq.runs.graphs import export_runs

    exported = tmp_path / "exported"
    export_runs([tiny_runs["bahdanau"]], exported)
    check(exported, tmp_path, lines=40, requests=120, clients=4)
