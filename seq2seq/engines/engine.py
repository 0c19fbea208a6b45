"""Engine: a model, or an ensemble, that advances hypotheses for the search on the host.

Search decides in NumPy; an engine computes. Rows are numbered n = slot * K + k: hypothesis k of a
slot, each slot holding one sentence. Memory, states and log-probabilities stay where the engine
computes them; only ids, parents, scores, masks and, if they are read, attention weights are arrays
of the host. An engine may compute lazily, as one graph: the values of a step are due when `best`,
`draw` or `log_probs` returns.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.config.search_options import Sampling as Sampling
from seq2seq.data.vocabulary.vocabulary import BOS_ID, PAD_ID, Ids

Array = NDArray[Any]

FREE, MUST_END, MAY_NOT_END = 0, 1, -1  # values of `Mask.ends`


class GraphFiles(NamedTuple):
    """The ONNX files of a model's two graphs."""

    encoder: bytes
    decoder: bytes


class StepOptions(NamedTuple):
    """Outputs that a search reads of each step, and the tokens that it never takes."""

    forbidden_ids: tuple[int, ...] = (PAD_ID, BOS_ID)
    log_probs: bool = True  # if False, scores may be logits, which take less time
    attention: bool = False  # also return attention weights
    heads: bool = False  # also return those of each head


DEFAULT_OPTIONS = StepOptions()


@dataclass
class Rows:
    """Memory, a row per sentence, and state, a row per hypothesis, opaque to search."""

    memory: Any
    state: Any
    count: int  # sentences
    size: int = 1  # hypotheses per sentence
    options: StepOptions = DEFAULT_OPTIONS


class Mask(NamedTuple):
    """Changes to the log-probabilities of one step; a token that is ruled out has -inf.

    `ends` holds for all rows of a slot.
    """

    ends: Array  # [B], FREE, MUST_END (only end-of-sentence is allowed) or MAY_NOT_END
    scaled: tuple[Array, Array, float] | None = None  # rows [M], tokens [M] and their factor
    forbidden: tuple[Array, Array] | None = None  # rows [M], and their tokens [M, V] ruled out


class Best(NamedTuple):
    """Best continuations of each group of hypotheses, best first, on the host.

    A group whose log-probabilities are not numbers has nan as its first score.
    """

    scores: Array  # [G, M], float32: the score of the parent plus the log-probability of the token
    parents: Array  # [G, M], which hypothesis of the group is continued
    tokens: Array  # [G, M]
    log_probs: Array  # [G, M], float32: of the tokens, nats


@dataclass
class EngineStep:
    """Result of one step for N rows; attention weights are float32, and on the host once read.

    S is the padded width of the sources. Weights are None that are not read or that no model has.
    """

    rows: Rows  # after the step
    values: Any  # [N, V], log-probabilities, or logits if these suffice, where the engine computes
    attention: Array | None = None  # [N, S], the mean over heads
    heads: Array | None = None  # [N, M, S] of M heads


class Parts(tuple[Any, ...]):
    """Memory or state of each model of an ensemble, whose rows move together."""

    def select(self, rows: Any) -> "Parts":
        """Select rows, which may repeat, in every model's part."""
        return Parts(part.select(rows) for part in self)

    def put(self, rows: Any, source: "Parts", taken: Any) -> None:
        """Overwrite `rows` by the rows `taken` of `source` in every model's part."""
        for part, source_part in zip(self, source, strict=True):
            part.put(rows, source_part, taken)


class Engine(ABC):
    """A model, or an ensemble by the mean of probabilities, that advances hypotheses.

    Memory and state have `select(rows)` and `put(rows, source, taken)`, as `Parts` do.
    """

    @cached_property
    def _trial(self) -> EngineStep:
        """The first step for an empty source, to see which outputs the model has."""
        options = StepOptions(attention=True, heads=True)
        rows = self.spread(self.encode([[]], 1), 1, options)
        step: EngineStep = self.step(rows, np.array([BOS_ID]))
        self.log_probs(step, np.array([0]), np.array([BOS_ID]))
        return step

    @property
    def attends(self) -> bool:
        """Return whether steps have attention weights."""
        return self._trial.attention is not None

    @property
    def has_heads(self) -> bool:
        """Return whether steps have attention weights of several heads."""
        return self._trial.heads is not None

    def workers(self, sentences: int) -> int:  # noqa: ARG002
        """Return how many threads of Python should search batches of their own side by side."""
        return 1

    @abstractmethod
    def slot_count(self, width: int, beam_size: int, count: int) -> int:
        """Return the number of slots for `count` sentences of this padded width, at least 1.

        It may exceed `count` where shapes are fixed: search then leaves slots empty.
        """

    def shrink(self) -> bool:
        """Return fewer slots from now on, as memory ran out; False if there were no more than one.

        All rows are lost.
        """
        return False

    def places(self, rows: Array) -> Any:
        """Return numbers of rows where the engine computes."""
        return rows

    @abstractmethod
    def encode(self, sources: Sequence[Ids], width: int) -> Rows:
        """Return one row for each source, padded to `width` tokens, end-of-sentence included.

        Sources are ids without end-of-sentence.
        """

    def spread(self, rows: Rows, beam_size: int, options: StepOptions) -> Rows:
        """Return slots of K hypotheses: K rows for each row of `encode`, to be stepped."""
        state = rows.state
        if beam_size > 1:
            state = state.select(self.places(np.arange(rows.count).repeat(beam_size)))
        return Rows(rows.memory, state, rows.count, beam_size, options)

    def put(self, rows: Rows, slots: Array, encoded: Rows, sentences: Array) -> Rows:
        """Return the rows with the encoded `sentences` [M] in these slots [M], at their start."""
        rows.memory.put(self.places(slots), encoded.memory, self.places(sentences))
        hypotheses = self.places(spread(slots, rows.size))
        rows.state.put(hypotheses, encoded.state, self.places(sentences.repeat(rows.size)))
        return rows

    def keep(self, rows: Rows, slots: Array) -> Rows:
        """Return the rows of these slots [M] alone, in this order."""
        memory = rows.memory.select(self.places(slots))
        state = rows.state.select(self.places(spread(slots, rows.size)))
        return replace(rows, memory=memory, state=state, count=len(slots))

    def select(self, rows: Rows, parents: Array) -> Rows:
        """Return the rows whose states are those of `parents` [N], each a row of the same slot."""
        return replace(rows, state=rows.state.select(self.places(parents)))

    @abstractmethod
    def step(self, rows: Rows, ids: Array) -> Any:
        """Advance all rows, given their last ids [N], by one target position: an `EngineStep`.

        The argument must not be used again.
        """

    @abstractmethod
    def mask(self, step: Any, mask: Mask) -> None:
        """Change the log-probabilities of a step; called at most once, before all that follow."""

    @abstractmethod
    def best(self, step: Any, scores: Array, count: int) -> Best:
        """Return the best continuations of groups of hypotheses with these scores [G, K'].

        G K' = N: a group is K' neighbouring rows. There are at most `count`, and K' V.
        """

    @abstractmethod
    def draw(self, step: Any, sampling: Sampling, numbers: Array) -> Best:
        """Draw a token for each row by inverting its distribution function at `numbers` [N].

        The numbers are in [0, 1). The distribution is that of masked log-probabilities, with
        temperature, top-k and top-p; returned are the log-probabilities before these: [N, 1].
        """

    @abstractmethod
    def log_probs(self, step: Any, rows: Array, tokens: Array) -> Array:
        """Return the log-probabilities [M] of places, float32, nats."""


def spread(slots: Array, count: int) -> Array:
    """Return the `count` places of each slot [M], such as its rows: [M * count]."""
    places: Array = (slots[:, None] * count + np.arange(count)).ravel()
    return places
