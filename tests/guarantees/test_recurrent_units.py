"""Runs whose layers are gated units or normalised LSTMs, from training to every kind of search."""

from pathlib import Path

import pytest
import torch
from cases.respelled_vocabulary import Respelled
from cases.toy_text import toy_pairs
from cases.trainings import stop_after

from seq2seq.__main__ import main
from seq2seq.config.schema import Config, load_config
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.inference.scoring import score_lines
from seq2seq.inference.translator import Translator
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.layout import METRICS
from seq2seq.training.loop import train

pytestmark = pytest.mark.usefixtures("short_sentences")

UNITS = {
    "gru": ("model.decoder=bahdanau", "model.cell=gru", "model.maxout=true"),
    "gru-luong": ("model.decoder=luong", "model.cell=gru", "model.copy=true"),
    "normed": ("model.decoder=bahdanau", "model.cell=layer_norm_lstm", "model.layers=2"),
    "normed-gnmt": (
        "model.decoder=gnmt",
        "model.cell=layer_norm_lstm",
        "model.layers.residual=true",
    ),
}
LINES = toy_pairs(12, seed=5)[0]
CPU = torch.device("cpu")


def configured(corpus: Path, run: str, *overrides: str) -> Config:
    settings = ("training.max_steps=6", "training.log_every=1", "training.average=0.9")
    return load_config(corpus, [*settings, f"run_dir={corpus.parent / run}", *overrides])


@pytest.mark.thorough
@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("unit", UNITS)
def test_a_run_is_resumed_exactly(small_corpus: Path, unit: str) -> None:
    keys = (*UNITS[unit], "training.precision=bf16")
    complete = train(configured(small_corpus, "complete", *keys), "cpu")
    config = configured(small_corpus, "resumed", *keys)
    stop_after(3, config)
    resumed = train(config, "cpu", resume=True)
    assert (resumed / METRICS).read_bytes() == (complete / METRICS).read_bytes()
    weights = [load_model(run, CPU).model.parameters() for run in (complete, resumed)]
    assert all(map(torch.equal, *weights))


@pytest.mark.thorough
@pytest.mark.parametrize("unit", UNITS)
def test_translations_scores_and_averages(small_corpus: Path, unit: str) -> None:
    settings = ("training.max_steps=8", "training.keep=2", "training.validate_every=4")
    run = train(configured(small_corpus, "run", *UNITS[unit], *settings), "cpu")
    translator = Translator.load(run)
    for beam_size in (1, 4):
        in_one_batch = translator.translate(LINES, beam_size=beam_size)
        one_by_one = [translator.translate([line], beam_size=beam_size)[0] for line in LINES]
        assert in_one_batch == one_by_one
    ensemble = Translator.load(run, run).translate(LINES, beam_size=4)
    for translation, single in zip(ensemble, in_one_batch, strict=True):
        assert translation.score == pytest.approx(single.score, rel=1e-3)
    plain = translator.vocabularies
    translator.loaded.vocabularies = Vocabularies(plain.src, Respelled(plain.tgt, in_one_batch))
    texts = [scored_translation.text for scored_translation in in_one_batch]
    for translation, scored in zip(
        in_one_batch, score_lines(translator.loaded, LINES, texts), strict=True
    ):
        assert scored.score == pytest.approx(translation.score, rel=1e-5)
    rounded = Translator.load(run, int8=True)
    assert len(rounded.translate(LINES)) == len(LINES)
    averaged = small_corpus.parent / "averaged"
    assert main(["average", str(run), "-o", str(averaged)]) == 0
    assert len(Translator.load(averaged).translate(LINES)) == len(LINES)
