"""Figures that Prometheus is shown."""

import socket

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")

from cases.server import Served, serve, until
from prometheus_client.parser import text_string_to_metric_families

from seq2seq.tools.serving.prometheus import Metrics, served
from seq2seq.tools.serving.service import LanguagePairs


def samples_at(address: str) -> dict[tuple[str, ...], float]:
    """Return the values at an address by name and labels."""
    body = Served(address.removesuffix("/metrics")).call("/metrics").body.decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


def test_requests_lines_and_characters_are_counted(tiny_pairs: LanguagePairs) -> None:
    """A request is counted after its answer. Paths of strangers are one."""
    metrics = Metrics()
    with serve(tiny_pairs, metrics=metrics) as server, served(metrics, 0) as address:
        server.call("/translate", {"q": ["ba lo.", "mi"], "target": "yy"})
        server.call("/translate", {"q": "ba lo.", "target": "zz"})
        server.call("/a-path-of-a-stranger")
        assert server.call("/metrics").status == 404
        expected = {
            ("seq2seq_requests_total", "/translate", "200"): 1,
            ("seq2seq_requests_total", "/translate", "400"): 1,
            ("seq2seq_requests_total", "other", "404"): 2,
            ("seq2seq_request_seconds_count", "/translate"): 2,
            ("seq2seq_request_seconds_count", "other"): 2,
            ("seq2seq_lines_total", "xx-yy"): 2,
            ("seq2seq_characters_total", "xx-yy"): 8,
            ("seq2seq_queue_lines",): 0,
        }
        until(lambda: expected.items() <= samples_at(address).items())
        names = {name for name, *_ in samples_at(address)}
    assert "process_resident_memory_bytes" in names


def test_head_is_answered_as_get_without_a_body() -> None:
    with served(Metrics(), 0) as address:
        server = Served(address.removesuffix("/metrics"))
        expected = server.call("/metrics")
        with socket.create_connection(("127.0.0.1", server.port), timeout=600) as connection:
            connection.sendall(b"HEAD /metrics HTTP/1.0\r\n\r\n")
            answer = connection.makefile("rb").read()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().splitlines()
    headers = dict(line.split(": ", 1) for line in lines)
    assert status.split()[1] == "200"
    assert body == b""
    assert headers["Content-Type"] == expected.headers["Content-Type"]
    assert int(headers["Content-Length"]) > 0
