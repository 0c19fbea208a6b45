"""Requests of strangers, made at random: answered as HTTP, with an error in one line or as usual.

A seed decides everything, so that a finding can be repeated.
"""

import contextlib
import json
import logging
import random
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

pytest.importorskip("fastapi")

import h11
from cases.server import Served, serve

from seq2seq.runtime.errors import MAX_LINE
from seq2seq.tools.serving.access import HEADERS
from seq2seq.tools.serving.limits import Limits
from seq2seq.tools.serving.service import LanguagePairs

REQUESTS = 1_000
REFUSALS = (400, 401, 403, 404, 405, 406, 408, 411, 413, 414, 415, 417, 421, 422, 426, 429, 431)
STATUSES = (100, 200, 204, 304, *REFUSALS)
V1_FIELDS: dict[str, Any] = {
    "text": ["ba lo mi.", "zu ge"],
    "source": "xx",
    "target": "yy",
    "beam_size": 2,
    "n_best": 2,
    "attention": True,
    "prefix": ["ba", ""],
    "constraints": [["lo"], []],
    "glossary": [["ba", "zuzu"]],
    "forbidden": ["mi"],
    "sampling": {"samples": 2, "seed": 7, "temperature": 1.0, "top_k": 4, "top_p": 0.9},
    "format": "text",
    "max_length": 9,
    "min_length": 1,
    "length_penalty": 0.6,
    "groups": 2,
    "diversity": 0.5,
    "mbr": "chrf",
}
FORM_FIELDS: dict[str, Any] = {
    "q": ["ba lo mi.", "zu ge"],
    "source": "xx",
    "target": "yy",
    "format": "html",
    "alternatives": 2,
    "api_key": "token",
}
REQUIRED = ("text", "q", "target")
VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "xx", "yy", "auto", "html", "text", "chrf", [], {}, [[]], [None]),
    *(0, 1, 2, -1, 0.5, 1e308, -1e308, float("inf"), float("nan"), 1 << 31, 1 << 63, 1 << 200),
    *("\0", "\r\n", "\ud800", "😀" * 9, "<p>ba <b>lo</b>", "<!--", "&#x110000;", "ba " * 99),
    *(
        ["ba"] * 99,
        [["ba", "lo"]] * 99,
        ["\u2028", "\x1b[2J"],
        [{"text": "ba"}],
        "../../etc/passwd",
    ),
)
PATHS = (
    *("/translate", "/detect", "/languages", "/health", "/frontend/settings", "/openapi.json"),
    *("/v1/translate", "/v1/score", "/v1/languages", "/v1", "/", "/../../etc/passwd", "/%00"),
    *(
        "/translate?q=ba&target=yy",
        "/translate/",
        "//",
        "*",
        "http://other/health",
        "/" + "a" * 9000,
    ),
)
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "CONNECT", "X", "gEt")
TYPES = (
    *("application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"),
    *("multipart/form-data", "text/plain", "application/json; charset=utf-16", "", "*/*", "\xff"),
)
OTHER_HEADERS = (
    *("Host: other", "Host:", "Transfer-Encoding: chunked", "Expect: 100-continue", "Accept: a"),
    *("Content-Length: -1", "Content-Length: 9999999999", "Content-Encoding: gzip", "Upgrade: h2c"),
    *("Authorization: Bearer ", "Authorization: Basic AAAA", "Origin: null", "Cookie: a=b"),
    *("Connection: keep-alive, upgrade", "Range: bytes=0-1", "X-Forwarded-For: ::1", " folded"),
    *("no colon", "Bad\0: a", "Accept-Language: " + "a" * 3000, "If-None-Match: *", "TE: trailers"),
)


class Answer(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


def spoiled(tree: Any, draw: random.Random) -> Any:
    """Return a JSON value of which parts are changed, removed or added."""
    if draw.random() < 0.04:
        return draw.choice(VALUES)
    if isinstance(tree, dict):
        fields = {key: value for key, value in tree.items() if draw.random() < 0.3}
        fields |= {key: value for key, value in tree.items() if key in REQUIRED}
        if draw.random() < 0.1:
            fields[draw.choice(("other", "", "\0", "text", "q"))] = draw.choice(VALUES)
        return {key: spoiled(value, draw) for key, value in fields.items()}
    if isinstance(tree, list):
        return [spoiled(value, draw) for value in tree if draw.random() < 0.9]
    return tree


def noisy(content: bytes, draw: random.Random) -> bytes:
    """Return the content with up to nine other bytes."""
    changed = bytearray(content)
    for _ in range(draw.randrange(10)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def spoiled_body(path: str, draw: random.Random) -> bytes:
    fields = spoiled(V1_FIELDS if path.startswith("/v1") else FORM_FIELDS, draw)
    text = json.dumps(fields, ensure_ascii=draw.random() < 0.5)
    body = text.encode(draw.choice(("utf-8", "utf-8", "utf-8", "utf-16")), "surrogatepass")
    match draw.randrange(12):
        case 0:
            return body[: draw.randrange(len(body) + 1)]
        case 1:
            return noisy(body, draw)
        case 2:
            return b"[" * draw.randrange(1, 100_000)
        case 3:
            parts = (f'Content-Disposition: form-data; name="{name}"' for name in FORM_FIELDS)
            return "".join(f"--b\r\n{part}\r\n\r\nxx\r\n" for part in parts).encode() + b"--b--"
        case 4:
            return b"&".join(
                f"{name}=ba%{draw.randrange(256):02x}".encode() for name in FORM_FIELDS
            )
        case _:
            return body


def spoiled_request(draw: random.Random) -> bytes:
    """Return the bytes of a request; most are HTTP, and about half have a right path and type."""
    is_usual = draw.random() < 0.5
    method = "POST" if is_usual else draw.choice(METHODS)
    path = draw.choice(("/translate", "/detect", "/v1/translate"))
    path = path if is_usual else draw.choice(PATHS)
    body = spoiled_body(path, draw)
    media_type = TYPES[0] if is_usual else draw.choice(TYPES)
    version = "1.1" if is_usual else draw.choice(("1.1", "1.1", "1.1", "1.0", "2.0", "1."))
    lines = [f"{method} {path} HTTP/{version}"]
    lines += ["Host: localhost", "Connection: close", f"Content-Type: {media_type}"]
    if is_usual or draw.random() < 0.8:
        lines.append(f"Content-Length: {len(body)}")
    if not is_usual:
        lines += draw.sample(OTHER_HEADERS, draw.randrange(3))
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    if draw.random() < 0.05:
        head = noisy(head, draw)
    return head + body


def answers_to(request: bytes, served: Served) -> Iterator[Answer]:
    """Send a request, close the sending side, and yield the answers; none if it is unfinished."""
    parser = h11.Connection(h11.CLIENT)
    method = request.split(b" ", 1)[0]
    is_head = method == b"HEAD"
    sent = h11.Request(method="HEAD" if is_head else "GET", target="/", headers=[("Host", "a")])
    parser.send(sent)
    parser.send(h11.EndOfMessage())
    received = b""
    with socket.create_connection(("127.0.0.1", served.port), timeout=600) as client:
        with contextlib.suppress(ConnectionError):  # it may be refused before it has been read
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while part := client.recv(1 << 16):
                received += part
    if not received:
        return
    parser.receive_data(received)
    parser.receive_data(b"")
    status = 0
    headers = dict[bytes, bytes]()
    body = b""
    while True:
        match parser.next_event():
            case h11.Response() as response:
                status = response.status_code
                headers = dict(response.headers)
            case h11.Data() as part:
                body += part.data
            case h11.EndOfMessage():
                yield Answer(status, headers, body)
                return
            case h11.InformationalResponse():
                continue
            case _:
                return


def check(answer: Answer) -> None:
    assert answer.status in STATUSES
    for name, value in HEADERS.items():
        assert answer.headers[name.lower().encode()] == value.encode()
    if answer.status in REFUSALS and answer.body:
        error = json.loads(answer.body)
        assert set(error) == {"error"}
        assert "\n" not in error["error"]
        assert "Traceback" not in error["error"]
        assert 0 < len(error["error"]) <= MAX_LINE


@pytest.fixture(scope="module")
def served(tiny_pairs: LanguagePairs) -> Iterator[Served]:
    with serve(tiny_pairs, Limits(seconds=600)) as server:
        yield server


def run(served: Served, seeds: range, logged: pytest.LogCaptureFixture) -> dict[int, int]:
    """Send requests; return how many answers had each status, 0 for none."""
    usual_request = {"text": "ba lo mi."}
    expected = served.call("/v1/translate", usual_request).body
    statuses = dict[int, int]()
    for seed in seeds:
        request = spoiled_request(random.Random(seed))
        try:
            answers = list(answers_to(request, served))
            for answer in answers:
                check(answer)
            assert not [record for record in logged.records if record.levelno >= logging.ERROR]
        except (AssertionError, h11.RemoteProtocolError, ValueError, KeyError) as error:
            raise AssertionError(f"seed {seed}: {request[:300]!r}: {error!r}") from error
        status = answers[-1].status if answers else 0
        statuses[status] = statuses.get(status, 0) + 1
    assert served.call("/v1/translate", usual_request).body == expected
    health = served.call("/health").json
    assert (health["status"], health["waiting"]) == ("ok", 0)
    return statuses


def test_the_first_requests_of_the_fuzzer(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """A few in the quick tier, so that the fuzzer itself is tested."""
    statuses = run(served, range(40), caplog)
    assert {200, 400, 404, 422} & set(statuses)


@pytest.mark.thorough
def test_requests_of_strangers_are_answered_or_refused_in_a_line(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    statuses = run(served, range(REQUESTS), caplog)
    assert {200, 400, 404, 405} <= set(statuses), statuses
    assert statuses[200] > REQUESTS // 20, statuses
