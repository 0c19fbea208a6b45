"""Queue of requests: those that arrive together are translated as one batch.

Search is batch-invariant: a line has the translation that it has alone, in whatever batch.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, NamedTuple

from fastapi import HTTPException

from seq2seq.inference.line_preparation import PreparedLine, PreparedLines
from seq2seq.inference.settings import DEFAULT_SETTINGS, SearchSettings
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.runtime import cancellation, console
from seq2seq.runtime.errors import UserError

BATCH_LINES = 256  # lines per batch at most, by their weights
BATCH_CHARACTERS = 16_384  # likewise, so that a batch takes about a second
REQUEST_LINES = 16  # lines of a request in a batch that others want to join
CLIENT_CHARACTERS = 256  # of a client in a batch while another one waits
CONTESTED_CHARACTERS = 2_048  # of all clients in such a batch
TOKEN_CHARACTERS = 3  # that a token counts as: an unknown character is three tokens
LINE_CHARACTERS = 20  # that a line counts as at least: its search has steps and a beginning
_CONSTRAINED = 3  # times the work of a usual line
_SAMPLED = 2  # times the work of a hypothesis of beam search
_MBR_PAIRS = 50  # comparisons of hypotheses that cost as much as a usual line


class _AbandonedError(Exception):
    """All requests of a batch were cancelled while it was searched."""


class QueuedLine(NamedTuple):
    """Line to translate, with the prefix and the phrases that its translation must have."""

    text: str
    prefix: str = ""
    phrases: Sequence[str] = ()
    prepared: PreparedLine | None = None  # for search, once it has been checked
    tokens: int = 0  # of the text, once they have been counted

    @property
    def characters(self) -> int:
        """Return the number of characters of all that is required."""
        return len(self.text) + len(self.prefix) + sum(map(len, self.phrases))

    @property
    def cost(self) -> int:
        """Return the number of characters that the line counts as; a blank one is not searched."""
        if not self.text.strip():
            return self.characters
        return max(self.characters, LINE_CHARACTERS, TOKEN_CHARACTERS * self.tokens)


@dataclass(frozen=True)
class Search:
    """Model and settings of a request; requests with an equal search can share a batch."""

    translator: Translator  # equal to itself alone
    beam_size: int | None = None  # None: that of the config
    n_best: int = 1
    text_only: bool = field(default=True, compare=False)  # changes neither text nor tokens
    constrained: bool = False
    settings: SearchSettings = DEFAULT_SETTINGS

    @property
    def weight(self) -> float:
        """Return the cost of a line relative to one with the beam of the config.

        Groups are searched one after the other, MBR compares all hypotheses with each other, and a
        wider beam finds entries that an n-best list lacks.
        """
        usual = self.translator.decoding.beam_size
        sampling = self.settings.sampling
        hypotheses = (self.beam_size or usual) if sampling is None else sampling.samples
        times = 1 if sampling is None else _SAMPLED
        compared = hypotheses**2 / _MBR_PAIRS if self.settings.mbr is not None else 0.0
        searched = max(1.0, (times * hypotheses + 2 * (self.n_best - 1)) / usual)
        if self.constrained or self.settings.glossary is not None:
            searched *= _CONSTRAINED
        return max(searched, self.settings.groups) + compared

    def prepare(self, lines: Sequence[QueuedLine]) -> list[QueuedLine]:
        """Return the lines prepared; raises UserError for what is refused, with its line."""
        self.translator.search_size(self.beam_size, self.n_best, self.constrained, self.settings)
        requirements = self._requirements(lines)
        texts = [line.text for line in lines]
        prepared = self.translator.prepare(texts, **requirements, settings=self.settings)
        return [
            line._replace(prepared=prepared_line)
            for line, prepared_line in zip(lines, prepared, strict=True)
        ]

    def with_tokens(self, lines: Sequence[QueuedLine]) -> list[QueuedLine]:
        """Return the lines with the number of tokens of each, by which its search grows."""
        encoded = self.translator.vocabularies.src.encode([line.text for line in lines])
        return [line._replace(tokens=len(ids)) for line, ids in zip(lines, encoded, strict=True)]

    def arguments(self, lines: Sequence[QueuedLine]) -> dict[str, Any]:
        """Return the arguments by which the translator searches these lines."""
        return {
            "beam_size": self.beam_size,
            "n_best": self.n_best,
            "settings": self.settings,
            **self._requirements(lines),
        }

    def _requirements(self, lines: Sequence[QueuedLine]) -> dict[str, Any]:
        """Return prefixes and constraints of lines."""
        prefixes = [line.prefix for line in lines]
        return {
            "prefixes": prefixes if any(prefixes) else None,
            "constraints": [line.phrases for line in lines] if self.constrained else None,
        }


@dataclass(eq=False)
class _QueuedRequest:
    """Request in the queue: its lines that no batch has taken, and its translations so far."""

    search: Search
    lines: deque[QueuedLine]
    answer: "asyncio.Future[list[Translation]]"
    client: Hashable
    translations: list[Translation] = field(default_factory=list)


_Batch = dict[_QueuedRequest, list[QueuedLine]]  # lines of each request


class _Room:
    """Room that a batch still has; others wait for a contested one, in which each has few."""

    def __init__(self, weight: float, is_contested: bool) -> None:
        self._weight = weight
        self._is_contested = is_contested
        self._lines = float(BATCH_LINES)
        self._characters = float(CONTESTED_CHARACTERS if is_contested else BATCH_CHARACTERS)
        self.used: dict[Hashable, float] = {}  # characters by client

    def has(self, client: Hashable, characters: int) -> bool:
        """Return whether a batch takes one more line of a client: the first is always taken."""
        if not self._is_contested or not self.used:
            return self._lines > 0 and self._characters > 0
        cost = characters * self._weight
        has_share = self.used.get(client, 0) + cost <= CLIENT_CHARACTERS
        return self._lines > 0 and cost <= self._characters and has_share

    def take(self, client: Hashable, characters: int) -> None:
        """Count a line of a client."""
        cost = characters * self._weight
        self.used[client] = self.used.get(client, 0) + cost
        self._characters -= cost
        self._lines -= self._weight


class _Pace:
    """Time that a counted character usually takes.

    Characters are counted before a search, and those of some searches take several times as long as
    those of others: what a batch has cost is known after it.
    """

    def __init__(self) -> None:
        self._characters = 0.0  # of all batches, as is the time
        self._seconds = 0.0

    def usual_characters(self, characters: float, seconds: float) -> float:
        """Return the characters that usually take as long as these did."""
        self._characters += characters
        self._seconds += seconds
        return seconds * self._characters / self._seconds if self._seconds else characters


def _full() -> HTTPException:
    return HTTPException(503, "the queue is full; try again in 1 s", {"Retry-After": "1"})


class TranslationQueue:
    """Bounded queue in front of the thread that translates; all else is done by the event loop.

    Small requests are not held up by large ones: a batch has lines of all requests that can share
    it, and a request that needs further batches lets those of another search go first. The client
    that has used least is the next, and while others wait a batch has few lines of each.
    """

    def __init__(self, max_lines: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """Hold at most `max_lines` lines that are not yet translated; `clock` is in seconds."""
        self._max_lines = max_lines
        self._clock = clock
        self._pace = _Pace()
        self.waiting_lines = 0  # accepted and not yet translated
        self.translated_lines = 0
        self.is_open = True
        self._requests: list[_QueuedRequest] = []  # with lines that no batch has taken
        self._used: dict[Hashable, float] = {}  # characters of the clients that wait
        self._searched: frozenset[Hashable] = frozenset()  # clients of the present batch
        self._thread = ThreadPoolExecutor(1, "translation")
        self._work: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Translate what is left in the queue, then stop the thread."""
        self.is_open = False
        if self._work is not None:
            await self._work
        self._thread.shutdown()

    async def translate(
        self, search: Search, lines: Sequence[QueuedLine], timeout: float, client: Hashable = None
    ) -> list[Translation]:
        """Return the translations of lines, in order; what is cancelled leaves the queue.

        Raises HTTPException 503, TimeoutError after `timeout` seconds, or what the translator does.
        """
        if not lines:
            return []
        self._make_room(len(lines), client)
        answer = asyncio.get_running_loop().create_future()
        request = _QueuedRequest(search, deque(lines), answer, client)
        self._enter(client)
        self._requests.append(request)
        self.waiting_lines += len(lines)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._translate_all())
        try:
            async with asyncio.timeout(timeout):
                return await request.answer
        finally:
            self._drop(request)

    def check_room(self, lines: int, client: Hashable) -> None:
        """Raise HTTPException 503 for lines that the queue would refuse, before work on them."""
        is_full = self.waiting_lines + lines > self._max_lines
        if is_full and self._request_to_refuse(lines, client) is None:
            raise _full()

    def _make_room(self, lines: int, client: Hashable) -> None:
        """Refuse the requests of a client that waits with more lines, or raise 503.

        So one client that fills the queue keeps no other one from it.
        """
        while self.waiting_lines + lines > self._max_lines:
            refused = self._request_to_refuse(lines, client)
            if refused is None:
                raise _full()
            self._drop(refused)
            if not refused.answer.done():
                refused.answer.set_exception(_full())

    def _request_to_refuse(self, lines: int, client: Hashable) -> _QueuedRequest | None:
        """Return the last request of the client that waits with most lines.

        Return None if this client would have as many by further `lines`.
        """
        waiting_lines: Counter[Hashable] = Counter()
        for request in self._requests:
            waiting_lines[request.client] += len(request.lines)
        largest, most_lines = next(iter(waiting_lines.most_common(1)), (client, 0))
        if largest == client or waiting_lines[client] + lines >= most_lines:
            return None
        from_last = reversed(self._requests)
        return next(request for request in from_last if request.client == largest)

    def _enter(self, client: Hashable) -> None:
        """Let a client that did not wait be the next one, unless it has used much before.

        It gets CLIENT_CHARACTERS of credit before the one that has used least. Accounts of absent
        clients at or below that are forgotten: they would get as much if they came again.
        """
        queued = {request.client for request in self._requests}
        if client in queued:
            return
        others = (queued | self._searched) - {client}
        least = min((self._used[other] for other in others), default=0) - CLIENT_CHARACTERS
        self._used[client] = max(self._used.get(client, least), least)
        for other in self._used.keys() - others - {client}:
            if self._used[other] <= least or not others:
                del self._used[other]  # it would enter as a new client does

    def _drop(self, request: _QueuedRequest) -> None:
        """Remove a request that needs no more lines; no effect on a finished one."""
        if request in self._requests:
            self._requests.remove(request)
            self.waiting_lines -= len(request.lines)

    async def _translate_all(self) -> None:
        while self._requests:
            batch, characters = self._take()
            self._searched = frozenset(characters)
            start = self._clock()
            await self._translate(batch)
            self._count(characters, self._clock() - start)

    def _count(self, characters: Mapping[Hashable, float], seconds: float) -> None:
        """Count what the clients of a batch have used: its time, by their characters."""
        self._searched = frozenset()
        total = sum(characters.values())
        if total:  # not of blank lines alone
            pace = self._pace.usual_characters(total, seconds) / total
            for client, counted in characters.items():
                self._used[client] += pace * counted

    def _take(self) -> tuple[_Batch, dict[Hashable, float]]:
        """Take lines of the requests that can share a batch with the first one of the next client.

        Other requests go before the remaining lines of these. Return the characters of each
        client, too.
        """
        first = min(self._requests, key=lambda request: self._used[request.client])
        search = first.search
        batch: _Batch = {request: [] for request in self._requests if request.search == search}
        by_use = sorted(batch, key=lambda request: self._used[request.client])
        is_contested = len({request.client for request in self._requests}) > 1
        room = _Room(search.weight, is_contested)
        share = max(REQUEST_LINES, BATCH_LINES // len(batch))
        for max_lines in (share, BATCH_LINES):  # a share for everyone, then what fits
            for request in by_use:
                lines = batch[request]
                while request.lines and len(lines) < max_lines:
                    cost = request.lines[0].cost
                    if not room.has(request.client, cost):
                        break
                    lines.append(request.lines.popleft())
                    room.take(request.client, cost)
        batch = {request: lines for request, lines in batch.items() if lines}
        others = [request for request in self._requests if request not in batch]
        self._requests = others + [request for request in batch if request.lines]
        return batch, room.used

    async def _translate(self, batch: _Batch) -> None:
        """Translate a batch and answer its requests; one that fails does not fail the others."""
        call = asyncio.get_running_loop().run_in_executor(self._thread, self._search, batch)
        try:
            translations = iter(await call)
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, _AbandonedError):
                for request, lines in batch.items():
                    await self._translate({request: lines})
                return
            if not isinstance(error, UserError | _AbandonedError):
                console.logger.exception("a request could not be translated")
            for request, lines in batch.items():
                self.waiting_lines -= len(lines)
                self._drop(request)
                if not request.answer.done():  # cancelled, or timed out
                    request.answer.set_exception(error)
            return
        for request, lines in batch.items():
            self.waiting_lines -= len(lines)
            self.translated_lines += len(lines)
            request.translations += islice(translations, len(lines))
            if not (request.lines or request.answer.done()):
                request.answer.set_result(request.translations)

    def _search(self, batch: _Batch) -> list[Translation]:
        search = next(iter(batch)).search
        lines = list(chain(*batch.values()))

        def check() -> None:
            if all(request.answer.done() for request in batch):  # cancelled or refused
                raise _AbandonedError

        with cancellation.cancellable(check):
            return search.translator.translate(
                _prepared(search, lines) or [line.text for line in lines],
                text_only=all(request.search.text_only for request in batch),
                **search.arguments(lines),
            )


def _prepared(search: Search, lines: Sequence[QueuedLine]) -> PreparedLines:
    """Return the prepared lines of a batch, all of them if any was; none otherwise."""
    if not any(line.prepared for line in lines):
        return PreparedLines()
    missing = iter(search.prepare([line for line in lines if line.prepared is None]))
    prepared = (line.prepared or next(missing).prepared for line in lines)
    return PreparedLines(filter(None, prepared))
