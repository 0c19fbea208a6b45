"""Figures of a server for Prometheus, and its log for machines."""

import json
import logging

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from seq2seq.runtime.console import logger

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LINES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters, gauges and histograms of one server."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "seq2seq_requests", "HTTP requests", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "seq2seq_request_seconds",
            "Time from the first byte of a request to the end of its answer",
            ["path"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.lines = Counter("seq2seq_lines", "Lines translated", ["pair"], registry=registry)
        self.characters = Counter(
            "seq2seq_source_characters", "Characters translated", ["pair"], registry=registry
        )
        self.batch_lines = Histogram(
            "seq2seq_batch_lines", "Lines per batch", buckets=_LINES, registry=registry
        )
        self.batch_seconds = Histogram(
            "seq2seq_batch_seconds", "Time per batch", buckets=_SECONDS, registry=registry
        )
        self.waiting = Gauge(
            "seq2seq_waiting_lines", "Lines accepted and not yet translated", registry=registry
        )
        self.refused = Counter(
            "seq2seq_refused_requests",
            "Requests that were not translated, by reason",
            ["reason"],
            registry=registry,
        )

    def text(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self._registry)


class _JsonFormatter(logging.Formatter):
    """Format a message, or the figures of a request, as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        request = getattr(record, "request", None)
        level = "info" if request else record.levelname.lower()
        entry = {"time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"), "level": level}
        entry |= request or {"message": record.getMessage()}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def log_json() -> None:
    """Log each message from now on, and each request, as a JSON object."""
    for handler in logger.handlers:
        handler.setFormatter(_JsonFormatter())
    logger.setLevel(logging.DEBUG)
