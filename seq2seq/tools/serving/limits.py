"""Limits on requests, on the queue and on connections."""

from dataclasses import dataclass

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
