"""What search asks of a model, what it keeps of its answers, and what it returns."""

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from seq2seq.data.batching import Ids
from seq2seq.data.vocabulary import BOS_ID, PAD_ID


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


class Rough(Protocol):
    """Logits of N rows that are known roughly, and exactly where they are asked for."""

    @property
    def logits(self) -> Tensor:
        """[N, V], which the caller may overwrite with -inf."""
        ...

    @property
    def off(self) -> Tensor:
        """How far a row's logits are from the exact ones at most: [N]."""
        ...

    def exact(self, rows: Tensor, pieces: Tensor) -> Tensor:
        """The exact logits of these rows [M] and pieces [M]: [M]."""
        ...


class Model(Protocol):
    """All that search knows of a model, one network or several; what is `Any` stays opaque."""

    def encode(self, src: Tensor, src_lengths: Tensor) -> Any:
        """Source ids [B, S], their lengths [B] (END counted) -> what `start` takes."""
        ...

    def start(self, encoded: Any) -> tuple[Any, Any]:
        """The memory of the sentences, and the state before the first target position.

        Both are the caller's, who may write over their rows.
        """
        ...

    def step(self, ids: Tensor, state: Any, memory: Any) -> ModelStep:
        """One target position: the last ids [N] of N = B * K hypotheses."""
        ...

    def project(self, outputs: Any) -> Tensor:
        """Outputs of N rows -> logits [N, V], which the caller may overwrite."""
        ...

    def project_approximately(self, outputs: Any) -> Rough | None:
        """The same with less work, None where that is not to be had."""
        ...


class SearchOptions(NamedTuple):
    """How many hypotheses are kept, and how they are scored."""

    size: int  # hypotheses; 1: greedy
    length_penalty: float = 1.0  # their log-probabilities are divided by length to this power
    coverage_penalty: float = 0.0  # beta of Wu et al. (2016), eq. 14; not greedy's
    no_repeat_ngram: int = 0  # so many pieces in a row occur once only; 0: any may
    forbidden_ids: tuple[int, ...] = (PAD_ID, BOS_ID)  # pieces that no hypothesis holds
    return_scores: bool = (
        True  # whether those of greedy search get a score, which takes time: or nan
    )
    return_attention: bool = True  # whether they keep where they looked, which takes time, too


class Hypothesis(NamedTuple):
    """One translation, END included."""

    ids: Ids
    score: float  # log-probability, nats, by length ** length_penalty, and the coverage penalty
    attention_weights: Tensor | None  # [T, S] on the CPU, END included on both sides, if kept
