"""What may follow the rows of a search by rule: no n-gram twice, and a prefix that is given."""

from collections.abc import Sequence

import torch
from torch import Tensor

from seq2seq.data.vocabulary import PAD_ID
from seq2seq.inference.prefixes import NO_PREFIX, Prefix


class Rules:
    """The rules of N = B * K rows, row n being hypothesis n % K of slot n // K."""

    def __init__(self, slots: int, beam_size: int, ngram: int, device: torch.device) -> None:
        """No `ngram` pieces in a row may occur twice in a hypothesis; 0: any may."""
        self.beam_size, self.ngram, self.device = beam_size, ngram, device
        self.first = torch.arange(slots, device=device)[:, None] * beam_size
        self.history = torch.zeros(slots * beam_size, 0, dtype=torch.long, device=device)
        self.prefixes = [NO_PREFIX] * slots
        self.states = [[0] * beam_size for _ in range(slots)]  # of the prefix, for each row

    def begin(self, slots: Sequence[int], prefixes: Sequence[Prefix]) -> None:
        """Sentences enter slots; all their hypotheses but the first are none yet."""
        for slot, prefix in zip(slots, prefixes, strict=True):
            self.prefixes[slot] = prefix
            self.states[slot] = [0] + [len(prefix.states)] * (self.beam_size - 1)
        first = self.first[torch.tensor(slots, device=self.device)]
        self.history[first + torch.arange(self.beam_size, device=self.device)] = PAD_ID

    def keep(self, slots: Sequence[int]) -> None:
        """Forget all but these slots, which are counted anew in this order."""
        kept = torch.tensor(slots, device=self.device)
        rows = self.first[kept] + torch.arange(self.beam_size, device=self.device)
        self.history, self.first = self.history[rows.flatten()], self.first[: len(slots)]
        self.prefixes = [self.prefixes[slot] for slot in slots]
        self.states = [self.states[slot] for slot in slots]

    def follow(self, pieces: list[list[int]], parents: list[list[int]], longest: int) -> None:
        """Each row [B][K] becomes this hypothesis of its slot with this piece more.

        None has more than `longest` pieces then.
        """
        for slot, prefix in enumerate(self.prefixes):
            if prefix.states:
                before = self.states[slot]
                self.states[slot] = [
                    prefix.after(before[parent], piece)
                    for piece, parent in zip(pieces[slot], parents[slot], strict=True)
                ]
        if self.ngram:
            rows = (self.first + torch.tensor(parents, device=self.device)).flatten()
            latest = torch.tensor(pieces, device=self.device).view(-1, 1)
            history = torch.cat([self.history[rows], latest], dim=1)
            self.history = history[:, max(0, history.shape[1] - longest) :]

    def restrict(self, log_probs: Tensor) -> None:
        """Make what may not follow impossible, in place: [N, V].

        Where a prefix leaves nothing but what repeats an n-gram, that may follow.
        """
        bound = self._keep_to_prefixes(log_probs)
        if not self.ngram or self.history.shape[1] < self.ngram:
            return
        before = log_probs[bound]
        log_probs.scatter_(1, self._repeating(), -torch.inf)
        after = log_probs[bound]
        stuck = after.isneginf().all(dim=1, keepdim=True)
        log_probs[bound] = torch.where(stuck, before, after)

    def _keep_to_prefixes(self, log_probs: Tensor) -> Tensor:
        """Leave those rows whose prefix is yet to be completed its pieces alone; returns them."""
        bound = [
            (slot * self.beam_size + k, prefix.states[state].pieces)
            for slot, prefix in enumerate(self.prefixes)
            for k, state in enumerate(self.states[slot])
            if state < len(prefix.states)
        ]
        rows = torch.tensor([row for row, _ in bound], dtype=torch.long, device=self.device)
        if bound:
            pieces = [each for _, each in bound]
            columns = torch.cat(pieces).to(self.device)
            counts = torch.tensor([len(each) for each in pieces], device=self.device)
            places = rows.repeat_interleave(counts, output_size=len(columns)), columns
            kept = log_probs[places]
            log_probs[rows] = -torch.inf
            log_probs[places] = kept
        return rows

    def _repeating(self) -> Tensor:
        """The pieces that would end an n-gram which a row has already: [N, M], PAD for none.

        A row's first n-gram that is PAD in part, for want of pieces, occurs nowhere else in it.
        """
        ngrams = self.history.unfold(1, self.ngram, 1)  # [N, M, n]
        latest = self.history[:, self.history.shape[1] - self.ngram + 1 :]  # [N, n - 1]
        same = (ngrams[..., :-1] == latest[:, None]).all(dim=-1)
        return torch.where(same, ngrams[..., -1], PAD_ID)
