"""API in the shape of LibreTranslate, so that its clients work."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from seq2seq.inference.translation import Translation
from seq2seq.serving.errors import RESPONSES, ErrorMessage, parsed_json
from seq2seq.serving.language_pairs import AUTO
from seq2seq.serving.service import Service, Texts, text_list
from seq2seq.serving.translation_queue import QueuedLine, Search

_FORM = "application/x-www-form-urlencoded"


class TranslateText(BaseModel):
    """Text to translate. Unknown fields, such as those of other servers, are ignored."""

    q: Texts = Field(description="a text, or several; each of its lines is translated")
    source: str = Field(AUTO, description='code of the source language; "auto": the only one')
    target: str = Field(description="code of the target language")
    format: Literal["text"] = Field("text", description="plain text is all that is supported")
    alternatives: Annotated[int, Field(ge=0, le=100)] = Field(
        0, description="further translations; at most one less than the beam size"
    )
    api_key: str | None = Field(None, description="token, unless the Authorization header has it")


class TranslatedText(BaseModel):
    """Translation of each text, and its alternatives if the request asked for any."""

    # The names are LibreTranslate's.
    translatedText: str | list[str] = Field(description="a text for a text, a list for a list")
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
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": TranslateText.model_json_schema()}
            for kind in ("application/json", _FORM)
        },
    }
}


def router(service: Service) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["LibreTranslate"])

    @routes.post(
        "/translate", response_model=TranslatedText, responses=RESPONSES, openapi_extra=_BODY
    )
    async def translate(request: Request) -> Response:
        """Translate texts line by line."""
        body = TranslateText.model_validate(await _read(request))
        service.access.check_token(request, body.api_key)
        split = [_lines(text) for text in text_list(body.q)]
        lines = [line for text in split for line in text]
        service.check_size(lines)
        search = _search(service, body)
        queued = [QueuedLine(line) for line in lines]
        translations = await service.translate(request, search, queued)
        answers = _joined(split, translations, search.n_best)
        return JSONResponse(_answer(body, answers))

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


async def _read(request: Request) -> object:
    """Return the fields of a JSON or form body; raises HTTPException."""
    body = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == _FORM:
        try:
            form = parse_qs(
                body.decode(), keep_blank_values=True, errors="strict", max_num_fields=2_000
            )
        except ValueError:
            raise HTTPException(400, "the form is not valid UTF-8 or has too many fields") from None
        return {name: values if len(values) > 1 else values[0] for name, values in form.items()}
    if kind not in ("", "application/json"):
        raise HTTPException(415, f"{kind}: send application/json or {_FORM}")
    return parsed_json(body)


def _search(service: Service, body: TranslateText) -> Search:
    """Return the search of a request: alternatives must not change the translation itself."""
    pair = service.pairs.find(body.source, body.target)
    translator = service.pairs[pair]
    n_best = min(1 + body.alternatives, translator.decoding.beam_size)
    return Search(str(pair), translator, n_best=n_best, text_only=n_best == 1)


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


def _answer(body: TranslateText, answers: Sequence[list[str]]) -> dict[str, object]:
    single = isinstance(body.q, str)
    texts, alternatives = [text for text, *_ in answers], [more for _, *more in answers]
    answer: dict[str, object] = {"translatedText": texts[0] if single else texts}
    if body.alternatives:
        answer["alternatives"] = alternatives[0] if single else alternatives
    return answer
