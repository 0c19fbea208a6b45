"""Trail of a search: the choices of its latest steps, from which hypotheses are traced back."""

from typing import Any, NamedTuple

import numpy as np

from seq2seq.engines.engine import Array

STEPS = 64  # allocated at first


class Trail:
    """Tokens, parents and log-probabilities of the steps since a slot's oldest sentence started.

    Steps are numbered from the start of the search. Attention weights are those of the hypotheses
    before the choice, and so belong to the parents.
    """

    def __init__(self, slots: int, size: int) -> None:
        self.first = self.end = 0  # numbers of the first step and of the next
        self._size = size
        self._parts: dict[str, Array] = {
            "tokens": np.zeros((STEPS, slots, size), np.int64),
            "log_probs": np.zeros((STEPS, slots, size), np.float32),
        }

    def append(
        self, tokens: Array, parents: Array | None, log_probs: Array, attention: Array | None
    ) -> None:
        """Add a step: arrays [B, K], and attention weights [B K, S], if they are read.

        Without parents each hypothesis continues itself.
        """
        parts = {"tokens": tokens, "log_probs": log_probs}
        if parents is not None:
            parts["parents"] = parents
        if attention is not None:
            parts["attention"] = attention.reshape(*tokens.shape, -1)
        for name, part in parts.items():
            if name not in self._parts:
                room = len(self._parts["tokens"])
                self._parts[name] = np.zeros((room, *part.shape), part.dtype)
            self._parts[name][self.end - self.first] = part
        self.end += 1

    def make_room(self, oldest: int) -> None:
        """Make room for a step, in place of those before the step `oldest`."""
        room = len(self._parts["tokens"])
        if self.end - self.first < room:
            return
        dropped = oldest - self.first
        used = room - dropped
        room *= 1 if 2 * used <= room else 2
        for name, before in self._parts.items():
            after = np.zeros(
                (room if 2 * used <= room else 2 * room, *before.shape[1:]), before.dtype
            )
            after[:used] = before[dropped:]
            self._parts[name] = after
        self.first = oldest

    def keep(self, slots: Array) -> None:
        """Drop all other slots and renumber these in the given order."""
        self._parts = {name: part[:, slots] for name, part in self._parts.items()}

    def path(self, name: str, slot: int, start: int, end: int) -> list[Any]:
        """Return the tokens or log-probabilities of a slot's only hypothesis."""
        path: list[Any] = self._parts[name][start - self.first : end - self.first, slot, 0].tolist()
        return path

    def trace(
        self, slots: Array, hypotheses: Array, steps: Array, longest: int, log_probs: bool
    ) -> "Traced":
        """Trace M hypotheses back from their places in `slots` [M] before `steps` [M]."""
        back = np.arange(longest, 0, -1)[:, None]
        places = np.maximum(steps - self.first - back, 0)  # [T, M]
        places = (places * self._parts["tokens"].shape[1] + slots) * self._size
        parents = self._parts["parents"].reshape(-1)
        rows = np.empty((longest + 1, len(slots)), np.int64)
        rows[longest] = hypotheses
        for n in reversed(range(longest)):
            rows[n] = parents[places[n] + rows[n + 1]]
        places += rows[1:]
        tokens = self._parts["tokens"].reshape(-1)[places].T.tolist()
        values = self._parts["log_probs"].reshape(-1)[places].T.tolist() if log_probs else None
        return Traced(tokens, values, rows.T)

    def attention(self, slot: int, hypotheses: Any, start: int, width: int) -> Array | None:
        """Return the weights [T, S] of a path: of these hypotheses [T] of a slot from a step on."""
        if "attention" not in self._parts:
            return None
        steps = np.arange(len(hypotheses)) + (start - self.first)
        weights: Array = self._parts["attention"][steps, slot, hypotheses, :width]
        return weights


class Traced(NamedTuple):
    """Paths of M hypotheses, aligned at their ends: what is before their starts means nothing."""

    tokens: list[list[int]]  # [M][T]
    log_probs: list[list[float]] | None  # [M][T], nats, if they are read
    hypotheses: Array  # [M, T + 1], those that were continued, within their slots
