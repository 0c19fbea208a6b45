"""Measure how soon a server answers one client while hostile ones ask for as much as they may.

    OMP_NUM_THREADS=1 python scripts/measure_fairness.py -m runs/demo -i data/demo/test.en

A server without tokens runs on this machine. Eight hostile clients, from 127.0.0.2 to 127.0.0.9,
have several connections each, and send the next request of a connection as soon as the last one is
answered: requests of one kind, then of another, at last of all kinds at random. Most are as large
and as dear as the server accepts. A ninth client, from 127.0.0.10, asks for one line after the
other. A row has the share of its requests that are answered within two seconds, and the median and
the slowest answer; then the same by the CPU time that the server has used meanwhile, which other
work on the machine does not change. The rows `nobody` and `lines`, of eight clients that ask as the
ninth does, show what the machine itself allows.

It needs Linux, where each address of 127.0.0.0/8 is this machine.
"""

import argparse
import json
import multiprocessing
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmark_server import running_server
from seq2seq.inference.loaders.load import languages_of

OK = 200
SOON = 2.0  # seconds
HOSTILE = [f"127.0.0.{number}" for number in range(2, 10)]
NINTH = "127.0.0.10"
CHARACTERS = 9_900  # of the 10,000 that a request may have
BODY = 180_000  # bytes of the 185,536 that a body may have
_JSON = {"Content-Type": "application/json"}
_MULTIPART = {"Content-Type": "multipart/form-data; boundary=b"}
_STAY = 0.1  # seconds until a client leaves that waits for no answer
_PAUSE = 0.05  # seconds after a request that was refused, and between those of the ninth client
_PATIENCE = 120.0  # seconds for an answer, twice those of the server
_LEAD = 3.0  # seconds that hostile clients ask before the ninth one does
ALONE = "nobody"  # the row without hostile clients


class Request(NamedTuple):
    """Request of a hostile client."""

    path: str
    body: bytes
    headers: Mapping[str, str] = _JSON
    waits: bool = True  # for the answer
    missing: int = 0  # bytes of the body that never come


Make = Callable[[], Request]


def v1(texts: str | Sequence[str], **fields: object) -> Request:
    """Return a request for all that the translator offers."""
    return Request("/v1/translate", json.dumps({"text": texts, **fields}).encode())


def _json(path: str, **fields: object) -> Request:
    return Request(path, json.dumps(fields).encode())


def _form(count: int) -> Request:
    part = '--b\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    size = BODY // count - len(part)
    fields = "".join(part.format(number, "x" * size) for number in range(count))
    return Request("/translate", f"{fields}--b--".encode(), _MULTIPART)


def _words(characters: int) -> list[str]:
    """Return different words of so many characters in all."""
    return [f"w{number:05}" for number in range(characters // 6)]


def makers(lines: Sequence[str], target: str) -> dict[str, Make]:
    """Return for each kind a function that makes a request."""
    usual = (" ".join(lines) * (1 + BODY // 1_000))[:BODY]
    line = usual[:CHARACTERS]
    pairs = [(word, word) for word in _words(CHARACTERS // 2)]
    page = ("".join(f"<p>{line[:20]} <b>a</b></p>" for line in lines) * 99)[:CHARACTERS]
    rare = [
        " ".join(chr(0x4E00 + 7 * (line * place % 2_900)) * 2 for place in range(1, 20))
        for line in range(1, 170)
    ]
    broken = b'{"text": [' + b'"a",' * (BODY // 4)

    def text() -> list[str]:
        start = random.randrange(len(lines))
        return [*lines[start:], *lines[:start]][: CHARACTERS // 90]

    kinds: dict[str, Make] = {
        "lines": lambda: v1(random.choice(lines)),
        "usual text": lambda: v1(text()),
        "one long line": lambda: v1(line),
        "one long word": lambda: v1("x" * CHARACTERS),
        "unusual characters": lambda: v1(rare),
        "many lines": lambda: v1(["a"] * 490),
        "samples": lambda: v1(["a b"] * 12, sampling={"samples": 100}),
        "samples of a long line": lambda: v1(line[:240], sampling={"samples": 100}),
        "MBR": lambda: v1(["a b", "b"], sampling={"samples": 100}, mbr="chrf"),
        "groups": lambda: v1(["a b"] * 4, beam_size=100, groups=100),
        "a wide beam": lambda: v1(["a b"] * 8, beam_size=100, n_best=100),
        "constraints": lambda: v1(["a b"] * 100, constraints=[["c d e"]] * 100),
        "a glossary": lambda: v1(["a b"] * 100, glossary=pairs),
        "forbidden words": lambda: v1(["a b"] * 100, forbidden=_words(CHARACTERS)),
        "a long prefix": lambda: v1("a b", prefix=line[:1_900]),
        "HTML": lambda: _json("/translate", q=page, target=target, format="html"),
        "detection": lambda: _json("/detect", q=usual[: BODY - 99]),
        "a form of two fields": lambda: _form(2),
        "a form of many fields": lambda: _form(1_500),
        "malformed JSON": lambda: Request("/v1/translate", broken),
        "half a body": lambda: v1("a b")._replace(missing=1),
    }
    hostile = list(kinds.values())[1:]
    kinds["clients that leave"] = lambda: random.choice(hostile)()._replace(waits=False)
    everything = list(kinds.values())[1:]
    kinds["all of these"] = lambda: random.choice(everything)()
    return kinds


def ask(port: int, address: str, request: Request) -> int:
    """Send a request from an address and return the status of its answer, 0 for none."""
    seconds = _PATIENCE if request.waits else _STAY
    connection = HTTPConnection("127.0.0.1", port, seconds, source_address=(address, 0))
    with closing(connection), suppress(OSError, HTTPException):
        connection.putrequest("POST", request.path)
        for name, value in request.headers.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(request.body) + request.missing))
        connection.endheaders(request.body)
        response = connection.getresponse()
        response.read()
        return response.status
    return 0


class Plan(NamedTuple):
    """Server, clients and numbers of a measurement, but for the kind of hostile requests."""

    port: int  # of the server
    pid: int
    lines: list[str]  # that the ninth client asks for
    target: str  # language
    connections: int  # of each hostile client
    answers: int  # to the ninth client


def attack(plan: Plan, kind: str, is_over: Event, results: Connection) -> None:
    """Send requests of a kind from all hostile clients until it is over; count the answers."""
    make = makers(plan.lines, plan.target)[kind]
    statuses = Counter[int]()

    def work(address: str) -> None:
        while not is_over.is_set():
            status = ask(plan.port, address, make())
            statuses[status] += 1
            if status != OK:
                time.sleep(_PAUSE)

    for address in HOSTILE * plan.connections:
        threading.Thread(target=work, args=(address,), daemon=True).start()
    parent = multiprocessing.parent_process()
    while not is_over.wait(1) and parent is not None and parent.is_alive():
        pass  # ended by a signal, the parent sets no event
    is_over.set()
    results.send(dict(statuses))


class Row(NamedTuple):
    """Figures of one kind of hostile requests."""

    seconds: list[float]  # until each answer to the ninth client
    cpu_seconds: list[float]  # that the server used until then
    statuses: dict[int, int]  # numbers of answers to the hostile clients; 0: none


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured_share(seconds: Sequence[float], requests: int) -> float:
    """Return the percentage of requests that were answered soon; others lack an answer."""
    return 100 * sum(value <= SOON for value in seconds) / requests


def figures(seconds: Sequence[float], requests: int) -> str:
    """Return the share of requests that were answered soon, the median and the slowest answer."""
    share = f"{measured_share(seconds, requests):3.0f}%"
    return f"{share}  {median(seconds):6.2f}  {max(seconds):6.2f}" if seconds else share


def measured(plan: Plan, kind: str) -> Row:
    """Ask as the ninth client, while the others send requests of a kind, in another process."""
    context = multiprocessing.get_context("spawn")
    is_over = context.Event()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=attack, args=(plan, kind, is_over, sender), daemon=True)
    row = Row([], [], {})
    if kind != ALONE:
        process.start()
        time.sleep(_LEAD)
    for number in range(plan.answers):
        start = time.perf_counter()
        cpu_start = cpu_seconds(plan.pid)
        if ask(plan.port, NINTH, v1(plan.lines[number % len(plan.lines)])) == OK:
            row.seconds.append(time.perf_counter() - start)
            row.cpu_seconds.append(cpu_seconds(plan.pid) - cpu_start)
        time.sleep(_PAUSE)
    is_over.set()
    if kind != ALONE:
        row.statuses.update(receiver.recv())
        process.join()
    return row


def main() -> None:
    """Print a row for each kind of hostile requests."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-m", "--model", type=Path, required=True, metavar="RUN")
    parser.add_argument("-i", "--input", type=Path, required=True, metavar="FILE")
    parser.add_argument("--connections", type=int, default=4, metavar="N", help="of each client")
    parser.add_argument("--answers", type=int, default=100, metavar="N", help="for each row")
    parser.add_argument("--kind", action="append", metavar="KIND", help="one row of the table")
    options = parser.parse_args()
    lines = options.input.read_text(encoding="utf-8").splitlines()
    target = languages_of(options.model)[1]
    kinds = options.kind or [ALONE, *makers(lines, target)]
    print(f"{'hostile requests':24}  within {SOON:g} s: median, slowest; by CPU time; statuses")
    for kind in kinds:
        with running_server(options.model) as server:
            port = urlsplit(server.address).port or 0
            plan = Plan(port, server.pid, lines, target, options.connections, options.answers)
            row = measured(plan, kind)
        by_time = figures(row.seconds, options.answers)
        by_cpu = figures(row.cpu_seconds, options.answers)
        print(f"{kind:24}  {by_time}    {by_cpu}  {row.statuses}", flush=True)


if __name__ == "__main__":
    main()
