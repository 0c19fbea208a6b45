"""API with all that the translator offers: tokens, scores, n-best lists, attention, settings."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, create_model

from seq2seq.config.fields import within
from seq2seq.config.search_options import (
    SERVED,
    CallOptions,
    Item,
    Kind,
    Sampling,
    conflict_in,
    item_of,
    kind_of,
    option_of,
    plain_options,
)
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translation import Translation, translation_as_json
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.file_types import DocumentFormat
from seq2seq.runtime.files import json_text
from seq2seq.text.documents import SourceDocument
from seq2seq.text.glossary import Glossary
from seq2seq.tools.serving import service as requests
from seq2seq.tools.serving.access import RESPONSES
from seq2seq.tools.serving.service import JSON, Items, LanguagePair, Service, Texts
from seq2seq.tools.serving.translation_queue import QueuedLine, Search

Hypotheses = Annotated[int, within(SERVED)]


def _setting(name: str, default: Any) -> Any:
    return Field(default, description=option_of(item_of(CallOptions, name)).description)


def _served(kind: Kind) -> list[Item]:
    """Return the plain options of search that a request may have."""
    return [item for item in plain_options(kind) if option_of(item).served is not None]


def _declared(item: Item) -> tuple[Any, Any]:
    """Return the type of a field of a request, and its default and description."""
    bounds = option_of(item).served
    kind = kind_of(item)
    bounded = Annotated[kind, within(bounds)] if bounds else kind
    described = Field(item.default, description=option_of(item).description)
    return bounded if item.type is kind else bounded | None, described


_sampling_fields: dict[str, Any] = {item.name: _declared(item) for item in _served(Sampling)}
_SamplingRequest = create_model(
    "SamplingRequest",
    __config__={"extra": "forbid"},
    __doc__="Draw translations at random in place of beam search.",
    **_sampling_fields,
)


class RequestedLines(BaseModel, extra="forbid"):
    """Lines to translate, and their requirements."""

    text: Texts = Field(description="a line, or several; no line breaks, unless they have a format")
    format: DocumentFormat | None = Field(None, description=f"{requests.FORMAT}; each a document")
    source: str | None = Field(None, description="code of the source language")
    target: str | None = Field(None, description="code of the target language")
    beam_size: Hypotheses | None = Field(None, description="1 is greedy; null: that of the run")
    n_best: Hypotheses | None = Field(None, description="hypotheses to return, up to the beam size")
    attention: bool = Field(True, description="return the attention weights")
    prefix: Texts | None = Field(None, description="start of all translations, or a list for each")
    constraints: Items[Items[str]] | None = Field(None, description="phrases for each translation")
    glossary: Items[tuple[str, str]] | None = _setting("glossary", None)
    forbidden: Items[str] = _setting("forbidden", [])


_search_fields: dict[str, Any] = {
    "sampling": (_SamplingRequest | None, _setting("sampling", None)),
    **{item.name: _declared(item) for item in _served(CallOptions)},
}
TranslateLines = create_model(
    "TranslateLines",
    __base__=RequestedLines,
    __doc__="Lines to translate, and how; every field but `text` may be omitted.",
    **_search_fields,
)


class HypothesisEntry(BaseModel):
    """Hypothesis of an n-best list."""

    text: str = Field(description="detokenised text")
    score: float = Field(description="log-probability, nats / length ** length_penalty")
    tokens: list[str] = Field(description="T tokens, end-of-sentence included")
    log_probs: list[float] = Field(description="one per token, nats")


class LineTranslation(BaseModel):
    """Translation of a line: the same object as `seq2seq translate --json` prints."""

    text: str = Field(description="detokenised text")
    score: float = Field(description="log-probability, nats / length ** length_penalty")
    src_tokens: list[str] = Field(description="S tokens, end-of-sentence included")
    tgt_tokens: list[str] = Field(description="T tokens, end-of-sentence included")
    log_probs: list[float] = Field(description="one per target token, nats")
    attention_weights: list[list[float]] | None = Field(description="T rows of S weights")
    attention_blocks: list[list[list[float]]] = Field([], description="weights of a line in parts")
    n_best: list[HypothesisEntry] = Field([], description="best first, if the request has n_best")


class Translations(BaseModel):
    """Answer: one translation per line, and notes on lines that were not translated as usual."""

    source: str = Field(description="code of the source language")
    target: str = Field(description="code of the target language")
    translations: list[LineTranslation] = Field(description="one for each line of the request")
    notes: list[list[str]] = Field(description="for each line, such as that it was split")
    documents: list[str] = Field(description="translated texts, if the request has a format")


def router(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["v1"])
    described = requests.described_body("/v1/translate", TranslateLines)

    @routes.post(
        "/translate", response_model=Translations, responses=RESPONSES, openapi_extra=described
    )
    async def translate(request: Request) -> Response:
        """Translate lines, with tokens, scores, attention weights and search settings."""
        client = service.access.client(request)
        body = await service.read_json(request, TranslateLines)
        texts = requests.text_list(body.text)
        documents = list[SourceDocument]()
        if body.format is not None:
            size = sum(map(len, texts))
            read = requests.read_documents
            documents = await service.work(request, size, read, texts, body.format)
            texts = [line for document in documents for line in document.lines]
        lines = _lines(texts, body)
        pair = service.pairs.find(body.source, body.target, "\n".join(texts))
        terms = sum(len(src) + len(tgt) for src, tgt in body.glossary or ())
        size = terms + sum(map(len, body.forbidden))
        settings = await service.work(request, size, _settings, service.settings, body)
        n_best = body.n_best or 1
        is_constrained = body.constraints is not None
        translator = service.pairs[pair]
        search = Search(translator, body.beam_size, n_best, False, is_constrained, settings)
        service.check_size(client, search, lines, size)
        service.queue.check_room(len(lines), requests.sharer_of(request))
        # The queue numbers lines within a batch, so that they are checked before.
        size += requests.work_of(lines)
        lines = await service.work(request, size, search.prepare, lines)
        translations = await service.translate(request, search, lines)
        answered = size * n_best
        text = await service.work(request, answered, _answer, pair, translations, body, documents)
        return Response(text, media_type=JSON)

    return routes


def _lines(texts: Sequence[str], body: RequestedLines) -> list[QueuedLine]:
    """Return the lines with what their translations must have; raises UserError."""
    texts = [text.removesuffix("\r") for text in texts]  # as lines of files are read
    if any("\n" in text for text in texts):
        raise UserError("text: contains a line break; give a list with one line each")
    prefixes = body.prefix if isinstance(body.prefix, list) else [body.prefix or ""] * len(texts)
    phrases = [[] for _ in texts] if body.constraints is None else body.constraints
    for name, entries in (("prefix", prefixes), ("constraints", phrases)):
        if len(entries) != len(texts):
            raise UserError(f"{name}: {len(entries)} for {len(texts)} lines; give one per line")
    return list(map(QueuedLine, texts, prefixes, phrases))


def _settings(served: SearchSettings, body: RequestedLines) -> SearchSettings:
    """Return the settings of a request, with those of the server; raises UserError."""
    given = body.model_dump(include=set(_search_fields))
    if given["sampling"] is not None:
        given["sampling"] = Sampling(**given["sampling"])
    glossary = None if body.glossary is None else Glossary(body.glossary)
    settings = SearchSettings(glossary, (*served.forbidden, *body.forbidden), **given)
    if served.glossary is None or conflict_in(settings, glossary=served.glossary):
        return settings
    terms = dict(glossary.terms() if glossary else ())
    return replace(settings, glossary=Glossary(dict(served.glossary.terms()) | terms))


def _answer(
    pair: LanguagePair,
    translations: Sequence[Translation],
    body: RequestedLines,
    documents: Sequence[SourceDocument],
) -> str:
    """Format the answer with the objects that `seq2seq translate --json` prints."""
    nbest = body.n_best is not None
    objects = ", ".join(translation_as_json(line, nbest, body.attention) for line in translations)
    head = json_text({"source": pair.src, "target": pair.tgt})
    tail = {
        "notes": [translation.notes for translation in translations],
        "documents": [
            text for text, *_ in requests.translated_documents(documents, translations, pair.tgt)
        ],
    }
    return f'{head[:-1]}, "translations": [{objects}], {json_text(tail)[1:]}'
