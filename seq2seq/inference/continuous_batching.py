"""Sentences in search, in slots: one that is done makes room for the next."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2seq.data.batching import Ids
from seq2seq.data.vocabulary import BOS_ID, EOS_ID
from seq2seq.inference.constraints import Rules
from seq2seq.inference.interface import Hypothesis, Model, SearchOptions
from seq2seq.inference.prefixes import Prefix


class Sentence(NamedTuple):
    """What enters a slot: a source, and what its translation must keep to."""

    source: Ids  # END not counted
    limit: int  # pieces at most, END counted
    prefix: Prefix


class ContinuousBatch(ABC):
    """Each slot holds one sentence, at a step of its own, as K hypotheses; or it is empty.

    Empty slots are computed along. Row n of the N = B * K rows is hypothesis n % K of slot n // K.
    """

    def __init__(
        self, model: Model, memory: Any, state: Any, rows: Tensor, beam: SearchOptions, ruled: bool
    ) -> None:
        """Empty slots, as many as `rows` (0, 1 ... on the device), each with a row of these.

        Memory and state are the slots' own from here on. Prefixes and `no_repeat_ngram` are kept to
        where they are `ruled`.
        """
        count, self.device = len(rows), rows.device
        self.model, self.beam, self.memory = model, beam, memory
        one = beam.size == 1
        self.state = state if one else state.select(rows.repeat_interleave(beam.size))
        ngram = beam.no_repeat_ngram
        self.rules = Rules(count, beam.size, ngram, self.device) if ruled else None
        self.ids = torch.full((count * beam.size,), BOS_ID, device=self.device)
        self.ages = [0] * count  # pieces so far
        self.limits = [0] * count  # pieces at most, END counted; 0: empty
        self.src_lengths = torch.zeros(count, dtype=torch.long, device=self.device)  # END counted

    def free(self) -> list[int]:
        """The empty slots."""
        return [slot for slot, limit in enumerate(self.limits) if not limit]

    def busy(self) -> list[int]:
        """The slots that hold a sentence."""
        return [slot for slot, limit in enumerate(self.limits) if limit]

    def empty(self, slot: int) -> None:
        """Make room."""
        self.ages[slot] = self.limits[slot] = 0

    def put(
        self,
        slots: Sequence[int],
        sentences: Sequence[Sentence],
        memory: Any,
        state: Any,
        taken: slice,
    ) -> None:
        """Let sentences, the rows `taken` of a memory and state, into as many empty slots."""
        into = self.enter(slots, sentences)
        self.memory.put(into, memory, taken)
        own: Tensor | slice = taken
        if self.beam.size > 1:
            own = torch.arange(taken.start, taken.stop, device=self.device)
            own = own.repeat_interleave(self.beam.size)
        self.state.put(self.rows_of(into), state, own)

    def enter(self, slots: Sequence[int], sentences: Sequence[Sentence]) -> Tensor:
        """Let sentences into empty slots, whose memory and state are theirs; returns the slots."""
        into = torch.tensor(slots, device=self.device)
        self.ids[self.rows_of(into)] = BOS_ID
        src_lengths = [len(sentence.source) + 1 for sentence in sentences]
        self.src_lengths[into] = torch.tensor(src_lengths, device=self.device)
        for slot, sentence in zip(slots, sentences, strict=True):
            self.ages[slot], self.limits[slot] = 0, sentence.limit
        if self.rules is not None:
            self.rules.begin(slots, [sentence.prefix for sentence in sentences])
        self.begin(slots)
        return into

    def shrink(self, count: int) -> list[int]:
        """Keep so many slots, those that hold a sentence among them; returns which, in order."""
        kept = [*self.busy(), *self.free()][:count]
        slots = torch.tensor(kept, device=self.device)
        rows = self.rows_of(slots)
        self.memory, self.state = self.memory.select(slots), self.state.select(rows)
        self.ids, self.src_lengths = self.ids[rows], self.src_lengths[slots]
        self.ages = [self.ages[slot] for slot in kept]
        self.limits = [self.limits[slot] for slot in kept]
        if self.rules is not None:
            self.rules.keep(kept)
        self.keep(kept)
        return kept

    def restrict(self, values: Tensor) -> Tensor:
        """Make -inf of those logits or log-probabilities [N, V] whose piece may not follow.

        No hypothesis may end at once; each must end with the piece of its limit. Rules come on top.
        """
        for piece in self.beam.forbidden_ids:  # a tuple would have to be sent to the device
            values[:, piece] = -torch.inf
        by_sentence = values.view(len(self.ages), -1, values.shape[-1])
        young = [slot for slot, age in enumerate(self.ages) if age == 0]
        old = [slot for slot in self.busy() if 0 < self.ages[slot] >= self.limits[slot] - 1]
        if young:
            by_sentence[young, :, EOS_ID] = -torch.inf
        if old:
            ends = by_sentence[old, :, EOS_ID]
            by_sentence[old] = -torch.inf
            by_sentence[old, :, EOS_ID] = ends
        if self.rules is not None:
            self.rules.restrict(values)
        return values

    def grow(self, pieces: list[list[int]], parents: list[list[int]]) -> None:
        """Every sentence is a step older: its hypotheses [B][K] are these, with a piece more."""
        for slot in self.busy():
            self.ages[slot] += 1
        if self.rules is not None:
            self.rules.follow(pieces, parents, max(self.ages))

    def rows_of(self, slots: Tensor) -> Tensor:
        """The rows of these slots' hypotheses: [M] -> [M * K]."""
        first = slots[:, None] * self.beam.size
        return (first + torch.arange(self.beam.size, device=self.device)).flatten()

    @abstractmethod
    def keep(self, slots: Sequence[int]) -> None:
        """Forget all but these slots, which are counted anew in this order."""

    @abstractmethod
    def begin(self, slots: Sequence[int]) -> None:
        """Forget what these slots held before."""

    @abstractmethod
    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """One piece more in every slot; empties those that are done and returns what they found."""
