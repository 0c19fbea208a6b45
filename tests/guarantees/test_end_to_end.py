"""From two text files and a config to a scored model, using only the command line."""

import json
from pathlib import Path

import pytest

from seq2seq.__main__ import main

pytestmark = pytest.mark.usefixtures("short_sentences")


def run(*arguments: object) -> None:
    assert main([str(argument) for argument in arguments]) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "none"])
def test_train_translate_evaluate_and_plot(
    small_corpus: Path,
    decoder: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = small_corpus.parent
    monkeypatch.chdir(folder)
    src, ref, hyp = (folder / name for name in ("test.src", "test.tgt", "test.hyp"))

    run(
        "train",
        small_corpus,
        f"model.decoder={decoder}",
        "training.max_epochs=4",
        "training.learning_rate=1e-2",
        "training.log_every=1",
    )
    assert capsys.readouterr().out == ""
    metrics = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    losses = [line["train_loss"] for line in metrics if "train_loss" in line]
    assert 20 <= len(losses) <= 70
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    assert sum("valid_bleu" in line for line in metrics) == 4

    run("translate", "-m", "run", "-i", src, "-o", hyp)
    translations = hyp.read_text(encoding="utf-8").splitlines()
    assert len(translations) == len(src.read_text(encoding="utf-8").splitlines()) == 11
    assert sum(map(bool, translations)) > 5
    assert not any("▁" in line or "<" in line for line in translations)

    run("evaluate", "-m", "run", "-o", "again.hyp", "--json", "run.json")
    of_run = capsys.readouterr().out
    run("evaluate", "--hyp", hyp, "-r", ref)
    assert capsys.readouterr().out == of_run
    assert Path("again.hyp").read_bytes() == hyp.read_bytes()
    assert json.loads(Path("run.json").read_text(encoding="utf-8"))["chrf"]["score"] > 1

    plot = Path("plot.json")
    if decoder == "none":
        assert main(["attention", "-m", "run", "-i", str(src), "-o", str(plot)]) == 2
        assert not plot.exists()
    else:
        run("attention", "-m", "run", "-i", src, "-o", plot)
        plotted = json.loads(plot.read_text(encoding="utf-8"))
        assert [entry["text"] for entry in plotted] == translations
        run("attention", "-m", "run", "-i", src, "-o", "plot.html")
        assert Path("plot.html").read_text(encoding="utf-8").count("<table") == 11


@pytest.mark.thorough
@pytest.mark.usefixtures("tensorboard")
def test_a_run_folder_can_be_moved(
    small_corpus: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = small_corpus.parent
    run("train", small_corpus, "training.max_steps=4")
    run("translate", "-m", folder / "run", "-i", folder / "test.src")
    expected = capsys.readouterr().out
    elsewhere = tmp_path_factory.mktemp("abroad")
    (folder / "test.src").rename(elsewhere / "text")
    (folder / "run").rename(elsewhere / "copy")
    for path in (small_corpus, *folder.glob("*.src"), *folder.glob("*.tgt")):
        path.unlink()
    monkeypatch.chdir(elsewhere)
    run("translate", "-m", "copy", "-i", "text")
    assert capsys.readouterr().out == expected
    assert sorted(path.name for path in (elsewhere / "copy").iterdir()) == [
        "best.safetensors",
        "config.yaml",
        "engine",
        "last.safetensors",
        "metrics.jsonl",
        "previous.safetensors",
        "samples.jsonl",
        "tensorboard",
        "timing.jsonl",
        "train.log",
        "vocabulary",
    ]
