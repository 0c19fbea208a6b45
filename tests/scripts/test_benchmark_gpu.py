"""`scripts/benchmark_gpu.py`: random text, and parts that are not repeated."""

import json
from pathlib import Path

import numpy as np
import pytest

import benchmark_gpu
from benchmarking import random_text
from benchmarking.random_text import LONGEST, MEAN, batches, lengths
from seq2seq.config.schema import load_config

ROOT = Path(__file__).resolve().parents[2]


def test_lengths_resemble_those_of_translations() -> None:
    lengths_of_sample = lengths(10_000, seed=1)
    assert lengths_of_sample.min() >= 1
    assert lengths_of_sample.max() <= LONGEST
    assert (
        abs(lengths_of_sample.mean() - 1.15 * MEAN) < 2
    )  # the mean of a log-normal exceeds its median
    assert np.corrcoef(lengths_of_sample.T)[0, 1] > 0.9


def test_batches_are_full_and_have_little_padding() -> None:
    for batch in batches(100, tokens=2000, count=8):
        assert batch.tgt_in.numel() <= 2000
        assert batch.tgt_in.numel() > 1800 - 2 * LONGEST
        assert len(batch.tgt_out) > 0.8 * batch.tgt_in.numel()


def test_attention_is_counted_by_pairs_of_tokens() -> None:
    (batch,) = batches(100, tokens=500, count=1)
    counted = random_text._flop(random_text.Work(0, 0, 1), [batch], 0, 0)
    width = batch.tgt_in.shape[1]
    expected = sum(
        int(batch.src_lengths[int(position) // width]) for position in batch.tgt_positions
    )
    assert counted == expected


def test_the_wmt_model_is_that_of_the_shipped_config() -> None:
    shipped = load_config(ROOT / "configs" / "wmt16-en-de-gnmt.yaml")
    measured = random_text.config_of("gnmt", "bf16")
    assert measured.model == shipped.model
    assert measured.vocabulary.size == shipped.vocabulary.size


@pytest.mark.thorough
def test_parts_already_in_the_file_are_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def counted(function: object, *arguments: object) -> object:
        calls.append(arguments)
        return function(*arguments)  # type: ignore[operator]

    monkeypatch.setattr(benchmark_gpu, "isolated", counted)
    monkeypatch.setattr(benchmark_gpu, "matmul_gflops", lambda *_: 100.0)
    sizes = {"embedding_size": 16, "hidden_size": 32}
    monkeypatch.setitem(random_text.MODELS, "luong", (200, random_text.MODELS["luong"][1] | sizes))
    file = tmp_path / "gpu.json"
    arguments = ["--device", "cpu", "--small", "--json", str(file)]
    result = {"date": "2026-11-01", "tokens_per_second": 1.5}
    names = ("training, luong, 512 tokens a batch", "search, luong, float32, beam 1")
    content = {"machine": benchmark_gpu.machine_name("cpu"), "parts": dict.fromkeys(names, result)}
    file.write_text(json.dumps(content))
    benchmark_gpu.main(arguments)
    first = capsys.readouterr().out
    parts = json.loads(file.read_text())["parts"]
    assert len(parts) == 7
    assert len(calls) == 5
    assert [parts[name] for name in names] == [result, result]
    for name, row in parts.items():
        assert name in first
        assert all(value >= 0 for key, value in row.items() if key != "date")
    assert parts["search, luong, float32, beam 5"]["tgt_tokens"] > 0
    assert (tmp_path / "gpu-luong.trace.json").exists()
    benchmark_gpu.main(arguments)
    assert len(calls) == 5
    assert capsys.readouterr().out == first
    file.write_text(file.read_text().replace("torch", "other"))
    with pytest.raises(SystemExit, match="choose another file"):
        benchmark_gpu.main(arguments)
