"""Sample translations: the same sentences at every validation, exact after a resume."""

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from seq2seq.config.schema import Config, load_config
from seq2seq.data.corpus import ParallelText, read_pairs
from seq2seq.data.padding import Batch
from seq2seq.inference.translator import Translator
from seq2seq.runs.layout import LOG, METRICS, SAMPLES
from seq2seq.training import loop as training
from seq2seq.training.callbacks import Sample, sample_rows, samples_of
from seq2seq.training.loop import Interrupted, train
from seq2seq.training.session import TrainingSession
from seq2seq.training.step import StepResult, train_step

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")


def text_of(src: Sequence[str], tgt: Sequence[str]) -> ParallelText:
    return ParallelText(src, tgt)


def configured(corpus: Path, *overrides: str, run: str = "run") -> Config:
    short = ("decoding.max_length=5", f"run_dir={corpus.parent / run}", "training.max_epochs=null")
    return load_config(corpus, [*short, "training.max_steps=9", *overrides])


@pytest.mark.parametrize(
    ("count", "rows"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (60, [10, 30, 50])]
)
def test_samples_are_evenly_spaced(count: int, rows: list[int]) -> None:
    lines = [f"line {n}" for n in range(count)]
    assert sample_rows(text_of(lines, lines)) == rows


def test_blank_sentences_are_not_sampled() -> None:
    valid = text_of(["a", "", "b", "c", " ", "d"], ["A", "B", "\u200b", "C", "D", "E"])
    assert sample_rows(valid) == [0, 3, 5]
    hypotheses = ["1", "2", "3", "4", "5", "6"]
    assert samples_of(valid, hypotheses) == [
        Sample(1, "a", "A", "1"),
        Sample(4, "c", "C", "4"),
        Sample(6, "d", "E", "6"),
    ]


def test_long_texts_are_shortened_in_the_log() -> None:
    rows = Sample(7, "a" * 201, "b" * 200, "c").rows()
    assert rows == [f"line 7       {'a' * 200}...", f"reference    {'b' * 200}", "translation  c"]


def test_every_validation_reports_sample_translations_of_the_run(small_corpus: Path) -> None:
    config = configured(small_corpus, "training.validate_every=3")
    run = train(config, "cpu")
    valid = read_pairs(config.data.valid)
    lines = [json.loads(line) for line in (run / SAMPLES).read_text("utf-8").splitlines()]
    rows = sample_rows(valid)
    assert [sample["step"] for sample in lines] == [3] * 3 + [6] * 3 + [9] * 3
    assert [sample["line"] - 1 for sample in lines] == rows * 3
    for sample in lines:
        assert sample["source"] == valid.src[sample["line"] - 1]
        assert sample["reference"] == valid.tgt[sample["line"] - 1]
    translator = Translator.load(run, device="cpu")
    (best,) = {int(line.partition(" at step ")[2].split(":")[0]) for line in best_lines(run)}
    texts = [sample.text for sample in translator.translate([valid.src[n] for n in rows], 1)]
    assert [sample["translation"] for sample in lines if sample["step"] == best] == texts
    log = (run / LOG).read_text("utf-8")
    logged = [log.index(f"line {row + 1:<7} {valid.src[row]}\n") for row in rows]
    assert logged == sorted(logged), "they take turns"
    assert log.count(" reference    ") == log.count(" translation  ") == 3


def best_lines(run: Path) -> list[str]:
    return [line for line in (run / LOG).read_text("utf-8").splitlines() if "Best valid" in line]


@pytest.mark.thorough
def test_samples_and_the_table_are_exact_after_a_resume(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = ("training.validate_every=2", "training.log_every=1")
    complete = train(configured(small_corpus, *often, run="complete"), "cpu")

    def killed(run: TrainingSession, batches: Sequence[Batch], rate: float) -> StepResult:
        if run.progress.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return train_step(run, batches, rate)

    config = configured(small_corpus, *often)
    with monkeypatch.context() as patch:
        patch.setattr(training, "train_step", killed)
        with pytest.raises(Interrupted):
            train(config, "cpu")
    with (config.run_dir / SAMPLES).open("a", encoding="utf-8") as file:
        file.write('{"step": 8, "line": 1}\n')  # after the state was saved, as by a killed run
    train(config, "cpu", resume=True)
    for name in (SAMPLES, METRICS):
        assert (config.run_dir / name).read_bytes() == (complete / name).read_bytes()
