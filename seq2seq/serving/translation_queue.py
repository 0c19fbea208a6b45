"""Queue of requests: those that arrive together are translated as one batch on one thread.

Search is batch-invariant: a line has the translation that it has alone, in whatever batch.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastapi import HTTPException

from seq2seq.inference.settings import DEFAULT_SETTINGS, SearchSettings
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.runtime.cancellation import cancellable
from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import UserError

BATCH_LINES = 256  # lines per batch at most, by their weights
BATCH_CHARACTERS = 16_384  # likewise, so that a batch takes about a second
MIN_SHARE = 16  # lines of a request in a batch that others want to join


class _AbandonedError(Exception):
    """All requests of a batch were cancelled while it was searched."""


class QueuedLine(NamedTuple):
    """Line to translate, with the prefix and the phrases that its translation must have."""

    text: str
    prefix: str = ""
    phrases: Sequence[str] = ()

    @property
    def characters(self) -> int:
        """Return the number of characters of all that is required."""
        return len(self.text) + len(self.prefix) + sum(map(len, self.phrases))


@dataclass(frozen=True)
class Search:
    """Model and settings of a request; requests with an equal search can share a batch."""

    pair: str
    translator: Translator = field(compare=False)
    beam_size: int | None = None  # None: that of the config
    n_best: int = 1
    text_only: bool = field(default=True, compare=False)  # changes neither text nor tokens
    constrained: bool = False
    settings: SearchSettings = DEFAULT_SETTINGS

    @property
    def weight(self) -> float:
        """Return the cost of a line relative to one with the beam of the config."""
        usual, sampling = self.translator.decoding.beam_size, self.settings.sampling
        hypotheses = (self.beam_size or usual) if sampling is None else sampling.samples
        return max(1.0, hypotheses / usual)

    def check(self, lines: Sequence[QueuedLine]) -> None:
        """Raise UserError for what the translator refuses, with the number of its line."""
        self.translator.stream([line.text for line in lines], **self.arguments(lines))

    def arguments(self, lines: Sequence[QueuedLine]) -> dict[str, Any]:
        """Return the arguments by which the translator searches these lines."""
        prefixes = [line.prefix for line in lines]
        return {
            "beam_size": self.beam_size,
            "n_best": self.n_best,
            "prefixes": prefixes if any(prefixes) else None,
            "constraints": [line.phrases for line in lines] if self.constrained else None,
            "settings": self.settings,
        }


@dataclass(eq=False)
class _Waiting:
    """Request in the queue and its translations so far; `started` lines are or were in a batch."""

    search: Search
    lines: Sequence[QueuedLine]
    future: "asyncio.Future[list[Translation]]"
    started: int = 0
    translations: list[Translation] = field(default_factory=list)
    cancelled: bool = False

    @property
    def left(self) -> int:
        """Number of lines that no batch has taken."""
        return len(self.lines) - self.started


class _Share(NamedTuple):
    """Lines of one request in a batch."""

    waiting: _Waiting
    lines: Sequence[QueuedLine]


class TranslationQueue:
    """Bounded queue in front of the thread that translates.

    Small requests are not held up by large ones: a batch has lines of all requests that can share
    it, and a request that needs further batches lets those of another search go first.
    """

    def __init__(self, max_lines: int) -> None:
        """Hold at most `max_lines` lines that are not yet translated."""
        self._max_lines = max_lines
        self.waiting, self.translated = 0, 0  # lines accepted and not yet translated; translated
        self._requests: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="translation", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Translate what is left in the queue, then stop the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Return whether the thread takes requests."""
        return self._thread.is_alive() and not self._closing

    async def translate(
        self, search: Search, lines: Sequence[QueuedLine], timeout: float
    ) -> list[Translation]:
        """Return the translations of lines, in order; what is cancelled leaves the queue.

        Raises HTTPException 503, TimeoutError after `timeout` seconds, or what the translator does.
        """
        if not lines:
            return []
        future: asyncio.Future[list[Translation]] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(search, lines, future)
        self._put(waiting)
        try:
            async with asyncio.timeout(timeout):
                return await future
        finally:
            self._drop(waiting)

    def _put(self, waiting: _Waiting) -> None:
        with self._changed:
            if self.waiting + waiting.left > self._max_lines:
                text = "the queue is full; try again in 1 s"
                raise HTTPException(503, text, {"Retry-After": "1"})
            self._requests.append(waiting)
            self.waiting += waiting.left
            self._changed.notify()

    def _drop(self, waiting: _Waiting) -> None:
        """Remove a request whose answer is no longer wanted; no effect on a finished one."""
        with self._changed:
            waiting.cancelled = True
            if waiting in self._requests:
                self._requests.remove(waiting)
                self.waiting -= waiting.left

    def _run(self) -> None:
        """Translate batches until the queue is closed and empty."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requests or self._closing)
                if not self._requests:
                    return
                batch = self._take()
            self._translate(batch)

    def _take(self) -> list[_Share]:
        """Return lines of the requests that can share a batch with the first one."""
        search = self._requests[0].search
        sharing = [waiting for waiting in self._requests if waiting.search == search]
        share = max(MIN_SHARE, BATCH_LINES // len(sharing))
        ends = {waiting: waiting.started for waiting in sharing}
        weight = search.weight
        room, characters = BATCH_LINES / weight, BATCH_CHARACTERS / weight
        for most in (share, BATCH_LINES):  # a share for everyone, then what fits
            for waiting in sharing:
                while ends[waiting] < min(waiting.started + most, len(waiting.lines)):
                    if room <= 0 or characters <= 0:
                        break
                    room -= 1
                    characters -= waiting.lines[ends[waiting]].characters
                    ends[waiting] += 1
        return [self._start(waiting, end) for waiting, end in ends.items() if end > waiting.started]

    def _start(self, waiting: _Waiting, end: int) -> _Share:
        """Take the lines of a request before `end`; others go before the rest of it."""
        lines = waiting.lines[waiting.started : end]
        waiting.started = end
        self._requests.remove(waiting)
        if waiting.left:
            self._requests.append(waiting)
        return _Share(waiting, lines)

    def _translate(self, batch: list[_Share]) -> None:
        """Translate a batch and answer its requests; one that fails does not fail the others."""
        try:
            translations = self._search(batch)
        except _AbandonedError:
            self._finish(batch, None)
        except Exception as error:
            if len(batch) > 1:
                for share in batch:
                    self._translate([share])
                return
            if not isinstance(error, UserError):
                logger.exception("a request could not be translated")
            self._finish(batch, error)
        else:
            self._finish(batch, translations)

    def _search(self, batch: list[_Share]) -> list[Translation]:
        search = batch[0].waiting.search
        lines = [line for share in batch for line in share.lines]

        def check() -> None:
            if all(share.waiting.cancelled for share in batch):
                raise _AbandonedError

        with cancellable(check):
            return search.translator.translate(
                [line.text for line in lines],
                text_only=all(share.waiting.search.text_only for share in batch),
                **search.arguments(lines),
            )

    def _finish(self, batch: list[_Share], result: "list[Translation] | Exception | None") -> None:
        """Hand over translations, or an error; None: no request wants an answer."""
        start, answered = 0, []
        with self._changed:
            for waiting, lines in batch:
                self.waiting -= len(lines)
                if isinstance(result, list):
                    waiting.translations += result[start : start + len(lines)]
                    start += len(lines)
                    self.translated += len(lines)
                if not waiting.left or isinstance(result, Exception):
                    answered.append(waiting)
        if answered:
            answered[0].future.get_loop().call_soon_threadsafe(_answer, answered, result)


def _answer(answered: Sequence[_Waiting], result: object) -> None:
    for waiting in answered:
        if waiting.future.done():  # cancelled, or timed out
            continue
        if isinstance(result, Exception):
            waiting.future.set_exception(result)
        else:
            waiting.future.set_result(waiting.translations)
