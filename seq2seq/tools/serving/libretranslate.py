"""API in the shape of LibreTranslate, so that its clients work."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from seq2seq.data.languages import language_name
from seq2seq.runtime.file_types import DocumentFormat
from seq2seq.tools.serving import forms
from seq2seq.tools.serving import service as requests
from seq2seq.tools.serving.access import RESPONSES
from seq2seq.tools.serving.limits import Client
from seq2seq.tools.serving.service import AUTO, Body, Service
from seq2seq.tools.serving.translation_queue import QueuedLine, Search

_FORMS = forms.URLENCODED, forms.MULTIPART


class TranslateText(BaseModel):
    """Text to translate. Unknown fields, such as those of other servers, are ignored."""

    q: requests.Texts = Field(description="a text, or several; each of its lines is translated")
    source: str = Field(AUTO, description='code of the source language; "auto": the only one')
    target: str = Field(description="code of the target language")
    format: DocumentFormat = Field("text", description=requests.FORMAT)
    alternatives: Annotated[int, Field(ge=0, le=100)] = Field(
        0, description="further translations; at most one less than the beam size"
    )
    api_key: str | None = Field(None, description="token, unless the Authorization header has it")


class DetectText(BaseModel):
    """Text whose language is asked for."""

    q: str = Field(description="a text")
    api_key: str | None = Field(None, description="token, unless the Authorization header has it")


class Detected(BaseModel):
    """Language that a text may have, by its script and the words of the training texts."""

    confidence: int = Field(description="percent; never 100, and low for text of few such words")
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


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["LibreTranslate"])
    body = requests.described_body("/translate", TranslateText, *_FORMS)
    detecting = requests.described_body("/detect", DetectText, *_FORMS)

    @routes.post(
        "/translate", response_model=TranslatedText, responses=RESPONSES, openapi_extra=body
    )
    async def translate(request: Request) -> Response:
        """Translate texts line by line."""
        body, client = await _read(service, request, TranslateText)
        texts = requests.text_list(body.q)
        size = sum(map(len, texts))
        documents = await service.work(request, size, requests.read_documents, texts, body.format)
        pair = service.pairs.find(body.source, body.target, "\n".join(texts))
        translator = service.pairs[pair]
        # A beam of another size could change the translation itself.
        n_best = min(1 + body.alternatives, translator.decoding.beam_size)
        text_only = n_best == 1 and not any(document.has_inline_markup for document in documents)
        search = Search(translator, None, n_best, text_only, settings=service.settings)
        lines = [QueuedLine(line) for document in documents for line in document.lines]
        service.check_size(client, search, lines)
        translations = await service.translate(request, search, lines)
        join = partial(requests.translated_documents, language=pair.tgt, n_best=n_best)
        answered = n_best * max(size, requests.work_of(lines))
        answers = await service.work(request, answered, join, documents, translations)
        detected = await service.work(request, size, _detected, service, body, pair.src)
        return JSONResponse(_answer(body, answers, detected))

    @routes.post("/detect", responses=RESPONSES, openapi_extra=detecting)
    async def detect(request: Request) -> list[Detected]:
        """List the languages that a text may have, of those that the models read or write."""
        body, _ = await _read(service, request, DetectText)
        found = await service.work(request, len(body.q), service.pairs.confidences, body.q)
        return [Detected(confidence=round(100 * p), language=code) for code, p in found.items()]

    @routes.post("/languages", include_in_schema=False)  # by which older clients ask
    @routes.get("/languages")
    async def languages() -> list[Language]:
        """List the languages."""
        targets: dict[str, list[str]] = {code: [] for pair in service.pairs for code in pair}
        for src, tgt in service.pairs:
            targets[src].append(tgt)
        return [Language(code=c, name=language_name(c), targets=targets[c]) for c in targets]

    @routes.get("/frontend/settings", include_in_schema=False)  # for LibreTranslate's page
    async def settings() -> dict[str, object]:
        first = next(iter(service.pairs))
        names = {code: {"code": code, "name": language_name(code)} for code in first}
        return {
            "apiKeys": bool(service.access.clients),
            "keyRequired": bool(service.access.clients),
            "charLimit": service.limits.characters,
            "frontendTimeout": 500,  # ms
            "language": {"source": names[first.src], "target": names[first.tgt]},
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
        }

    @routes.get("/health", responses={503: RESPONSES[503]})
    async def health() -> dict[str, str | int]:
        """Return 200 while the server accepts requests, with its lines that wait or are done."""
        if not service.queue.is_open:
            raise HTTPException(503, "the server is shutting down")
        queue = service.queue
        return {
            "status": "ok",
            "waiting": queue.waiting_lines,
            "translated": queue.translated_lines,
        }

    return routes


async def _read(service: Service, request: Request, model: type[Body]) -> tuple[Body, Client]:
    """Return the fields of a JSON or form body, and the client of its token or the header's."""
    client = service.access.client(request) if "authorization" in request.headers else None
    match requests.kind_of(request):
        case forms.MULTIPART:
            header = request.headers["content-type"]
            form = await forms.read_multipart(header, partial(service.receive, request))
            body = model.model_validate(form)
        case forms.URLENCODED:
            content = await service.body(request)
            read = forms.read_urlencoded
            form = await service.work(request, len(content), read, content)
            body = model.model_validate(form)
        case _:
            body = await service.read_json(request, model, forms.URLENCODED)
    return body, client or service.access.client(request, getattr(body, "api_key", None))


def _detected(service: Service, body: TranslateText, source: str) -> list[dict[str, object]]:
    """Return for each text how likely it has the language from which it is translated."""
    if body.source != AUTO or "source" not in body.model_fields_set:
        return []
    found = map(service.pairs.confidences, requests.text_list(body.q))
    return [
        {"confidence": round(100 * known.get(source, 0)), "language": source} for known in found
    ]


def _answer(
    body: TranslateText, answers: Sequence[list[str]], detected: Sequence[dict[str, object]]
) -> dict[str, object]:
    single = isinstance(body.q, str)
    texts = [text for text, *_ in answers]
    alternatives = [more for _, *more in answers]
    answer: dict[str, object] = {"translatedText": texts[0] if single else texts}
    if detected:
        answer["detectedLanguage"] = detected[0] if single else detected
    if body.alternatives:
        answer["alternatives"] = alternatives[0] if single else alternatives
    return answer
