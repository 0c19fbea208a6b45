"""API in the shape of LibreTranslate, so that its clients work."""

import asyncio
import html
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import HTTP
from typing import Annotated, Any, Literal, cast
from urllib.parse import parse_qs

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from seq2seq.inference.translation import Translation
from seq2seq.runtime.errors import UserError
from seq2seq.serving.access import Client
from seq2seq.serving.errors import RESPONSES, ErrorMessage
from seq2seq.serving.language_pairs import AUTO
from seq2seq.serving.service import (
    JSON,
    Body,
    Service,
    Texts,
    described_body,
    kind_of,
    read_json,
    text_list,
)
from seq2seq.serving.translation_queue import QueuedLine, Search

_FORM, _MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
_MAX_FIELDS = 2_000  # in a form
_TAG = re.compile("<[a-zA-Z/!?][^>]*>?")


class TranslateText(BaseModel):
    """Text to translate. Unknown fields, such as those of other servers, are ignored."""

    q: Texts = Field(description="a text, or several; each of its lines is translated")
    source: str = Field(AUTO, description='code of the source language; "auto": the only one')
    target: str = Field(description="code of the target language")
    format: Literal["text", "html"] = Field(
        "text", description="html: entities are read and written; tags are refused"
    )
    alternatives: Annotated[int, Field(ge=0, le=100)] = Field(
        0, description="further translations; at most one less than the beam size"
    )
    api_key: str | None = Field(None, description="token, unless the Authorization header has it")


class Detected(BaseModel):
    """Language of a text: that of the only model for the target."""

    confidence: int = Field(description="percent")
    language: str = Field(description="code of the language")


class TranslatedText(BaseModel):
    """Translation of each text, and its alternatives if the request asked for any."""

    # The names are LibreTranslate's.
    translatedText: str | list[str] = Field(description="a text for a text, a list for a list")
    detectedLanguage: Detected | list[Detected] | None = Field(
        None, description='of each text; only if the source is "auto"'
    )
    alternatives: list[str] | list[list[str]] | None = Field(
        None, description="of each text, best first; only if the request has alternatives"
    )


class Language(BaseModel):
    """Language that a model reads or writes."""

    code: str = Field(description="code of the language, as in the config of the run")
    name: str = Field(description="English name, or the code if it has none")
    targets: list[str] = Field(description="codes of the languages into which it is translated")


class Health(BaseModel):
    """State of the server."""

    status: Literal["ok"] = Field(default="ok", description="any other answer is an error")


_STOPPING: dict[str, Any] = {"model": ErrorMessage, "description": "The server is shutting down."}


def router(service: Service) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["LibreTranslate"])
    described = described_body("/translate", TranslateText, _FORM, _MULTIPART)

    @routes.post(
        "/translate", response_model=TranslatedText, responses=RESPONSES, openapi_extra=described
    )
    async def translate(request: Request) -> Response:
        """Translate texts line by line."""
        body, client = await _read(service, request, TranslateText)
        is_html = body.format == "html"
        texts = text_list(body.q)
        split = [_lines(_plain(text) if is_html else text) for text in texts]
        lines = [QueuedLine(line) for text in split for line in text]
        search = _search(service, body)
        service.check_size(client, search, lines)
        translations = await service.translate(request, search, lines)
        answers = _joined(split, translations, search.n_best)
        if is_html:
            answers = [[html.escape(text, quote=False) for text in texts] for texts in answers]
        source, _ = service.pairs.find(body.source, body.target)
        return JSONResponse(_answer(body, answers, source))

    @routes.post("/languages", include_in_schema=False)  # by which older clients ask
    @routes.get("/languages")
    async def languages() -> list[Language]:
        """List the languages."""
        return list(map(Language.model_validate, service.pairs.languages()))

    @routes.get("/health", responses={503: _STOPPING})
    async def health() -> Health:
        """Return 200 while the server accepts requests."""
        if not service.queue.is_alive:
            raise HTTPException(503, "the server is shutting down")
        return Health()

    return routes


async def _read(service: Service, request: Request, model: type[Body]) -> tuple[Body, Client]:
    """Return the fields of a JSON or form body, and the client; raises HTTPException.

    The token is in the headers or in the body.
    """
    client = service.access.client(request) if "authorization" in request.headers else None
    kind = kind_of(request)
    if kind in (_FORM, _MULTIPART):
        form = await asyncio.to_thread(_form, request.headers["content-type"], await request.body())
        body = model.model_validate(form)
    elif kind == JSON:
        body = await read_json(request, model)
    else:
        raise HTTPException(415, f"{kind}: send {JSON} or {_FORM}")
    return body, client or service.access.client(request, getattr(body, "api_key", None))


def _form(header: str, body: bytes) -> dict[str, object]:
    """Return the fields of a form; raises HTTPException."""
    try:
        is_multipart = header.strip().lower().startswith(_MULTIPART)
        return _fields(_multipart(header, body) if is_multipart else _urlencoded(body))
    except ValueError:
        raise HTTPException(400, "the form is not valid UTF-8 or has too many fields") from None


def _urlencoded(body: bytes) -> dict[str, list[str]]:
    """Return the values of each field of a form; raises ValueError."""
    form = parse_qs(
        body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
    )
    for name in form:
        if any(map(str.isspace, name)):
            text = f"{name!r} is no field; write & in a text as %26, as curl --data-urlencode does"
            raise HTTPException(400, text)
    return form


def _multipart(header: str, body: bytes) -> dict[str, list[str]]:
    """Return the values of each field of a form, as JavaScript's FormData sends it."""
    head = f"Content-Type: {header}\r\n\r\n".encode("latin-1")
    form: dict[str, list[str]] = {}
    message = message_from_bytes(head + body, policy=HTTP)
    parts = cast("list[EmailMessage]", message.get_payload() if message.is_multipart() else [])
    if not 0 < len(parts) <= _MAX_FIELDS:
        raise ValueError("a form")
    for part in parts:
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            form.setdefault(name, []).append(content.decode())
    return form


def _fields(form: Mapping[str, list[str]]) -> dict[str, object]:
    """Return the fields of a form; `q` may be a list in JSON, or have the name q[], as in PHP."""
    fields: dict[str, object] = {
        name: values if len(values) > 1 else values[0] for name, values in form.items()
    }
    if "q[]" in form and "q" not in form:
        fields["q"] = form["q[]"]
    elif isinstance(text := fields.get("q"), str) and text.startswith("["):
        with suppress(ValueError, RecursionError):
            texts = json.loads(text)
            if isinstance(texts, list) and all(isinstance(entry, str) for entry in texts):
                fields["q"] = texts
    return fields


def _plain(text: str) -> str:
    """Return HTML without tags as text; raises UserError for tags."""
    if (tag := _TAG.search(text)) is not None:
        start = tag[0][:40]
        raise UserError(f"q: format html with tags ({start}) is not supported; send text only")
    return html.unescape(text)


def _search(service: Service, body: TranslateText) -> Search:
    """Return the search of a request: alternatives must not change the translation itself."""
    pair = service.pairs.find(body.source, body.target)
    translator = service.pairs[pair]
    n_best = min(1 + body.alternatives, translator.decoding.beam_size)
    return Search(
        str(pair), translator, n_best=n_best, text_only=n_best == 1, settings=service.settings
    )


def _lines(text: str) -> list[str]:
    """Split a text at line ends, as files are read."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def _joined(
    split: Sequence[Sequence[str]], translations: Sequence[Translation], n_best: int
) -> list[list[str]]:
    """Return for each text its translation, then different alternatives; lines are joined."""
    answers, start = [], 0
    for lines in split:
        of_text = translations[start : start + len(lines)]
        start += len(lines)
        texts = ["\n".join(line.text for line in of_text)]
        for rank in range(1, n_best):
            texts.append("\n".join(line.n_best[rank].text for line in of_text))
        answers.append(list(dict.fromkeys(texts)))
    return answers


def _answer(body: TranslateText, answers: Sequence[list[str]], source: str) -> dict[str, object]:
    single = isinstance(body.q, str)
    texts, alternatives = [text for text, *_ in answers], [more for _, *more in answers]
    answer: dict[str, object] = {"translatedText": texts[0] if single else texts}
    if body.source == AUTO and "source" in body.model_fields_set:
        detected = {"confidence": 100, "language": source}
        answer["detectedLanguage"] = detected if single else [detected] * len(texts)
    if body.alternatives:
        answer["alternatives"] = alternatives[0] if single else alternatives
    return answer
