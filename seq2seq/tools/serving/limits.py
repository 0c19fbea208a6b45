"""Limits on requests, on the queue and on connections."""

from dataclasses import dataclass

MAX_CONNECTIONS = 2_000  # further ones take the place of those that have waited longest
MAX_HEAD = 1 << 15  # bytes of a request line with its headers


@dataclass(frozen=True)
class Limits:
    """Limits on requests and on the queue."""

    characters: int = 10_000  # per request
    lines: int = 1_000  # per request
    queue_lines: int = 10_000  # accepted and not yet translated
    seconds: float = 60.0  # to receive a request, and to answer it
