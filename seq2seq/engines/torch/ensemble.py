"""Ensemble of torch models, behind the calls of one."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from seq2seq.engines.engine import Parts
from seq2seq.model import state as model_state


class Ensemble:
    """Models over the same vocabularies; `project` returns the log of their mean probability.

    The mean of log-probabilities (log-linear) would rule out what one model finds impossible.
    """

    def __init__(self, models: Iterable[Any]) -> None:
        self.models = tuple(models)

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[Any, ...]:
        """Encode source ids [B, S] with lengths [B] by each model."""
        return tuple(model.encode(src, src_lengths) for model in self.models)

    def start(self, encoded: tuple[Any, ...]) -> tuple[Parts, Parts]:
        """Return the memory and the initial state of each model."""
        starts = [model.start(part) for model, part in zip(self.models, encoded, strict=True)]
        return Parts(memory for memory, _ in starts), Parts(state for _, state in starts)

    def step(self, ids: Tensor, state: Parts, memory: Parts) -> Any:
        """Advance every model by the same ids [N]; heads of different models do not correspond."""
        parts = zip(self.models, state, memory, strict=True)
        steps = [model.step(ids, *own_parts) for model, *own_parts in parts]
        outputs, states, weights, _ = zip(*steps, strict=True)
        attention = [part for part in weights if part is not None]
        mean = torch.stack(attention).mean(0) if attention else None
        step: Any = model_state.Step
        return step(outputs, Parts(states), mean)

    def project(self, outputs: tuple[Any, ...]) -> Tensor:
        """Return the log of the mean probability [N, V] for each model's outputs [N, R]."""
        parts = zip(self.models, outputs, strict=True)
        log_probs = [model.project(part).float().log_softmax(dim=-1) for model, part in parts]
        return torch.stack(log_probs).logsumexp(dim=0) - math.log(len(self.models))
