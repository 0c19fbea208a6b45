"""A server in a thread of this process, and calls to it; needs the extra serve."""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from seq2seq.tools.serving.access import Access
from seq2seq.tools.serving.app import address_of, create_app, listen, server_for
from seq2seq.tools.serving.limits import Limits
from seq2seq.tools.serving.service import LanguagePairs


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert set(self.json) == {"error"}
        return str(self.json["error"])


class Served(NamedTuple):
    address: str

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def call(
        self,
        path: str,
        fields: Any = None,
        headers: Mapping[str, str] | None = None,
        method: str | None = None,
    ) -> Reply:
        """GET a path, or POST fields as JSON, or a body of bytes as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = fields if isinstance(fields, bytes | None) else json.dumps(fields).encode()
        kind = {"Content-Type": "application/json"} if body is not None else {}
        method = method or ("GET" if body is None else "POST")
        with contextlib.closing(connection):
            connection.request(method, path, body, {**kind, **(headers or {})})
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())

    def lines(self, state: str) -> int:
        """Return the number of lines that are `waiting` or `translated`."""
        number: int = self.call("/health").json[state]
        return number


@contextmanager
def serve(
    pairs: LanguagePairs,
    limits: Limits | None = None,
    access: Access | None = None,
    metrics: Any = None,
) -> Iterator[Served]:
    limits = limits or Limits()
    with listen("127.0.0.1", 0) as listening:
        server = server_for(create_app(pairs, limits, access, metrics=metrics), limits.seconds)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        address = address_of(listening)
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield Served(address)
        finally:
            server.should_exit = True
            thread.join()


def until(condition: object, seconds: float = 600) -> None:
    """Wait until a call returns True."""
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


ENCODINGS = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
