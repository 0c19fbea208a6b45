"""Several models that answer as one: the seam of `Seq2Seq`, each call a tuple of theirs."""

import math
from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor

from seq2seq.model.encoder import EncoderOutput
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.model.state import DecoderState, Memory


class _Rows(Protocol):
    def select(self, rows: Tensor) -> Self: ...

    def put(self, rows: Tensor, other: Self, taken: Tensor | slice) -> None: ...


_Part = TypeVar("_Part", bound=_Rows)


class Parts(tuple[_Part, ...], Generic[_Part]):
    """One memory or state of each model, selected from together."""

    def select(self, rows: Tensor) -> "Parts[_Part]":
        """The rows of every model's part."""
        return Parts(part.select(rows) for part in self)

    def put(self, rows: Tensor, other: "Parts[_Part]", taken: Tensor | slice) -> None:
        """Write the rows `taken` of another over the rows `rows`, in every model's part."""
        for part, its_other in zip(self, other, strict=True):
            part.put(rows, its_other, taken)


class EnsembleStep(NamedTuple):
    """What one step of every model yields for N rows."""

    outputs: tuple[Tensor, ...]  # each [N, R]
    state: Parts[DecoderState]
    attention_weights: Tensor | None  # [N, S], the mean of those that attend


class Ensemble:
    """Models over the same vocabularies; `project` gives the log of their mean probability."""

    def __init__(self, models: Iterable[Seq2Seq]) -> None:
        self.models = tuple(models)

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[EncoderOutput, ...]:
        """As `Seq2Seq.encode`, one of each model."""
        return tuple(model.encode(src, src_lengths) for model in self.models)

    def start(
        self, encoded: tuple[EncoderOutput, ...]
    ) -> tuple[Parts[Memory], Parts[DecoderState]]:
        """As `Seq2Seq.start`, one of each model."""
        starts = [model.start(part) for model, part in zip(self.models, encoded, strict=True)]
        return Parts(memory for memory, _ in starts), Parts(state for _, state in starts)

    def step(self, ids: Tensor, state: Parts[DecoderState], memory: Parts[Memory]) -> EnsembleStep:
        """As `Seq2Seq.step`, for every model with the same ids [N]."""
        steps = [
            model.step(ids, its_state, its_memory)
            for model, its_state, its_memory in zip(self.models, state, memory, strict=True)
        ]
        weights = [step.attention_weights for step in steps if step.attention_weights is not None]
        return EnsembleStep(
            tuple(step.outputs for step in steps),
            Parts(step.state for step in steps),
            torch.stack(weights).mean(0) if weights else None,
        )

    def project(self, outputs: tuple[Tensor, ...]) -> Tensor:
        """Outputs of each model [N, R] -> log of the mean probability [N, V]."""
        log_probs = torch.stack(
            [
                model.project(part).float().log_softmax(dim=-1)
                for model, part in zip(self.models, outputs, strict=True)
            ]
        )
        return log_probs.logsumexp(dim=0) - math.log(len(self.models))

    def project_approximately(self, outputs: tuple[Tensor, ...]) -> None:  # noqa: ARG002
        """None: how far a mean of rough probabilities may be off is not known."""
        return
