"""Limits on requests, the queue and connections, and on the characters per minute of a client.

`service.py` refuses a request beyond its limits (status 413), `translation_queue.py` one that finds
the queue full (503).
"""

import math
import time
from dataclasses import dataclass

from fastapi import HTTPException

MAX_CONNECTIONS = 2_000  # further ones take the place of those that have waited longest
MAX_HEAD = 1 << 15  # bytes of a request line with its headers
_BYTES_PER_CHARACTER = 12  # as two JSON escapes
_OTHER_BYTES = 1 << 16  # bytes of a body besides its characters


@dataclass(frozen=True)
class Limits:
    """Limits on requests and on the queue."""

    characters: int = 10_000  # per request
    lines: int = 1_000  # per request
    queue_lines: int = 10_000  # accepted and not yet translated
    seconds: float = 60.0  # to receive a request, and to answer it

    @property
    def body_bytes(self) -> int:
        """Return the most bytes of a request's body: of its characters, and of all else."""
        return _BYTES_PER_CHARACTER * self.characters + _OTHER_BYTES


@dataclass(eq=False)
class Client:
    """Client with a token of its own, and what it has left of its characters."""

    name: str = "anyone"
    characters_per_minute: int = 0  # 0: no limit
    left: float = math.inf
    since: float = 0.0  # time at which these were left

    def spend(self, characters: float) -> None:
        """Count the characters of a request; raise HTTPException 429 if too few are left."""
        max_characters = self.characters_per_minute
        if not max_characters:
            return
        now = time.monotonic()
        per_second = max_characters / 60
        self.left = min(max_characters, self.left + per_second * (now - self.since))
        self.since = now
        needed = min(characters, max_characters)
        if self.left < needed:
            wait = math.ceil((needed - self.left) / per_second)
            text = f"{max_characters:,} characters per minute are used; try again in {wait} s"
            raise HTTPException(429, text, {"Retry-After": str(wait)})
        self.left -= characters  # may be below 0: the next request then waits for longer
