"""Failures of requests as JSON objects `{"error": MESSAGE}`, LibreTranslate's form."""

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


RESPONSES: dict[int | str, dict[str, object]] = {
    status: {"model": ErrorMessage, "description": description}
    for status, description in (
        (400, "The request is malformed."),
        (401, "The token is missing or wrong."),
        (413, "The request exceeds a limit of the server."),
        (429, "The client has used the characters of a minute; see Retry-After."),
        (503, "The queue is full, or the translation takes too long; see Retry-After."),
    )
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
    names = list(map(str, first.get("loc", ())))
    message = str(first.get("msg", "")).removeprefix("Value error, ")
    if first.get("type") == "json_invalid":
        return message.replace("Invalid JSON:", "the body is not valid JSON in UTF-8:")
    if not names and first.get("type") in ("model_attributes_type", "model_type"):
        return "the body must be a JSON object"
    if first.get("type") == "extra_forbidden":
        return f"{'.'.join(names)}: unknown field; /openapi.json lists those of a request"
    return f"{'.'.join(names)}: {message}" if names else message
