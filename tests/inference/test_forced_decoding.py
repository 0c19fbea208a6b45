"""Forced decoding against teacher forcing, the mean of an ensemble and the scores of search."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from searching import search
from test_search import MAKERS, VOCABULARY_SIZE, random_sources, teacher_forced
from tiers import quick_values

from seq2seq.data.batching import make_batch
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids
from seq2seq.inference.ensemble import Ensemble
from seq2seq.inference.inference_model import InferenceModel
from seq2seq.inference.scoring import forced_log_probs
from seq2seq.inference.search.interface import SearchOptions

CPU = torch.device("cpu")
SOURCES = random_sources(70, seed=8)
TARGETS = random_sources(70, seed=9, longest=17)


@pytest.fixture(scope="module", params=quick_values(MAKERS))
def model(request: pytest.FixtureRequest) -> Any:
    return MAKERS[request.param]()


def forced(model: Any, rows: Sequence[int]) -> list[list[float]]:
    return forced_log_probs(model, [SOURCES[i] for i in rows], [TARGETS[i] for i in rows], CPU)


@torch.no_grad()
def log_probs_of(model: InferenceModel, source: Ids, target: Ids) -> list[float]:
    """Return the same log-probabilities from one pass over the complete target."""
    batch = make_batch([source], [target])
    log_probs = teacher_forced(model, batch.src, batch.src_lengths, batch.tgt_in)
    return [log_probs[n, each].item() for n, each in enumerate([*target, EOS_ID])]


def test_tokens_have_the_log_probabilities_of_teacher_forcing(model: Any) -> None:
    models = model.models if isinstance(model, Ensemble) else [model]
    rows = range(0, 70, 7)
    for i, found in zip(rows, forced(model, rows), strict=True):
        each = [log_probs_of(one, SOURCES[i], TARGETS[i]) for one in models]
        expected = [
            math.log(sum(math.exp(value) for value in column) / len(models))
            for column in zip(*each, strict=True)
        ]
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert len(found) == len(TARGETS[i]) + 1


def test_greedy_hypotheses_have_bitwise_the_scores_of_search(model: Any) -> None:
    found = search(model, SOURCES, [2 + n % 9 for n in range(70)], SearchOptions(1, 0.7), CPU)
    targets = [best.ids[:-1] for (best,) in found]
    assert len({len(ids) for ids in targets}) > 3
    for (best,), values in zip(found, forced_log_probs(model, SOURCES, targets, CPU), strict=True):
        total = 0.0
        for each in values:
            total += each
        assert best.score == total / len(best.ids) ** 0.7


def test_beam_hypotheses_have_the_scores_of_search(model: Any) -> None:
    found = search(model, SOURCES[:20], [7] * 20, SearchOptions(3, 0.7), CPU)
    pairs = [(source, each) for source, all_ in zip(SOURCES, found, strict=False) for each in all_]
    values = forced_log_probs(
        model, [source for source, _ in pairs], [each.ids[:-1] for _, each in pairs], CPU
    )
    for (_, each), log_probs in zip(pairs, values, strict=True):
        assert each.score == pytest.approx(sum(log_probs) / len(each.ids) ** 0.7, rel=1e-4)


def test_scores_do_not_depend_on_the_batch(model: Any) -> None:
    expected, generator = forced(model, range(70)), random.Random(3)
    for count in (1, 5, 70):
        rows = generator.choices(range(70), k=count)
        assert forced(model, rows) == [expected[i] for i in rows]


def test_probabilities_of_the_first_token_sum_to_one(model: Any) -> None:
    firsts = [[token] for token in range(VOCABULARY_SIZE) if token != EOS_ID]
    sources = [SOURCES[0]] * len(firsts)
    total = sum(math.exp(first) for first, _ in forced_log_probs(model, sources, firsts, CPU))
    ((end,),) = forced_log_probs(model, [SOURCES[0]], [[]], CPU)
    assert total + math.exp(end) == pytest.approx(1, abs=1e-5)


def test_a_very_long_pair_is_not_truncated() -> None:
    model: Any = MAKERS["bahdanau"]()
    source, target = ([4 + n % 9 for n in range(length)] for length in (1100, 90))
    long, short = forced_log_probs(model, [source, SOURCES[1]], [target, TARGETS[1]], CPU)
    assert long == pytest.approx(log_probs_of(model, source, target), rel=1e-3, abs=1e-3)
    assert [short] == forced(model, [1])
