"""Guards of the server: limits, tokens, hosts, origins, headers, disconnected clients."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from cases.server import Served, serve, until

from seq2seq.runtime.errors import MAX_LINE
from seq2seq.tools.serving import limits
from seq2seq.tools.serving.access import HEADERS, Access, Guard
from seq2seq.tools.serving.limits import Client, Limits
from seq2seq.tools.serving.service import LanguagePairs, Service
from seq2seq.tools.serving.translation_queue import TranslationQueue

ONE = {"q": "ba.", "target": "yy"}
PATHS = ("/", "/openapi.json", "/health", "/languages", "/static/page.js", "/x")


@contextlib.contextmanager
def raw(served: Served, *parts: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port), timeout=600) as connection:
        for part in parts:
            connection.sendall(part)
        yield connection


def head(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"q": "a\n" * 5}, "6 lines: the limit is 5 lines per request"),
        ({"q": ["a"] * 6}, "6 lines: the limit is 5 lines per request"),
        ({"q": "a" * 101}, "101 characters: the limit is 100 characters per request"),
        ({"text": ["a" * 60, "b" * 60]}, "120 characters: the limit is 100 characters per request"),
        ({"q": "a" * 80_000}, "the body is larger than 66,736 bytes; send less"),
    ],
)
def test_requests_that_are_too_large_are_refused(
    fields: dict[str, object], message: str, tiny_pairs: LanguagePairs
) -> None:
    path = "/v1/translate" if "text" in fields else "/translate"
    with serve(tiny_pairs, Limits(characters=100, lines=5)) as served:
        reply = served.call(path, fields if "text" in fields else {**fields, "target": "yy"})
        assert (reply.status, reply.error) == (413, message)
        assert served.call(path, {"text": "a"} if "text" in fields else ONE).status == 200


def test_a_body_without_a_length_is_bounded_too(tiny_pairs: LanguagePairs) -> None:
    kind = "Content-Type: application/json"
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    with (
        serve(tiny_pairs, Limits(characters=100)) as served,
        raw(served, head("/translate", kind, "Transfer-Encoding: chunked")) as connection,
    ):
        with contextlib.suppress(OSError):  # the server need not read all of it
            for _ in range(100):
                connection.sendall(chunk)
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_does_not_arrive_times_out(tiny_pairs: LanguagePairs) -> None:
    with (
        serve(tiny_pairs, Limits(seconds=0.3)) as served,
        raw(served, head("/translate", "Content-Length: 50"), b'{"q": ') as connection,
    ):
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_a_full_queue_answers_503(tiny_pairs: LanguagePairs) -> None:
    with serve(tiny_pairs, Limits(lines=50, queue_lines=10)) as served:
        reply = served.call("/translate", {**ONE, "q": ["ba."] * 11})
        assert reply.status == 503
        assert 1 <= int(reply.headers["Retry-After"]) <= 60
        assert "try again in" in reply.error
        assert served.call("/translate", {**ONE, "q": ["ba."] * 10}).status == 200


@pytest.mark.usefixtures("endless")
def test_a_translation_that_takes_too_long_answers_503(
    tiny_pairs: LanguagePairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit, which is also that of sending the request, is short for the translation alone."""
    translate = TranslationQueue.translate

    def translate_briefly(
        self: TranslationQueue, search: Any, lines: Any, _: float, client: Any
    ) -> Any:
        return translate(self, search, lines, 0.1, client)

    monkeypatch.setattr(TranslationQueue, "translate", translate_briefly)
    with serve(tiny_pairs) as served:
        reply = served.call("/v1/translate", {"text": "ba."})
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
        assert "took too long" in reply.error
        until(lambda: served.lines("waiting") == 0)
        assert served.lines("translated") == 0


@pytest.mark.race
def test_a_client_that_disconnects_is_dropped(
    endless: threading.Event, tiny_pairs: LanguagePairs
) -> None:
    body = json.dumps({"text": "ba."}).encode()
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    with serve(tiny_pairs) as served:
        with raw(served, head("/v1/translate", *lines), body):
            assert endless.wait(600)
        until(lambda: served.lines("waiting") == 0)
        assert served.lines("translated") == 0


@pytest.mark.race
@pytest.mark.parametrize("path", ["/translate", "/v1/translate"])
def test_a_client_that_disconnects_while_it_sends_is_not_an_error(
    path: str,
    tiny_pairs: LanguagePairs,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its status is 499, and the log has no traceback."""
    read = Service.body
    is_read = threading.Event()

    def body_and_read(*arguments: Any) -> Any:
        is_read.set()
        return read(*arguments)

    monkeypatch.setattr(Service, "body", body_and_read)
    kind = "Content-Type: application/json"
    answered: list[tuple[str, int]] = []
    monkeypatch.setattr(
        Guard, "_log", lambda _, scope, status, _seconds: answered.append((scope["path"], status))
    )
    with serve(tiny_pairs) as served:
        with raw(served, head(path, kind, "Content-Length: 50"), b'{"q": '):
            assert is_read.wait(600)
        until(lambda: answered == [(path, 499)])
    assert caplog.records == []


def test_a_token_is_required_if_one_is_set(tiny_pairs: LanguagePairs) -> None:
    with serve(tiny_pairs, access=Access({"s3cret": Client("one")})) as served:
        bearer = {"Authorization": "Bearer s3cret"}
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "s3cret"},
            {"Authorization": "Bearer s3cret\u00e9"},
        ):
            for path, fields in (("/translate", ONE), ("/v1/translate", {"text": "ba."})):
                reply = served.call(path, fields, headers)
                assert reply.status == 401
                assert reply.headers["WWW-Authenticate"] == "Bearer"
        assert served.call("/translate", {**ONE, "api_key": "wrong"}).status == 401
        assert served.call("/translate", {**ONE, "api_key": "s3cret"}).status == 200
        assert served.call("/translate", ONE, bearer).status == 200
        assert served.call("/v1/translate", {"text": "ba."}, bearer).status == 200
        for path in ("/", "/openapi.json", "/health", "/languages"):
            assert served.call(path).status == 200
        assert b'id="token"' in served.call("/").body


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8000", 200),
        ("[::1]", 200),
        ("evil.example", 400),
        ("localhost.evil.example:8000", 400),
        ("", 400),
    ],
)
def test_another_host_name_is_refused(host: str, status: int, tiny_pairs: LanguagePairs) -> None:
    """A page of another site that resolves to this machine (DNS rebinding) sends its own host."""
    names = frozenset({"localhost", "127.0.0.1", "::1"})
    with serve(tiny_pairs, access=Access(hosts=names)) as served:
        assert served.call("/languages", headers={"Host": host}).status == status


def allowed_origin(served: Served, origin: str) -> Sequence[str | None]:
    preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    replies = [
        served.call("/translate", headers=preflight, method="OPTIONS"),
        served.call("/translate", ONE, {"Origin": origin}),
    ]
    return [reply.headers["Access-Control-Allow-Origin"] for reply in replies]


def test_pages_of_other_sites_are_allowed_only_if_configured(tiny_pairs: LanguagePairs) -> None:
    with serve(tiny_pairs) as served:
        assert allowed_origin(served, "https://example.org") == [None, None]
    with serve(tiny_pairs, access=Access(origins=("https://example.org",))) as served:
        assert allowed_origin(served, "https://example.org") == ["https://example.org"] * 2
        assert allowed_origin(served, "https://evil.example") == [None, None]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_the_security_headers(path: str, served: Served) -> None:
    headers = served.call(path).headers
    assert {name: headers[name] for name in HEADERS} == HEADERS
    assert headers["Server"] is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://{host}"}, 200),
        ({"Origin": "https://{host}", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "https://allowed.example", "Sec-Fetch-Site": "cross-site"}, 200),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
    ids=str,
)
def test_a_form_on_a_page_of_another_site_does_nothing(
    headers: dict[str, str], status: int, tiny_pairs: LanguagePairs
) -> None:
    """Browsers send it without asking; its origin has another host or port."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with serve(tiny_pairs, access=Access(origins=("https://allowed.example",))) as served:
        host = f"127.0.0.1:{served.port}"
        sent = {name: value.format(host=host) for name, value in headers.items()}
        assert served.call("/translate", b"q=ba&target=yy", form | sent).status == status
        assert served.lines("translated") == (status == 200)


@pytest.mark.parametrize(
    ("fields", "counted"),
    [
        ({"text": ["ba"] * 40, "beam_size": 30}, 8_000),
        ({"text": ["ba"] * 40, "sampling": {"samples": 9}}, 4_800),
        ({"text": ["ba"] * 40, "sampling": {"samples": 9}, "mbr": "chrf"}, 6_096),
        ({"text": "ba", "beam_size": 30, "groups": 30}, 600),
        ({"text": "ba", "prefix": "b" * 150}, 152),
        ({"text": "ba", "constraints": [["ba", "b" * 150]]}, 462),
        ({"text": "ba", "glossary": [["ba", "b" * 50], ["lo", "m" * 50]]}, 104),
        ({"text": "ba", "forbidden": ["b" * 90, "m" * 90]}, 180),
    ],
    ids=str,
)
def test_what_a_request_costs_counts_against_its_limit(
    fields: dict[str, Any], counted: int, tiny_pairs: LanguagePairs
) -> None:
    """A beam of ten times the usual size costs as much as ten times the text, and a line 20."""
    with serve(tiny_pairs, Limits(characters=100)) as served:
        reply = served.call("/v1/translate", fields)
        assert (reply.status, f"{counted:,}" in reply.error) == (413, True)
    with serve(tiny_pairs, Limits(characters=counted)) as served:
        assert served.call("/v1/translate", fields).status == 200


def test_a_client_with_a_token_has_characters_per_minute(
    tiny_pairs: LanguagePairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unused ones come back with time, up to those of a minute."""
    now = [1_000.0]
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: now[0]))
    clients = {"a": Client("one", 60), "b": Client("two")}
    with serve(tiny_pairs, access=Access(clients)) as served:

        def wait(token: str, characters: int) -> int:
            fields = {"q": "ba" * (characters // 2), "target": "yy", "api_key": token}
            reply = served.call("/translate", fields)
            return int(reply.headers["Retry-After"] or 0)

        assert [wait("a", 40), wait("a", 30), wait("b", 400)] == [0, 10, 0]
        now[0] += 10
        assert [wait("a", 30), wait("a", 20)] == [0, 20]
        now[0] += 600
        assert [wait("a", 200), wait("a", 20)] == [0, 160]


def test_a_token_is_asked_for_before_the_body_is_read(tiny_pairs: LanguagePairs) -> None:
    with (
        serve(tiny_pairs, access=Access({"s3cret": Client("one")})) as served,
        raw(served, head("/v1/translate", "Content-Length: 50000")) as connection,
    ):
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_one_of_many_wrong_entries_is_reported(tiny_pairs: LanguagePairs) -> None:
    wrong = [1] * 20_000
    with serve(tiny_pairs) as served:
        for path, fields in (
            ("/translate", {"q": wrong, "target": "yy"}),
            ("/v1/translate", {"text": "a", "glossary": wrong}),
            ("/v1/translate", {"text": "a", "constraints": [wrong]}),
        ):
            reply = served.call(path, fields)
            assert (reply.status, len(reply.body) < 200) == (400, True)


def test_lines_are_counted(tiny_pairs: LanguagePairs) -> None:
    with serve(tiny_pairs) as served:
        served.call("/translate", {**ONE, "q": "ba.\nbe."})
        assert (served.lines("waiting"), served.lines("translated")) == (0, 2)


@pytest.mark.parametrize("path", ["/", "/health", "/languages", "/openapi.json", "/static/page.js"])
def test_head_is_answered_as_get_without_a_body(path: str, served: Served) -> None:
    """Health checks, monitors of pages and `curl -I` send it."""
    reply = served.call(path, method="HEAD")
    expected = served.call(path)
    assert (reply.status, reply.body) == (200, b"")
    for name in ("content-type", "content-length", "x-frame-options"):
        assert reply.headers[name] == expected.headers[name]


def test_a_refused_method_is_answered_with_those_there_are(served: Served) -> None:
    assert served.call("/health", b"").headers["allow"] == "GET, HEAD"
    reply = served.call("/translate", method="HEAD")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


def test_http_1_0_needs_no_host(tiny_pairs: LanguagePairs) -> None:
    """HAProxy's health check has none."""
    with serve(tiny_pairs, access=Access(hosts=frozenset(["localhost"]))) as served:
        for line, status in ((b"", b"200"), (b"Host: evil.example\r\n", b"400")):
            head = b"GET /health HTTP/1.0\r\n" + line + b"\r\n"
            with raw(served, head) as connection, connection.makefile("rb") as answer:
                assert answer.readline().split()[1] == status


def test_the_host_of_a_complete_address_counts(tiny_pairs: LanguagePairs) -> None:
    """RFC 9112, 3.2.2: a server answers requests as proxies get them, and ignores the header."""
    with serve(tiny_pairs, access=Access(hosts=frozenset(["localhost"]))) as served:
        for address, host, status in (
            (b"http://localhost/health", b"evil.example", b"200"),
            (b"HTTP://localhost:80/health/", b"localhost", b"200"),
            (b"http://localhost", b"localhost", b"200"),
            (b"http://evil.example/health", b"localhost", b"400"),
            (b"http://localhost@evil.example/health", b"localhost", b"400"),
        ):
            head = b"GET " + address + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
            with raw(served, head) as connection, connection.makefile("rb") as answer:
                assert answer.readline().split()[1] == status, address


def test_an_offer_of_another_protocol_is_ignored(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Java's HttpClient offers HTTP/2 in its first request."""
    fields = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": ""}
    with caplog.at_level("WARNING"):
        assert served.call("/health", headers=fields).status == 200
    assert not caplog.records


@pytest.mark.parametrize(
    ("path", "body", "media_type"),
    [
        ("/v1/translate", {"text": "ba", "x" * 60_000: 1}, "application/json"),
        ("/translate", ("a b" * 20_000).encode(), "application/x-www-form-urlencoded"),
        ("/v1/translate", b"{}", "x" * 20_000),
    ],
)
def test_an_error_message_is_short_however_long_what_it_quotes(
    path: str, body: Any, media_type: str, served: Served
) -> None:
    reply = served.call(path, body, {"Content-Type": media_type})
    assert 400 <= reply.status < 500
    assert 20 < len(reply.error) <= MAX_LINE
