"""Run folders and exports of an older version load, and translate as they did.

They were written at 56a3ce7b: a run with names and its int8 export, a GRU that copies and its
export. `translations.json` has lines and their translations by that version, beam 4, where the
second best had a score that was lower by more than 0.04 nats a token.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch

from seq2seq.inference.translator import Translator
from seq2seq.runs import layout
from seq2seq.runs.checkpoint import load_model

FOLDER = Path(__file__).parents[1] / "cases/written_at_56a3ce7b"
TRANSLATIONS: dict[str, dict[str, str]] = json.loads(
    (FOLDER / "translations.json").read_text("utf-8")
)


@pytest.mark.parametrize("name", TRANSLATIONS)
def test_they_translate_as_they_did(name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDER / name, tmp_path / name)  # a run may store its graphs
    expected = TRANSLATIONS[name]
    translations = Translator.load(folder, device="cpu").translate(list(expected), 4)
    assert [translation.text for translation in translations] == list(expected.values())


def test_a_stored_engine_is_used_as_it_is(tmp_path: Path) -> None:
    """Tracing needs seconds, and another version of torch may trace other graphs."""
    folder = shutil.copytree(FOLDER / "names", tmp_path / "names")
    engine = folder / layout.ENGINE
    written = {path.name: path.read_bytes() for path in engine.iterdir()}
    Translator.load(folder, device="cpu").translate("This is a tall tree.")
    assert {path.name: path.read_bytes() for path in engine.iterdir()} == written


@pytest.mark.parametrize("name", ["names", "copying"])
def test_pytorch_loads_the_runs(name: str) -> None:
    run = load_model(FOLDER / name, torch.device("cpu"))
    assert run.source.sentences == 1
    assert run.step > 0
