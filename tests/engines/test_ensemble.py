"""Ensembles of one model, of two copies, and of models that differ in kind and size."""

from typing import Any

import pytest
import torch
from cases.searches import HostNetwork, check_lists, requests_of
from torch import Tensor

from seq2seq.config.schema import ModelConfig
from seq2seq.engines.onnx.engine import OnnxEngine
from seq2seq.engines.torch.engine import TorchEngine
from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.search.search import search
from seq2seq.model.builder import build_model
from seq2seq.model.seq2seq import Seq2Seq

V = 11
SRC = torch.tensor([[3, 7, 10, 9, 2], [5, 2, 0, 0, 0], [8, 8, 4, 2, 0]])
SRC_LENGTHS = torch.tensor([5, 2, 4])
STEPS = [torch.tensor([1, 1, 1]), torch.tensor([7, 4, 9]), torch.tensor([2, 10, 3])]


def make_model(decoder: str, seed: int, hidden_size: int) -> Seq2Seq:
    torch.manual_seed(seed)
    config = ModelConfig(decoder=decoder, embedding_size=8, hidden_size=hidden_size, dropout=0.0)
    return build_model(config, V, V, joint=True).eval()


def run(model: Seq2Seq | Ensemble) -> tuple[list[Tensor], list[Tensor | None]]:
    """Return log-probabilities [B, V] and attention weights [B, S] of several steps."""
    log_probs = []
    attention = []
    memory, state = model.start(model.encode(SRC, SRC_LENGTHS))
    for ids in STEPS:
        step = model.step(ids, state, memory)
        state = step.state
        log_probs.append(model.project(step.outputs).log_softmax(-1))
        attention.append(step.attention_weights)
    return log_probs, attention


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "none"])
@pytest.mark.parametrize("copies", [1, 2])
def test_copies_of_one_model_give_the_results_of_the_model(decoder: str, copies: int) -> None:
    model = make_model(decoder, seed=1, hidden_size=12)
    expected, expected_attention = run(model)
    log_probs, attention = run(Ensemble([model] * copies))
    torch.testing.assert_close(log_probs, expected)
    if decoder == "none":
        assert attention == expected_attention == [None] * len(STEPS)
    else:
        torch.testing.assert_close(attention, expected_attention)


def test_an_ensemble_gives_the_log_of_the_mean_probability_and_the_mean_attention() -> None:
    sizes = {"bahdanau": 12, "luong": 16, "none": 14}
    models = [make_model(kind, seed, size) for seed, (kind, size) in enumerate(sizes.items())]
    single_results = [run(model) for model in models]
    log_probs, attention = run(Ensemble(models))
    for t in range(len(STEPS)):
        mean = sum(result[0][t].exp() for result in single_results) / len(models)
        torch.testing.assert_close(log_probs[t], mean.log())
        torch.testing.assert_close(
            attention[t], (single_results[0][1][t] + single_results[1][1][t]) / 2
        )


def test_networks_of_an_ensemble_find_what_the_torch_ensemble_finds() -> None:
    sizes = {"bahdanau": 12, "luong": 16, "none": 14}
    models = [make_model(kind, seed, size) for seed, (kind, size) in enumerate(sizes.items())]
    requests = requests_of([[3, 7, 10, 9], [5], [8, 8, 4]], [6, 5, 7])
    networks: Any = [HostNetwork(model) for model in models]
    for options in (SearchOptions(1), SearchOptions(4, coverage_penalty=0.2)):
        expected = search(TorchEngine(Ensemble(models), torch.device("cpu")), requests, options)
        check_lists(search(OnnxEngine(networks), requests, options), expected)


def test_project_is_normalized() -> None:
    models = [make_model("none", seed, hidden_size=12) for seed in (1, 2)]
    ensemble = Ensemble(models)
    memory, state = ensemble.start(ensemble.encode(SRC, SRC_LENGTHS))
    log_probs = ensemble.project(ensemble.step(STEPS[0], state, memory).outputs)
    assert log_probs.shape == (len(SRC), V)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(len(SRC)))


def test_log_probabilities_stay_finite_where_probabilities_underflow() -> None:
    models = [make_model("none", seed, hidden_size=12) for seed in (1, 2)]
    for model in models:
        with torch.no_grad():
            model.projection.bias[4] = -500.0
    ensemble = Ensemble(models)
    memory, state = ensemble.start(ensemble.encode(SRC, SRC_LENGTHS))
    log_probs = ensemble.project(ensemble.step(STEPS[0], state, memory).outputs)
    assert torch.isfinite(log_probs).all()
    assert (log_probs[:, 4] < -400).all()


def test_select_takes_the_same_rows_of_every_model() -> None:
    models = [make_model("luong", seed=1, hidden_size=12), make_model("none", 2, 14)]
    ensemble = Ensemble(models)
    rows = torch.tensor([2, 0])
    memory, state = ensemble.start(ensemble.encode(SRC, SRC_LENGTHS))
    full_step = ensemble.step(STEPS[0], state, memory)
    selected_step = ensemble.step(STEPS[0][rows], state.select(rows), memory.select(rows))
    for left, right in zip(selected_step.outputs, full_step.outputs, strict=True):
        torch.testing.assert_close(left, right[rows])
    selected_state = full_step.state.select(rows)
    for left, right in zip(selected_step.state, selected_state, strict=True):
        torch.testing.assert_close(left.hidden, right.hidden)
    following = ensemble.step(STEPS[1][rows], selected_state, memory.select(rows))
    expected = ensemble.step(STEPS[1], full_step.state, memory).outputs
    for left, right in zip(following.outputs, expected, strict=True):
        torch.testing.assert_close(left, right[rows])
