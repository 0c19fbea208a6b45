"""Serve a page that translates as one types, and an HTTP API.

examples:
  seq2seq serve -m runs/demo
  seq2seq serve -m runs/en-de -m runs/de-en --port 8080
  seq2seq serve -m runs/demo --host 0.0.0.0 --token-file token
  seq2seq serve --health

Other machines reach the server only with --host, pages of other sites only with --allow-origin.
Each option may be an environment variable, such as SEQ2SEQ_PORT; lists have spaces between.
--health asks the running server of this --host and --port whether it accepts requests: exit code 0.
"""

import argparse
import ipaddress
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.cli import arguments, number_types, search_arguments
from seq2seq.cli.interruption import frozen_objects
from seq2seq.cli.options import Repeated
from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import (
    RunError,
    UserError,
    argument,
    arguments_spelled,
    is_installed,
    not_installed,
    python_spelling,
    shorten,
)
from seq2seq.text.text_files import read_lines

if TYPE_CHECKING:
    from seq2seq.tools.serving.access import Access
    from seq2seq.tools.serving.limits import Client
    from seq2seq.tools.serving.prometheus import Metrics

_CLIENT = re.compile(r"([!-~]+)(?:\s+(\S+))?(?:\s+(\d+))?")
_HEALTHY = 5.0  # seconds within which a healthy server answers
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_model(parser, required=False, repeated="further pairs of languages")
    text = "address to listen on (default: 127.0.0.1, this machine alone)"
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help=text)
    text = "port to listen on; 0: any free one (default: 8000)"
    parser.add_argument("--port", type=_port, default=8000, metavar="N", help=text)
    text = (
        "translate only for those with a token of FILE, one a line: TOKEN [NAME CHARACTERS/MINUTE]"
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=text)
    text = "let pages of ORIGIN, such as https://example.org, use the API; repeat for more"
    several: dict[str, Any] = {"action": Repeated, "default": []}
    parser.add_argument("--allow-origin", type=_origin, metavar="ORIGIN", help=text, **several)
    text = "accept requests for the host NAME, as a proxy forwards them; repeat for more"
    parser.add_argument("--allow-host", type=_host, metavar="NAME", help=text, **several)
    text = "format of the log; json has a line for every request (default: text)"
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help=text)
    text = "show Prometheus its figures on this port of 127.0.0.1, at /metrics (default: nowhere)"
    parser.add_argument("--metrics-port", type=_port, metavar="N", help=text)
    text = "ask the server that runs at --host and --port for its health, and start none"
    parser.add_argument("--health", action="store_true", help=text)
    group = parser.add_argument_group("requirements on all translations")
    search_arguments.add_requirements(group)
    group = parser.add_argument_group("limits")
    for name, default, text in (
        ("--max-characters", 10_000, "characters per request"),
        ("--max-lines", 1_000, "lines per request"),
        ("--max-queue", 10_000, "lines waiting for translation, before requests are refused"),
        ("--timeout", 60, "seconds until a request is given up"),
    ):
        text = f"{text} (default: {default})"
        group.add_argument(name, type=number_types.count, default=default, metavar="N", help=text)
    arguments.add_model_options(parser)
    _read_environment(parser)


def variable(action: argparse.Action) -> str:
    return f"SEQ2SEQ_{action.dest.upper()}"


def _read_environment(parser: argparse.ArgumentParser) -> None:
    """Let SEQ2SEQ_PORT be the default of --port, and so on."""
    environment = dict(os.environ)
    for action in parser._actions:
        name = variable(action)
        text = environment.get(name)
        if text == "" and action.type is Path:  # left out, it would open the server to everyone
            raise UserError(f"{name}: is empty; name a file, or unset it")
        if not text or not action.option_strings or action.dest == "help":
            continue
        is_list = isinstance(action.default, list)
        try:
            words = text.split() if is_list else [text]
            values = [parser._get_value(action, word) for word in words]
            for value in values:
                parser._check_value(action, value)
        except argparse.ArgumentError as error:
            raise UserError(f"{name}: {error.message}") from None
        action.required = False
        value = text != "0" if action.nargs == 0 else values[0]
        action.default = values if is_list else value


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    model: list[str]
    loading: arguments.ModelArguments
    host: str
    port: int
    token_file: Path | None
    allow_origin: list[str]
    allow_host: list[str]
    log_format: str
    metrics_port: int | None
    health: bool
    required: search_arguments.RequirementArguments
    max_characters: int
    max_lines: int
    max_queue: int
    timeout: int


def run(options: Options) -> int:
    if options.health:
        print(_health(options.host, options.port))
        return 0
    _check(options)
    with frozen_objects():
        from seq2seq.tools.serving.access import log_json
        from seq2seq.tools.serving.app import address_of, create_app, listen, server_for
        from seq2seq.tools.serving.limits import Limits
        from seq2seq.tools.serving.service import load_pairs
    if options.log_format == "json":
        log_json()
    settings = search_arguments.requirements(options.required)
    access = _access(options)
    limits = Limits(options.max_characters, options.max_lines, options.max_queue, options.timeout)
    with ExitStack() as context:
        listening = context.enter_context(listen(options.host, options.port))
        metrics = context.enter_context(_metrics(options.metrics_port))
        with frozen_objects():
            pairs = load_pairs(options.model, arguments.model_options(options.loading))
            app = create_app(pairs, limits, access, settings, metrics)
        for translator in pairs.values():
            places = search_arguments.glossary_places(options.required, settings)
            translator.check_phrases(places, settings)
        if not (access.clients or _is_local(options.host)):
            text = f"everyone who can reach {options.host} can translate"
            logger.info(f"note: {text}; --token-file limits that")
        for pair, translator in pairs.items():
            logger.info(f"{pair}: {translator.name}")
        address = address_of(listening)
        logger.info(f"serving {address} (API: {address}/openapi.json); Ctrl-C stops")
        server = server_for(app, limits.seconds)
        with arguments_spelled(python_spelling):  # a request has fields of these names
            server.run(sockets=[listening])
    if server.force_exit:
        raise KeyboardInterrupt
    logger.info("stopped; all accepted requests have been answered")
    return 0


def _check(options: Options) -> None:
    """Raise UserError without a model or a package, or for limits that exclude each other."""
    if not options.model:
        from seq2seq.runs.packaged_models import packaged_hint

        text = "serve needs -m RUN; `seq2seq runs` lists those of a folder"
        raise UserError(f"{text}{packaged_hint()}")
    for module in ("fastapi", "jinja2", "python_multipart", "uvicorn"):
        if not is_installed(module):
            raise not_installed(f"serve needs {module.replace('_', '-')}", "serve")
    if options.metrics_port is not None and not is_installed("prometheus_client"):
        raise not_installed("--metrics-port needs prometheus-client", "metrics")
    if options.max_queue < options.max_lines:
        text = f"below --max-lines ({options.max_lines})"
        reason = "a request of that size would never be accepted"
        raise UserError(f"--max-queue {options.max_queue}: {text}; {reason}")


def _access(options: Options) -> "Access":
    """Return who may ask: with which tokens, by which host names, from which pages."""
    from seq2seq.tools.serving.access import Access

    names = (*_LOCAL_NAMES, options.host, *options.allow_host)
    are_checked = _is_local(options.host) or bool(options.allow_host)
    hosts = frozenset(map(str.lower, names)) if are_checked else None  # any
    return Access(_clients(options.token_file), hosts, tuple(options.allow_origin))


@contextmanager
def _metrics(port: int | None) -> "Iterator[Metrics | None]":
    """Yield the figures that Prometheus is shown, None without a port for it."""
    if port is None:
        yield None
        return
    from seq2seq.tools.serving.prometheus import Metrics, served

    metrics = Metrics()
    with served(metrics, port) as address:
        logger.info(f"metrics: {address}")
        yield metrics


def _health(host: str, port: int) -> str:
    """Return the answer of a running server; raises RunError if it accepts no requests."""
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    place = f"{argument('host', host)} {argument('port', port)}"
    with closing(HTTPConnection(address, port, timeout=_HEALTHY)) as connection:  # by no proxy
        try:
            connection.request("GET", "/health")
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise RunError(f"{place}: no server answers there ({reason})") from None
    if response.status != 200:
        raise RunError(f"{place}: the server answers {response.status}: {shorten(text)}")
    return text


def _port(text: str) -> int:
    if not text.isdecimal() or int(text[:6]) > 65_535:
        raise argparse.ArgumentTypeError(f"must be an integer from 0 to 65535, not {text!r}")
    return int(text)


def _origin(text: str) -> str:
    """Return an origin as browsers send it: others, such as patterns, would never match."""
    if text != "*" and not re.fullmatch(r"[a-z-]+://[A-Za-z0-9_.:\[\]-]+", text):
        raise argparse.ArgumentTypeError(f"must be like https://example.org, not {text!r}")
    return text.lower()


def _host(text: str) -> str:
    """Return a name of the server without scheme, port and path, as requests are compared."""
    if not re.fullmatch(r"[^/:*\s]+|[0-9a-fA-F:]+", text):
        raise argparse.ArgumentTypeError(f"must be a name like example.org, not {text!r}")
    return text


def _clients(path: Path | None) -> "dict[str, Client]":
    """Return the clients of a file by their tokens, which headers can hold; raises UserError."""
    from seq2seq.tools.serving.limits import Client

    clients: dict[str, Client] = {}
    places: dict[str, int] = {}  # lines of tokens
    empty = path is None or (path.is_file() and not path.stat().st_size)
    lines = [] if path is None or empty else read_lines(path)
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if (fields := _CLIENT.fullmatch(line.strip())) is None:
            rule = "a token of ASCII characters, or a token, a name and the characters per minute"
            raise UserError(f"{path}:{number}: must be {rule}, with spaces between")
        token, name, characters = fields.groups("")
        if token in places:
            text = f"has the token of line {places[token]} again; give each client its own"
            raise UserError(f"{path}:{number}: {text}")
        places[token] = number
        clients[token] = Client(name or f"client {len(clients) + 1}", int(characters[:12] or 0))
    if path is not None and not clients:
        raise UserError(f"{path}:1: must be a token, of ASCII characters without spaces")
    return clients


def _is_local(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name
        return False
