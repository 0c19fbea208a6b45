"""What search asks of a model, what may follow a hypothesis, and what search returns."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from seq2seq.batches import Ids
from seq2seq.vocabulary import BOS_ID, EOS_ID, PAD_ID


class ModelStep(Protocol):
    """What one step of a model yields for N rows."""

    @property
    def outputs(self) -> Any:
        """What `project` takes."""
        ...

    @property
    def state(self) -> Any:
        """What the next step takes; `select(rows)` and `put(rows, other, taken)` move its rows."""
        ...

    @property
    def attention_weights(self) -> Tensor | None:
        """Where each row looked: [N, S], None without attention."""
        ...


class Model(Protocol):
    """All that search knows of a model, one network or several; what is `Any` stays opaque."""

    def encode(self, src: Tensor, src_lengths: Tensor) -> Any:
        """Source ids [B, S], their lengths [B] (END counted) -> what `start` takes."""
        ...

    def start(self, encoded: Any) -> tuple[Any, Any]:
        """The memory of the sentences, and the state before the first target position."""
        ...

    def step(self, ids: Tensor, state: Any, memory: Any) -> ModelStep:
        """One target position: the last ids [N] of N = B * K hypotheses."""
        ...

    def project(self, outputs: Any) -> Tensor:
        """Outputs of N rows -> logits [N, V]."""
        ...


class Hypothesis(NamedTuple):
    """One translation, END included."""

    ids: Ids
    score: float  # log-probability, nats, divided by length ** length_penalty
    attention_weights: Tensor | None  # [T, S] on the CPU, END included on both sides


def next_log_probs(
    model: Model, outputs: Any, ages: Sequence[int], limits: Sequence[int]
) -> Tensor:
    """Log-probabilities [N, V] of what may follow rows that have so many pieces already.

    N is a multiple of the number of ages. No row may end at once, each must end with the piece of
    its limit, END counted (a limit of 0 is none); PAD and START never follow.
    """
    log_probs = model.project(outputs).float().log_softmax(dim=-1)
    log_probs[:, [PAD_ID, BOS_ID]] = -torch.inf
    by_sentence = log_probs.view(len(ages), -1, log_probs.shape[-1])
    for row, (age, limit) in enumerate(zip(ages, limits, strict=True)):
        if age == 0:
            by_sentence[row, :, EOS_ID] = -torch.inf
        elif limit and age + 1 >= limit:
            end = by_sentence[row, :, EOS_ID].clone()
            by_sentence[row] = -torch.inf
            by_sentence[row, :, EOS_ID] = end
    return log_probs
