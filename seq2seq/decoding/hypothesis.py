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
        """Outputs of N rows -> logits [N, V], which the caller may overwrite."""
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
    """The likeliest beginnings with a piece more of each of B sentences, best first."""

    scores: Tensor  # [B, M], nats
    parents: Tensor  # [B, M]: which of the K beginnings goes on
    pieces: Tensor  # [B, M]


def likeliest(log_probs: Tensor, scores: Tensor, count: int) -> Continuations:
    """The `count` largest `scores + log_probs` of each sentence: scores [B, K], log_probs [B K, V].

    The same as sorting all of them, in less than half the time where V is large: the largest lie in
    those chunks of a row whose maxima are largest, and only these are sorted.
    """
    (batch, beginnings), width = scores.shape, log_probs.shape[-1]
    count, whole = min(count, beginnings * width), width // CHUNK
    rest = whole * CHUNK  # where a chunk begins that is cut short, if any is
    if beginnings * whole < 2 * count:
        totals = log_probs.view(batch, beginnings, width) + scores[:, :, None]
        best, places = totals.flatten(1).topk(count, dim=-1)
        return Continuations(best, places // width, places % width)
    maxima = log_probs[:, :rest].unflatten(1, (whole, CHUNK)).amax(-1)
    if rest < width:
        maxima = torch.cat([maxima, log_probs[:, rest:].amax(-1, keepdim=True)], dim=1)
    chunks = (maxima + scores.view(-1, 1)).view(batch, -1).topk(count, dim=-1).indices  # [B, M]
    parents, chunks = chunks // maxima.shape[1], chunks % maxima.shape[1]
    pieces = chunks[:, :, None] * CHUNK + torch.arange(CHUNK, device=scores.device)  # [B, M, CHUNK]
    places = parents[:, :, None] * width + pieces.clamp(max=width - 1)
    found = log_probs.view(batch, -1).gather(1, places.flatten(1)).view_as(places)
    if rest < width:
        found.masked_fill_(pieces >= width, -torch.inf)
    totals = found + scores.gather(1, parents)[:, :, None]
    best, where = totals.flatten(1).topk(count, dim=-1)
    places = places.flatten(1).gather(1, where)
    return Continuations(best, places // width, places % width)


def likeliest_piece(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of each row [N, V], and which it is: [N] each. `max`, in a third of its time."""
    width = log_probs.shape[-1]
    if width <= CHUNK:
        best, pieces = log_probs.max(dim=-1)
        return best, pieces
    whole = width // CHUNK
    maxima = log_probs[:, : whole * CHUNK].unflatten(1, (whole, CHUNK)).amax(-1)
    if whole * CHUNK < width:
        maxima = torch.cat([maxima, log_probs[:, -CHUNK:].amax(-1, keepdim=True)], dim=1)
    first = (maxima.argmax(-1, keepdim=True) * CHUNK).clamp(max=width - CHUNK)
    chunk = torch.arange(CHUNK, device=log_probs.device)
    best, places = log_probs.gather(1, first + chunk).max(dim=-1)
    return best, first[:, 0] + places
