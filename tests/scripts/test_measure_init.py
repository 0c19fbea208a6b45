"""Configs and table of scripts/measure_init.py."""

import argparse
import gzip
from pathlib import Path

import pytest

import measure_init
from measure_init import CORPORA, print_table, write_config
from seq2seq.__main__ import main
from seq2seq.config.schema import load_config, read_config_file
from seq2seq.tools.analysis import recipe
from seq2seq.tools.analysis.check.forecast import Forecast


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("minutes", [3, 30.0])
def test_manual_and_default_configs_load(tmp_path: Path, corpus: str, minutes: float) -> None:
    options = argparse.Namespace(data=tmp_path, output=tmp_path, minutes=minutes)
    loaded = []
    for side in ("hand", "bare", "small"):
        write_config(options, (corpus, None), side, tmp_path / f"{side}.yaml")
        config, notes = read_config_file(tmp_path / f"{side}.yaml")
        assert not notes
        assert config.training.max_minutes == minutes
        loaded.append(config.model_dump(exclude={"name", "run_dir"}))
    assert loaded[0]["data"] == loaded[1]["data"]
    assert loaded[0]["data"] == loaded[2]["data"]
    assert loaded[0] != loaded[1] != loaded[2]


@pytest.mark.thorough
def test_a_config_of_init_for_a_small_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs here, at a given speed, as test_init.py measures that of a model."""
    speed = Forecast("cpu", 1, 1, None, None, 10, None, 5, 100.0, 1.0)
    monkeypatch.setattr(recipe, "forecast", lambda _session: speed)
    monkeypatch.setattr(measure_init, "seq2seq", lambda *words: main([*map(str, words)]))
    folder = tmp_path / "multi30k"
    folder.mkdir()
    for name in ("train.en.gz", "train.de.gz", "val.en.gz", "val.de.gz"):
        lines = [f"a sentence of {number} words {name[:3]}\n" for number in range(300)]
        (folder / name).write_bytes(gzip.compress("".join(lines).encode()))
    options = argparse.Namespace(data=tmp_path, output=tmp_path, minutes=0.1)
    write_config(options, ("multi30k", 200), "init", tmp_path / "init.yaml")
    config = load_config(tmp_path / "init.yaml")
    assert config.training.max_minutes == 0.1
    (train,) = config.data.train
    assert train.src is not None
    assert len(gzip.decompress(train.src.read_bytes()).splitlines()) == 200


def test_the_table_has_a_row_for_each_corpus_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    scores = {
        f"{row} {side}": {"bleu": {"score": bleu}, "chrf": {"score": 50.04}}
        for row in ("multi30k 3", "small-parallel-enja 30")
        for side, bleu in (("init", 30.0), ("bare", 20.25))
    }
    print_table(scores)
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| multi30k, 3 | BLEU | 30.0 |  | 20.2 |  |",
        "| small-parallel-enja, 30 | chrF2 | 50.0 |  | 50.0 |  |",
    ]
