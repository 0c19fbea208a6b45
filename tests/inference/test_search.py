"""Search against brute force, a search written out with lists, and teacher forcing."""

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from cases.oracle import (
    CPU,
    MAY_FOLLOW,
    SOURCES,
    Oracle,
    all_hypotheses,
    ask,
    best_of,
    check_against,
    check_ranking,
    score_of,
)
from cases.random_models import MAKERS, random_model, random_sources, same, teacher_forced
from cases.searches import requests_of, row_search, search
from cases.tiers import one_quick, quick_values

from seq2seq.data.padding import pad_sources
from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, PAD_ID, Ids
from seq2seq.engines.onnx.engine import OnnxEngine
from seq2seq.engines.torch.engine import StaticRows, TorchEngine, TorchStep
from seq2seq.inference.search import search as search_module
from seq2seq.inference.search import strategies
from seq2seq.inference.search.beam import Beam
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.search.sentences import by_width
from seq2seq.runtime.cancellation import cancellable

# ----------------------------------------------------------------------- a model with known outputs


@pytest.mark.parametrize("markov", [True, False])
def test_greedy_search_takes_the_most_probable_token(markov: bool) -> None:
    lengths = set()
    for seed in range(4):
        model: Any = Oracle(seed, markov=markov)
        limits = [3, 4, 5, 6, 9]
        lists = search(model, SOURCES, limits, SearchOptions(1), CPU)
        for source, limit, hypotheses in zip(SOURCES, limits, lists, strict=True):
            (best,) = hypotheses
            assert best.ids == greedy_ids(model, source, limit)
            lengths.add(len(best.ids))
    assert len(lengths) > 3


@pytest.mark.parametrize("size", [1, 3])
def test_forbidden_ids_never_occur(size: int) -> None:
    seen = set()
    for seed in range(4):
        model: Any = Oracle(seed)
        for never in ((PAD_ID, BOS_ID), (PAD_ID, BOS_ID, 5)):
            lists = search(model, SOURCES, [9] * 5, SearchOptions(size, forbidden_ids=never), CPU)
            ids = {i for hypotheses in lists for hypothesis in hypotheses for i in hypothesis.ids}
            assert not ids & set(never)
            seen |= ids
    assert 5 in seen


def greedy_ids(model: Oracle, source: Ids, limit: int) -> Ids:
    chain: Ids = []
    while len(chain) < limit:
        allowed = [*MAY_FOLLOW, EOS_ID] if chain else MAY_FOLLOW
        best = max(allowed, key=lambda i: ask(model, source, [*chain, i]).log_prob)
        chain.append(best)
        if best == EOS_ID:
            return chain
    return [*chain, EOS_ID]


@pytest.mark.parametrize("attends", [True, False])
@pytest.mark.parametrize(
    ("length_penalty", "coverage_penalty"), [(0.0, 0.0), (0.7, 0.0), (1.0, 0.0), (0.7, 0.4)]
)
def test_an_exhaustive_beam_finds_every_hypothesis_in_order(
    length_penalty: float, coverage_penalty: float, attends: bool
) -> None:
    model: Any = Oracle(3, attends)
    limits = [3] * len(SOURCES)
    everything = list(all_hypotheses(3))
    beam = SearchOptions(len(everything), length_penalty, coverage_penalty)
    lists = search(model, SOURCES, limits, beam, CPU)
    for source, hypotheses in zip(SOURCES, lists, strict=True):
        check_ranking(model, source, hypotheses, everything, length_penalty, coverage_penalty)


@one_quick("beam_size", [2, 3, 5], quick=1)
@pytest.mark.parametrize(
    ("length_penalty", "coverage_penalty"), [(0.0, 0.0), (0.7, 0.0), (1.0, 0.0), (1.0, 0.3)]
)
def test_a_narrow_beam_equals_a_search_written_with_lists(
    beam_size: int, length_penalty: float, coverage_penalty: float
) -> None:
    limits = [2, 7, 9, 5, 1]
    for seed in range(2):
        model: Any = Oracle(seed)
        beam = SearchOptions(beam_size, length_penalty, coverage_penalty)
        lists = search(model, SOURCES, limits, beam, CPU)
        for source, limit, hypotheses in zip(SOURCES, limits, lists, strict=True):
            expected = listed_beam(
                model, source, limit, beam_size, length_penalty, coverage_penalty
            )
            assert [hypothesis.ids for hypothesis in hypotheses] == [ids for ids, _ in expected]
            for hypothesis, (_, score) in zip(hypotheses, expected, strict=True):
                assert hypothesis.score == pytest.approx(score, rel=1e-5)


def listed_beam(
    model: Oracle,
    source: Ids,
    limit: int,
    beam_size: int,
    length_penalty: float,
    coverage_penalty: float,
) -> list[tuple[Ids, float]]:
    """Search one source with lists; return finished hypotheses and their scores, best first."""
    unfinished: list[tuple[Ids, float]] = [([], 0.0)]
    finished: list[tuple[Ids, float]] = []
    for length in range(1, limit + 2):
        allowed = [*(MAY_FOLLOW if length <= limit else ()), *([EOS_ID] if length > 1 else [])]
        candidates = [
            (continued, ask(model, source, continued).log_prob)
            for ids, _ in unfinished
            for continued in ([*ids, following] for following in allowed)
        ]
        candidates = best_of(candidates, 2 * beam_size)
        finished += [
            (ids, score_of(ask(model, source, ids), length, length_penalty, coverage_penalty))
            for ids, _ in candidates[:beam_size]
            if ids[-1] == EOS_ID
        ]
        finished = best_of(finished, beam_size)
        unfinished = best_of(
            [candidate for candidate in candidates if candidate[0][-1] != EOS_ID], beam_size
        )
        if not unfinished:
            break
        bound = unfinished[0][1] / length**length_penalty
        if len(finished) == beam_size and finished[-1][1] >= bound:
            break
    return finished


@pytest.mark.parametrize(("beam_size", "room"), [(1, 1), (1, 5), (1, 64), (4, 64)])
def test_a_hypothesis_keeps_its_own_parents(
    beam_size: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle's outputs depend on all ids: a wrong parent changes score and weights."""
    monkeypatch.setattr(strategies, "STEPS", room)
    generator = random.Random(2)
    sources = [[generator.randint(4, 6) for _ in range(n % 11)] for n in range(40)]
    model: Any = Oracle(5)
    lists = search(
        model, sources, [3 + n % 9 for n in range(40)], SearchOptions(beam_size, 0.7), CPU
    )
    for source, hypotheses in zip(sources, lists, strict=True):
        for hypothesis in hypotheses:
            check_against(ask(model, source, hypothesis.ids), hypothesis, 0.7)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_without_attention_weights_everything_else_is_the_same(beam_size: int) -> None:
    generator = random.Random(3)
    sources = [[generator.randint(4, 6) for _ in range(n % 11)] for n in range(40)]
    limits = [3 + n % 9 for n in range(40)]
    beam = SearchOptions(beam_size, 0.7, coverage_penalty=0.3)
    model: Any = Oracle(5)
    expected = search(model, sources, limits, beam, CPU)
    lists = search(model, sources, limits, replace(beam, return_attention=False), CPU)
    for hypotheses, without_weights in zip(expected, lists, strict=True):
        assert all(hypothesis.attention_weights is not None for hypothesis in hypotheses)
        assert [
            hypothesis._replace(attention_weights=None) for hypothesis in hypotheses
        ] == without_weights


# -------------------------------------------------------------------------------------- real models


@pytest.fixture(scope="module", params=quick_values(MAKERS))
def model(request: pytest.FixtureRequest) -> Any:
    return MAKERS[request.param]()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_every_hypothesis_is_well_formed(model: Any, beam_size: int) -> None:
    sources = random_sources(40, seed=7)
    limits = [1 + n % 13 for n in range(40)]
    lists = search(model, sources, limits, SearchOptions(beam_size), CPU)
    lengths = set()
    for source, limit, hypotheses in zip(sources, limits, lists, strict=True):
        assert 1 <= len(hypotheses) <= beam_size
        assert len({tuple(hypothesis.ids) for hypothesis in hypotheses}) == len(hypotheses)
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert all(math.isfinite(score) for score in scores)
        for ids, _, weights, *_ in hypotheses:
            assert 2 <= len(ids) <= limit + 1
            assert [n for n, i in enumerate(ids) if i == EOS_ID] == [len(ids) - 1]
            assert not {PAD_ID, BOS_ID}.intersection(ids)
            lengths.add(len(ids))
            if weights is not None:
                assert weights.shape == (len(ids), len(source) + 1)
                assert (weights.sum(1) < 1 + 1e-5).all()  # a local_p window reduces them
                assert (weights.sum(1) > 1e-3).all()
    assert len(lengths) > 3


def test_a_beam_returns_the_requested_number_of_hypotheses(model: Any) -> None:
    lists = search(model, random_sources(12, seed=8), [9] * 12, SearchOptions(6), CPU)
    assert {len(hypotheses) for hypotheses in lists} == {6}


@one_quick("kind", [kind for kind in MAKERS if kind != "ensemble"])
@one_quick("beam_size", [1, 4])
def test_scores_equal_those_of_teacher_forcing(kind: str, beam_size: int) -> None:
    model = MAKERS[kind]()
    sources = random_sources(14, seed=9)
    length_penalty = 0.7
    lists = search(model, sources, [12] * 14, SearchOptions(beam_size, length_penalty), CPU)
    for source, hypotheses in zip(sources, lists, strict=True):
        for ids, score, *_ in hypotheses:
            src, src_lengths = pad_sources([source])
            with torch.inference_mode():
                log_probs = teacher_forced(
                    model, src, src_lengths, torch.tensor([[BOS_ID, *ids[:-1]]])
                )
            total = log_probs.gather(1, torch.tensor(ids)[:, None]).sum().item()
            assert score == pytest.approx(total / len(ids) ** length_penalty, rel=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_scores_and_weights_equal_those_of_single_steps(model: Any, beam_size: int) -> None:
    sources = random_sources(14, seed=10)
    lists = search(model, sources, [10] * 14, SearchOptions(beam_size), CPU)
    for source, hypotheses in zip(sources, lists, strict=True):
        for hypothesis in hypotheses:
            check_against(ask(model, source, hypothesis.ids), hypothesis, 1.0)


def test_a_beam_of_one_finds_the_greedy_hypothesis(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first finished hypothesis is the greedy one, unless a longer one has a higher score."""
    sources = random_sources(30, seed=11)
    limits = [3 + n % 9 for n in range(30)]
    beams_of_one = search(model, sources, limits, SearchOptions(1, 0.0), CPU)
    monkeypatch.setattr(search_module, "Greedy", Beam)
    for beam_of_one, greedy in zip(
        beams_of_one, search(model, sources, limits, SearchOptions(1, 0.0), CPU), strict=True
    ):
        assert [hypothesis.ids for hypothesis in greedy] == [
            hypothesis.ids for hypothesis in beam_of_one
        ]
        assert greedy[0].score == pytest.approx(beam_of_one[0].score, rel=1e-5)


def test_a_wider_beam_scores_higher_in_total(model: Any) -> None:
    sources = random_sources(25, seed=12)
    totals = [
        sum(
            hypotheses[0].score
            for hypotheses in search(model, sources, [8] * 25, SearchOptions(beam_size, 0.0), CPU)
        )
        for beam_size in (1, 3, 8)
    ]
    assert totals == sorted(totals)
    assert totals[0] < totals[-1]


# --------------------------------------------------------------------------------- batch invariance


@pytest.mark.thorough
@pytest.mark.parametrize(("beam_size", "coverage_penalty"), [(5, 0.4)])
def test_results_do_not_depend_on_the_batch(
    model: Any, beam_size: int, coverage_penalty: float
) -> None:
    """Any subset, order, repetition or split of the sources gives bitwise the same results."""
    sources = random_sources(40, seed=14)
    limits = [2 + (7 * n) % 11 for n in range(40)]
    options = SearchOptions(beam_size, 1.0, coverage_penalty)
    everything = search(model, sources, limits, options, CPU)
    results = row_search(model, requests_of(sources, limits), options)
    generator = random.Random(1)
    shuffled = generator.sample(range(40), 40)
    batches = [
        shuffled,
        [i for i in shuffled[:10] for _ in range(2)],
        *(generator.sample(range(40), size) for size in (2, 7, 17)),
        *([i] for i in shuffled[:4]),
    ]
    for rows in batches:
        for i, hypotheses in zip(rows, results(rows), strict=True):
            assert same(hypotheses, everything[i])


@one_quick("beam_size", [1, 3], quick=1)
def test_tiles_of_few_rows_search_every_sentence(
    beam_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model("luong", 2)
    sources = random_sources(14, seed=9, longest=15)
    limits = [len(source) + 5 for source in sources]
    expected = search(model, sources, limits, SearchOptions(beam_size), CPU)
    for rows in (1, 3):
        for engine in (TorchEngine, OnnxEngine):
            monkeypatch.setattr(engine, "slot_count", lambda *_, rows=rows: rows)
        lists = search(model, sources, limits, SearchOptions(beam_size), CPU)
        assert [hypotheses[0].ids for hypotheses in lists] == [
            hypotheses[0].ids for hypotheses in expected
        ]


def test_no_sources_no_results() -> None:
    assert search(random_model("none", 1), [], [], SearchOptions(3), CPU) == []


def test_a_width_depends_on_the_length_of_its_source_alone() -> None:
    sources = random_sources(500, seed=14, longest=60)
    seen = []
    for width, rows in by_width(sources).items():
        seen += rows
        for i in rows:
            assert by_width([sources[i]]) == {width: [0]}
            assert width > len(sources[i])
    assert sorted(seen) == list(range(500))


@pytest.mark.parametrize("width", [5, 128, 640, 1283, 4000])
@pytest.mark.parametrize("count", [1, 3, 10])
@pytest.mark.parametrize("hypotheses", [1, 3, 5])
def test_the_best_continuations_are_those_of_a_topk_over_everything(
    width: int, count: int, hypotheses: int
) -> None:
    generator = torch.Generator().manual_seed(width)
    scores = torch.randn(6, hypotheses, generator=generator)
    values = torch.randn(6, hypotheses, width, generator=generator)
    values[0, :, width // 2 :] = -torch.inf
    values[1] = -torch.inf
    values[1, 0, -1] = 0
    scores[2, 1:] = -torch.inf
    expected, _ = (values + scores[:, :, None]).flatten(1).topk(min(count, hypotheses * width))
    engine = TorchEngine(Oracle(1), CPU)
    step = TorchStep(engine, StaticRows(None, None, 6, hypotheses), np.empty(0))
    step.values = values.view(-1, width)
    best = engine.best(step, scores.numpy(), min(count, hypotheses * width))
    assert np.array_equal(best.scores, expected.numpy())
    batch = np.arange(6)[:, None]
    log_probs = values.numpy()[batch, best.parents, best.tokens]
    finite = np.isfinite(best.scores)
    assert np.array_equal(log_probs[finite], best.log_probs[finite])
    totals = log_probs + scores.numpy()[batch, best.parents]
    assert np.array_equal(totals[finite], best.scores[finite])
    for row in (best.parents * width + best.tokens)[3:]:
        assert len(set(row.tolist())) == len(row)


def test_there_are_fewer_slots_for_longer_sources() -> None:
    engine = TorchEngine(Oracle(1), CPU)
    rows = [engine.slot_count(width, 1, 1000) for width in range(16, 400, 16)]
    assert rows[0] == 64
    assert TorchEngine(Oracle(1), torch.device("cuda")).slot_count(16, 1, 1000) > rows[0]
    assert sorted(rows, reverse=True) == rows
    assert rows[-1] < rows[0]


def test_no_sentence_is_lost_when_another_search_shrinks_the_engine() -> None:
    """Searches share an engine, whose slots become fewer where memory runs out."""
    model: Any = Oracle(0)
    engine = TorchEngine(model, CPU)
    requests = requests_of(SOURCES * 8, [3, 4, 5, 6, 9] * 8)
    options = SearchOptions(1)
    expected = search_module.search(engine, requests, options)
    steps = itertools.count()

    def shrink_at_the_second_step() -> None:
        if next(steps) == 1:
            engine._limit = 2

    with cancellable(shrink_at_the_second_step):
        found = search_module.search(engine, requests, options)
    assert [hypotheses[0].ids for hypotheses in found] == [
        hypotheses[0].ids for hypotheses in expected
    ]
