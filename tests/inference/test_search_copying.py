"""Search with copying, alone and in an ensemble."""

import math

import pytest
import torch
from cases.oracle import CPU
from cases.random_models import model_of, random_sources, same
from cases.searches import search
from cases.tiers import one_quick

from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.model.seq2seq import Seq2Seq


def copying_model(decoder: str) -> Seq2Seq:
    return model_of(decoder, copy=True)


@pytest.mark.thorough
@one_quick("decoder", ["bahdanau", "luong"])
@one_quick("beam_size", [1, 5])
def test_results_equal_those_of_a_sentence_alone(decoder: str, beam_size: int) -> None:
    model = copying_model(decoder)
    sources = random_sources(90, seed=8)
    limits = [20] * 90
    options = SearchOptions(beam_size)
    everything = search(model, sources, limits, options, CPU)
    for start, count in ((0, 1), (7, 2), (20, 5), (31, 20), (40, 50)):
        part = slice(start, start + count)
        some = search(model, sources[part], limits[part], options, CPU)
        for hypotheses, hypotheses_in_batch in zip(some, everything[part], strict=True):
            assert same(hypotheses, hypotheses_in_batch)


@torch.inference_mode()
def test_an_ensemble_averages_mixtures() -> None:
    models = [copying_model("bahdanau"), copying_model("luong"), model_of("none")]
    ensemble = Ensemble(models)
    src = torch.tensor([[5, 6, 7, 3], [9, 9, 3, 0]])
    lengths = torch.tensor([4, 3])
    ids = torch.tensor([2, 2])
    memory, state = ensemble.start(ensemble.encode(src, lengths))
    log_probs = ensemble.project(ensemble.step(ids, state, memory).outputs)
    probs = []
    for model in models:
        own_memory, own_state = model.start(model.encode(src, lengths))
        logits = model.project(model.step(ids, own_state, own_memory).outputs)
        probs.append(logits.log_softmax(-1).exp())
    torch.testing.assert_close(log_probs.exp(), torch.stack(probs).mean(0))


def test_a_closed_gate_copies_attended_tokens_alone() -> None:
    model = copying_model("luong")
    with torch.no_grad():
        model.copying.gate.weight.zero_()
        model.copying.gate.bias.fill_(-60.0)
    sources = random_sources(30, seed=3)
    for (best,), source in zip(
        search(model, sources, [9] * 30, SearchOptions(1), CPU), sources, strict=True
    ):
        assert {*best.ids} <= {*source, 3}
        assert best.attention_weights is not None
        assert math.isfinite(best.score)
