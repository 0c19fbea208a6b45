"""`seq2seq.train`: the run that it returns, and its output in a notebook."""

import importlib.util
import json
import os
from pathlib import Path

import pytest

import seq2seq
from seq2seq import Translator, load_config
from seq2seq.evaluation.metrics import score
from seq2seq.runtime.errors import UserError
from seq2seq.text.text_files import read_lines
from seq2seq.training.callbacks import Callback

pytestmark = pytest.mark.usefixtures("short_sentences")

SHORT = ("training.max_steps=6", "training.validate_every=3", "training.log_every=2")


def test_a_trained_run_has_folder_history_and_translator(small_corpus: Path) -> None:
    run = seq2seq.train(load_config(small_corpus, SHORT), "cpu", quiet=True)
    assert run.run_dir == small_corpus.parent / "run"
    assert (run / "train.log").exists()
    assert str(run) == str(run.run_dir)
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert run.history == [json.loads(line) for line in lines]
    assert {"step", "train_loss"} <= run.history[0].keys()
    source = read_lines(small_corpus.parent / "test.src")
    translations = [translation.text for translation in run.translator.translate(source)]
    loaded = Translator.load(run)  # type: ignore[arg-type]  # as the path of its folder
    assert [translation.text for translation in loaded.translate(source)] == translations
    assert run.translator is run.translator
    references = read_lines(small_corpus.parent / "test.tgt")
    scores = run.translator.evaluate(source, references)
    assert scores == score(translations, [references])
    assert scores["bleu"].ci is None or scores["bleu"].ci[0] <= scores["bleu"].score
    with pytest.raises(UserError, match="11 lines but references has 10"):
        run.translator.evaluate(source, references[1:])
    for wrong in (references[0], set(references), [references[0], references], [1, 2]):
        with pytest.raises(TypeError, match="references"):
            run.translator.evaluate(source, wrong)  # type: ignore[arg-type]
    second_references = [f"{line} ba" for line in references]
    scores = run.translator.evaluate(iter(source), (iter(references), second_references))
    assert scores == score(translations, [references, second_references])
    with pytest.raises(UserError, match="11 lines but reference 2 has 10"):
        run.translator.evaluate(source, [references, second_references[1:]])


@pytest.mark.thorough
@pytest.mark.skipif(importlib.util.find_spec("nbclient") is None, reason="needs nbclient")
def test_in_a_notebook_nothing_is_red_and_a_curve_is_drawn(small_corpus: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    cell = (
        "import seq2seq\n"
        f"config = seq2seq.load_config({str(small_corpus)!r}, {list(SHORT)})\n"
        "run = seq2seq.train(config, 'cpu')\n"
        "run.translator.translate('ba').plot()"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    NotebookClient(notebook, timeout=600).execute()
    outputs = notebook.cells[0].outputs
    assert {output.get("name") for output in outputs} <= {"stdout", None}
    text = "".join(output.get("text", "") for output in outputs)
    assert "Training finished" in text
    kinds = [output.output_type for output in outputs if "image/png" in output.get("data", {})]
    assert kinds == ["display_data", "execute_result"]  # the live curve, drawn once, and the map


class Elsewhere(Callback):
    """Changes the working directory at the first step, as `%cd` of a notebook does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_step(self, step: int, last_step: int | None) -> None:  # noqa: ARG002
        os.chdir(self._folder)


def test_relative_folders_are_those_of_the_start(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(small_corpus.parent)
    config = load_config(small_corpus, ["run_dir=relative", *SHORT])
    run = seq2seq.train(config, callbacks=[Elsewhere(elsewhere)], quiet=True)
    assert Path.cwd() == elsewhere
    assert run.run_dir == small_corpus.parent / "relative"
    assert run.history
    assert run.translator.translate("ba lo.").text
    assert list(elsewhere.iterdir()) == []
