"""Constraints on the next token: forbidden ids, length limits, prefixes, n-grams, kept tokens."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.data.vocabulary.vocabulary import EOS_ID, PAD_ID
from seq2seq.inference.search.forbidden import Forbidden
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.search.lexical import NO_LEXICAL, Lexical, PhraseProgress
from seq2seq.inference.search.prefixes import NO_PREFIX, Prefix

Missing = tuple[int, ...]  # tokens that a hypothesis must still contain


class Rows:
    """The hypotheses in search as constraints see them: row n is hypothesis n % K of slot n // K.

    The history of a row is its latest tokens, PAD in place of those before the first; it is kept
    only if a constraint reads it.
    """

    def __init__(
        self, slots: int, beam_size: int, device: torch.device, keep_history: bool
    ) -> None:
        self.beam_size, self.device = beam_size, device
        self.first = torch.arange(slots, device=device)[:, None] * beam_size  # [B, 1]
        self.lengths = [0] * slots  # tokens so far
        self.limits = [0] * slots  # tokens at most, end-of-sentence included; 0: empty slot
        self.prefixes = [NO_PREFIX] * slots
        self.prefix_states = [[0] * beam_size for _ in range(slots)]
        self.lexical = [NO_LEXICAL] * slots
        self.progress: list[list[PhraseProgress]] = [
            [] for _ in range(slots)
        ]  # [B][K], with phrases
        self.seeds = [""] * slots  # that determine what is drawn, if search draws tokens
        self.forbidden: Forbidden | None = None
        self.text_states: list[list[int]] = [[] for _ in range(slots)]  # [B][K], of `forbidden`
        self.missing: list[list[Missing]] = [[()] * beam_size for _ in range(slots)]
        self.history: Tensor | None = None  # [N, T]
        if keep_history:
            self.history = torch.zeros(slots * beam_size, 0, dtype=torch.long, device=device)

    def free(self) -> list[int]:
        """Return the empty slots."""
        return [slot for slot, limit in enumerate(self.limits) if not limit]

    def busy(self) -> list[int]:
        """Return the slots that hold a sentence."""
        return [slot for slot, limit in enumerate(self.limits) if limit]

    def of(self, slots: Tensor) -> Tensor:
        """Return the rows [M * K] of slots [M]."""
        rows = slots[:, None] * self.beam_size + torch.arange(self.beam_size, device=self.device)
        return rows.flatten()

    def begin(
        self,
        slots: Sequence[int],
        limits: Sequence[int],
        prefixes: Sequence[Prefix],
        lexical: Sequence[Lexical] = (),
        seeds: Sequence[str] = (),
        kept: Sequence[Missing] = (),
    ) -> None:
        """Start sentences in slots; all rows but the first of a slot hold no hypothesis yet."""
        lexical, kept = lexical or [NO_LEXICAL] * len(slots), kept or [()] * len(slots)
        seeds = seeds or [""] * len(slots)
        sentences = zip(slots, limits, prefixes, lexical, seeds, kept, strict=True)
        for slot, limit, prefix, phrases, seed, missing in sentences:
            self.seeds[slot] = seed
            self.lengths[slot], self.limits[slot] = 0, limit
            self.missing[slot] = [missing] * self.beam_size
            self.prefixes[slot] = prefix
            self.lexical[slot] = phrases
            self.progress[slot] = [phrases.start()] * self.beam_size
            if self.forbidden is not None:
                self.text_states[slot] = [self.forbidden.start] * self.beam_size
            self.prefix_states[slot] = [0] + [len(prefix.states)] * (self.beam_size - 1)
        if self.history is not None:
            self.history[self.of(torch.tensor(slots, device=self.device))] = PAD_ID

    def clear(self, slot: int) -> None:
        """Empty a slot."""
        self.lengths[slot] = self.limits[slot] = 0

    def keep(self, slots: Sequence[int]) -> None:
        """Drop all other slots and renumber these in the given order."""
        if self.history is not None:
            self.history = self.history[self.of(torch.tensor(slots, device=self.device))]
        self.first = self.first[: len(slots)]
        self.lengths = [self.lengths[slot] for slot in slots]
        self.limits = [self.limits[slot] for slot in slots]
        self.prefixes = [self.prefixes[slot] for slot in slots]
        self.prefix_states = [self.prefix_states[slot] for slot in slots]
        self.lexical = [self.lexical[slot] for slot in slots]
        self.progress = [self.progress[slot] for slot in slots]
        self.text_states = [self.text_states[slot] for slot in slots]
        self.seeds = [self.seeds[slot] for slot in slots]
        self.missing = [self.missing[slot] for slot in slots]

    def advance(self, tokens: list[list[int]], parents: list[list[int]]) -> None:
        """Extend each row [B][K]: hypothesis `parents` of its slot followed by `tokens`."""
        for slot in self.busy():
            self.lengths[slot] += 1
        for slot, prefix in enumerate(self.prefixes):
            if prefix.states:
                states = self.prefix_states[slot]
                self.prefix_states[slot] = [
                    prefix.after(states[parent], token)
                    for token, parent in zip(tokens[slot], parents[slot], strict=True)
                ]
        for slot, lexical in enumerate(self.lexical):
            if lexical.phrases:
                progress = self.progress[slot]
                self.progress[slot] = [
                    lexical.after(progress[parent], token)
                    for token, parent in zip(tokens[slot], parents[slot], strict=True)
                ]
        if self.forbidden is not None:
            for slot in self.busy():
                states = self.text_states[slot]
                self.text_states[slot] = [
                    self.forbidden.after(states[parent], token)
                    for token, parent in zip(tokens[slot], parents[slot], strict=True)
                ]
        for slot, missing in enumerate(self.missing):
            if any(missing):
                self.missing[slot] = [
                    tuple(each for each in missing[parent] if each != token)
                    for token, parent in zip(tokens[slot], parents[slot], strict=True)
                ]
        if self.history is not None:
            rows = (self.first + torch.tensor(parents, device=self.device)).flatten()
            latest = torch.tensor(tokens, device=self.device).view(-1, 1)
            history = torch.cat([self.history[rows], latest], dim=1)
            self.history = history[:, max(0, history.shape[1] - max(self.lengths)) :]

    def in_prefix(self) -> dict[int, NDArray[np.int64]]:
        """Return the rows whose prefix is incomplete, each with the tokens that continue it."""
        return {
            slot * self.beam_size + k: prefix.states[state].tokens
            for slot, prefix in enumerate(self.prefixes)
            for k, state in enumerate(self.prefix_states[slot])
            if state < len(prefix.states)
        }


class Constraint(Protocol):
    """Restriction on the next token of each row."""

    reads_history: bool

    def apply(self, log_probs: Tensor, rows: Rows) -> None:
        """Set the log-probabilities (or logits) [N, V] of disallowed tokens to -inf, in place."""
        ...


def search_constraints(options: SearchOptions, prefixes: Sequence[Prefix]) -> list[Constraint]:
    """Return the constraints of a search in order of application."""
    constraints: list[Constraint] = []
    if options.repetition_penalty != 1:
        constraints.append(RepetitionPenalty(options.repetition_penalty))
    constraints += [ForbiddenIds(options.forbidden_ids), LengthLimits(options.min_length)]
    if options.kept_ids:
        constraints.append(KeepTokens(options.kept_ids))
    if any(prefix.states for prefix in prefixes):
        constraints.append(KeepPrefix())
    if options.no_repeat_ngram:
        constraints.append(NoRepeatNgram(options.no_repeat_ngram))
    if options.forbidden is not None:
        constraints.append(ForbiddenWords(options.forbidden))
    return constraints


class RepetitionPenalty:
    """Multiply log-probabilities of tokens that a hypothesis has (Keskar et al. 2019).

    They divide logits by the factor, which favours negative ones, so that implementations multiply
    those: both depend on a constant that softmax ignores. Log-probabilities are never positive.
    """

    reads_history = True

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def apply(self, log_probs: Tensor, rows: Rows) -> None:
        history = rows.history
        assert history is not None, "repeated tokens are read from the history"
        if history.shape[1]:
            log_probs.scatter_(1, history, log_probs.gather(1, history) * self.factor)


class ForbiddenIds:
    """Tokens that no hypothesis contains."""

    reads_history = False

    def __init__(self, ids: Sequence[int]) -> None:
        self.slices = _slices(ids)  # an index list would be copied to the device

    def apply(self, log_probs: Tensor, rows: Rows) -> None:  # noqa: ARG002
        for each in self.slices:
            log_probs[:, each] = -torch.inf


def _slices(ids: Sequence[int]) -> list[slice]:
    """Return ids as slices of consecutive ones."""
    found: list[slice] = []
    for i in sorted(set(ids)):
        if found and found[-1].stop == i:
            found[-1] = slice(found[-1].start, i + 1)
        else:
            found.append(slice(i, i + 1))
    return found


class LengthLimits:
    """No hypothesis is empty or too short; each ends at its sentence's limit at the latest.

    Empty slots are left alone.
    """

    reads_history = False

    def __init__(self, shortest: int = 0) -> None:
        self.shortest = max(1, shortest)

    def apply(self, log_probs: Tensor, rows: Rows) -> None:
        by_slot = log_probs.view(len(rows.lengths), -1, log_probs.shape[-1])
        last = [slot for slot in rows.busy() if 0 < rows.lengths[slot] >= rows.limits[slot] - 1]
        first = [
            slot for slot in rows.busy() if rows.lengths[slot] < self.shortest and slot not in last
        ]
        if first:
            by_slot[first, :, EOS_ID] = -torch.inf
        if last:
            ends = by_slot[last, :, EOS_ID]
            by_slot[last] = -torch.inf
            by_slot[last, :, EOS_ID] = ends


class KeepPrefix:
    """Rows with an incomplete prefix take only tokens that continue it."""

    reads_history = False

    def apply(self, log_probs: Tensor, rows: Rows) -> None:
        if not (incomplete := rows.in_prefix()):
            return
        tokens = list(incomplete.values())
        columns = torch.from_numpy(np.concatenate(tokens)).to(rows.device)
        counts = torch.tensor([len(each) for each in tokens], device=rows.device)
        numbers = torch.tensor(list(incomplete), device=rows.device)
        allowed = numbers.repeat_interleave(counts, output_size=len(columns)), columns
        kept = log_probs[allowed]
        log_probs[numbers] = -torch.inf
        log_probs[allowed] = kept


class KeepTokens:
    """Tokens that a hypothesis contains once if they are in the source, and never otherwise.

    No hypothesis ends before it contains all; if there is room for no other token, it takes them.
    """

    reads_history = False

    def __init__(self, ids: range) -> None:
        self.ids = slice(ids.start, ids.stop)

    def apply(self, log_probs: Tensor, rows: Rows) -> None:
        before = log_probs[:, self.ids].clone()
        log_probs[:, self.ids] = -torch.inf
        in_prefix = rows.in_prefix()
        waiting, allowed, forced = [], [], []
        for slot in rows.busy():
            room = rows.limits[slot] - 1 - rows.lengths[slot] - rows.lexical[slot].total
            for row, missing in enumerate(rows.missing[slot], start=slot * rows.beam_size):
                if missing:
                    allowed += [(row, token) for token in missing]
                    if row not in in_prefix:
                        waiting.append(row)
                        forced += [row] if room <= len(missing) else []
        if not allowed:
            return
        if forced:
            log_probs[torch.tensor(forced, device=rows.device)] = -torch.inf
        if waiting:
            log_probs[torch.tensor(waiting, device=rows.device), EOS_ID] = -torch.inf
        numbers, tokens = torch.tensor(allowed, device=rows.device).unbind(1)
        log_probs[numbers, tokens] = before[numbers, tokens - self.ids.start]


class NoRepeatNgram:
    """No n-gram of this size occurs twice in a hypothesis, unless its prefix leaves no choice."""

    reads_history = True

    def __init__(self, size: int) -> None:
        self.size = size

    def apply(self, log_probs: Tensor, rows: Rows) -> None:
        history = rows.history
        assert history is not None, "n-grams are searched in the history"
        if history.shape[1] < self.size:
            return
        bound = torch.tensor(list(rows.in_prefix()), dtype=torch.long, device=rows.device)
        before = log_probs[bound]
        log_probs.scatter_(1, self._repeated(history), -torch.inf)
        after = log_probs[bound]
        stuck = after.isneginf().all(dim=1, keepdim=True)
        log_probs[bound] = torch.where(stuck, before, after)

    def _repeated(self, history: Tensor) -> Tensor:
        """Return the tokens that would complete an n-gram of the same row: [N, M], else PAD.

        An n-gram that begins with PAD, before the first token, occurs only once in a row.
        """
        ngrams = history.unfold(1, self.size, 1)  # [N, M, n]
        latest = history[:, history.shape[1] - self.size + 1 :]  # [N, n - 1]
        same = (ngrams[..., :-1] == latest[:, None]).all(dim=-1)
        return torch.where(same, ngrams[..., -1], PAD_ID)


class ForbiddenWords:
    """Words that no hypothesis contains, unless it has no other choice, as in its prefix."""

    reads_history = False

    def __init__(self, forbidden: Forbidden) -> None:
        self.forbidden = forbidden

    def apply(self, log_probs: Tensor, rows: Rows) -> None:
        for slot in rows.busy():
            last = rows.lengths[slot] == rows.limits[slot] - 2  # end-of-sentence follows
            for k, state in enumerate(rows.text_states[slot]):
                row = slot * rows.beam_size + k
                tokens = torch.as_tensor(
                    self.forbidden.forbidden_tokens(state, last), device=rows.device
                )
                before = log_probs[row, tokens]
                log_probs[row, tokens] = -torch.inf
                if bool(log_probs[row].isneginf().all()):
                    log_probs[row, tokens] = before
