"""The queue: batches, bounds, fairness, cancelled requests, failures of one request alone."""

import asyncio
import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fastapi import HTTPException

from seq2seq.inference.line_preparation import Preparation, PreparedLines
from seq2seq.inference.nbest import NBestEntry
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.runtime.cancellation import check_cancelled
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.tools.serving import translation_queue
from seq2seq.tools.serving.service import LanguagePairs
from seq2seq.tools.serving.translation_queue import (
    CLIENT_CHARACTERS,
    LINE_CHARACTERS,
    TOKEN_CHARACTERS,
    QueuedLine,
    Search,
    TranslationQueue,
)


class Echo:
    """Translator that returns its lines in capitals and records its batches.

    Until `open` is set, it holds each batch; a line "bad" is refused. A line takes no time on its
    clock, but for a line "dear", which takes nine seconds, and "cheap", which takes one.
    """

    def __init__(self) -> None:
        self.decoding = SimpleNamespace(beam_size=5)
        self.batches: list[list[str]] = []
        self.text_only: list[bool] = []  # by batch
        self.open = threading.Event()
        self.open.set()
        self.started = threading.Event()
        self.seconds = 0.0

    def clock(self) -> float:
        return self.seconds

    def translate(
        self, lines: Sequence[str], text_only: bool, **_options: Any
    ) -> list[Translation]:
        self.batches.append(list(lines))
        self.text_only.append(text_only)
        self.started.set()
        while not self.open.wait(0.01):
            check_cancelled()
        if "bad" in lines:
            raise UserError("bad: is refused")
        if "broken" in lines:
            raise ZeroDivisionError
        if "infinite" in lines:
            raise RunError("the model: is not finite")
        self.seconds += 9 * lines.count("dear") + lines.count("cheap")
        return [Translation([NBestEntry(line.upper(), 0.0)]) for line in lines]


def lines_of(*texts: str) -> list[QueuedLine]:
    return [QueuedLine(text) for text in texts]


def run(
    body: Callable[[TranslationQueue, Echo], Any], max_lines: int = 1000
) -> tuple[Any, Echo, TranslationQueue]:
    """Run a coroutine function with a queue, which then closes."""
    echo = Echo()
    queue = TranslationQueue(max_lines, echo.clock)

    async def closing() -> Any:
        try:
            return await body(queue, echo)
        finally:
            echo.open.set()
            await queue.close()

    return asyncio.run(closing()), echo, queue


def search(echo: Echo, n_best: int = 1) -> Search:
    return Search(echo, n_best=n_best)  # type: ignore[arg-type]


async def held(queue: TranslationQueue, echo: Echo) -> "asyncio.Task[list[Translation]]":
    """Let the thread wait in a batch of its own."""
    echo.open.clear()
    echo.started.clear()
    task = asyncio.create_task(queue.translate(search(echo), lines_of("first"), 60))
    await asyncio.to_thread(echo.started.wait)
    return task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(600):
        while not condition():
            await asyncio.sleep(0.001)


async def until_waiting(queue: TranslationQueue, lines: int) -> None:
    """Wait until the queue has accepted `lines` lines that are not yet translated."""
    await until(lambda: queue.waiting_lines == lines)


def test_waiting_requests_form_one_batch() -> None:
    async def body(queue: TranslationQueue, echo: Echo) -> list[list[str]]:
        first = await held(queue, echo)
        tasks = [
            asyncio.create_task(queue.translate(search(echo), lines_of(f"a{n}", f"b{n}"), 60))
            for n in range(5)
        ]
        await until_waiting(queue, 11)
        echo.open.set()
        await first
        return [[translation.text for translation in await task] for task in tasks]

    texts, echo, queue = run(body)
    assert texts == [[f"A{n}", f"B{n}"] for n in range(5)]
    assert [len(batch) for batch in echo.batches] == [1, 10]
    assert queue.translated_lines == 11
    assert queue.waiting_lines == 0


def test_different_searches_are_different_batches() -> None:
    async def body(queue: TranslationQueue, echo: Echo) -> None:
        first = await held(queue, echo)
        tasks = [
            asyncio.create_task(queue.translate(search(echo, 1 + n % 2), lines_of(f"a{n}"), 60))
            for n in range(4)
        ]
        await until_waiting(queue, 5)
        echo.open.set()
        await asyncio.gather(first, *tasks)

    _, echo, _ = run(body)
    assert echo.batches == [["first"], ["a0", "a2"], ["a1", "a3"]]


def test_requests_with_and_without_attention_share_a_batch() -> None:
    async def body(queue: TranslationQueue, echo: Echo) -> None:
        first = await held(queue, echo)
        searches = [search(echo), dataclasses.replace(search(echo), text_only=False)]
        tasks = [
            asyncio.create_task(queue.translate(requested, lines_of(f"a{n}"), 60))
            for n, requested in enumerate(searches)
        ]
        await until_waiting(queue, 3)
        echo.open.set()
        await asyncio.gather(first, *tasks)

    _, echo, _ = run(body)
    assert echo.batches == [["first"], ["a0", "a1"]]
    assert echo.text_only == [True, False]


def test_a_large_request_does_not_hold_up_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests with equal settings share its batches; others are translated between them."""
    monkeypatch.setattr(translation_queue, "BATCH_LINES", 8)
    monkeypatch.setattr(translation_queue, "REQUEST_LINES", 2)

    async def body(queue: TranslationQueue, echo: Echo) -> list[str]:
        first = await held(queue, echo)
        large = lines_of(*(f"l{n}" for n in range(20)))
        order: list[str] = []

        async def ask(name: str, n_best: int, lines: list[QueuedLine]) -> None:
            translations = await queue.translate(search(echo, n_best), lines, 60)
            assert [translation.text for translation in translations] == [
                line.text.upper() for line in lines
            ]
            order.append(name)

        tasks = [
            asyncio.create_task(ask(*arguments))
            for arguments in (
                ("large", 1, large),
                ("small", 1, lines_of("s")),
                ("other", 2, lines_of("o")),
            )
        ]
        await until_waiting(queue, 23)
        echo.open.set()
        await asyncio.gather(first, *tasks)
        return order

    order, echo, _ = run(body)
    assert order == ["small", "other", "large"]
    assert [len(batch) for batch in echo.batches] == [1, 8, 1, 8, 5]
    assert "s" in echo.batches[1]


def test_a_batch_is_bounded_by_characters_and_a_long_line_is_still_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(translation_queue, "BATCH_CHARACTERS", 50)

    async def body(queue: TranslationQueue, echo: Echo) -> None:
        await queue.translate(search(echo), lines_of("abcd", "efgh", "ijkl", "m" * 50, "n"), 60)

    _, echo, _ = run(body)
    assert echo.batches == [["abcd", "efgh", "ijkl"], ["m" * 50], ["n"]]


def test_a_full_queue_refuses_requests() -> None:
    async def body(queue: TranslationQueue, echo: Echo) -> None:
        first = await held(queue, echo)
        waiting = asyncio.create_task(queue.translate(search(echo), lines_of(*"abcd"), 60))
        await until_waiting(queue, 5)
        with pytest.raises(HTTPException, match=r"503: .*try again in 1 s"):
            await queue.translate(search(echo), lines_of("e"), 60)
        echo.open.set()
        await asyncio.gather(first, waiting)
        assert (await queue.translate(search(echo), lines_of("e"), 60))[0].text == "E"

    run(body, max_lines=5)


def test_a_full_queue_refuses_lines_before_work_on_them() -> None:
    """And changes nothing: a client that would take the place of another one is not refused."""

    async def body(queue: TranslationQueue, echo: Echo) -> None:
        first = await held(queue, echo)
        greedy = asyncio.create_task(queue.translate(search(echo), lines_of(*"abcd"), 60, "greedy"))
        await until_waiting(queue, 5)
        queue.check_room(3, "modest")
        for lines, client in ((1, "greedy"), (4, "modest")):
            with pytest.raises(HTTPException, match=r"503: .*try again in 1 s"):
                queue.check_room(lines, client)
        assert queue.waiting_lines == 5
        echo.open.set()
        await asyncio.gather(first, greedy)

    run(body, max_lines=5)


def test_cancelled_requests_are_dropped() -> None:
    """Also during search: the search ends early, and the count is right."""

    async def body(queue: TranslationQueue, echo: Echo) -> None:
        first = await held(queue, echo)
        second = asyncio.create_task(queue.translate(search(echo), lines_of("b", "c"), 60))
        await until_waiting(queue, 3)
        second.cancel()
        first.cancel()  # its batch is being translated, and never ends by itself
        await until_waiting(queue, 0)
        echo.open.set()
        assert (await queue.translate(search(echo), lines_of("d"), 60))[0].text == "D"

    _, echo, queue = run(body)
    assert echo.batches == [["first"], ["d"]]
    assert queue.waiting_lines == 0


def test_a_request_that_takes_too_long_is_dropped() -> None:
    async def body(queue: TranslationQueue, echo: Echo) -> None:
        first = await held(queue, echo)  # it never ends by itself
        with pytest.raises(TimeoutError):
            await queue.translate(search(echo), lines_of("b"), 0.1)
        echo.open.set()
        await first

    _, echo, queue = run(body)
    assert echo.batches == [["first"]]
    assert queue.waiting_lines == 0


@pytest.mark.parametrize(
    ("word", "kind", "is_logged"),
    [("bad", UserError, False), ("broken", ZeroDivisionError, True), ("infinite", RunError, True)],
)
def test_a_failing_request_does_not_affect_others(
    word: str, kind: type[Exception], is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the errors of the server, but not those of a request."""

    async def body(queue: TranslationQueue, echo: Echo) -> list[Any]:
        first = await held(queue, echo)
        tasks = [
            asyncio.create_task(queue.translate(search(echo), lines_of(*request_lines), 60))
            for request_lines in (["a"], ["b", word], ["c"])
        ]
        await until_waiting(queue, 5)
        echo.open.set()
        await first
        return await asyncio.gather(*tasks, return_exceptions=True)

    (answer_to_first, failed, answer_to_third), _, queue = run(body)
    assert isinstance(failed, kind)
    assert [record.exc_info and record.exc_info[0] for record in caplog.records] == [
        kind
    ] * is_logged
    assert [answer_to_first[0].text, answer_to_third[0].text] == ["A", "C"]
    assert queue.waiting_lines == 0


def test_closing_translates_accepted_requests() -> None:
    async def body(queue: TranslationQueue, echo: Echo) -> list[str]:
        first = await held(queue, echo)
        second = asyncio.create_task(queue.translate(search(echo), lines_of("b"), 60))
        await until_waiting(queue, 2)
        closing = asyncio.create_task(queue.close())
        await until(lambda: not queue.is_open)
        echo.open.set()
        await closing
        return [(await task)[0].text for task in (first, second)]

    texts, _, _ = run(body)
    assert texts == ["FIRST", "B"]


def test_a_line_is_prepared_once(
    tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the queue for v1, which numbers its lines, and with its batch for others."""
    translator = Translator.load(tiny_runs["luong"], device="cpu")
    texts = list[str]()

    def recorded(preparation: Preparation, lines: Sequence[str], *options: Any) -> PreparedLines:
        texts.extend(lines)
        return prepare(preparation, lines, *options)

    prepare = Preparation.prepare
    monkeypatch.setattr(Preparation, "prepare", recorded)

    async def body(queue: TranslationQueue, _: Echo) -> Any:
        numbered, plain = (Search(translator, text_only=False) for _ in range(2))
        checked = numbered.prepare(lines_of("ba ka.", "zu ti."))
        return await asyncio.gather(
            queue.translate(numbered, checked, 60), queue.translate(plain, lines_of("ka ba."), 60)
        )

    ((first, second), (third,)), _, _ = run(body)
    assert sorted(texts) == ["ba ka.", "ka ba.", "zu ti."]
    assert [first, second, third] == translator.translate(["ba ka.", "zu ti.", "ka ba."])


def test_a_client_with_few_lines_is_next_however_many_others_have() -> None:
    """Four clients ask for 200 lines each; a fifth one waits for one batch of each at most."""

    async def body(queue: TranslationQueue, echo: Echo) -> list[str]:
        first = await held(queue, echo)
        large_requests = [
            asyncio.create_task(
                queue.translate(search(echo, 1 + n), lines_of(*[f"a{n}"] * 200), 60, f"many {n}")
            )
            for n in range(4)
        ]
        await until_waiting(queue, 801)
        small_request = asyncio.create_task(
            queue.translate(search(echo, 9), lines_of("b"), 60, "few")
        )
        await until_waiting(queue, 802)
        echo.open.set()
        await asyncio.gather(first, small_request, *large_requests)
        return [batch[0] for batch in echo.batches]

    starts, echo, _ = run(body)
    assert starts.index("b") <= 5
    max_lines = 1 + translation_queue.CLIENT_CHARACTERS // translation_queue.LINE_CHARACTERS
    assert max(map(len, echo.batches[:6])) <= max_lines


def test_lines_of_costly_searches_are_taken_one_by_one_while_others_wait() -> None:
    async def body(queue: TranslationQueue, echo: Echo) -> None:
        first = await held(queue, echo)
        costly = dataclasses.replace(search(echo), beam_size=500)
        slow = asyncio.create_task(queue.translate(costly, lines_of(*"abc"), 60, "slow"))
        quick = asyncio.create_task(
            queue.translate(search(echo), lines_of(*"x" * 200), 60, "quick")
        )
        await until_waiting(queue, 204)
        echo.open.set()
        await asyncio.gather(first, slow, quick)

    _, echo, _ = run(body)
    costly = [number for number, batch in enumerate(echo.batches) if "x" not in batch][1:]
    assert [echo.batches[number] for number in costly] == [["a"], ["b"], ["c"]]
    between = {next_number - number for number, next_number in itertools.pairwise(costly)}
    assert min(between) > 1  # the other client's lines


def test_lines_of_many_tokens_count_by_them(tiny_pairs: LanguagePairs) -> None:
    """An unknown character is three bytes, each a token: a batch has fewer such lines."""
    request = Search(next(iter(tiny_pairs.values())))
    usual, rare, blank = request.with_tokens(lines_of("ba lo mi", "\u4e00 " * 30, " "))
    assert usual.cost == max(LINE_CHARACTERS, TOKEN_CHARACTERS * usual.tokens)
    assert rare.tokens >= 3 * 30
    assert rare.cost == TOKEN_CHARACTERS * rare.tokens > 4 * rare.characters
    assert blank.cost == blank.characters

    async def body(queue: TranslationQueue, echo: Echo) -> None:
        first = await held(queue, echo)
        rare_lines = [QueuedLine(text, tokens=CLIENT_CHARACTERS) for text in "abc"]
        slow = asyncio.create_task(queue.translate(search(echo), rare_lines, 60, "slow"))
        usual_lines = lines_of(*"x" * 200)
        quick = asyncio.create_task(queue.translate(search(echo), usual_lines, 60, "quick"))
        await until_waiting(queue, 204)
        echo.open.set()
        await asyncio.gather(first, slow, quick)

    _, echo, _ = run(body)
    assert all(len({*"abc"}.intersection(batch)) <= 1 for batch in echo.batches)


def test_clients_share_the_time_of_searches_however_their_characters_are_counted() -> None:
    """Nine lines of a client take as long as one of the other, and both count as much."""

    async def body(queue: TranslationQueue, echo: Echo) -> None:
        first = await held(queue, echo)
        requests = [
            queue.translate(search(echo, rank), lines_of(*[text] * 300), 60, text)
            for rank, text in ((1, "dear"), (2, "cheap"))
        ]
        tasks = list(map(asyncio.create_task, requests))
        await until_waiting(queue, 601)
        echo.open.set()
        await asyncio.gather(first, *tasks)

    _, echo, _ = run(body)
    texts = [batch[0] for batch in echo.batches]
    shared = texts[: len(texts) - texts[::-1].index("cheap")]  # until all cheap lines are answered
    most = 2 * translation_queue.CLIENT_CHARACTERS / translation_queue.LINE_CHARACTERS
    lines = {
        text: sum(batch.count(text) for batch in echo.batches[: len(shared)]) for text in texts
    }
    assert lines["cheap"] == 300
    assert abs(lines["dear"] - 300 / 9) <= most


def test_a_client_that_was_alone_is_not_behind_one_that_comes_later() -> None:
    """Begin for a new client where the other one is, whatever that has used."""

    async def body(queue: TranslationQueue, echo: Echo) -> None:
        for _ in range(20):
            await queue.translate(search(echo), lines_of(*["early"] * 100), 60, "old")
        echo.open.clear()
        echo.started.clear()
        request = queue.translate(search(echo, 2), lines_of("first"), 60, "old")
        tasks = [asyncio.create_task(request)]
        await asyncio.to_thread(echo.started.wait)
        for client, rank, count in (("new", 1, 300), ("old", 2, 1)):
            lines = lines_of(*[client] * count)
            tasks.append(
                asyncio.create_task(queue.translate(search(echo, rank), lines, 60, client))
            )
            await until_waiting(queue, 1 + 300 + (client == "old"))
        echo.open.set()
        await asyncio.gather(*tasks)

    _, echo, _ = run(body)
    texts = [batch[0] for batch in echo.batches]
    assert texts[-1] == "new"
    assert texts.index("old") - texts.index("first") <= 4


def test_a_batch_of_requests_that_were_refused_is_given_up() -> None:
    """A request in a batch makes room for another client."""

    async def body(queue: TranslationQueue, echo: Echo) -> list[Any]:
        echo.open.clear()
        lines = lines_of(*["a" * translation_queue.BATCH_CHARACTERS] * 9)
        greedy = asyncio.create_task(queue.translate(search(echo), lines, 60, "greedy"))
        await asyncio.to_thread(echo.started.wait)
        modest = asyncio.create_task(queue.translate(search(echo), lines_of("x"), 60, "modest"))
        await until(lambda: len(echo.batches) == 2)
        echo.open.set()
        return await asyncio.gather(greedy, modest, return_exceptions=True)

    (refused, translations), _, _ = run(body, max_lines=9)
    assert isinstance(refused, HTTPException)
    assert len(translations) == 1


def test_a_batch_of_blank_lines_costs_nothing() -> None:
    async def body(queue: TranslationQueue, echo: Echo) -> list[Translation]:
        return await queue.translate(search(echo), lines_of("", ""), 60)

    assert len(run(body)[0]) == 2


def test_a_client_that_fills_the_queue_makes_room_for_another() -> None:
    async def body(queue: TranslationQueue, echo: Echo) -> list[Any]:
        first = await held(queue, echo)
        greedy = [
            asyncio.create_task(queue.translate(search(echo), lines_of(*"abcd"), 60, "greedy"))
            for _ in range(2)
        ]
        await until_waiting(queue, 9)
        modest = asyncio.create_task(
            queue.translate(search(echo), lines_of("x", "y"), 60, "modest")
        )
        await until_waiting(queue, 7)
        echo.open.set()
        return await asyncio.gather(first, modest, *greedy, return_exceptions=True)

    (_, modest, accepted, refused), _, queue = run(body, max_lines=9)
    assert (len(modest), len(accepted)) == (2, 4)
    assert isinstance(refused, HTTPException)
    assert refused.status_code == 503
    assert queue.waiting_lines == 0
