"""API with all that the translator offers: tokens, scores, n-best lists, attention, settings."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from seq2seq.engines.engine import Sampling
from seq2seq.inference.descriptions import DESCRIPTIONS
from seq2seq.inference.nbest import Metric
from seq2seq.inference.settings import DEFAULT_SETTINGS, SearchSettings, refuse_together
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

Hypotheses = Annotated[int, Field(ge=1, le=100)]  # each multiplies the cost of a line


def _setting(name: str, default: Any) -> Any:
    return Field(default, description=DESCRIPTIONS[name])


class SamplingRequest(BaseModel, extra="forbid"):
    """Draw translations at random in place of beam search."""

    samples: Hypotheses = _setting("samples", 1)
    temperature: float = _setting("temperature", 1.0)
    top_k: int = _setting("top_k", 0)
    top_p: float = _setting("top_p", 1.0)
    seed: int = _setting("seed", 1)


class TranslateLines(BaseModel, extra="forbid"):
    """Lines to translate, and how; every field but `text` may be omitted."""

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
    sampling: SamplingRequest | None = _setting("sampling", None)
    groups: Hypotheses = _setting("groups", DEFAULT_SETTINGS.groups)
    diversity: float = _setting("diversity", DEFAULT_SETTINGS.diversity)
    mbr: Metric | None = _setting("mbr", None)


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
        texts, documents = requests.text_list(body.text), list[SourceDocument]()
        if body.format is not None:
            documents = await asyncio.to_thread(requests.read_documents, texts, body.format)
            texts = [line for document in documents for line in document.lines]
        lines = _lines(texts, body)
        pair = service.pairs.find(body.source, body.target, "\n".join(texts))
        settings = await asyncio.to_thread(_settings, service.settings, body)
        n_best, text_only, constrained = body.n_best or 1, False, body.constraints is not None
        model, beam_size = service.pairs[pair], body.beam_size
        search = Search(model, beam_size, n_best, text_only, constrained, settings)
        terms = sum(len(src) + len(tgt) for src, tgt in body.glossary or ())
        service.check_size(client, search, lines, terms + sum(map(len, body.forbidden)))
        # The queue numbers lines within a batch, so that they are checked before.
        lines = await asyncio.to_thread(search.prepare, lines)
        translations = await service.translate(request, search, lines)
        text = await asyncio.to_thread(_answer, pair, translations, body, documents)
        return Response(text, media_type=JSON)

    return routes


def _lines(texts: Sequence[str], body: TranslateLines) -> list[QueuedLine]:
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


def _settings(served: SearchSettings, body: TranslateLines) -> SearchSettings:
    """Return the settings of a request, with those of the server; raises UserError."""
    sampling = None if body.sampling is None else Sampling(**body.sampling.model_dump())
    if sampling is not None:
        refuse_together("beam_size", sampling=body.beam_size)
    glossary = None if body.glossary is None else Glossary(body.glossary)
    if served.glossary and sampling is None and body.groups == 1:  # which cannot be constrained
        terms = dict(glossary.terms() if glossary else ())
        glossary = Glossary(dict(served.glossary.terms()) | terms)
    forbidden = (*served.forbidden, *body.forbidden)
    more = body.model_dump(include={"groups", "diversity", "mbr"})
    return SearchSettings(glossary, forbidden, sampling, **more)


def _answer(
    pair: LanguagePair,
    translations: Sequence[Translation],
    body: TranslateLines,
    documents: Sequence[SourceDocument],
) -> str:
    """Format the answer with the objects that `seq2seq translate --json` prints."""
    nbest = body.n_best is not None
    objects = ", ".join(translation_as_json(line, nbest, body.attention) for line in translations)
    head = json_text({"source": pair.src, "target": pair.tgt})
    tail = {
        "notes": [translation.notes for translation in translations],
        "documents": [text for text, *_ in requests.translated_documents(documents, translations)],
    }
    return f'{head[:-1]}, "translations": [{objects}], {json_text(tail)[1:]}'
