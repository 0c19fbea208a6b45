"""Figures of the server for Prometheus, on a port of this machine alone."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import make_wsgi_app, start_http_server

from seq2seq.runtime.errors import UserError
from seq2seq.tools.serving.access import RequestFigures
from seq2seq.tools.serving.translation_queue import TranslationQueue

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_HOST = "127.0.0.1"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # upper bounds
_OTHER = "other"  # paths that the server lacks, whose names are those of strangers


class Metrics:
    """Counters and histograms of requests, and the state of the queue."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        text = "Requests answered"
        self._requests = Counter("seq2seq_requests", text, ["path", "status"], registry=registry)
        text = "Seconds from the headers of a request to the end of its answer"
        self._seconds = Histogram(
            "seq2seq_request_seconds", text, ["path"], buckets=_SECONDS, registry=registry
        )
        text = "Lines translated for requests that were answered"
        self._lines = Counter("seq2seq_lines", text, ["pair"], registry=registry)
        text = "Characters of these lines"
        self._characters = Counter("seq2seq_characters", text, ["pair"], registry=registry)
        text = "Lines accepted and not yet translated"
        self._waiting = Gauge("seq2seq_queue_lines", text, registry=registry)
        ProcessCollector(registry=self.registry)

    def watch(self, queue: TranslationQueue) -> None:
        """Show from now on how many lines wait in a queue."""
        self._waiting.set_function(lambda: queue.waiting_lines)

    def add(self, request: RequestFigures) -> None:
        """Count a request that has been answered."""
        path = request.route or _OTHER
        self._requests.labels(path, str(request.status)).inc()
        self._seconds.labels(path).observe(request.seconds)
        if request.pair is not None and request.status == 200:
            self._lines.labels(request.pair).inc(request.lines)
            self._characters.labels(request.pair).inc(request.characters)


@contextmanager
def served(metrics: Metrics, port: int) -> Iterator[str]:
    """Answer Prometheus at the returned address; raises UserError if the port cannot be used."""
    try:
        server, thread = start_http_server(port, _HOST, metrics.registry)
    except OSError as error:
        reason = f"cannot listen on {_HOST} ({error.strerror}); choose another port"
        raise UserError(reason, argument="metrics_port", value=port) from None
    server.set_app(_with_head(make_wsgi_app(metrics.registry)))
    try:
        yield f"http://{_HOST}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _with_head(application: "WSGIApplication") -> "WSGIApplication":
    """Return an application that answers HEAD as GET, without a body."""

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "HEAD":
            return application(environ, start_response)
        started: list[tuple[Any, ...]] = []
        as_get = {**environ, "REQUEST_METHOD": "GET"}
        body = application(as_get, lambda *response: started.append(response))  # type: ignore
        ((status, headers),) = started
        length = str(sum(map(len, body)))
        start_response(status, [*headers, ("Content-Length", length)])
        return []

    return answer
