"""Connections: bounds on headers, waiting and pipelining; a client that only listens."""

import asyncio
import contextlib
import json
import logging
import resource
import select
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from cases.server import Served, serve, until

from seq2seq.inference.translator import Translator
from seq2seq.tools.serving import access, connection
from seq2seq.tools.serving.app import listen
from seq2seq.tools.serving.service import LanguagePairs

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


@contextlib.contextmanager
def connected(served: Served, content: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port), timeout=600) as client:
        client.sendall(content)
        yield client


def received(client: socket.socket) -> bytes:
    """Return all that arrives until the server closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def post(lines: int, version: str = "1.1") -> bytes:
    body = json.dumps({"text": ["ba lo mi."] * lines, "beam_size": 9}).encode()
    head = f"POST /v1/translate HTTP/{version}\r\nHost: localhost\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize("part", [b"X: " + b"a" * (1 << 16), b"X: a\r\n" * (1 << 14)])
def test_headers_have_a_limit(part: bytes, served: Served) -> None:
    with connected(served, HEAD) as client:
        with contextlib.suppress(ConnectionError):  # the server need not read all of it
            client.sendall(part)
        assert received(client)[:13] in (b"HTTP/1.1 400 ", b"")


class Clock:
    """Clock that stands still until it runs; each look is then later by the time to be idle."""

    def __init__(self) -> None:
        self.now, self.runs = 0.0, False

    def monotonic(self) -> float:
        self.now += connection.IDLE * self.runs
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let servers look at idle clients often, but measure time by a clock of the test."""
    clock = Clock()
    monkeypatch.setattr(connection, "IDLE", 0.1)
    monkeypatch.setattr(connection, "time", clock)
    return clock


@pytest.mark.race
@pytest.mark.parametrize("content", [b"", b"GET /hea", HEAD])
def test_a_client_that_does_not_ask_is_disconnected(
    content: bytes, tiny_pairs: LanguagePairs, clock: Clock
) -> None:
    """Also after an answer, however slowly the next request arrives."""
    with serve(tiny_pairs) as served:
        with connected(served, HEAD + b"\r\n" + content) as client:
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
            clock.runs = True
            received(client)
        with connected(served, content) as client:
            assert received(client) == b""


@pytest.mark.race
@pytest.mark.usefixtures("clock")  # at which the client does not wait for too long
def test_a_client_that_does_not_read_its_answer_is_disconnected(
    tiny_pairs: LanguagePairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is larger than the buffers of both systems."""
    closed_connections = []
    made, lost = connection.Connection.connection_made, connection.Connection.connection_lost

    def made_with_small_buffer(self: connection.Connection, transport: asyncio.Transport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
        made(self, transport)

    monkeypatch.setattr(connection.Connection, "connection_made", made_with_small_buffer)
    monkeypatch.setattr(
        connection.Connection,
        "connection_lost",
        lambda self, error: (closed_connections.append(self), lost(self, error)),
    )
    with serve(tiny_pairs) as served, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        client.connect(("127.0.0.1", served.port))
        body = json.dumps({"text": ["ba lo mi. " * 3] * 300, "beam_size": 1}).encode()
        head = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
        client.sendall(head.encode() + b"\r\n\r\n" + body)
        until(lambda: closed_connections)


@pytest.mark.race
def test_those_that_wait_longest_make_room_for_others(
    tiny_pairs: LanguagePairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 5)
    with serve(tiny_pairs) as served, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(served, b"GET /hea")) for _ in range(8)]
        assert served.call("/health").status == 200
        assert received(clients[0]) == b""
        clients[-1].sendall(b"lth HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert received(clients[-1]).startswith(b"HTTP/1.1 200 ")


HALF = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"


@pytest.mark.race
def test_a_body_that_does_not_come_makes_room_as_a_header_does(
    tiny_pairs: LanguagePairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 5)
    monkeypatch.setattr(access, "MAX_CONNECTIONS", 5)
    with serve(tiny_pairs) as served, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(served, HALF)) for _ in range(20)]
        reply = served.call("/v1/translate", {"text": "ba."})
        assert reply.status == 200
        assert received(clients[0]) == b""


@pytest.mark.race
def test_health_is_answered_at_the_limit(
    endless: threading.Event, tiny_pairs: LanguagePairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MAX_CONNECTIONS", 1)
    with serve(tiny_pairs) as served, connected(served, post(1)):
        assert endless.wait(600)
        assert served.call("/languages").status == 503
        assert served.call("/health").status == 200


@pytest.mark.parametrize(
    "content",
    [
        b"GET /\0 HTTP/1.1\r\n\r\n",
        HEAD + b"no colon\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"X: " + b"a" * (1 << 16),
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[\r\n\r\n",
        b"GET /missing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
)
def test_every_refusal_has_the_security_headers(content: bytes, served: Served) -> None:
    with connected(served) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(content)
            client.shutdown(socket.SHUT_WR)
        head, _, body = received(client).partition(b"\r\n\r\n")
    status, *fields = head.decode().split("\r\n")
    assert status.split()[1][0] == "4"
    headers = dict(field.lower().split(": ", 1) for field in fields)
    expected = {name.lower(): value.lower() for name, value in access.HEADERS.items()}
    assert headers.items() >= expected.items()
    assert set(json.loads(body)) == {"error"}


def test_a_body_that_is_not_http_is_refused_without_a_body_where_head_asks(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer to HEAD has none, not even one that names the mistake."""
    request = HEAD.replace(b"GET", b"HEAD") + b"Transfer-Encoding: chunked\r\n\r\nno size\r\n"
    with connected(served, request) as client:
        answer = received(client)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"\r\n\r\n")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_an_error_outside_of_the_application_is_answered(
    tiny_pairs: LanguagePairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "host_name", lambda _host: 1 / 0)
    guarded = access.Access(hosts=frozenset(["localhost"]))
    with serve(tiny_pairs, access=guarded) as served:
        reply = served.call("/health")
        assert (reply.status, reply.error) == (500, "the server failed; its log has the reason")
        headers = {name.lower(): value for name, value in reply.headers.items()}
        assert (
            headers.items() >= {name.lower(): text for name, text in access.HEADERS.items()}.items()
        )


def test_a_client_that_closes_its_sending_side_gets_its_answer(served: Served) -> None:
    """Interim answers, which every client skips, show whether it is still there."""
    for lines in (1, 150):
        with connected(served, post(lines)) as client:
            client.shutdown(socket.SHUT_WR)
            answer = received(client).replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert len(json.loads(answer.partition(b"\r\n\r\n")[2])["translations"]) == lines


@pytest.mark.race
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_client_that_closes_both_sides_is_noticed(
    version: str, endless: threading.Event, tiny_pairs: LanguagePairs
) -> None:
    """A closed connection is half-closed to the server until it writes to it."""
    with serve(tiny_pairs) as served:
        with connected(served, post(1, version)):
            assert endless.wait(600)
        until(lambda: served.lines("waiting") == 0)
        assert served.lines("translated") == 0


@pytest.mark.race
def test_pipelined_requests_wait_in_the_network(
    tiny_pairs: LanguagePairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reads no further ones while it answers the first."""
    requests = (HEAD + b"\r\n") * 1_000_000
    translate = Translator.translate
    is_sent = threading.Event()

    def translate_later(*arguments: Any, **options: Any) -> Any:
        assert is_sent.wait(600)
        return translate(*arguments, **options)

    monkeypatch.setattr(Translator, "translate", translate_later)
    with serve(tiny_pairs) as served, connected(served, post(1)) as client:
        client.setblocking(False)
        sent = 0
        while sent < len(requests) and select.select([], [client], [], 1)[1]:
            sent += client.send(requests[sent : sent + (1 << 16)])
        is_sent.set()
        client.setblocking(True)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        assert sent < len(requests) / 2  # buffers of the system


def test_the_server_may_have_as_many_files_as_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []
    for hard, expected in ((4096, 2200), (1500, 1500), (resource.RLIM_INFINITY, 2200)):
        monkeypatch.setattr(resource, "getrlimit", lambda _kind, hard=hard: (1024, hard))
        monkeypatch.setattr(resource, "setrlimit", lambda _kind, pair: limits.append(pair))
        listen("127.0.0.1", 0).close()
        assert limits.pop() == (expected, hard)
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (8192, 8192))
    listen("127.0.0.1", 0).close()
    assert limits == []
