"""A model with known outputs, and what search must find of it."""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from seq2seq.data.padding import pad_sources
from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, UNK_ID, Ids
from seq2seq.inference.search import strategies
from seq2seq.inference.search.interface import Hypothesis

CPU = torch.device("cpu")
SIZE = 7  # vocabulary of the oracle: the special ids and three tokens
MAY_FOLLOW = (UNK_ID, 4, 5, 6)


class Memory(NamedTuple):
    pad_mask: Tensor  # [B, S]

    def select(self, rows: Tensor) -> "Memory":
        return Memory(self.pad_mask[rows])

    def put(self, rows: Tensor, source: "Memory", source_rows: Tensor | slice) -> None:
        self.pad_mask[rows] = source.pad_mask[source_rows]


class State(NamedTuple):
    history: Tensor  # [N], a hash of the source and all ids since

    def select(self, rows: Tensor) -> "State":
        return State(self.history[rows])

    def put(self, rows: Tensor, source: "State", source_rows: Tensor | slice) -> None:
        self.history[rows] = source.history[source_rows]


class Step(NamedTuple):
    outputs: Tensor
    state: State
    attention_weights: Tensor | None
    head_weights: None = None


class Oracle:
    """Model whose logits are a function of the source and all ids, or of the last id (markov)."""

    def __init__(self, seed: int, attends: bool = True, markov: bool = False) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = 2 * torch.randn(9973, SIZE, generator=generator)
        self.attention_scores = torch.randn(9973, 64, generator=generator)
        self.attends = attends
        self.markov = markov

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[Tensor, Tensor]:
        return src, src_lengths

    def start(self, encoded: tuple[Tensor, Tensor]) -> tuple[Memory, State]:
        src, src_lengths = encoded
        pad_mask = torch.arange(src.shape[1]) >= src_lengths[:, None]
        return Memory(pad_mask), State((src * (1 + torch.arange(src.shape[1]))).sum(1))

    def step(self, ids: Tensor, state: State, memory: Memory) -> Step:
        history = ids if self.markov else (state.history * 31 + ids * 7 + 3) % len(self.table)
        pad_mask = memory.pad_mask.repeat_interleave(len(ids) // len(memory.pad_mask), 0)
        scores = self.attention_scores[history][:, : pad_mask.shape[1]].masked_fill(
            pad_mask, -torch.inf
        )
        weights = scores.softmax(-1) if self.attends else None
        return Step(self.table[history], State(history), weights)

    def project(self, outputs: Tensor) -> Tensor:
        return outputs


class Answer(NamedTuple):
    """Log-probability and attention weights of one hypothesis, computed step by step."""

    log_prob: float
    attention_weights: Tensor | None  # [T, S]


class Place(NamedTuple):
    """State, log-probability and attention weights after some ids, and what may follow."""

    state: Any
    total: float
    log_probs: list[float]  # each token as the next one
    attention_weights: Tensor | None  # [T, S], also of the step to the next token


class Places:
    """Steps of a model over one unpadded source, each taken once for all that ids begin alike."""

    def __init__(self, model: Any, source: Ids) -> None:
        self.model = model
        self.memory, state = model.start(model.encode(*pad_sources([source])))
        self.by_prefix = {(): self.step(BOS_ID, state, 0.0, None)}

    def after(self, ids: tuple[int, ...]) -> Place:
        if ids not in self.by_prefix:
            previous = self.after(ids[:-1])
            total = previous.total + previous.log_probs[ids[-1]]
            self.by_prefix[ids] = self.step(
                ids[-1], previous.state, total, previous.attention_weights
            )
        return self.by_prefix[ids]

    def step(self, token: int, state: Any, total: float, weights: Tensor | None) -> Place:
        step = self.model.step(torch.tensor([token]), state, self.memory)
        log_probs = self.model.project(step.outputs).log_softmax(-1)[0].tolist()
        parts = [
            weights_of_step
            for weights_of_step in (weights, step.attention_weights)
            if weights_of_step is not None
        ]
        return Place(step.state, total, log_probs, torch.cat(parts) if parts else None)


@functools.lru_cache(maxsize=8)
def places_of(model: Any, source: tuple[int, ...]) -> Places:
    return Places(model, [*source])


@torch.inference_mode()
def ask(model: Any, source: Ids, hypothesis: Ids) -> Answer:
    """Step one hypothesis of one unpadded source through a model."""
    place = places_of(model, tuple(source)).after(tuple(hypothesis[:-1]))
    return Answer(place.total + place.log_probs[hypothesis[-1]], place.attention_weights)


def all_hypotheses(limit: int) -> Iterator[Ids]:
    for length in range(1, limit + 1):
        for ids in itertools.product(MAY_FOLLOW, repeat=length):
            yield [*ids, EOS_ID]


SOURCES = [[4, 5], [6], [5, 5, 4, 6, 4], [], [4, 4, 4]]


def score_of(answer: Answer, length: int, length_penalty: float, coverage_penalty: float) -> float:
    """`log P / length^a + b * sum over s of log(min(sum over t of a_ts, 1))`: Wu et al. (2016)."""
    score = answer.log_prob / length**length_penalty
    if answer.attention_weights is not None:
        for column in answer.attention_weights.t().tolist():
            score += coverage_penalty * math.log(
                min(max(sum(column), strategies.MIN_COVERAGE), 1.0)
            )
    return score


def check_ranking(
    model: Any,
    source: Ids,
    hypotheses: Sequence[Hypothesis],
    possible: Iterable[Ids],
    length_penalty: float,
    coverage_penalty: float,
) -> None:
    """Assert that every possible hypothesis was found, best first, with its score."""
    scored = {
        tuple(ids): score_of(ask(model, source, ids), len(ids), length_penalty, coverage_penalty)
        for ids in possible
    }
    ranked = sorted(scored, key=lambda ids: scored[ids], reverse=True)
    assert [tuple(hypothesis.ids) for hypothesis in hypotheses] == ranked
    for hypothesis in hypotheses:
        assert hypothesis.score == pytest.approx(scored[tuple(hypothesis.ids)], rel=1e-5)


def best_of(scored: Sequence[tuple[Ids, float]], count: int) -> list[tuple[Ids, float]]:
    return sorted(scored, key=lambda pair: pair[1], reverse=True)[:count]


def check_against(answer: Answer, hypothesis: Hypothesis, length_penalty: float) -> None:
    """Assert that score and attention weights are those of the hypothesis computed alone."""
    score = answer.log_prob / len(hypothesis.ids) ** length_penalty
    assert hypothesis.score == pytest.approx(score, rel=1e-4)
    if answer.attention_weights is None:
        assert hypothesis.attention_weights is None
    else:
        np.testing.assert_allclose(
            hypothesis.attention_weights, answer.attention_weights, rtol=1e-4, atol=1e-6
        )
