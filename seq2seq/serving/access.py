"""Guard before the application: hosts, origins, size and time of requests, headers, metrics."""

import asyncio
import hmac
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2seq.runtime.console import logger
from seq2seq.serving.connection import MAX_CONNECTIONS
from seq2seq.serving.errors import DisconnectedError, LimitError, error_response
from seq2seq.serving.metrics import Metrics

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
_BYTES_PER_CHARACTER = 12  # as two JSON escapes
_OTHER_BYTES = 1 << 16  # bytes of a request besides its characters


@dataclass(frozen=True)
class Limits:
    """Limits on requests and on the queue."""

    characters: int = 10_000  # per request
    lines: int = 1_000  # per request
    queue_lines: int = 10_000  # accepted and not yet translated
    seconds: float = 60.0  # to receive a request, and to answer it

    @property
    def body_bytes(self) -> int:
        """Return the largest body that can hold an acceptable request."""
        return _BYTES_PER_CHARACTER * self.characters + _OTHER_BYTES


@dataclass(eq=False)
class Client:
    """Client with a token of its own, and what it has left of its characters."""

    name: str = "anyone"
    characters: int = 0  # per minute; 0: no limit
    left: float = math.inf
    since: float = 0.0  # time at which these were left

    def spend(self, characters: float) -> None:
        """Count the characters of a request; raise HTTPException 429 if too few are left.

        A request may be larger than what a minute brings: the next one then waits for longer.
        """
        if not self.characters:
            return
        now, rate = time.monotonic(), self.characters / 60
        left = min(self.characters, self.left + rate * (now - self.since))
        self.left, self.since = left, now
        if left < min(characters, self.characters):
            wait = math.ceil((min(characters, self.characters) - left) / rate)
            text = f"{self.characters:,} characters per minute are used; try again in {wait} s"
            raise HTTPException(429, text, {"Retry-After": str(wait)})
        self.left -= characters


@dataclass(frozen=True)
class Access:
    """Who may use the server."""

    clients: Mapping[str, Client] = field(default_factory=dict)  # by token; empty: everyone may
    hosts: frozenset[str] | None = None  # names in the Host header; None: any
    origins: tuple[str, ...] = ()  # web pages of other origins

    def client(self, request: Request, api_key: str | None = None) -> Client:
        """Return the client with the token of the request, or of its `api_key`.

        Raises HTTPException 401 if there are tokens, and the request has none of them.
        """
        if not self.clients:
            return Client()
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        token = bearer if scheme.lower() == "bearer" else api_key or ""
        found = [
            client
            for known, client in self.clients.items()
            if hmac.compare_digest(token.encode(), known.encode())
        ]
        if not found:
            text = "the token is missing or wrong; send the header Authorization: Bearer TOKEN"
            raise HTTPException(401, text, {"WWW-Authenticate": "Bearer"})
        request.state.client = found[0].name
        return found[0]

    def accepts_host(self, headers: Headers) -> bool:
        """Return whether the Host header has an accepted name: others point to DNS rebinding."""
        return self.hosts is None or _host_name(headers.get("host", "")) in self.hosts

    def accepts_page(self, headers: Headers) -> bool:
        """Return whether a request is of no web page, or of one of this server or an allowed site.

        Browsers send forms of other sites without asking, and name the site.
        """
        origin = headers.get("origin")
        if {"*", origin} & set(self.origins):
            return True
        if (site := headers.get("sec-fetch-site")) is not None:
            return site in ("same-origin", "none")
        return origin is None or urlsplit(origin).netloc == headers.get("host")


class Guard:
    """Outermost ASGI application: everything that holds for every request."""

    def __init__(
        self, app: ASGIApp, limits: Limits, access: Access, metrics: Metrics, paths: frozenset[str]
    ) -> None:
        """Guard an application with these paths, which metrics name."""
        self._app, self._limits, self._access = app, limits, access
        self._metrics, self._paths = metrics, paths
        self._active = 0  # requests being received or answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; other events pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.monotonic(), 0  # status once the answer has started

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_RAW_HEADERS]
            await send(message)

        self._active += 1
        try:
            scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
            if (refused := self._refusal(scope)) is not None:
                answer = error_response(*refused)
                await answer(scope, receive, send_guarded)
            else:
                await self._app(scope, self._bounded(scope, receive), send_guarded)
        except asyncio.CancelledError:  # by a shutdown that does not wait
            if not status:
                text = "the server is shutting down"
                await error_response(503, text, {"Retry-After": "1"})(scope, receive, send_guarded)
        finally:
            self._active -= 1
            self._count(scope, status or 500, time.monotonic() - start)

    def _refusal(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        """Return the answer to a request that is refused before it is read, or None."""
        headers = Headers(scope=scope)
        if self._active > MAX_CONNECTIONS:
            return 503, "too many connections; try again in 1 s", {"Retry-After": "1"}
        if not self._access.accepts_host(headers):
            return 400, "the Host header names another server than those allowed", {}
        if scope["method"] == "POST" and not self._access.accepts_page(headers):
            return 403, "a page of another site asks, which this server does not allow", {}
        return None

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request, and log it where the log is for machines."""
        path = scope["path"] if scope["path"] in self._paths else "other"
        self._metrics.requests.labels(path, status).inc()
        self._metrics.seconds.labels(path).observe(seconds)
        figures: dict[str, Any] = {"path": path, "status": status, "seconds": round(seconds, 3)}
        if client := scope.get("state", {}).get("client"):
            figures["client"] = client
        logger.debug("request", extra={"request": figures})

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Return a `receive` that refuses a body that is too large, too slow or incomplete."""
        length = Headers(scope=scope).get("content-length", "0")
        left, complete = self._limits.body_bytes, False
        too_large = int(length) > left if length.isdigit() else False
        end = time.monotonic() + self._limits.seconds

        async def receive_bounded() -> Message:
            nonlocal left, complete
            if complete:
                return await receive()  # waits for the client to disconnect
            if too_large:
                raise self._body_error()
            try:
                async with asyncio.timeout(end - time.monotonic()):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "the request arrives too slowly") from None
            if message["type"] == "http.disconnect":
                self._metrics.refused.labels("disconnected").inc()
                raise DisconnectedError
            if message["type"] == "http.request":
                left -= len(message.get("body", b""))
                complete = not message.get("more_body", False)
            if left < 0:
                raise self._body_error()
            return message

        return receive_bounded

    def _body_error(self) -> LimitError:
        self._metrics.refused.labels("limit").inc()
        return LimitError(f"the body is larger than {self._limits.body_bytes:,} bytes; send less")


def _host_name(host: str) -> str:
    """Return the name in a Host header, without port and brackets."""
    name, _, port = host.lower().rpartition(":")
    return (name if port.isdecimal() else host.lower()).strip("[]")
