"""Failures of requests as JSON objects `{"error": MESSAGE}`, LibreTranslate's form."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException

from seq2seq.runtime.console import one_line
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.serving.translation_queue import QueueFullError


class ErrorMessage(BaseModel):
    """Answer to a request that could not be met."""

    error: str = Field(description="what is wrong and what to do")


class LimitError(HTTPException):
    """Request that is larger than the server accepts (413)."""

    def __init__(self, detail: str) -> None:
        super().__init__(413, detail)


class DisconnectedError(HTTPException):
    """Client that has disconnected, to which no answer is sent (499, as of nginx)."""

    def __init__(self) -> None:
        super().__init__(499, "the client has disconnected")


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # an escape of one
RESPONSES: dict[int | str, dict[str, object]] = {
    400: {"model": ErrorMessage, "description": "The request is malformed."},
    401: {"model": ErrorMessage, "description": "The token is missing or wrong."},
    413: {"model": ErrorMessage, "description": "The request exceeds a limit of the server."},
    503: {
        "model": ErrorMessage,
        "description": "The queue is full, or the translation takes too long; see Retry-After.",
    },
}


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Return an answer with an error message, which may quote the request."""
    return JSONResponse({"error": one_line(message)}, status, headers)


async def on_error(_request: Request, error: Exception) -> Response:
    """Answer a request that failed, or that was refused."""
    match error:
        case AnyHTTPException():
            headers = dict(error.headers) if error.headers else None
            return error_response(error.status_code, str(error.detail), headers)
        case RequestValidationError() | ValidationError():
            mistakes = cast("Sequence[Mapping[str, Any]]", error.errors())
            return error_response(400, _described(mistakes))
        case UserError():
            return error_response(400, str(error))
        case RunError():
            return error_response(500, str(error))
        case QueueFullError():
            return error_response(503, str(error), {"Retry-After": str(error.retry_after)})
        case TimeoutError():
            text = "the translation took too long; send less text, or try again later"
            return error_response(503, text, {"Retry-After": "1"})
    return error_response(500, "the server failed; its log has the reason")


HANDLED: tuple[type[Exception], ...] = (
    *(AnyHTTPException, RequestValidationError, ValidationError, UserError, RunError),
    *(QueueFullError, TimeoutError, Exception),
)


def _described(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return the first of several mistakes, with the place in the request."""
    first = errors[0]
    place = first.get("loc")
    names = [str(name) for name in place if name != "body"] if isinstance(place, tuple) else []
    if first.get("type") == "json_invalid":
        return "the body is not valid JSON"
    if not names and first.get("type") in ("model_attributes_type", "model_type", "missing"):
        return "the body must be a JSON object, with Content-Type: application/json"
    if first.get("type") == "extra_forbidden":
        return f"{'.'.join(names)}: unknown field; /openapi.json lists those of a request"
    message = str(first.get("msg", "")).removeprefix("Value error, ")
    return f"{'.'.join(names)}: {message}" if names else message


def parsed_json(body: bytes) -> object:
    """Parse a JSON body; raises HTTPException 400."""
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not valid JSON") from None
    check_unicode(body)
    return tree


def check_unicode(body: bytes) -> None:
    """Raise HTTPException 400 if a JSON body is not UTF-8, or has half a surrogate pair.

    Python's parser accepts UTF-16 and UTF-32, which have zero bytes, and encoded surrogates.
    """
    if b"\0" in body or not _is_utf8(body):
        raise HTTPException(400, "the body is not UTF-8; encode it as UTF-8")
    if _SURROGATE.search(body) is None:
        return
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise HTTPException(400, f"the body has {half}, half a surrogate pair") from None


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
