"""The web page and the documentation of the APIs: no resource comes from another server."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import APIRouter, FastAPI, HTTPException
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from seq2seq.serving.language_pairs import language_name
from seq2seq.serving.service import Service

FOLDER = Path(__file__).with_name("templates")
_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_MAX_ALTERNATIVES = 5  # hypotheses that the page asks for


class _Field(NamedTuple):
    """Field of a request or of an answer, as the documentation shows it."""

    name: str
    kind: str
    default: str
    description: str


def router(app: FastAPI, service: Service) -> APIRouter:
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
            needs_token=service.access.token is not None,
        )
        return HTMLResponse(text)

    @routes.get("/static/{name}")
    async def static_file(name: str) -> Response:
        """Return a style sheet, a script or the icon."""
        if name not in static:
            raise HTTPException(404, "Not Found")
        return Response(static[name], media_type=_STATIC[name])

    @routes.get("/docs")
    async def docs() -> Response:
        """Return the documentation, made from the OpenAPI description."""
        text = templates.get_template("docs.html").render(
            operations=list(_operations(app)), objects=_objects(app.openapi())
        )
        return HTMLResponse(text)

    return routes


def _operations(app: FastAPI) -> Iterator[dict[str, Any]]:
    """Yield what the documentation shows of each operation."""
    description = app.openapi()
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {})
            answer = operation["responses"]["200"].get("content", {}).get("application/json", {})
            yield {
                "method": method.upper(),
                "path": path,
                "summary": operation.get("description", ""),
                "kinds": list(body),
                "request": _fields(_schema(body.get("application/json")), description),
                "answer": _fields(_schema(answer), description),
                "statuses": {
                    code: each["description"]
                    for code, each in operation["responses"].items()
                    if code not in ("200", "422")
                },
            }


def _objects(description: Mapping[str, Any]) -> dict[str, list[_Field]]:
    """Return the fields of objects within requests and answers, by the names of their types."""
    schemas = description["components"]["schemas"]
    named = [field.kind for schema in schemas.values() for field in _fields(schema, description)]
    return {
        name: _fields(schema, description)
        for name, schema in schemas.items()
        if any(name in kind for kind in named)
    }


def _schema(content: Mapping[str, Any] | None) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = (content or {}).get("schema", {})
    return schema


def _fields(schema: Mapping[str, Any], description: Mapping[str, Any]) -> list[_Field]:
    """Return the fields of an object, or of the objects in a list."""
    schema = _resolved(schema, description)
    schema = _resolved(schema.get("items", schema), description)
    required = schema.get("required", [])
    return [
        _Field(
            name,
            _kind(each, description),
            "required" if name in required else _default(each),
            each.get("description", ""),
        )
        for name, each in schema.get("properties", {}).items()
    ]


def _resolved(schema: Mapping[str, Any], description: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that a reference names."""
    if "$ref" not in schema:
        return schema
    found: Mapping[str, Any] = description["components"]["schemas"]
    return _resolved(found[schema["$ref"].rpartition("/")[2]], description)


def _kind(schema: Mapping[str, Any], description: Mapping[str, Any]) -> str:
    """Return the type of a field in words, such as "string or array of string"."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(each, description) for each in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return " or ".join(f'"{each}"' for each in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(_kind(each, description) for each in schema['prefixItems'])}]"
        items = schema.get("items") or {"type": "value"}
        return f"array of {_kind(items, description)}"
    return str(schema.get("type", "value"))


def _default(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema["default"]) if "default" in schema else ""
