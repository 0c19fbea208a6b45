"""What search asks of a model, what it keeps of its answers, and what it returns."""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from seq2seq.batches import Ids
from seq2seq.vocabulary import BOS_ID, PAD_ID

CHUNK = 64  # values of a row whose maximum is taken first


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


class Beam(NamedTuple):
    """How many hypotheses are kept, and how they are scored."""

    size: int  # hypotheses; 1: greedy
    length_penalty: float = 1.0  # their log-probabilities are divided by length to this power
    coverage_penalty: float = 0.0  # beta of Wu et al. (2016), eq. 14; not greedy's
    no_repeat_ngram: int = 0  # so many pieces in a row occur once only; 0: any may
    never: tuple[int, ...] = (PAD_ID, BOS_ID)  # pieces that no hypothesis holds


class Hypothesis(NamedTuple):
    """One translation, END included."""

    ids: Ids
    score: float  # log-probability, nats, by length ** length_penalty, and the coverage penalty
    attention_weights: Tensor | None  # [T, S] on the CPU, END included on both sides


class Continuations(NamedTuple):
    """The likeliest pieces that may follow each of N rows, best first."""

    log_probs: Tensor  # [N, M], nats
    pieces: Tensor  # [N, M]


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As `values.topk(count)` of [N, V], and twice as fast or more where V is large.

    The largest values lie in those chunks of a row whose maxima are largest; only these are sorted.
    """
    width = values.shape[-1]
    whole = width // CHUNK
    if whole < 2 * count:
        best, places = values.topk(count, dim=-1)
        return best, places
    maxima = values[:, : whole * CHUNK].unflatten(1, (whole, CHUNK)).amax(-1)
    rest = whole * CHUNK
    if rest < width:
        maxima = torch.cat([maxima, values[:, rest:].amax(-1, keepdim=True)], dim=1)
    chunks = maxima.topk(count, dim=-1).indices  # [N, M]
    places = (chunks[:, :, None] * CHUNK + torch.arange(CHUNK, device=values.device)).flatten(1)
    if rest == width:
        found = values.gather(1, places)
    else:
        beyond = places >= width  # where the last chunk is cut short
        found = values.gather(1, places.clamp_(max=width - 1)).masked_fill_(beyond, -torch.inf)
    best, where = found.topk(count, dim=-1)
    return best, places.gather(1, where)
