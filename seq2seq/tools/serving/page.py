"""The web page: no resource comes from another server."""

import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from seq2seq.data.languages import language_name
from seq2seq.inference.attention_table import style
from seq2seq.runs.layout import LOG, METRICS, SAMPLES
from seq2seq.runs.metrics_file import read_metrics
from seq2seq.runtime.console import one_line
from seq2seq.tools.serving.service import Service

FOLDER = Path(__file__).with_name("templates")
_ATTENTION = "attention.css"  # palette of all attention maps
_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_MAX_ALTERNATIVES = 5  # hypotheses that the page asks for
_MAX_EXAMPLES, _MAX_EXAMPLE = 3, 120  # sentences, and characters of each
_MAX_BYTES = 1 << 24  # that are read of a file of a run, which may be a stranger's
_PAIRS = re.compile(rb"(?<![\d,])[\d,]{1,15}(?= training pairs)")


def router(service: Service) -> APIRouter:
    routes = APIRouter(include_in_schema=False)
    loader = FileSystemLoader(FOLDER)
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    pairs = [
        {
            "src": pair.src,
            "tgt": pair.tgt,
            "label": " \N{RIGHTWARDS ARROW} ".join(map(language_name, pair)),
            "n_best": min(_MAX_ALTERNATIVES, translator.decoding.beam_size),
            "introduction": introduction(Path(translator.name)),
            "examples": json.dumps(examples(Path(translator.name)), ensure_ascii=False),
        }
        for pair, translator in service.pairs.items()
    ]
    static = {name: (FOLDER / name).read_bytes() for name in _STATIC}
    static[_ATTENTION] = style().encode()

    @routes.get("/")
    async def page() -> Response:
        text = templates.get_template("page.html").render(
            pairs=pairs,
            max_characters=service.limits.characters,
            needs_token=bool(service.access.clients),
        )
        return HTMLResponse(text)

    @routes.get("/static/{name}")
    @routes.get("/favicon.ico")  # asked for by a browser that shows the API's description
    async def static_file(name: str = "icon.svg") -> Response:
        if name not in static:
            raise HTTPException(404, "Not Found")
        return Response(static[name], media_type=_STATIC.get(name, "text/css"))

    return routes


def introduction(run: Path) -> str:
    """Return when a run was trained and how it scores, as far as its folder says so."""
    facts = []
    with suppress(OSError):
        metrics = (run / METRICS).stat()
        facts.append(f"trained {time.strftime('%Y-%m-%d', time.gmtime(metrics.st_mtime))}")
        if pairs := _PAIRS.search(_start_of(run / LOG)):
            facts.append(f"{pairs[0].decode()} pairs")
        if metrics.st_size <= _MAX_BYTES:
            scores = [line["valid_bleu"] for line in read_metrics(run) if "valid_bleu" in line]
            facts += [f"BLEU {max(scores):.1f} on held-out sentences"] if scores else []
    return ", ".join(facts)


def examples(run: Path) -> list[str]:
    """Return short sentences of the validation text that training has logged as samples."""
    texts: dict[str, None] = {}
    for line in _start_of(run / SAMPLES).split(b"\n"):
        with suppress(ValueError, RecursionError):
            sample: Any = json.loads(line)
            text = sample.get("source") if isinstance(sample, dict) else None
            if isinstance(text, str) and 0 < len(text) <= _MAX_EXAMPLE:
                texts[one_line(text)] = None
    return sorted(texts, key=len)[:_MAX_EXAMPLES]


def _start_of(path: Path) -> bytes:
    with suppress(OSError), path.open("rb") as file:
        return file.read(_MAX_BYTES)
    return b""
