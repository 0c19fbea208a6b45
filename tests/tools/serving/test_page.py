"""Facts of a run on the page; a folder of a stranger may hold anything."""

import json
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from seq2seq.tools.serving.page import examples, introduction


def test_a_run_is_introduced_by_its_files(tmp_path: Path) -> None:
    assert (introduction(tmp_path), examples(tmp_path)) == ("", [])
    metrics = [{"step": 1, "valid_bleu": 12.34}, {"step": 2, "valid_bleu": 31.27}, {"step": 3}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, metrics)), encoding="utf-8")
    (tmp_path / "train.log").write_text("en -> fr, 9,200 training pairs, 300\n", encoding="utf-8")
    text = introduction(tmp_path)
    assert text.startswith("trained 20")
    assert text.endswith(", 9,200 pairs, BLEU 31.3 on held-out sentences")


def test_examples_are_the_shortest_of_the_samples(tmp_path: Path) -> None:
    sources = ["a b c", "a", "a", "a b", "a b c d", "", 7, "x" * 121, "b\x1b[31m"]
    lines = [json.dumps({"source": source}) for source in sources]
    broken = ["{", "[1]", "null", "[" * 100_000]
    (tmp_path / "samples.jsonl").write_text("\n".join([*broken, *lines]), encoding="utf-8")
    assert examples(tmp_path) == ["a", "a b", "a b c"]


def test_files_beyond_all_bounds_are_not_read(tmp_path: Path) -> None:
    for name in ("metrics.jsonl", "samples.jsonl", "train.log"):
        with (tmp_path / name).open("wb") as file:
            file.write(b"9" * 1_000_000)
            file.truncate(1 << 40)
    assert introduction(tmp_path).startswith("trained ")
    assert examples(tmp_path) == []
