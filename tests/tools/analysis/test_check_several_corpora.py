"""`check` of several training corpora: each is reported with its own line numbers."""

import json
from pathlib import Path

import pytest
from cases.toy_text import toy_pairs

from seq2seq.__main__ import main

pytestmark = pytest.mark.usefixtures("few_steps")


@pytest.fixture
def config(small_corpus: Path) -> Path:
    """Return a config with two training corpora; the second, a CSV file, has a damaged pair."""
    folder = small_corpus.parent
    src, tgt = toy_pairs(80, seed=5)
    src[7] = tgt[7] = "a line that is the same on both sides"
    rows = [f'{n},"{a}","{b}"' for n, (a, b) in enumerate(zip(src, tgt, strict=True))]
    (folder / "more.csv").write_text("\n".join(["id,from,to", *rows]) + "\n", encoding="utf-8")
    text = small_corpus.read_text(encoding="utf-8")
    old = f"  train: {{src: {folder}/train.src, tgt: {folder}/train.tgt}}\n"
    assert old in text
    new = (
        f"  train:\n    - {old.partition('train: ')[2]}"
        f"    - {{file: {folder}/more.csv, columns: [from, to], weight: 0.5, tag: <x>}}\n"
    )
    small_corpus.write_text(text.replace(old, new), encoding="utf-8")
    return small_corpus


@pytest.mark.thorough
def test_each_corpus_is_reported_with_its_own_lines(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    words = ["check", str(config), "--json", str(report), "--device", "cpu"]
    assert main(words) == 0
    out = capsys.readouterr().out
    header = next(line for line in out.splitlines() if line.startswith("pairs"))
    assert header.split() == ["pairs", "train", "1", "train", "2", "valid", "test"]
    tree = json.loads(report.read_text())
    assert list(tree["texts"]) == ["train 1", "train 2", "valid", "test"]
    assert tree["texts"]["train 2"]["src_file"] == f"{config.parent}/more.csv, column from"
    assert tree["texts"]["train 1"]["statistics"]["lines"] == 120
    assert tree["texts"]["train 2"]["statistics"]["lines"] == 80
    assert "<x>" not in out  # a tag is neither a marker nor part of the text


@pytest.mark.thorough
def test_overlap_is_found_despite_the_tag_of_a_corpus(config: Path, tmp_path: Path) -> None:
    first = (config.parent / "more.csv").read_text(encoding="utf-8").splitlines()[1]
    _, src, tgt = first.replace('"', "").split(",")
    for side, text in (("src", src), ("tgt", tgt)):
        with (config.parent / f"valid.{side}").open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    report = tmp_path / "report.json"
    assert main(["check", str(config), "--json", str(report), "--device", "cpu"]) == 0
    shared_pairs = {
        (comparison["split"], comparison["other"]): comparison["shared"]
        for comparison in json.loads(report.read_text())["comparisons"]
    }
    assert shared_pairs["valid", "train 2"]["pairs"] == [10]
    assert shared_pairs["valid", "train 1"]["pairs"] == []
