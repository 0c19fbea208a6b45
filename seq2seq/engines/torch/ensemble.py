"""Ensemble: several models behind the calls of one, each call a tuple of theirs."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2seq.engines.torch.engine import Model


class Parts(tuple[Any, ...]):
    """Memory or state of each model, whose rows move together."""

    def select(self, rows: Tensor) -> "Parts":
        """Select rows in every model's part."""
        return Parts(part.select(rows) for part in self)

    def put(self, rows: Tensor, source: "Parts", taken: Tensor | slice) -> None:
        """Overwrite `rows` by the rows `taken` of `source` in every model's part."""
        for part, source_part in zip(self, source, strict=True):
            part.put(rows, source_part, taken)


class EnsembleStep(NamedTuple):
    """Result of one step of every model for N rows."""

    outputs: tuple[Any, ...]  # [N, R] per model
    state: Parts
    attention_weights: Tensor | None  # [N, S], the mean over models with attention
    head_weights: None = None  # the heads of different models do not correspond


class Ensemble:
    """Models over the same vocabularies; `project` returns the log of their mean probability.

    The mean of log-probabilities (a log-linear ensemble) would rule out every token that one model
    finds impossible.
    """

    def __init__(self, models: Iterable[Model]) -> None:
        self.models = tuple(models)

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[Any, ...]:
        """Encode source ids [B, S] with lengths [B] by each model."""
        return tuple(model.encode(src, src_lengths) for model in self.models)

    def start(self, encoded: tuple[Any, ...]) -> tuple[Parts, Parts]:
        """Return the memory and the initial state of each model."""
        starts = [model.start(part) for model, part in zip(self.models, encoded, strict=True)]
        return Parts(memory for memory, _ in starts), Parts(state for _, state in starts)

    def step(self, ids: Tensor, state: Parts, memory: Parts) -> EnsembleStep:
        """Advance every model by the same ids [N]."""
        steps = [
            model.step(ids, own_state, own_memory)
            for model, own_state, own_memory in zip(self.models, state, memory, strict=True)
        ]
        weights = [step.attention_weights for step in steps if step.attention_weights is not None]
        return EnsembleStep(
            tuple(step.outputs for step in steps),
            Parts(step.state for step in steps),
            torch.stack(weights).mean(0) if weights else None,
        )

    def project(self, outputs: tuple[Any, ...]) -> Tensor:
        """Return the log of the mean probability [N, V] for each model's outputs [N, R]."""
        log_probs = torch.stack(
            [
                model.project(part).float().log_softmax(dim=-1)
                for model, part in zip(self.models, outputs, strict=True)
            ]
        )
        return log_probs.logsumexp(dim=0) - math.log(len(self.models))
