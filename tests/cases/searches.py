"""Search over parallel lists, as tests build them, by both engines."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seq2seq.data.vocabulary.vocabulary import Ids
from seq2seq.engines.engine import Array, Rows, Sampling
from seq2seq.engines.onnx.engine import OnnxEngine
from seq2seq.engines.onnx.network import Arrays, HostStep
from seq2seq.engines.torch.engine import Model, TorchEngine, tensors_of
from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.inference.search import search as module
from seq2seq.inference.search.interface import Hypothesis, NonFiniteError, Request, SearchOptions
from seq2seq.inference.search.lexical import NO_LEXICAL, NO_PREFIX, Lexical, Prefix
from seq2seq.model.seq2seq import Seq2Seq

SEARCHES: dict[str, SearchOptions] = {
    "greedy": SearchOptions(1, return_scores=False, return_attention=False),
    "greedy, scores": SearchOptions(1),
    "beam": SearchOptions(4, length_penalty=0.7, coverage_penalty=0.2),
    "rules": SearchOptions(3, no_repeat_ngram=2, repetition_penalty=1.2, min_length=2),
    "groups": SearchOptions(4, groups=2, diversity=0.5),
    "sampling": SearchOptions(1, sampling=Sampling(2, top_p=0.9, seed=4)),
}


def random_requests(count: int = 90) -> list[Request]:
    """Return requests of random sources, with limits of their own."""
    rng = np.random.default_rng(2)
    lengths = rng.integers(1, 12, count).tolist()
    return [Request(rng.integers(4, 11, length).tolist(), 8 + length % 3) for length in lengths]


def requests_of(
    sources: Sequence[Ids],
    limits: Sequence[int],
    prefixes: Sequence[Prefix] | None = None,
    lexical: Sequence[Lexical] | None = None,
) -> list[Request]:
    """Return a request for each source."""
    prefixes = prefixes or [NO_PREFIX] * len(sources)
    lexical = lexical or [NO_LEXICAL] * len(sources)
    return [Request(*fields) for fields in zip(sources, limits, prefixes, lexical, strict=True)]


def search(
    model: Model,
    sources: Sequence[Ids],
    limits: Sequence[int],
    options: SearchOptions,
    device: torch.device,
    prefixes: Sequence[Prefix] | None = None,
    on_found: Callable[[int], None] | None = None,
    lexical: Sequence[Lexical] | None = None,
) -> list[list[Hypothesis]]:
    """Search by the torch engine over a model; the engine of exported models must find the same."""
    requests = requests_of(sources, limits, prefixes, lexical)
    counts = not isinstance(model, Seq2Seq | Ensemble)  # its steps, so that a search changes it
    host_model = copy.deepcopy(model) if counts else model
    error = None
    try:
        lists = module.search(TorchEngine(model, device), requests, options, on_found)
    except NonFiniteError as raised:
        error = raised
    if error is not None:
        with pytest.raises(NonFiniteError) as again:
            module.search(host_engine(host_model), requests, options)
        assert again.value.sentence == error.sentence
        raise error
    check_lists(module.search(host_engine(host_model), requests, options), lists)
    return lists


def row_search(
    model: Model, requests: Sequence[Request], options: SearchOptions
) -> Callable[[Sequence[int]], list[list[Hypothesis]]]:
    """Return a search for any of the requests, by their numbers, by the torch engine.

    The other engine must find the same in every fourth call.
    """
    engine = TorchEngine(model, torch.device("cpu"))
    host = host_engine(model)
    calls = count()

    def results(rows: Sequence[int]) -> list[list[Hypothesis]]:
        row_requests = [requests[row] for row in rows]
        lists = module.search(engine, row_requests, options)
        if next(calls) % 4 == 0:
            check_lists(module.search(host, row_requests, options), lists)
        return lists

    return results


def check_lists(
    actual: Sequence[Sequence[Hypothesis]], expected: Sequence[Sequence[Hypothesis]]
) -> None:
    """Assert that two searches found the same, up to rounding and ties."""
    for expected_list, actual_list in zip(expected, actual, strict=True):
        scores = [candidate.score for candidate in actual_list]
        np.testing.assert_allclose(
            scores, [candidate.score for candidate in expected_list], rtol=1e-4, atol=1e-5
        )
        for hypothesis, repeated in zip(expected_list, actual_list, strict=True):
            if hypothesis.ids == repeated.ids:  # otherwise they tie
                check_equal(hypothesis, repeated)
        different = sum(
            candidate.ids != again.ids
            for candidate, again in zip(expected_list, actual_list, strict=True)
        )
        ties = sum(math.isclose(a, b, abs_tol=1e-4) for a, b in pairwise(sorted(scores)))
        assert different <= 2 * ties


def check_other_kernels(
    actual: Sequence[Sequence[Hypothesis]], expected: Sequence[Sequence[Hypothesis]]
) -> None:
    """Assert that searches by different kernels found the same, up to rounding.

    Rounding decides between tokens that tie, and other hypotheses follow: so may one list of 50.
    """
    different = 0
    for expected_list, actual_list in zip(expected, actual, strict=True):
        if [candidate.ids for candidate in expected_list] != [
            candidate.ids for candidate in actual_list
        ]:
            different += 1
            continue
        for hypothesis, repeated in zip(expected_list, actual_list, strict=True):
            np.testing.assert_allclose(repeated.score, hypothesis.score, rtol=1e-4, atol=1e-5)
            check_equal(hypothesis, repeated)
    assert different <= math.ceil(len(expected) / 50)


def check_equal(expected: Hypothesis, actual: Hypothesis) -> None:
    """Assert that log-probabilities and attention weights are those of another search."""
    np.testing.assert_allclose(actual.log_probs, expected.log_probs, rtol=1e-4, atol=1e-5)
    assert (expected.attention_weights is None) == (actual.attention_weights is None)
    if expected.attention_weights is not None and actual.attention_weights is not None:
        np.testing.assert_allclose(
            actual.attention_weights, expected.attention_weights, rtol=1e-4, atol=1e-5
        )


def host_engine(model: Model) -> OnnxEngine:
    """Return the engine on ONNX Runtime, with a torch model in place of its graphs."""
    network: Any = HostNetwork(model)
    return OnnxEngine([network])


class HostNetwork:
    """A torch model behind the calls of a `Network`: memory and state are arrays."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.memory: Any = None  # templates of the classes
        self.state: Any = None

    @torch.inference_mode()
    def encode(self, src: Array, src_lengths: Array) -> tuple[Arrays, Arrays]:
        encoded = self.model.encode(torch.from_numpy(src), torch.from_numpy(src_lengths))
        memory, state = self.model.start(encoded)
        self.memory = memory  # of whichever thread: their classes are the same
        self.state = state
        return _arrays(memory), _arrays(state)

    @torch.inference_mode()
    def step(self, rows: Rows, ids: Array) -> HostStep:
        parts = (
            _rebuilt(self.state, iter(rows.state.values())),
            _rebuilt(self.memory, iter(rows.memory.values())),
        )
        step = self.model.step(torch.from_numpy(ids), *parts)
        values = self.model.project(step.outputs).float()
        values = (values.log_softmax(-1) if rows.options.log_probs else values.clone()).numpy()
        weights = step.attention_weights if rows.options.attention else None
        undefined = np.isnan(torch.from_numpy(values).log_softmax(-1).numpy()).any(axis=1)
        return HostStep(
            replace(rows, state=_arrays(step.state)),
            values,
            None if weights is None else weights.float().numpy(),
            undefined=undefined,
        )


def _arrays(parts: Any) -> Arrays:
    return Arrays(
        (str(n), part.contiguous().numpy().copy()) for n, part in enumerate(tensors_of(parts))
    )


def _rebuilt(template: Any, arrays: Iterator[Array]) -> Any:
    parts = []
    for part in template:
        if isinstance(part, Tensor):
            parts.append(torch.from_numpy(next(arrays)))
        else:
            parts.append(None if part is None else _rebuilt(part, arrays))
    return template._make(parts) if hasattr(template, "_make") else type(template)(parts)
