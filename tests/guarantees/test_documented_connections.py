"""The code of the page that connects other tools runs, with modules in place of theirs."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seq2seq.config.schema import load_config

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/connect.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CONFIG = """
name: mine
run_dir: runs/mine
data: {src_lang: en, tgt_lang: de, train: {src: a, tgt: b}, valid: {src: c, tgt: d}}
model: {decoder: luong}
training: {max_epochs: 1}
"""


def defined(word: str) -> dict[str, Any]:
    """Run the block that has a word; return what it defines."""
    (code,) = (block for block in BLOCKS if word in block)
    names: dict[str, Any] = {}
    exec(compile(code, "connect.md", "exec"), names)
    return names


def test_figures_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[object, object]] = []

    def log(values: object, step: int) -> None:
        sent.append((values, step))

    started: dict[str, str] = {}

    def init(**settings: str) -> SimpleNamespace:
        started.update(settings)
        return SimpleNamespace(log=log)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(log_metrics=log))
    (path := tmp_path / "mine.yaml").write_text(CONFIG, encoding="utf-8")
    defined("import wandb")["WandB"](load_config(path)).on_metrics(3, {"valid_bleu": 20.5})
    defined("import mlflow")["MLflow"]().on_metrics(4, {"train_loss": 1.5})
    assert sent == [({"valid_bleu": 20.5}, 3), ({"train_loss": 1.5}, 4)]
    assert started["name"] == "mine"
    assert "decoder: luong" in started["notes"]


def test_a_translation_memory_becomes_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bold = "<bpt i='1'>&lt;b&gt;<sub>note</sub></bpt>cat<ept i='1'>&lt;/b&gt;</ept>"
    english = f"<tuv xml:lang='en'><seg>The\n <ph>{{1}}</ph>{bold}</seg></tuv>"
    unit = f"<tu>{english}<tuv><seg>Die <hi>Katze</hi></seg></tuv></tu>"
    lonely = "<tu><tuv><seg>alone</seg></tuv></tu>"
    Path("corpus.tmx").write_text(f"<tmx><body>{unit}{lonely}{unit}</body></tmx>", "utf-8")
    defined("corpus.tmx")
    assert Path("corpus.en").read_text("utf-8") == "The cat\n" * 2
    assert Path("corpus.de").read_text("utf-8") == "Die Katze\n" * 2
