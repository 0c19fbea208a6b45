"""Guard before the application: hosts, origins, tokens, headers, failures.

What a client may send, once its token has been accepted, is in `limits.py`.
"""

import asyncio
import hmac
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field, ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2seq.runtime.console import logger, one_line
from seq2seq.runtime.errors import RunError, UserError, shorten_middle
from seq2seq.tools.serving.limits import MAX_CONNECTIONS, Client

HEALTH = "/health"  # which is answered at any load
_LOGGED = ("client", "pair", "lines", "characters")  # of the state of a request
_ABSOLUTE = re.compile("(?i)https?://(?P<host>[^/]*)")  # start of a complete address
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


@dataclass(frozen=True)
class Access:
    """Who may use the server."""

    clients: Mapping[str, Client] = field(default_factory=dict)  # by token; empty: everyone may
    # Names in the Host header, None for any: others point to DNS rebinding.
    hosts: frozenset[str] | None = None
    origins: tuple[str, ...] = ()  # web pages of other origins

    def client(self, request: Request, api_key: str | None = None) -> Client:
        """Return the client with the token of a request, or its `api_key`; or raise 401."""
        if not self.clients:
            return Client()
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        token = bearer if scheme.lower() == "bearer" else api_key or ""
        for expected, client in self.clients.items():
            if hmac.compare_digest(token.encode(), expected.encode()):
                request.state.client = client.name
                return client
        text = (
            "the token is missing or wrong; send the header Authorization: Bearer TOKEN, "
            "or the field api_key of LibreTranslate's API"
        )
        raise HTTPException(401, text, {"WWW-Authenticate": "Bearer"})

    def accepts_page(self, headers: Headers) -> bool:
        """Return whether no page asks, or one of this server or an allowed site; browsers say."""
        origin = headers.get("origin")
        if {"*", origin} & set(self.origins):
            return True
        if (site := headers.get("sec-fetch-site")) is not None:
            return site in ("same-origin", "none")
        return origin is None or _authority(origin) == headers.get("host")


def _authority(origin: str) -> str | None:
    """Return the host and port of an origin; None for one that no browser sends."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


class ErrorMessage(BaseModel):
    """Answer to a request that could not be met."""

    error: str = Field(description="what is wrong and what to do")


RESPONSES: dict[int | str, dict[str, object]] = {
    status: {"model": ErrorMessage, "description": description}
    for status, description in (
        (400, "The request is malformed."),
        (401, "The token is missing or wrong."),
        (413, "The request exceeds a limit of the server."),
        (429, "The client has used the characters of a minute; see Retry-After."),
        (503, "The queue is full, the translation takes too long, or the server is stopping."),
    )
}


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer with an error message, which may quote the request, at its ends if long."""
    return JSONResponse({"error": shorten_middle(one_line(message))}, status, headers)


async def on_error(_request: Request, error: Exception) -> Response:
    """Answer a request that failed, or that was refused."""
    match error:
        case AnyHTTPException():
            return error_response(error.status_code, str(error.detail), error.headers)
        case ValidationError():
            return error_response(400, _described(error.errors()[0]))
        case UserError() | RunError():
            return error_response(400 if isinstance(error, UserError) else 500, str(error))
        case TimeoutError():
            text = "the translation took too long; send less text, or try again later"
            return error_response(503, text, {"Retry-After": "1"})
    return error_response(500, "the server failed; its log has the reason")


HANDLED = (AnyHTTPException, ValidationError, UserError, RunError, TimeoutError, Exception)


def _described(mistake: Mapping[str, Any]) -> str:
    place = ".".join(map(str, mistake["loc"]))
    kind = mistake["type"]
    message = str(mistake["msg"]).removeprefix("Value error, ")
    if kind == "json_invalid" and not mistake["input"]:
        return "the body is empty; the fields of a request belong in it, not in the address"
    if kind == "json_invalid":
        return message.replace("Invalid JSON:", "the body is not valid JSON in UTF-8:")
    if not place and kind in ("model_attributes_type", "model_type"):
        return "the body must be a JSON object"
    if kind == "extra_forbidden":
        return f"{place}: unknown field; /openapi.json lists those of a request"
    return f"{place}: {message}" if place else message


class RequestFigures(NamedTuple):
    """Request that has been answered."""

    route: str | None  # path as it is declared, without values; None: there is no such path
    status: int
    seconds: float
    pair: str | None  # of languages; None: nothing was accepted for translation
    lines: int
    characters: int


class Guard:
    """Outermost ASGI application: everything that holds for every request."""

    def __init__(self, app: ASGIApp, access: Access, stop_waiting: Callable[[float], None]) -> None:
        self._app = app
        self._access = access
        self.stop_waiting = stop_waiting  # for bodies, after some seconds more
        self.on_answer: Callable[[RequestFigures], None] | None = None
        self._active = 0  # requests being received or answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; other events pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.monotonic()
        status = 0  # until the answer has started

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if headers.get("allow") == "GET":
                    headers["allow"] = "GET, HEAD"
            await send(message)

        self._active += 1
        try:
            # uvicorn sends the headers alone of an answer to HEAD.
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            scope = {**_in_origin_form(scope), "method": method}
            scope["path"] = scope["path"].rstrip("/") or "/"
            if (refused := self._refusal(scope)) is not None:
                answer = error_response(*refused)
                await answer(scope, receive, send_guarded)
            else:
                await self._app(scope, receive, send_guarded)
        except asyncio.CancelledError:  # by a shutdown that does not wait
            if not status:
                text = "the server is shutting down"
                await error_response(503, text, {"Retry-After": "1"})(scope, receive, send_guarded)
        except Exception as error:
            logger.exception("a request could not be answered")
            if not status:
                await (await on_error(Request(scope), error))(scope, receive, send_guarded)
        finally:
            self._active -= 1
            self._log(scope, status or 500, time.monotonic() - start)

    def _refusal(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        """Return the answer to a request that is refused before it is read, or None."""
        headers = Headers(scope=scope)
        hosts = self._access.hosts
        if self._active > MAX_CONNECTIONS and scope["path"] != HEALTH:
            return 503, "too many connections; try again in 1 s", {"Retry-After": "1"}
        # HTTP/1.0 of a load balancer may lack the header, which every browser sends.
        may_lack_host = scope["http_version"] == "1.0" and "host" not in headers
        is_known = hosts is None or host_name(headers.get("host", "")) in hosts
        if not (is_known or may_lack_host):
            return 400, "the Host header names another server than those allowed", {}
        if scope["method"] == "POST" and not self._access.accepts_page(headers):
            return 403, "a page of another site asks, which this server does not allow", {}
        return None

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        """Log the figures of a request, and pass them on."""
        state = scope.get("state", {})
        figures = {"path": scope["path"], "status": status, "seconds": round(seconds, 3)}
        figures |= {name: state[name] for name in _LOGGED if name in state}
        logger.debug("request", extra={"request": figures})
        if self.on_answer is not None:
            route = getattr(scope.get("route"), "path", None)
            work = state.get("pair"), state.get("lines", 0), state.get("characters", 0)
            self.on_answer(RequestFigures(route, status, seconds, *work))


def _in_origin_form(scope: Scope) -> Scope:
    """Return a request for a complete address as one for its path, at its host (RFC 9112, 3.2.2).

    The host of the address counts then, and the Host header does not.
    """
    if (address := _ABSOLUTE.match(scope["path"])) is None:
        return scope
    others = [(name, value) for name, value in scope["headers"] if name != b"host"]
    host = (b"host", address["host"].encode("latin-1", "replace"))
    return {**scope, "path": scope["path"][address.end() :], "headers": [host, *others]}


def host_name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    name, _, port = host.lower().rpartition(":")
    return (name if port.isdecimal() else host.lower()).strip("[]")


class _JsonFormatter(logging.Formatter):
    """Format a message, or the figures of a request, as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        request = getattr(record, "request", None)
        level = "info" if request else record.levelname.lower()
        entry = {"time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"), "level": level}
        entry |= request or {"message": record.getMessage()}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def log_json() -> None:
    """Log each message from now on, and each request, as a JSON object."""
    for handler in logger.handlers:
        handler.setFormatter(_JsonFormatter())
    logger.setLevel(logging.DEBUG)
