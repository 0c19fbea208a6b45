"""Handling of requests in both APIs: languages, bodies, limits, the queue, disconnected clients."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from typing import Annotated, Any, NamedTuple, TypeVar

from fastapi import HTTPException, Request
from pydantic import BaseModel, Field, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError
from starlette.requests import ClientDisconnect

from seq2seq.data import languages
from seq2seq.inference.loaded_model import DEFAULT_OPTIONS, ModelOptions
from seq2seq.inference.loaders.load import languages_of
from seq2seq.inference.settings import DEFAULT_SETTINGS, SearchSettings
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.file_types import DocumentFormat
from seq2seq.text.documents import SourceDocument
from seq2seq.text.line_properties import scripts_of
from seq2seq.text.source_profile import SourceProfile
from seq2seq.tools.serving.access import Access
from seq2seq.tools.serving.limits import Client, Limits
from seq2seq.tools.serving.translation_queue import QueuedLine, Search, TranslationQueue

AUTO = "auto"  # LibreTranslate's code for an unknown source language
JSON = "application/json"
_SMALL = 1 << 10  # characters or bytes of a request that the event loop reads itself
# functions whose results are compared, the closest comparison first
_CODE_FORMS: tuple[Callable[[str], object], ...] = (str, languages.folded, languages.language)
_GONE = 499, "the client has disconnected"  # as of nginx; no answer is sent
Body = TypeVar("Body", bound=BaseModel)
Item = TypeVar("Item")


class LanguagePair(NamedTuple):
    """Codes of a source and a target language, as `data.src_lang` and `data.tgt_lang` have them."""

    src: str
    tgt: str

    def __str__(self) -> str:
        return f"{self.src}-{self.tgt}"


class LanguagePairs(dict[LanguagePair, Translator]):
    """Translators by pairs of languages, each once, as runs are given; the first is the default."""

    def find(self, src: str | None, tgt: str | None, text: str = "") -> LanguagePair:
        """Return the pair that a request names.

        An omitted code fits any language, as does "auto" for the source. Codes fit by case, else in
        any case, else without region (en-US) or in three letters (eng); of two pairs, the one with
        the closer codes fits. Of pairs for an unknown source, those of the script of the text fit.
        Raises UserError if none fits, or several do.
        """
        src = None if src == AUTO else src
        codes = (("from", src), ("to", tgt))
        languages = " ".join(f"{word} {code}" for word, code in codes if code is not None)
        distances = {pair: (_distance(src, pair.src), _distance(tgt, pair.tgt)) for pair in self}
        least = min((max(pair), sum(pair)) for pair in distances.values())
        if least[0] == len(_CODE_FORMS):
            raise UserError(f"source, target: no model translates {languages}; there is {self}")
        fitting = [key for key, pair in distances.items() if (max(pair), sum(pair)) == least]
        if len(fitting) > 1 and src is None and languages and text:
            sources = self.detected(text)
            fitting = [pair for pair in fitting if pair.src in sources] or fitting
        if len(fitting) > 1 and languages:
            several = ", ".join(map(str, fitting))
            remedy = "name both languages" if None in (src, tgt) else "use the codes of one of them"
            raise UserError(f"source, target: {several} fit; {remedy}")
        return fitting[0]

    def confidences(self, text: str) -> dict[str, float]:
        """Return how likely a text has the languages of its script that the models know.

        Each word that the training text has on one side alone counts for the language of that side.
        One is added for each language, and one for all others, as few words show little.
        """
        scripts = set(scripts_of(text))
        counts: dict[str, int] = {}
        for pair, translator in self.items():
            profile = translator.source
            words = profile.words_by_side(text)
            for code, known, count in zip(pair, _scripts_by_side(profile), words, strict=True):
                if not (known and scripts) or scripts & known:
                    counts[code] = max(counts.get(code, 1), 1 + count)
        total = sum(counts.values()) + 1
        sorted_codes = sorted(counts, key=counts.__getitem__, reverse=True)
        return {code: counts[code] / total for code in sorted_codes}

    def detected(self, text: str) -> list[str]:
        """Return the codes of the languages that a text may have, by the script of its letters."""
        scripts = Counter(scripts_of(text))
        script = max(scripts, key=scripts.__getitem__, default=None)
        read: dict[str, list[str]] = {}
        for pair, translator in self.items():
            read.setdefault(pair.src, []).extend(translator.source.scripts)
        fitting = [code for code, known in read.items() if not known or script in known]
        return fitting if fitting and script else list(read)

    def __str__(self) -> str:
        return ", ".join(map(str, self))


def _distance(requested: str | None, code: str) -> int:
    """Return the index of the first form in which two codes are equal, len(_CODE_FORMS) if none.

    No requested code is equal to any.
    """
    for distance, form in enumerate(_CODE_FORMS):
        if requested is None or form(requested) == form(code):
            return distance
    return len(_CODE_FORMS)


def _scripts_by_side(profile: SourceProfile) -> tuple[set[str], set[str]]:
    """Return the scripts of the source and of the target."""
    written = (scripts_of(2 * character) for character in profile.tgt_characters)
    return set(profile.scripts), set().union(*written)


def load_pairs(runs: Sequence[str], options: ModelOptions = DEFAULT_OPTIONS) -> LanguagePairs:
    """Load the translator of each run; raises UserError if two translate the same languages."""
    places: dict[LanguagePair, str] = {}
    for run in runs:
        pair = LanguagePair(*languages_of(run))
        if pair in places:
            text = f"translates {pair.src} to {pair.tgt}, as {places[pair]} does"
            raise UserError(f"{run}: {text}, and a request names languages only; serve one of them")
        places[pair] = run
    return LanguagePairs({key: Translator.load_with([run], options) for key, run in places.items()})


Items = Annotated[list[Item], Field(fail_fast=True)]


def _checked(value: object, validate: Callable[[object], str | list[str]]) -> str | list[str]:
    """Raise one error in place of one for each type."""
    try:
        return validate(value)
    except ValidationError:
        raise PydanticCustomError("texts", "must be a string or a list of strings") from None


FORMAT = "of the texts; the markup of HTML and the times of subtitles stay"
Texts = Annotated[str | Items[str], WrapValidator(_checked)]


def text_list(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


def read_documents(texts: Sequence[str], format: DocumentFormat) -> list[SourceDocument]:
    """Return the texts of a request as documents, whose lines are translated."""
    return [SourceDocument(text, format) for text in texts]


def translated_documents(
    documents: Sequence[SourceDocument],
    translations: Sequence[Translation],
    language: str,
    n_best: int = 1,
) -> list[list[str]]:
    """Return each document in a language, then its different translations of other ranks."""
    remaining = iter(translations)
    answers = []
    for document in documents:
        own_translations = list(islice(remaining, len(document.lines)))
        texts = [document.translated(own_translations, rank, language) for rank in range(n_best)]
        different: dict[str, str] = {}  # by their characters but for spaces
        for text in texts:
            different.setdefault("".join(text.split()), text)
        answers.append(list(different.values()))
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


class Worker:
    """Thread for work that is no search and grows with a request; clients have it in turn."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "requests")
        self._turns: dict[Hashable, asyncio.Lock] = {}
        self._users: Counter[Hashable] = Counter()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)

    async def run(self, request: Request, call: Callable[..., Item], *arguments: Any) -> Item:
        """Return what a call returns, which the event loop does not wait for.

        Raises HTTPException if the client of the request has left before its turn.
        """
        client = sharer_of(request)
        turn = self._turns.setdefault(client, asyncio.Lock())
        self._users[client] += 1
        try:
            async with turn:
                if await request.is_disconnected():
                    raise HTTPException(*_GONE)
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._thread, partial(call, *arguments))
        finally:
            self._users[client] -= 1
            if not self._users[client]:
                del self._users[client], self._turns[client]


@dataclass(frozen=True)
class Service:
    """Translators, their queue, and what is allowed."""

    pairs: LanguagePairs
    queue: TranslationQueue
    limits: Limits
    access: Access
    settings: SearchSettings = DEFAULT_SETTINGS  # that hold for all requests
    worker: Worker = field(default_factory=Worker)
    _arriving: set[asyncio.Timeout] = field(default_factory=set)  # limits of bodies

    @cached_property
    def _names(self) -> dict[Translator, str]:
        """Return the pair of languages of each translator."""
        return {translator: str(pair) for pair, translator in self.pairs.items()}

    def stop_waiting(self, seconds: float) -> None:
        """Wait for the bodies that are arriving for some seconds more at most."""
        latest = asyncio.get_running_loop().time() + seconds
        for limit in self._arriving:
            if not limit.expired():
                limit.reschedule(min(limit.when() or latest, latest))

    async def work(
        self, request: Request, size: int, call: Callable[..., Item], *arguments: Any
    ) -> Item:
        """Do work that grows with the size of a request, while the event loop serves others.

        Little of it is done at once: a small request need not wait for large ones.
        """
        if size <= _SMALL:
            return call(*arguments)
        return await self.worker.run(request, call, *arguments)

    async def read_json(self, request: Request, model: type[Body], *others: str) -> Body:
        """Return the fields of a JSON body; raises HTTPException and ValidationError."""
        if (kind := kind_of(request)) != JSON:
            raise HTTPException(415, f"{kind}: send {' or '.join((JSON, *others))}")
        body = (await self.body(request)).removeprefix(b"\xef\xbb\xbf")
        return await self.work(request, len(body), model.model_validate_json, body)

    async def body(self, request: Request) -> bytes:
        """Return a body; raises HTTPException as `receive` does."""
        body = bytearray()

        async def take(part: bytes) -> None:
            body.extend(part)

        await self.receive(request, take)
        return bytes(body)

    async def receive(self, request: Request, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Pass a body on as it arrives; raises HTTPException if it is too large or too slow."""
        max_bytes = self.limits.body_bytes
        too_large = HTTPException(413, f"the body is larger than {max_bytes:,} bytes; send less")
        length = request.headers.get("content-length", "0")
        received = 0
        if length.isdigit() and int(length) > max_bytes:
            raise too_large
        arrival = asyncio.timeout(self.limits.seconds)
        self._arriving.add(arrival)
        try:
            async with arrival:
                async for part in request.stream():
                    received += len(part)
                    if received > max_bytes:
                        raise too_large
                    await take(part)
        except TimeoutError:
            raise HTTPException(408, "the request arrives too slowly") from None
        except ClientDisconnect:
            raise HTTPException(*_GONE) from None
        finally:
            self._arriving.discard(arrival)

    def check_size(
        self, client: Client, search: Search, lines: Sequence[QueuedLine], phrases: int = 0
    ) -> None:
        """Raise HTTPException for too many lines or characters; dearer searches have more."""
        written = max(sum(line.characters for line in lines), phrases)
        counted = max(round(work_of(lines) * search.weight), phrases)
        limits = self.limits
        if len(lines) > limits.lines:
            limit = f"the limit is {limits.lines:,} lines per request"
            raise HTTPException(413, f"{len(lines):,} lines: {limit}")
        if counted > limits.characters:
            text = f"{written:,} characters"
            if counted > written:
                text += f" that count as {counted:,}, by the numbers of lines and hypotheses"
            limit = f"the limit is {limits.characters:,} characters per request"
            raise HTTPException(413, f"{text}: {limit}")
        client.spend(counted)

    async def translate(
        self, request: Request, search: Search, lines: Sequence[QueuedLine]
    ) -> list[Translation]:
        """Return translations, as the queue does; if the client disconnects, drop its lines."""
        request.state.pair = self._names[search.translator]
        request.state.lines = len(lines)
        characters = sum(len(line.text) for line in lines)
        request.state.characters = characters
        lines = await self.work(request, characters, search.with_tokens, lines)
        waiting = self.queue.translate(search, lines, self.limits.seconds, sharer_of(request))
        answer = asyncio.ensure_future(waiting)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            raise HTTPException(*_GONE)
        finally:
            answer.cancel()
            gone.cancel()


def work_of(lines: Sequence[QueuedLine]) -> int:
    """Return the characters by which work on lines grows: many short lines are much work, too."""
    return sum(line.cost for line in lines)


def sharer_of(request: Request) -> Hashable:
    """Return who shares the server with others: the client of a token, or an address.

    Of IPv6 it is the network, as one machine has all of its addresses.
    """
    name: str | None = getattr(request.state, "client", None)
    if name is not None:
        return name
    host = request.client.host if request.client else ""
    return tuple(host.split(":")[:4]) if ":" in host else host


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
