"""Connection of a client: bounds on time and memory that uvicorn has no setting for."""

import asyncio
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 2_000  # further ones take the place of those that have waited longest
MAX_HEAD = 1 << 15  # bytes of a request line with its headers
IDLE = 30.0  # seconds until a request has begun and its headers are complete
_PROBE = 0.25  # seconds between probes of a client that sends nothing more


class Connection(H11Protocol):
    """HTTP/1.1 connection that is closed if its client neither asks nor reads.

    A client that closes its sending side may still read: it gets its answer.
    """

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; if there are too many connections, close another that waits."""
        super().connection_made(transport)
        self._since = time.monotonic()  # start of the wait for a request
        self._unread = 0  # bytes of the answer that the client has not taken
        self._watching = self.loop.call_later(IDLE, self._watch)
        if len(self.connections) > MAX_CONNECTIONS:
            others = (other for other in self.connections if isinstance(other, Connection))
            waiting = (other for other in others if other.is_waiting and other is not self)
            longest = min(waiting, key=lambda connection: connection._since, default=None)
            if longest is not None:
                longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what belongs to the connection."""
        self._watching.cancel()
        super().connection_lost(exc)

    @property
    def is_waiting(self) -> bool:
        """Return whether no request is being received or answered; its headers may be begun."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._since = time.monotonic()
        super().on_response_complete()

    def _watch(self) -> None:
        """Close the connection if its client has sent, or has read, nothing for some time."""
        unread = self.transport.get_write_buffer_size()
        waited = time.monotonic() - self._since if self.is_waiting and not unread else 0.0
        if waited >= IDLE or (unread and unread == self._unread):
            self.transport.abort()
            return
        self._unread = unread
        self._watching = self.loop.call_later(IDLE - waited, self._watch)

    def eof_received(self) -> Any:
        """Keep the connection open if an answer is still to be sent."""
        cycle = self.cycle
        if self.is_waiting or cycle.more_body or cycle.scope["http_version"] != "1.1":
            return None
        cycle.keep_alive = False
        self.loop.call_later(_PROBE, self._probe)
        return True

    def _probe(self) -> None:
        """Write an interim answer, which clients skip: a machine without the client refuses it."""
        if not (self.cycle.response_started or self.cycle.disconnected):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.loop.call_later(_PROBE, self._probe)
