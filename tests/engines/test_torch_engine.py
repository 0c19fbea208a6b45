"""The engine of torch on a simulated accelerator, where steps are called as they are."""

import copy
import os
import threading
from typing import Any

import numpy as np
import pytest
import torch
from cases.models import Case, make_copying_model, make_model
from cases.searches import SEARCHES, check_other_kernels, random_requests
from cases.simulated_device import DEVICE, simulated
from cases.tiers import one_quick

from seq2seq.engines.torch.engine import Model, TorchEngine
from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.inference.search.interface import Hypothesis
from seq2seq.inference.search.lexical import lexical_of
from seq2seq.inference.search.search import search
from seq2seq.runtime.errors import UserError

CPU = torch.device("cpu")
CASES = [
    Case("luong", "general", True, 2),
    Case("bahdanau", "additive", False, 1),
    Case("bahdanau", "coverage", False, 1),
    Case("luong", "general", True, 1, "local_p"),
    Case("luong", "multi_head", True, 2),
    Case("plain", "", False, 2),
    Case("luong", "general", True, 1, unit="gru"),
]


def equal(actual: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    """Assert equal results of the same kernels."""
    for hypotheses, expected_list in zip(actual, expected, strict=True):
        assert [candidate.ids for candidate in hypotheses] == [
            candidate.ids for candidate in expected_list
        ]
        for hypothesis, expected_hypothesis in zip(hypotheses, expected_list, strict=True):
            np.testing.assert_allclose(
                hypothesis.score, expected_hypothesis.score, rtol=1e-5, atol=1e-5
            )
            np.testing.assert_allclose(
                hypothesis.log_probs, expected_hypothesis.log_probs, rtol=1e-5, atol=1e-5
            )
            assert (hypothesis.attention_weights is None) == (
                expected_hypothesis.attention_weights is None
            )
            if hypothesis.attention_weights is not None:
                np.testing.assert_allclose(
                    np.asarray(hypothesis.attention_weights),
                    np.asarray(expected_hypothesis.attention_weights),
                    atol=1e-5,
                )


def small(case: Case) -> Any:
    return make_model(case).float().eval()


def on_device(model: Model) -> TorchEngine:
    """Return the engine of a copy of a model on the simulated device."""
    if isinstance(model, Ensemble):
        copies: Any = Ensemble([copy.deepcopy(part).to(DEVICE) for part in model.models])
        return TorchEngine(copies, DEVICE)
    return TorchEngine(copy.deepcopy(model).to(DEVICE), DEVICE)


@one_quick("name", SEARCHES, quick={0, 2})
def test_results_are_those_on_the_cpu(name: str) -> None:
    for case in CASES if name in ("greedy", "beam") else CASES[::3]:
        model = small(case)
        asked = random_requests(90 if case is CASES[0] else 20)
        with simulated():
            lists = search(on_device(model), asked, SEARCHES[name])
        check_other_kernels(lists, search(TorchEngine(model, CPU), asked, SEARCHES[name]))


def test_phrases_ensembles_and_copied_tokens_as_on_the_cpu() -> None:
    copying = make_copying_model(Case("luong", "general", True, 1)).float().eval()
    ensemble = Ensemble([small(CASES[0]), small(CASES[3])])
    lexical = [
        request._replace(lexical=lexical_of([([7, 8], False)], frozenset()))
        for request in random_requests(12)
    ]
    for model in (copying, ensemble):
        for asked in (random_requests(20), [*lexical, *random_requests(9)]):
            with simulated():
                lists = search(on_device(model), asked, SEARCHES["beam"])
            check_other_kernels(lists, search(TorchEngine(model, CPU), asked, SEARCHES["beam"]))


def test_tensors_are_used_again_by_later_searches() -> None:
    with simulated():
        engine = on_device(small(CASES[0]))
        for _ in range(3):
            search(engine, random_requests(), SEARCHES["beam"])
        first = {key: len(tensors) for key, tensors in engine._unused.items()}
        search(engine, random_requests(), SEARCHES["beam"])
    assert {key: len(tensors) for key, tensors in engine._unused.items()} == first
    assert set(first.values()) == {1}


def test_threads_search_at_once() -> None:
    engine = TorchEngine(small(CASES[0]), CPU)
    expected = search(engine, random_requests(), SEARCHES["rules"])
    results: list[Any] = [None] * 4

    def run(number: int) -> None:
        results[number] = search(engine, random_requests(), SEARCHES["rules"])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for lists in results:
        equal(lists, expected)


def test_slots_take_few_numbers_and_fewer_for_long_sources() -> None:
    engine = TorchEngine(small(CASES[0]), DEVICE)
    assert [engine.slot_count(16, 5, count) for count in (1, 2, 9, 64, 65, 5000)] == [
        1,
        8,
        64,
        64,
        256,
        1024,
    ]
    assert engine.slot_count(2000, 5, 5000) == 64
    assert engine.slot_count(1 << 18, 1, 3) == 1


class Small(TorchEngine):
    """An engine whose memory suffices for few slots."""

    def __init__(self, most: int) -> None:
        super().__init__(small(CASES[0]), CPU)
        self.most, self.failed = most, 0

    def step(self, rows: Any, ids: Any) -> Any:
        if rows.count > self.most:
            self.failed += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().step(rows, ids)


def test_out_of_memory_halves_the_slots_and_loses_no_sentence() -> None:
    engine = Small(9)
    plain = TorchEngine(small(CASES[0]), CPU)
    counted: list[int] = []
    lists = search(engine, random_requests(), SEARCHES["beam"], counted.append)
    equal(lists, search(plain, random_requests(), SEARCHES["beam"]))
    assert sorted(counted) == list(range(90))
    assert engine.failed
    with pytest.raises(torch.OutOfMemoryError):
        search(Small(0), random_requests(5), SEARCHES["greedy"])


def test_a_device_is_refused_in_a_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated():
        model = make_model(CASES[0]).to(DEVICE)
        engine = TorchEngine(model, DEVICE)
        of_cpu = TorchEngine(make_model(CASES[0]), CPU)
        search(engine, random_requests(3), SEARCHES["greedy"])
        process = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: process + 1)
        with pytest.raises(UserError, match="get_context"):
            search(engine, random_requests(3), SEARCHES["greedy"])
    assert len(search(of_cpu, random_requests(3), SEARCHES["greedy"])) == 3
