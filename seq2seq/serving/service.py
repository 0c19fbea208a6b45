"""Handling of requests in both APIs: fields of texts, limits, the queue, disconnected clients."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Request
from pydantic import ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

from seq2seq.inference.translation import Translation
from seq2seq.serving.access import Access, Limits
from seq2seq.serving.errors import DisconnectedError, LimitError
from seq2seq.serving.language_pairs import LanguagePairs
from seq2seq.serving.metrics import Metrics
from seq2seq.serving.translation_queue import QueuedLine, QueueFullError, Search, TranslationQueue


def _checked(value: object, validate: Callable[[object], str | list[str]]) -> str | list[str]:
    """Raise one error in place of one for each type."""
    try:
        return validate(value)
    except ValidationError:
        raise PydanticCustomError("texts", "must be a string or a list of strings") from None


Texts = Annotated[str | list[str], WrapValidator(_checked)]


def text_list(texts: str | list[str]) -> list[str]:
    """Return the texts of a field as a list."""
    return [texts] if isinstance(texts, str) else texts


@dataclass(frozen=True)
class Service:
    """Translators, their queue, and what is allowed."""

    pairs: LanguagePairs
    queue: TranslationQueue
    limits: Limits
    access: Access
    metrics: Metrics

    def check_size(self, texts: Sequence[str]) -> None:
        """Raise LimitError for too many lines or characters."""
        characters = sum(map(len, texts))
        for count, most, unit in (
            (len(texts), self.limits.lines, "lines"),
            (characters, self.limits.characters, "characters"),
        ):
            if count > most:
                self.metrics.refused.labels("limit").inc()
                raise LimitError(f"{count:,} {unit}: the limit is {most:,} {unit} per request")

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
