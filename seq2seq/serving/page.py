"""The web page: no resource comes from another server."""

from pathlib import Path

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from seq2seq.serving.language_pairs import language_name
from seq2seq.serving.service import Service

FOLDER = Path(__file__).with_name("templates")
_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_MAX_ALTERNATIVES = 5  # hypotheses that the page asks for


def router(service: Service) -> APIRouter:
    """Return the routes; they are not part of the API."""
    routes = APIRouter(include_in_schema=False)
    templates = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    static = {name: (FOLDER / name).read_bytes() for name in _STATIC}

    @routes.get("/")
    async def page() -> Response:
        """Return the page that translates as one types."""
        pairs = [
            {
                "src": pair.src,
                "tgt": pair.tgt,
                "label": " \N{RIGHTWARDS ARROW} ".join(map(language_name, pair)),
                "n_best": min(_MAX_ALTERNATIVES, translator.decoding.beam_size),
            }
            for pair, translator in service.pairs.items()
        ]
        text = templates.get_template("page.html").render(
            pairs=pairs,
            max_characters=service.limits.characters,
            needs_token=bool(service.access.clients),
        )
        return HTMLResponse(text)

    @routes.get("/static/{name}")
    async def static_file(name: str) -> Response:
        """Return a style sheet, a script or the icon."""
        if name not in static:
            raise HTTPException(404, "Not Found")
        return Response(static[name], media_type=_STATIC[name])

    @routes.get("/favicon.ico")
    async def favicon() -> Response:
        """Return the icon to a browser that shows no page of ours, but the API's description."""
        return await static_file("icon.svg")

    return routes
