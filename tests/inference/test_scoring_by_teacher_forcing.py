"""Forced decoding against teacher forcing, the mean of an ensemble and the scores of search."""

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from cases.random_models import MAKERS, VOCABULARY_SIZE, random_sources, teacher_forced
from cases.searches import host_engine, search
from cases.tiers import quick_values

from seq2seq.data.padding import make_batch
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids
from seq2seq.engines.torch.engine import TorchEngine
from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.inference.scoring import forced_decodings
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.search.strategies import length_penalty
from seq2seq.model.seq2seq import Seq2Seq

CPU = torch.device("cpu")
SOURCES = random_sources(70, seed=8)
TARGETS = random_sources(70, seed=9, longest=17)


@pytest.fixture(scope="module", params=quick_values(MAKERS))
def model(request: pytest.FixtureRequest) -> Any:
    return MAKERS[request.param]()


def log_probs(model: Any, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
    """Return the values of the torch engine; the engine of exported models must find the same."""
    pairs = list(zip(sources, targets, strict=True))
    by_torch = [d.log_probs for d in forced_decodings(TorchEngine(model, CPU), pairs)]
    on_host = [d.log_probs for d in forced_decodings(host_engine(model), pairs)]
    for torch_values, host_values in zip(by_torch, on_host, strict=True):
        assert host_values == pytest.approx(torch_values, rel=1e-4, abs=1e-5)
    return by_torch


def forced(model: Any, rows: Sequence[int]) -> list[list[float]]:
    return log_probs(model, [SOURCES[i] for i in rows], [TARGETS[i] for i in rows])


@torch.no_grad()
def log_probs_of(model: Seq2Seq, source: Ids, target: Ids) -> list[float]:
    """Return the same log-probabilities from one pass over the complete target."""
    batch = make_batch([source], [target])
    log_probs = teacher_forced(model, batch.src, batch.src_lengths, batch.tgt_in)
    return [log_probs[n, token].item() for n, token in enumerate([*target, EOS_ID])]


def test_tokens_have_the_log_probabilities_of_teacher_forcing(model: Any) -> None:
    models = model.models if isinstance(model, Ensemble) else [model]
    rows = range(0, 70, 7)
    for i, values in zip(rows, forced(model, rows), strict=True):
        values_by_model = [log_probs_of(member, SOURCES[i], TARGETS[i]) for member in models]
        expected = [
            math.log(sum(math.exp(value) for value in column) / len(models))
            for column in zip(*values_by_model, strict=True)
        ]
        assert values == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert len(values) == len(TARGETS[i]) + 1


def test_greedy_hypotheses_have_bitwise_the_scores_of_search(model: Any) -> None:
    lists = search(model, SOURCES, [2 + n % 9 for n in range(70)], SearchOptions(1, 0.7), CPU)
    targets = [best.ids[:-1] for (best,) in lists]
    assert len({len(ids) for ids in targets}) > 3
    for (best,), values in zip(lists, log_probs(model, SOURCES, targets), strict=True):
        total = 0.0
        for value in values:
            total += value
        assert best.score == total / float(length_penalty(np.array(len(best.ids)), 0.7))


def test_beam_hypotheses_have_the_scores_of_search(model: Any) -> None:
    lists = search(model, SOURCES[:20], [7] * 20, SearchOptions(3, 0.7), CPU)
    pairs = [
        (source, hypothesis)
        for source, all_ in zip(SOURCES, lists, strict=False)
        for hypothesis in all_
    ]
    sources = [source for source, _ in pairs]
    targets = [hypothesis.ids[:-1] for _, hypothesis in pairs]
    for (_, hypothesis), values in zip(pairs, log_probs(model, sources, targets), strict=True):
        assert hypothesis.score == pytest.approx(sum(values) / len(hypothesis.ids) ** 0.7, rel=1e-4)


def test_scores_do_not_depend_on_the_batch(model: Any) -> None:
    expected = forced(model, range(70))
    generator = random.Random(3)
    for count in (1, 5, 70):
        rows = generator.choices(range(70), k=count)
        assert forced(model, rows) == [expected[i] for i in rows]


def test_probabilities_of_the_first_token_sum_to_one(model: Any) -> None:
    firsts = [[token] for token in range(VOCABULARY_SIZE) if token != EOS_ID]
    sources = [SOURCES[0]] * len(firsts)
    total = sum(math.exp(first) for first, _ in log_probs(model, sources, firsts))
    ((end,),) = log_probs(model, [SOURCES[0]], [[]])
    assert total + math.exp(end) == pytest.approx(1, abs=1e-5)


def test_a_very_long_pair_is_not_truncated() -> None:
    model: Any = MAKERS["bahdanau"]()
    source, target = ([4 + n % 9 for n in range(length)] for length in (1100, 90))
    long, short = log_probs(model, [source, SOURCES[1]], [target, TARGETS[1]])
    assert long == pytest.approx(log_probs_of(model, source, target), rel=1e-3, abs=1e-3)
    assert [short] == forced(model, [1])
