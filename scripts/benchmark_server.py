"""Measure `seq2seq serve` beside offline translation of the same lines, and compare the answers.

    python scripts/benchmark_server.py -m runs/demo -i data/demo/test.en --clients 1 64

For each number of clients, in turn: translate the lines offline, then send them to a server as
mixed requests (JSON and forms, one line and lists, both APIs), and compare every answer with
`seq2seq translate`. The server is a process of its own on this machine; the clients are threads of
this one and take their share of the cores.
"""

import argparse
import http.client
import json
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from seq2seq.inference.loaders.load import languages_of

_START_SECONDS = 120
_MAX_LINES = 8  # lines per request
_TRIES = 50  # attempts at a request that the server has no room for


class Request(NamedTuple):
    """Request of some lines, given by their indices, to one of the APIs."""

    path: str
    form: bool
    numbers: Sequence[int]


class Answer(NamedTuple):
    """Objects of the answer, one per line, and the time it took."""

    lines: Sequence[Any]  # texts, or objects of /v1/translate
    seconds: float


def mixed_requests(count: int, lines: int, seed: int = 1) -> list[Request]:
    """Return requests that together ask for every line if they are many; half ask for one line."""
    generator = random.Random(seed)
    order = list(range(lines))
    generator.shuffle(order)
    requests = []
    position = 0
    for _ in range(count):
        size = 1 if generator.random() < 0.5 else generator.randint(2, _MAX_LINES)
        numbers = [order[(position + offset) % lines] for offset in range(size)]
        position += size
        form = size == 1 and generator.random() < 0.3
        path = "/translate" if form or generator.random() < 0.7 else "/v1/translate"
        requests.append(Request(path, form, numbers))
    return requests


class Client:
    """Connection to a server that stays open; refused requests are sent again."""

    def __init__(self, address: str, pair: tuple[str, str]) -> None:
        parts = urlsplit(address)
        assert parts.hostname == "127.0.0.1"
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=300)
        self._languages = dict(zip(("source", "target"), pair, strict=True))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def send(self, request: Request, lines: Sequence[str]) -> Answer:
        """Send a request; raises RuntimeError if it is not answered."""
        texts = [lines[number] for number in request.numbers]
        name = "text" if request.path.startswith("/v1") else "q"
        fields: dict[str, Any] = {name: texts if len(texts) > 1 else texts[0], **self._languages}
        kind = "application/x-www-form-urlencoded" if request.form else "application/json"
        body = (urlencode(fields) if request.form else json.dumps(fields)).encode()
        start = time.perf_counter()
        for _ in range(_TRIES):
            self._connection.request("POST", request.path, body, {"Content-Type": kind})
            response = self._connection.getresponse()
            content = response.read()
            if response.status != 503:
                break
            time.sleep(int(response.headers["Retry-After"]))
        seconds = time.perf_counter() - start
        if response.status != 200:
            raise RuntimeError(f"{request.path}: {response.status} {content.decode()[:200]}")
        answer = json.loads(content)
        translations = answer["translations"] if name == "text" else answer["translatedText"]
        return Answer(translations if isinstance(translations, list) else [translations], seconds)


def send_all(
    address: str,
    pair: tuple[str, str],
    lines: Sequence[str],
    requests: Sequence[Request],
    clients: int,
) -> list[Answer]:
    """Send requests from several clients at once, each as soon as its last one is answered."""
    answers: list[Answer | None] = [None] * len(requests)
    numbers = iter(range(len(requests)))
    lock = threading.Lock()
    failures: list[Exception] = []

    def work() -> None:
        with closing(Client(address, pair)) as client:
            while not failures:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                try:
                    answers[number] = client.send(requests[number], lines)
                except Exception as error:
                    failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [answer for answer in answers if answer is not None]


def differences(
    requests: Sequence[Request], answers: Sequence[Answer], expected: Sequence[Any]
) -> int:
    """Count lines whose answer is not the object that `seq2seq translate --json` prints."""
    return sum(
        answered_line
        != (expected[number] if request.path.startswith("/v1") else expected[number]["text"])
        for request, answer in zip(requests, answers, strict=True)
        for number, answered_line in zip(request.numbers, answer.lines, strict=True)
    )


class Server(NamedTuple):
    """Server in a process of its own."""

    address: str
    pid: int


@contextmanager
def running_server(run: Path, options: Sequence[str] = ()) -> Iterator[Server]:
    """Start a server on a free port; stop it at the end."""
    command = [sys.executable, "-m", "seq2seq", "serve", "-m", str(run), "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8")
    timer = threading.Timer(_START_SECONDS, process.kill)
    timer.start()
    try:
        assert process.stderr is not None
        seen = ""
        while (address := re.search(r"serving (http://\S+)", seen)) is None:
            if not (line := process.stderr.readline()):
                raise RuntimeError(f"the server did not start: {seen}")
            seen += line
        timer.cancel()
        yield Server(address[1], process.pid)
    finally:
        timer.cancel()
        process.terminate()
        process.communicate(timeout=60)


def command_line(run: Path, path: Path) -> list[Any]:
    """Return the objects that `seq2seq translate --json` prints for the lines of a file."""
    command = [sys.executable, "-m", "seq2seq", "translate", "-m", str(run), "-i", str(path)]
    done = subprocess.run([*command, "--json"], capture_output=True, encoding="utf-8", check=True)
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def offline_seconds(run: Path, lines: Sequence[str]) -> float:
    """Return the time to translate lines offline, as `seq2seq translate` does, loading excluded."""
    program = (
        "import sys, time\n"
        "from seq2seq import Translator\n"
        "translator = Translator.load(sys.argv[1])\n"
        "lines = sys.stdin.read().split('\\n')\n"
        "translator.translate(lines[:64], text_only=True)\n"
        "start = time.perf_counter()\n"
        "for first in range(0, len(lines), 2048):\n"
        "    translator.translate(lines[first:first + 2048], text_only=True)\n"
        "print(time.perf_counter() - start)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(run)],
        input="\n".join(lines),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return float(done.stdout)


def main() -> None:
    """Print a row of figures for each number of clients."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-m", "--model", type=Path, required=True, metavar="RUN")
    parser.add_argument("-i", "--input", type=Path, required=True, metavar="FILE")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 64], metavar="N")
    parser.add_argument("--requests", type=int, default=2000, metavar="N", help="for each")
    options = parser.parse_args()
    pair = languages_of(options.model)
    content = options.input.read_bytes().removesuffix(b"\n").split(b"\n")
    lines = [line.decode("utf-8", errors="replace") for line in content]
    expected = command_line(options.model, options.input)
    print("clients  requests  lines/s offline  lines/s served  ratio  p50 ms  p95 ms  different")
    with running_server(options.model) as server:
        for clients in options.clients:
            requests = mixed_requests(options.requests if clients > 1 else 200, len(lines))
            texts = [lines[number] for request in requests for number in request.numbers]
            send_all(server.address, pair, lines, requests[:100], clients)  # warm-up
            offline = len(texts) / offline_seconds(options.model, texts)
            start = time.perf_counter()
            answers = send_all(server.address, pair, lines, requests, clients)
            served = len(texts) / (time.perf_counter() - start)
            latencies = quantiles([1000 * answer.seconds for answer in answers], n=20)
            different = differences(requests, answers, expected)
            print(
                f"{clients:7}  {len(requests):8}  {offline:15.0f}  {served:14.0f}  "
                f"{served / offline:5.2f}  {latencies[9]:6.0f}  {latencies[18]:6.0f}  "
                f"{different:9}",
                flush=True,
            )


if __name__ == "__main__":
    main()
