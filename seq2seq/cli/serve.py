"""`seq2seq serve`: a web page and an HTTP API that translate."""

import argparse
import ipaddress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli import arguments
from seq2seq.cli.loading import frozen_objects
from seq2seq.data.lines import read_lines
from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import UserError

if TYPE_CHECKING:
    from seq2seq.serving.access import Access

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Serve a page that translates as one types, and an HTTP API."
    parser.epilog = """examples:
  seq2seq serve -m runs/demo
  seq2seq serve -m runs/en-de -m runs/de-en --port 8080
  seq2seq serve -m runs/demo --host 0.0.0.0 --token-file token

Other machines reach the server only with --host, pages of other sites only with --allow-origin."""
    text = "run folder; repeat for further pairs of languages"
    parser.add_argument(
        "-m", "--model", action="append", default=[], required=True, metavar="RUN", help=text
    )
    text = "address to listen on (default: 127.0.0.1, this machine alone)"
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help=text)
    text = "port to listen on; 0: any free one (default: 8000)"
    parser.add_argument(
        "--port", type=arguments.count_or_zero, default=8000, metavar="N", help=text
    )
    text = "translate only for those who send the first line of FILE as a token"
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=text)
    text = "let pages of ORIGIN, such as https://example.org, use the API; repeat for more"
    parser.add_argument("--allow-origin", action="append", default=[], metavar="ORIGIN", help=text)
    text = "accept requests for the host NAME, as a proxy forwards them; repeat for more"
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help=text)
    group = parser.add_argument_group("limits")
    text = "characters per request (default: 10000)"
    group.add_argument(
        "--max-characters", type=arguments.count, default=10_000, metavar="N", help=text
    )
    text = "lines per request (default: 1000)"
    group.add_argument("--max-lines", type=arguments.count, default=1_000, metavar="N", help=text)
    text = "lines waiting for translation, before requests are refused (default: 10000)"
    group.add_argument("--max-queue", type=arguments.count, default=10_000, metavar="N", help=text)
    text = "seconds until a request is given up (default: 60)"
    group.add_argument("--timeout", type=arguments.count, default=60, metavar="N", help=text)
    arguments.add_int8(parser)
    arguments.add_device(parser)
    arguments.add_decoding(parser)


def run(options: argparse.Namespace) -> int:
    """Load the runs and serve them until Ctrl-C or SIGTERM."""
    _check_installed()
    if options.max_queue < options.max_lines:
        raise UserError(
            f"--max-queue {options.max_queue}: below --max-lines ({options.max_lines}); a request "
            "of that size would never be accepted"
        )
    with frozen_objects():
        from seq2seq.serving.access import Limits
        from seq2seq.serving.app import create_app
        from seq2seq.serving.language_pairs import load_pairs
        from seq2seq.serving.server import address_of, listen, serve
    access = _access(options)
    limits = Limits(options.max_characters, options.max_lines, options.max_queue, options.timeout)
    with listen(options.host, options.port) as listening:
        with frozen_objects():
            pairs = load_pairs(options.model, options.device, options.int8, options.decoding)
            app = create_app(pairs, limits, access)
        for pair, translator in pairs.items():
            logger.info(f"{pair}: {translator.name}")
        address = address_of(listening)
        logger.info(f"serving {address} (API: {address}/docs); Ctrl-C stops")
        serve(app, listening, limits.seconds)
    logger.info("stopped; all accepted requests have been answered")
    return 0


def _check_installed() -> None:
    """Raise UserError without the extra."""
    for module in ("babel", "fastapi", "jinja2", "prometheus_client", "uvicorn"):
        if find_spec(module) is None:
            raise UserError(f"serve needs {module}: pip install 'seq2seq-attention[serve]'")


def _access(options: argparse.Namespace) -> "Access":
    from seq2seq.serving.access import Access

    token = read_lines(options.token_file)[0].strip() if options.token_file else None
    if token == "":
        raise UserError(f"{options.token_file}:1: is blank; the first line must be the token")
    local = _is_local(options.host)
    if not local and token is None:
        logger.info(
            f"note: everyone who can reach {options.host} can translate; --token-file limits that"
        )
    names = {*_LOCAL_NAMES, options.host, *options.allow_host}
    hosts = frozenset(map(str.lower, names)) if local or options.allow_host else None
    return Access(token, hosts, tuple(options.allow_origin))


def _is_local(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name
        return False
