"""HTML forms: the fields of a body, parsed as it arrives and within bounds.

Whoever reaches the server may send a form, since its token may be one of the fields.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import parse_qs

from fastapi import HTTPException
from pydantic import TypeAdapter, ValidationError
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

URLENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
MAX_FIELDS = 2_000  # in a form
MAX_HEADER = 256  # bytes of a header of a part, or of the header that names the boundary
_MAX_HEADERS = 4  # of a part
_SLICE = 1 << 12  # bytes that are parsed before other requests have their turn
_PLAIN = {"", "7bit", "8bit", "binary"}  # Content-Transfer-Encoding of bytes as they are

Form = dict[str, list[str]]
Take = Callable[[bytes], Awaitable[None]]
Receive = Callable[[Take], Awaitable[None]]  # calls `Take` with each part of a body that arrives

# Its warnings quote the request: without a handler they would reach stderr.
logging.getLogger("python_multipart").addHandler(logging.NullHandler())


async def read_multipart(content_type: str, receive: Receive) -> dict[str, object]:
    """Return the fields of a multipart form; raises HTTPException 400 at its first fault."""
    parser = _MultipartForm(content_type)

    async def take(part: bytes) -> None:
        for start in range(0, len(part), _SLICE):
            parser.write(part[start : start + _SLICE])
            await asyncio.sleep(0)

    await receive(take)
    return _fields(parser.fields())


def read_urlencoded(body: bytes) -> dict[str, object]:
    """Return the fields of a form in one line; raises HTTPException 400."""
    try:
        text = body.decode()
        form = parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise _refusal("is not valid UTF-8 or has too many fields") from None
    for name in form:
        if any(map(str.isspace, name)):
            text = f"{name!r} is no field; write & in a text as %26, as curl --data-urlencode does"
            raise HTTPException(400, text)
    return _fields(form)


def _fields(form: Form) -> dict[str, object]:
    """Return a value or several of each name; `q` may be a list in JSON, or be q[], as in PHP."""
    fields: dict[str, object] = {
        name: values if len(values) > 1 else values[0] for name, values in form.items()
    }
    if "q[]" in form and "q" not in form:
        fields["q"] = form["q[]"]
    elif isinstance(text := fields.get("q"), str) and text.startswith("["):
        with suppress(ValidationError):
            fields["q"] = TypeAdapter(list[str]).validate_json(text)
    return fields


def _refusal(reason: str) -> HTTPException:
    return HTTPException(400, f"the form {reason}")


class _MultipartForm:
    """Values of the parts of a form, as JavaScript's FormData sends them; parts are not nested."""

    def __init__(self, content_type: str) -> None:
        self._form: Form = {}
        self._parts = 0
        self._is_complete = False
        self._headers: dict[str, str] = {}  # of the current part
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._content = bytearray()
        boundary = _parameters(content_type).get(b"boundary", b"")
        if not boundary:
            raise _refusal("names no boundary of its parts in the header Content-Type")
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._add_header_name,
                "on_header_value": self._add_header_value,
                "on_header_end": self._end_header,
                "on_part_data": self._add_content,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
            max_header_count=_MAX_HEADERS,
            max_header_size=MAX_HEADER,
        )

    def write(self, content: bytes) -> None:
        """Parse further bytes; raises HTTPException for what is no form, or exceeds a bound."""
        try:
            self._parser.write(content)
        except FormParserError as error:
            raise _refusal(f"is not valid {MULTIPART} ({error})") from None

    def fields(self) -> Form:
        """Return the values of each field; raises HTTPException if the form has not ended."""
        if not self._is_complete:
            raise _refusal(f"is not valid {MULTIPART} (its last boundary is missing)")
        return self._form

    # Called by the parser: for each part its headers, in pieces, then its content, in pieces.

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > MAX_FIELDS:
            raise _refusal(f"has more than {MAX_FIELDS:,} fields")
        self._headers = {}
        self._content.clear()

    def _add_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        name = self._header_name.decode("latin-1").lower()
        self._headers[name] = self._header_value.decode("utf-8", "replace")
        self._header_name.clear()
        self._header_value.clear()

    def _add_content(self, data: bytes, start: int, end: int) -> None:
        self._content += data[start:end]

    def _end_part(self) -> None:
        encoding = self._headers.get("content-transfer-encoding", "").strip().lower()
        if encoding not in _PLAIN:
            raise _refusal("has an encoded part; send its bytes as they are")
        if self._headers.get("content-type", "").lstrip().lower().startswith("multipart/"):
            raise _refusal("has a part with parts of its own")
        name = _parameters(self._headers.get("content-disposition", "")).get(b"name")
        if name is not None:
            self._form.setdefault(_text(name), []).append(_text(self._content))

    def _end(self) -> None:
        self._is_complete = True


def _parameters(header: str) -> dict[bytes, bytes]:
    if len(header) > MAX_HEADER:
        raise _refusal(f"has a header of more than {MAX_HEADER} bytes")
    try:
        return parse_options_header(header.encode().decode("latin-1"))[1]
    except (ValueError, FormParserError):
        raise _refusal(f"is not valid {MULTIPART} (a header)") from None


def _text(content: bytes | bytearray) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _refusal("is not valid UTF-8") from None
