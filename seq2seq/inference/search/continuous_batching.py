"""Continuous batching: a finished sentence frees its slot for the next."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seq2seq.data.vocabulary.vocabulary import BOS_ID
from seq2seq.inference.search.constraints import Constraint, Rows
from seq2seq.inference.search.interface import Hypothesis, Model, NonFiniteError, SearchOptions
from seq2seq.inference.search.sentences import Sentence


class ContinuousBatch(ABC):
    """Slots that each hold a sentence, at a step of its own, as K hypotheses, or are empty.

    Empty slots take part in the computation. Row n of the N = B * K rows is hypothesis n % K of
    slot n // K.
    """

    def __init__(
        self,
        model: Model,
        memory: Any,
        state: Any,
        slots: Tensor,
        options: SearchOptions,
        constraints: Sequence[Constraint],
    ) -> None:
        """Create empty slots [B], numbered from 0, each with a row of memory and state.

        Memory and state belong to the slots from now on.
        """
        count, self.device = len(slots), slots.device
        self.model, self.options, self.memory = model, options, memory
        self.state = (
            state if options.size == 1 else state.select(slots.repeat_interleave(options.size))
        )
        self.constraints = constraints
        reads_history = any(constraint.reads_history for constraint in constraints)
        self.rows = Rows(count, options.size, self.device, reads_history)
        self.rows.forbidden = options.forbidden
        self.ids = torch.full((count * options.size,), BOS_ID, device=self.device)
        self.src_lengths = torch.zeros(count, dtype=torch.long, device=self.device)  # with EOS
        self.src_lengths_on_host = [0] * count  # the same, to slice by without a wait
        self.allocate(count)

    def put(
        self,
        slots: Sequence[int],
        sentences: Sequence[Sentence],
        memory: Any,
        state: Any,
        taken: slice,
    ) -> None:
        """Put sentences, the rows `taken` of a memory and state, into empty slots."""
        into = self.enter(slots, sentences)
        self.memory.put(into, memory, taken)
        own: Tensor | slice = taken
        if self.options.size > 1:
            own = torch.arange(taken.start, taken.stop, device=self.device)
            own = own.repeat_interleave(self.options.size)
        self.state.put(self.rows.of(into), state, own)

    def enter(self, slots: Sequence[int], sentences: Sequence[Sentence]) -> Tensor:
        """Start sentences in slots that hold their memory and state; return the slots [M]."""
        into = torch.tensor(slots, device=self.device)
        self.ids[self.rows.of(into)] = BOS_ID
        src_lengths = [len(sentence.source) + 1 for sentence in sentences]
        self.src_lengths[into] = torch.tensor(src_lengths, device=self.device)
        for slot, length in zip(slots, src_lengths, strict=True):
            self.src_lengths_on_host[slot] = length
        limits = [sentence.limit for sentence in sentences]
        prefixes = [sentence.prefix for sentence in sentences]
        lexical = [sentence.lexical for sentence in sentences]
        seeds = [sentence.seed for sentence in sentences]
        kept = [sentence.kept for sentence in sentences]
        self.rows.begin(slots, limits, prefixes, lexical, seeds, kept)
        self.begin(slots)
        return into

    def shrink(self, count: int) -> list[int]:
        """Keep `count` slots, all that hold a sentence among them; return their old numbers."""
        kept = [*self.rows.busy(), *self.rows.free()][:count]
        slots = torch.tensor(kept, device=self.device)
        rows = self.rows.of(slots)
        self.memory, self.state = self.memory.select(slots), self.state.select(rows)
        self.ids, self.src_lengths = self.ids[rows], self.src_lengths[slots]
        self.src_lengths_on_host = [self.src_lengths_on_host[slot] for slot in kept]
        self.rows.keep(kept)
        self.keep(kept)
        return kept

    def check_finite(self, values: Sequence[float]) -> None:
        """Raise NonFiniteError if the best value of a slot [B] that holds a sentence is not finite.

        No comparison orders nan, and a sentence without a possible token would never end.
        """
        for slot in self.rows.busy():
            if not math.isfinite(values[slot]):
                raise NonFiniteError(slot, values[slot])

    def constrain(self, values: Tensor) -> Tensor:
        """Apply all constraints to log-probabilities or logits [N, V], in place."""
        for constraint in self.constraints:
            constraint.apply(values, self.rows)
        return values

    @abstractmethod
    def allocate(self, slots: int) -> None:
        """Create the search state of empty slots."""

    @abstractmethod
    def begin(self, slots: Sequence[int]) -> None:
        """Reset the search state of slots that sentences enter."""

    @abstractmethod
    def keep(self, slots: Sequence[int]) -> None:
        """Drop all other slots and renumber these in the given order."""

    @abstractmethod
    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """Advance all slots by one token; empty the finished ones and return their hypotheses.

        A slot is finished at its limit at the latest. Raises NonFiniteError with its number.
        """
