"""A connection of the server: how long it waits for its client, and what ends it."""

import asyncio
import time
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from seq2seq.tools.serving.access import HEADERS, error_response
from seq2seq.tools.serving.limits import MAX_CONNECTIONS

IDLE = 30.0  # seconds until a request has begun and its headers are complete
_PROBE = 0.25  # seconds between probes of a client that sends nothing more
_CLOSED_TOGETHER = 20  # one of so many is closed at once: the longest waits are seldom looked for


class Connection(H11Protocol):
    """HTTP/1.1 connection that is closed if its client neither asks nor reads.

    A client that closes its sending side may still read: it gets its answer.
    """

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; if there are too many connections, close another that waits."""
        super().connection_made(transport)
        self._since = time.monotonic()  # start of the wait for a request
        self._is_refused = False
        self._unread = 0  # bytes of the answer that the client has not taken
        self._watching = self.loop.call_later(IDLE, self._watch)
        if len(self.connections) > MAX_CONNECTIONS:
            self._make_room()

    def _make_room(self) -> None:
        """Close connections that wait, if too many are open besides those that are being closed."""
        peers = [peer for peer in self.connections if isinstance(peer, Connection)]
        peers = [peer for peer in peers if not peer.transport.is_closing()]
        if len(peers) <= MAX_CONNECTIONS:
            return
        waiting = [peer for peer in peers if peer.is_incomplete and peer is not self]
        held = Counter(peer.address for peer in waiting)
        waiting.sort(key=lambda peer: (-held[peer.address], peer._since))
        for peer in waiting[: 1 + MAX_CONNECTIONS // _CLOSED_TOGETHER]:
            peer.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._watching.cancel()
        super().connection_lost(exc)

    @property
    def address(self) -> str:
        """Return the address of the client."""
        return self.client[0] if self.client else ""

    @property
    def is_incomplete(self) -> bool:
        """Return whether the connection waits for its client: for headers or for a body."""
        return self.is_waiting or (self.cycle.more_body and not self.cycle.response_started)

    @property
    def is_waiting(self) -> bool:
        """Return whether no request is being received or answered; its headers may be begun."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def on_response_complete(self) -> None:
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

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP as other mistakes are answered, and close the connection."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # the answer has begun, and cannot become another one
            return
        body = bytes(error_response(400, msg).body)
        if self.cycle is not None and not self.is_waiting:  # its headers were right, its body not
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.scope["method"] == "HEAD":
                body = b""
        fields = {**HEADERS, "Content-Type": "application/json", "Connection": "close"}
        headers = [(name.encode(), value.encode()) for name, value in fields.items()]
        events = (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self._is_refused = True  # closed at once, it would lose the answer to what still arrives
        self.loop.call_later(_PROBE, self.transport.close)

    def _should_upgrade(self) -> bool:
        """Answer in HTTP/1.1, as RFC 9110 allows, also if a client offers another protocol."""
        return False

    def data_received(self, data: bytes) -> None:
        """Read what a client sends, unless its request has been refused or was its last one."""
        if not self._is_refused and self.conn.their_state is not h11.MUST_CLOSE:
            super().data_received(data)

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
