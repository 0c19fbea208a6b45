"""Multipart forms: fields as they were sent, bounds, and work in proportion to their size."""

import asyncio
import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi")
pytest.importorskip("python_multipart")

from cases.server import Served, serve
from fastapi import HTTPException

from seq2seq.tools.serving import forms
from seq2seq.tools.serving.access import Access
from seq2seq.tools.serving.limits import Client, Limits
from seq2seq.tools.serving.service import LanguagePairs

ROOT = Path(__file__).resolve().parents[3]
TYPE = "multipart/form-data; boundary=B"
END = b"--B--\r\n"


def part(name: str, value: bytes, *headers: bytes) -> bytes:
    quoted = name.replace('"', "%22").encode()
    lines = [b'Content-Disposition: form-data; name="' + quoted + b'"', *headers]
    return b"--B\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + value + b"\r\n"


def read(body: bytes, sizes: Sequence[int] = (1 << 16,), kind: str = TYPE) -> dict[str, object]:
    """Read a form that arrives in parts of these sizes, of which the last is repeated."""

    async def receive(take: Callable[[bytes], Awaitable[None]]) -> None:
        start = 0
        remaining_sizes = list(sizes)
        while start < len(body):
            size = remaining_sizes.pop(0) if len(remaining_sizes) > 1 else remaining_sizes[0]
            await take(body[start : start + size])
            start += size

    return asyncio.run(forms.read_multipart(kind, receive))


def refusal(body: bytes, sizes: Sequence[int] = (1 << 16,), kind: str = TYPE) -> str:
    with pytest.raises(HTTPException) as caught:
        read(body, sizes, kind)
    assert caught.value.status_code == 400
    return str(caught.value.detail)


VALUES = st.text(st.sampled_from('ab\r\n-B \N{SNOWMAN}é;="'), max_size=40).filter(
    lambda text: not re.search(r"(^|\r\n)--B", text)
)
NAMES = st.sampled_from(["q", "target", "a b", "a;b", "ü"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(NAMES, VALUES), max_size=5), st.integers(1, 70))
def test_fields_are_what_was_sent_in_whatever_parts_they_arrive(
    fields: list[tuple[str, str]], size: int
) -> None:
    body = b"".join(part(name, value.encode()) for name, value in fields) + END
    expected: dict[str, list[str]] = {}
    for name, value in fields:
        expected.setdefault(name, []).append(value)
    received = {
        name: values if isinstance(values, list) else [values]
        for name, values in read(body, [size]).items()
    }
    assert received == expected


def test_every_division_of_a_form_gives_the_same() -> None:
    body = part("q", b"a\r\n--Bx\r\n--") + part("q", b"\r\n--B") + part("target", b"yy")
    body = body.replace(b"\r\n--B\r\n--B", b"\r\n--A\r\n--B") + END + b"more"
    expected = read(body)
    assert set(expected) == {"q", "target"}
    for first in range(1, len(body)):
        assert read(body, [first, 7]) == expected


def test_a_list_may_have_brackets() -> None:
    assert read(part("q[]", b"a") + part("q[]", b"b") + END)["q"] == ["a", "b"]
    assert read(part("q", b'["a", "b"]') + END)["q"] == ["a", "b"]
    assert read(END) == {}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"q=a", "the form is not valid multipart/form-data ("),
        (part("q", b"a"), "(its last boundary is missing)"),
        (part("q", b"a")[:9], "(its last boundary is missing)"),
        (b"", "(its last boundary is missing)"),
        (part("q", b"\xff") + END, "the form is not valid UTF-8"),
        (b"--B\r\nContent-Disposition: a; name=\xff\r\n\r\na\r\n" + END, ""),
        (b"--B\r\nno header\r\n\r\n" + END, "the form is not valid multipart/form-data ("),
        (part("q", b"YQ==", b"Content-Transfer-Encoding: base64") + END, "has an encoded part"),
        (
            part("q", b"a", b"Content-Type: multipart/mixed; boundary=C") + END,
            "has a part with parts of its own",
        ),
        (part("q", b"a", *5 * [b"X: a"]) + END, "Maximum header count exceeded"),
        (part("q", b"a", b"X: " + b"a" * 300) + END, "Maximum header size exceeded"),
        (part("q", b"a", b"a" * 300 + b": a") + END, "Maximum header size exceeded"),
        (part("q", b"") * 2_001 + END, "the form has more than 2,000 fields"),
    ],
    ids=range(13),
)
def test_what_is_no_form_or_exceeds_a_bound_is_refused(body: bytes, reason: str) -> None:
    for size in (13, 1 << 16):
        if reason:
            assert reason in refusal(body, [size])
        else:
            assert read(body, [size])  # other bytes of a header are replaced


@pytest.mark.parametrize(
    "kind",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=" + "a" * 300,
        "multipart/form-data" + "; a=b" * 100 + "; boundary=B",
    ],
    ids=["none", "empty", "long", "many"],
)
def test_the_boundary_is_named_and_short(kind: str) -> None:
    assert refusal(END, kind=kind).startswith("the form ")


def test_a_refused_form_is_read_no_further() -> None:
    """The first bytes show the fault; the client need not send the others."""

    async def receive(take: Callable[[bytes], Awaitable[None]]) -> None:
        await take(part("q", b"a", b"Content-Type: a/b" + b";a/b" * 2_000))
        raise AssertionError

    with pytest.raises(HTTPException):
        asyncio.run(forms.read_multipart(TYPE, receive))


# ------------------------------------------------------------------------------------------- work


def work(call: Callable[[], object]) -> int:
    """Return the number of lines that Python executes in a call."""
    lines = 0

    def count(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    trace_before = sys.gettrace()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(trace_before)
    return lines


def nested(depth: int, same: bool) -> bytes:
    """Return parts within parts, of one boundary or of one each."""
    names = ["C" if same else f"C{number}" for number in range(depth)]
    starts = "".join(
        f"--{outer}\r\nContent-Type: multipart/mixed; boundary={inner}\r\n\r\n"
        for outer, inner in zip(["B", *names], names, strict=False)
    )
    return starts.encode()


SIZES = {
    "parameters of a header": lambda n: part("q", b"a", b"Content-Type: a/b" + b";a/b" * n) + END,
    "one parameter each": lambda n: part("q", b"a", b"X: a" + b"; b=c" * n) + END,
    "nested, one boundary": lambda n: nested(n, True),
    "nested, boundaries": lambda n: nested(n, False),
    "parts": lambda n: part("q", b"a") * n + END,
    "parts without headers": lambda n: b"--B\r\n\r\na\r\n" * n + END,
    "short headers": lambda n: part("q", b"a", b"X:", b"X:", b"X:") * n + END,
    "long headers": lambda n: part("q", b"", b"X: a" + b";a" * 120) * (n // 8) + END,
    "quotes": lambda n: part("q", b"", b'Content-Disposition: "' + b";" * 220) * (n // 8) + END,
    "lines": lambda n: part("q", b"\r\n" * n) + END,
    "returns": lambda n: part("q", b"\r" * n) + END,
    "almost boundaries": lambda n: part("q", b"\r\n--Bx" * n) + END,
    "almost the last boundary": lambda n: part("q", b"\r\n--B-x" * n) + END,
    "text": lambda n: part("q", b"a" * 40 * n) + END,
}


@pytest.mark.parametrize("kind", SIZES)
def test_work_is_in_proportion_to_the_size_or_bounded(kind: str) -> None:
    """The email package took work with the square of some of these (33 CPU s for 180 kB)."""

    def read_or_refuse(body: bytes) -> None:
        with contextlib.suppress(HTTPException):
            read(body)

    read_or_refuse(SIZES[kind](10))  # what the first call alone does
    once, twice = (work(lambda n=n: read_or_refuse(SIZES[kind](n))) for n in (500, 1_000))
    assert twice < 2.2 * once + 100
    assert work(lambda: read_or_refuse(SIZES[kind](4_000))) < 9 * once + 100


@pytest.mark.parametrize("size", [8_000, 32_000, 180_000])
def test_long_headers_and_nesting_take_hardly_more_work_than_text(size: int) -> None:
    for body in (
        part("q", b"a", b"Content-Type: a/b" + b";a/b" * (size // 4)) + END,
        part("q", b"a", b"X: a" + b";b=c" * 15_000) + END,
        nested(964, False),
        nested(3_500, True),
    ):
        text = part("q", b"a" * len(body)) + END
        assert work(lambda body=body: refusal(body)) < 3 * work(lambda text=text: read(text))


class _NoThreads(ThreadPoolExecutor):
    def submit(self, *_call: Any, **_arguments: Any) -> Any:
        raise AssertionError("a form is read in a thread")


def test_other_requests_have_their_turn_while_a_form_is_read() -> None:
    """A form is read on the event loop in small parts, not in the threads of other bodies."""
    turns = 0

    async def other_requests() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def receive(take: Callable[[bytes], Awaitable[None]]) -> None:
        await take(part("q", b"a" * 180_000) + END)

    async def form_beside_requests() -> None:
        asyncio.get_running_loop().set_default_executor(_NoThreads())
        task = asyncio.ensure_future(other_requests())
        await forms.read_multipart(TYPE, receive)
        task.cancel()

    asyncio.run(form_beside_requests())
    assert turns > 40


# ----------------------------------------------------------------------------------------- server

HEAD = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: {TYPE}\r\n".encode()
HOSTILE = part("q", b"a", b"Content-Type: a/b" + b";a/b" * 45_000) + END
PENDING = part("q", b"a") * 20  # of a form of which the client sends no more


@pytest.fixture
def guarded(tiny_pairs: LanguagePairs) -> Iterator[Served]:
    with serve(tiny_pairs, Limits(), Access({"s3cret": Client("one")})) as served:
        yield served


@contextlib.contextmanager
def sent(port: int, content: bytes, length: int, number: int) -> Iterator[list[socket.socket]]:
    """Open connections that send the beginning of a form of this length."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(number):
            client = socket.create_connection(("127.0.0.1", port), timeout=120)
            clients.append(stack.enter_context(client))
            client.sendall(HEAD + f"Content-Length: {length}\r\n\r\n".encode() + content)
        yield clients


def test_forms_without_a_token_keep_no_one_from_translating(guarded: Served) -> None:
    """Eight clients send the header that took 33 CPU seconds, and eight do not end their forms."""
    bearer = {"Authorization": "Bearer s3cret"}
    fields = {"q": "ba ke", "target": "yy"}
    expected = guarded.call("/translate", fields, bearer).json
    with (
        sent(guarded.port, PENDING, 100_000, 8) as waiting,
        sent(guarded.port, HOSTILE[:4_000], len(HOSTILE), 8) as refused,
    ):
        for client in refused:  # although the rest of the body is missing
            assert client.recv(4_096).startswith(b"HTTP/1.1 400 ")
        assert guarded.call("/translate", fields, bearer).json == expected
        body = part("q", b"ba ke") + part("target", b"yy") + part("api_key", b"s3cret") + END
        assert guarded.call("/translate", body, {"Content-Type": TYPE}).json == expected
        assert select.select(waiting, [], [], 0)[0] == []


def test_a_form_that_was_sent_completely_is_answered(guarded: Served) -> None:
    for body, status in ((HOSTILE, 400), (nested(964, False), 400), (nested(3_500, True), 400)):
        assert guarded.call("/translate", body, {"Content-Type": TYPE}).status == status
    body = part("q", b"ba") + part("target", b"yy") + END
    reply = guarded.call("/translate", body, {"Content-Type": TYPE})
    assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert "Authorization: Bearer TOKEN" in reply.error
    assert "api_key" in reply.error


def test_a_token_in_a_header_is_asked_for_before_the_form_is_read(guarded: Served) -> None:
    wrong = b"Authorization: Bearer wrong\r\n"
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=120) as client:
        client.sendall(HEAD + wrong + b"Content-Length: 100000\r\n\r\n")
        assert client.recv(4_096).startswith(b"HTTP/1.1 401 ")


def test_a_form_is_bounded_like_every_body(guarded: Served) -> None:
    with sent(guarded.port, b"", 10_000_000, 1) as (client,):
        assert client.recv(4_096).startswith(b"HTTP/1.1 413 ")


@pytest.mark.thorough
def test_sigterm_ends_the_server_while_forms_arrive(
    tiny_runs: dict[str, Path], tmp_path: Path
) -> None:
    """The clients stay and send no more; the log quotes nothing of what they sent."""
    (tmp_path / "token").write_text("s3cret\n", encoding="utf-8")
    options = ["-m", str(tiny_runs["luong"]), "--token-file", str(tmp_path / "token")]
    command = [sys.executable, "-m", "seq2seq", "serve", "--port", "0", "--timeout", "10", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, encoding="utf-8", env=environment
    ) as started:
        assert started.stderr is not None
        while not (match := re.search(r"127\.0\.0\.1:(\d+)", started.stderr.readline())):
            assert started.poll() is None
        port = int(match[1])
        with (
            sent(port, HOSTILE[:4_000], len(HOSTILE), 4) as refused,
            sent(port, PENDING, 100_000, 8) as waiting,
        ):
            for client in refused:
                assert client.recv(4_096).startswith(b"HTTP/1.1 400 ")
            started.send_signal(signal.SIGTERM)
            _, errors = started.communicate()
            assert started.returncode == 0
            assert errors == "stopped; all accepted requests have been answered\n"
            for client in waiting:
                assert b" 408 " in client.recv(4_096)


def test_a_form_in_the_middle_of_json_is_json(guarded: Served) -> None:
    bearer = {"Authorization": "Bearer s3cret"}
    text = json.dumps({"q": END.decode(), "target": "yy"})
    assert guarded.call("/translate", text.encode(), bearer).status == 200
