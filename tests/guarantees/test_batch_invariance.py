"""Batch invariance: bitwise the same results of the ONNX engine for any batch and any threads."""

import functools
import itertools
import json
import math
import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from cases.batch_invariance import check_batch_invariance
from cases.oracle import CPU
from cases.random_models import MAKERS, model_of, random_sources, same
from cases.searches import check_lists, requests_of
from cases.tiers import one_quick

from seq2seq.engines.engine import GraphFiles, Sampling
from seq2seq.engines.onnx.engine import OnnxEngine
from seq2seq.engines.onnx.network import load_network
from seq2seq.engines.onnx.trace import traced_graphs
from seq2seq.engines.torch.engine import TorchEngine
from seq2seq.inference.search.interface import Hypothesis, NonFiniteError, SearchOptions
from seq2seq.inference.search.search import search

SIZE = 700  # tokens of the vocabulary


def onnx_engine(int8: bool, **keys: Any) -> OnnxEngine:
    """Return the engine that runs a model as `translate` does on a CPU."""
    return OnnxEngine([load_network(_graphs(json.dumps(keys)), int8)])


@functools.cache
def _graphs(keys: str) -> GraphFiles:
    return traced_graphs(model_of(**json.loads(keys)))


def without_nan(lists: Sequence[Sequence[Hypothesis]]) -> list[list[Hypothesis]]:
    """Replace scores that are not computed, which are equal to nothing."""
    return [
        [
            hypothesis._replace(score=0.0) if math.isnan(hypothesis.score) else hypothesis
            for hypothesis in hypotheses
        ]
        for hypotheses in lists
    ]


@one_quick(
    "keys",
    [
        {"decoder": "bahdanau"},
        {"decoder": "bahdanau", "score": "normed_additive", "maxout": True},
        {"decoder": "bahdanau", "cell": "layer_norm_lstm"},
        {"decoder": "luong"},
        {"decoder": "luong", "copy": True},
        {"decoder": "luong", "score": "dot", "layers": 2},
        {"decoder": "luong", "score": "scaled_dot", "attention_size": 32, "input_feeding": True},
        {"decoder": "luong", "cell": "layer_norm_lstm", "layers": 2},
        {"decoder": "gnmt", "layers": 2},
        {"decoder": "none", "cell": "gru"},
    ],
    ids=lambda keys: "-".join(map(str, keys.values())),
    quick={2, 5},
)
@pytest.mark.parametrize("int8", [False, True])
def test_a_sentence_alone_is_translated_as_in_any_batch(
    keys: dict[str, object], int8: bool
) -> None:
    engine = onnx_engine(int8, **keys)
    sources = random_sources(40, seed=4)
    for options in (SearchOptions(1, return_scores=False), SearchOptions(4)):

        def search_rows(
            rows: Sequence[int], options: SearchOptions = options
        ) -> list[list[Hypothesis]]:
            requests = requests_of([sources[n] for n in rows], [15] * len(rows))
            return without_nan(search(engine, requests, options))

        for batch in (1, 7):
            check_batch_invariance(search_rows, 40, batch)


STRATEGIES = [
    SearchOptions(4, groups=2, diversity=0.5),
    SearchOptions(3, coverage_penalty=0.3, no_repeat_ngram=2),
    SearchOptions(1, repetition_penalty=1.2),
    SearchOptions(1, sampling=Sampling(2, top_p=0.9)),
]


@one_quick(("options", "int8"), itertools.product(STRATEGIES, [False, True]), quick={1, 2, 5, 6})
def test_every_strategy_is_batch_invariant(options: SearchOptions, int8: bool) -> None:
    engine = onnx_engine(int8, decoder="luong")
    sources = random_sources(40, seed=4)

    def search_rows(rows: Sequence[int]) -> list[list[Hypothesis]]:
        requests = requests_of([sources[n] for n in rows], [15] * len(rows))
        return search(engine, requests, options)

    for batch in (1, 23):
        check_batch_invariance(search_rows, 40, batch)


@pytest.mark.parametrize(("beam_size", "count"), [(1, 400), (2, 150)])
def test_a_predicted_window_depends_on_its_own_sentence_alone(beam_size: int, count: int) -> None:
    """Its centre is one number per row."""
    engine = onnx_engine(False, decoder="luong", window={"local_p": 3})
    sources = random_sources(count, 8)
    options = SearchOptions(beam_size)
    everything = search(engine, requests_of(sources, [12] * count), options)
    order = list(range(count))
    random.Random(1).shuffle(order)
    for start, size in ((0, count), (1, 40), (5, 1), (50, 17)):
        part = order[start : start + size]
        some = search(engine, requests_of([sources[i] for i in part], [12] * len(part)), options)
        assert all(
            same(hypotheses, everything[i]) for i, hypotheses in zip(part, some, strict=True)
        )


@one_quick("options", [SearchOptions(1), SearchOptions(4), SearchOptions(4, groups=2)], quick=1)
def test_results_do_not_depend_on_the_number_of_threads(
    options: SearchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callbacks come from the thread that searches, once for each sentence."""
    engine = onnx_engine(False, decoder="luong")
    requests = requests_of(random_sources(300, seed=6), [3 + n % 15 for n in range(300)])
    results = []
    for workers in (1, 2, 5):
        monkeypatch.setattr(OnnxEngine, "workers", lambda _, __, n=workers: n)
        called: list[tuple[int, threading.Thread]] = []
        results.append(
            search(
                engine,
                requests,
                options,
                lambda n, called=called: called.append((n, threading.current_thread())),
            )
        )
        assert sorted(number for number, _ in called) == list(range(300))
        assert {thread for _, thread in called} == {threading.main_thread()}
    for by_one_thread, *by_several_threads in zip(*results, strict=True):
        assert all(same(by_one_thread, hypotheses) for hypotheses in by_several_threads)


def test_an_error_in_a_thread_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = onnx_engine(False, decoder="luong")
    step = OnnxEngine.step
    monkeypatch.setattr(OnnxEngine, "workers", lambda _, __: 3)

    def stepped(self: OnnxEngine, rows: Any, ids: Any) -> Any:
        step_result = step(self, rows, ids)
        step_result.undefined[:] = rows.count == len(step_result.undefined)
        return step_result

    monkeypatch.setattr(OnnxEngine, "step", stepped)
    threads_before = threading.active_count()
    with pytest.raises(NonFiniteError):
        search(engine, requests_of(random_sources(90, seed=6), [9] * 90), SearchOptions(1))
    assert threading.active_count() == threads_before


SHRINKING = [(1, 0.0, 0), (1, 0.0, 2), (4, 0.3, 0), (4, 0.0, 2)]


@one_quick(
    ("maker", "beam_size", "coverage_penalty", "ngram"),
    [
        (maker, *options)
        for number, maker in enumerate(MAKERS)
        for options in (SHRINKING[number % 2 :: 2] if number else SHRINKING)
    ],
    quick=range(4),
)
def test_a_shrinking_batch_gives_the_same_results(
    maker: str, beam_size: int, coverage_penalty: float, ngram: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MAKERS[maker]()
    sources = random_sources(100, seed=5)
    limits = [3 + (5 * n) % 23 for n in range(100)]
    options = SearchOptions(beam_size, 1.0, coverage_penalty, ngram)
    expected = search(TorchEngine(model, CPU), requests_of(sources, limits), options)
    kept_counts = []
    keep = TorchEngine.keep

    def recorded(self: TorchEngine, rows: Any, slots: Any) -> Any:
        kept_counts.append((rows.count, len(slots)))
        return keep(self, rows, slots)

    monkeypatch.setattr(TorchEngine, "keep", recorded)
    monkeypatch.setattr(TorchEngine, "slot_count", lambda _, __, ___, count: min(count, 40))
    lists = search(TorchEngine(model, CPU), requests_of(sources, limits), options)
    assert len(kept_counts) > 4
    assert all(count_after < count_before for count_before, count_after in kept_counts)
    check_lists(lists, expected)
