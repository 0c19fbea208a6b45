"""Handling of requests in both APIs: bodies, limits, the queue, disconnected clients."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar

from fastapi import HTTPException, Request
from pydantic import BaseModel, FailFast, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

from seq2seq.inference.documents import SourceDocument
from seq2seq.inference.settings import DEFAULT_SETTINGS, SearchSettings
from seq2seq.inference.translation import Translation
from seq2seq.serving.access import Access, Client, Limits
from seq2seq.serving.errors import DisconnectedError, LimitError
from seq2seq.serving.language_pairs import LanguagePairs
from seq2seq.serving.metrics import Metrics
from seq2seq.serving.translation_queue import QueuedLine, QueueFullError, Search, TranslationQueue

JSON = "application/json"
Body = TypeVar("Body", bound=BaseModel)
Item = TypeVar("Item")


class _First(FailFast):
    """Validation that ends with the first wrong item; hashable, as parts of unions have to be."""

    __hash__ = object.__hash__


Items = Annotated[list[Item], _First()]


def _checked(value: object, validate: Callable[[object], str | list[str]]) -> str | list[str]:
    """Raise one error in place of one for each type."""
    try:
        return validate(value)
    except ValidationError:
        raise PydanticCustomError("texts", "must be a string or a list of strings") from None


Format = Literal["text", "html", "srt", "vtt"]
FORMAT = "of the texts; the markup of HTML and the times of subtitles stay"
Texts = Annotated[str | Items[str], WrapValidator(_checked)]


def text_list(texts: str | list[str]) -> list[str]:
    """Return the texts of a field as a list."""
    return [texts] if isinstance(texts, str) else texts


def read_documents(texts: Sequence[str], format: Format) -> list[SourceDocument]:
    """Return the texts of a request as documents, whose lines are translated."""
    return [SourceDocument(text, format) for text in texts]


def translated_documents(
    documents: Sequence[SourceDocument], translations: Sequence[Translation], n_best: int = 1
) -> list[list[str]]:
    """Return for each document its translation, then different ones of other ranks."""
    remaining, answers = iter(translations), []
    for document in documents:
        of_document = list(islice(remaining, len(document.lines)))
        texts = [document.translated(of_document, rank) for rank in range(n_best)]
        answers.append(list(dict.fromkeys(texts)))
    return answers


def described_body(path: str, model: type[BaseModel], *kinds: str) -> dict[str, Any]:
    """Return the part of the API's description that describes the body of a POST request."""
    place = f"#/paths/{path.replace('/', '~1')}/post/requestBody/content/application~1json/schema"
    schema = model.model_json_schema(ref_template=f"{place}/$defs/{{model}}")
    content = {kind: {"schema": schema} for kind in (JSON, *kinds)}
    return {"requestBody": {"required": True, "content": content}}


def kind_of(request: Request) -> str:
    """Return the type of a body, JSON if the request names none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() or JSON


async def read_json(request: Request, model: type[Body]) -> Body:
    """Return the fields of a JSON body; raises HTTPException and ValidationError."""
    if kind_of(request) != JSON:
        raise HTTPException(415, f"{kind_of(request)}: send {JSON}")
    body = (await request.body()).removeprefix(b"\xef\xbb\xbf")
    # The event loop does no work that grows with the request: others wait for it.
    return await asyncio.to_thread(model.model_validate_json, body)


@dataclass(frozen=True)
class Service:
    """Translators, their queue, and what is allowed."""

    pairs: LanguagePairs
    queue: TranslationQueue
    limits: Limits
    access: Access
    metrics: Metrics
    settings: SearchSettings = DEFAULT_SETTINGS  # that hold for all requests

    def check_size(
        self, client: Client, search: Search, lines: Sequence[QueuedLine], phrases: int = 0
    ) -> None:
        """Raise LimitError for too many lines, or characters in lines or in `phrases` for all.

        A search that costs more counts as if it had more characters.
        """
        written = sum(line.characters for line in lines)
        counted = max(round(written * search.weight), phrases)
        texts = f"{max(written, phrases):,} characters"
        if counted > max(written, phrases):
            texts += f" that count as {counted:,}, by the number of hypotheses"
        for count, most, text, unit in (
            (len(lines), self.limits.lines, f"{len(lines):,} lines", "lines"),
            (counted, self.limits.characters, texts, "characters"),
        ):
            if count > most:
                self.metrics.refused.labels("limit").inc()
                raise LimitError(f"{text}: the limit is {most:,} {unit} per request")
        client.spend(counted)

    async def translate(
        self, request: Request, search: Search, lines: Sequence[QueuedLine]
    ) -> list[Translation]:
        """Return translations; if the client disconnects before, drop its lines.

        Raises what `TranslationQueue.translate` raises.
        """
        answer = asyncio.ensure_future(self.queue.translate(search, lines, self.limits.seconds))
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            self.metrics.refused.labels("disconnected").inc()
            raise DisconnectedError
        except QueueFullError:
            self.metrics.refused.labels("queue").inc()
            raise
        except TimeoutError:
            self.metrics.refused.labels("timeout").inc()
            raise
        finally:
            answer.cancel()
            gone.cancel()


async def _disconnected(request: Request) -> None:
    """Wait until the client disconnects; its body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
