"""Guard before the application: hosts, size and time of requests, security headers, metrics."""

import asyncio
import hmac
import time
from dataclasses import dataclass

from fastapi import HTTPException, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
_LENGTH_DIGITS = 20  # most that a Content-Length has
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


@dataclass(frozen=True)
class Access:
    """Who may use the server."""

    token: str | None = None
    hosts: frozenset[str] | None = None  # names in the Host header; None: any
    origins: tuple[str, ...] = ()  # web pages of other origins

    def check_token(self, request: Request, api_key: str | None = None) -> None:
        """Raise HTTPException 401 unless the request, or its `api_key`, has the token."""
        if self.token is None:
            return
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        token = bearer if scheme.lower() == "bearer" else api_key or ""
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            raise HTTPException(
                401,
                "the token is missing or wrong; send the header Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )


class Guard:
    """Outermost ASGI application: everything that holds for every request."""

    def __init__(
        self, app: ASGIApp, limits: Limits, access: Access, metrics: Metrics, paths: frozenset[str]
    ) -> None:
        """Guard an application with these paths, which metrics name."""
        self._app, self._limits, self._access = app, limits, access
        self._metrics, self._paths = metrics, paths

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

        try:
            if len(dict(scope["headers"]).get(b"content-length", b"")) > _LENGTH_DIGITS:
                text = "the header Content-Length has too many digits"
                await error_response(400, text)(scope, receive, send_guarded)
            elif self._knows_host(scope):
                scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
                await self._app(scope, self._bounded(scope, receive), send_guarded)
            else:
                text = "the Host header names another server than those allowed"
                await error_response(400, text)(scope, receive, send_guarded)
        except asyncio.CancelledError:  # by a shutdown that does not wait
            if not status:
                text = "the server is shutting down"
                await error_response(503, text, {"Retry-After": "1"})(scope, receive, send_guarded)
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._metrics.requests.labels(path, status or 500).inc()
            self._metrics.seconds.labels(path).observe(time.monotonic() - start)

    def _knows_host(self, scope: Scope) -> bool:
        """Return whether the Host header has an accepted name: others point to DNS rebinding."""
        if self._access.hosts is None:
            return True
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        return name.strip("[]") in self._access.hosts

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Return a `receive` that refuses a body that is too large, too slow or incomplete."""
        length = dict(scope["headers"]).get(b"content-length", b"0")
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
