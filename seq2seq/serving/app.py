"""The ASGI application: both APIs, the page, the documentation and the metrics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from seq2seq import __version__
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.serving import errors, libretranslate, metrics, page, v1
from seq2seq.serving.access import Access, Guard, Limits
from seq2seq.serving.language_pairs import LanguagePairs
from seq2seq.serving.metrics import Metrics
from seq2seq.serving.service import Service
from seq2seq.serving.translation_queue import QueueFullError, TranslationQueue

_HANDLERS: dict[int | type[Exception], Any] = {
    HTTPException: errors.on_http_error,
    RequestValidationError: errors.on_invalid,
    ValidationError: errors.on_invalid,
    UserError: errors.on_user_error,
    RunError: errors.on_run_error,
    QueueFullError: errors.on_full_queue,
    TimeoutError: errors.on_timeout,
    Exception: errors.on_failure,
}
_DESCRIPTION = (
    "Translation by attention-based recurrent models. `/translate`, `/languages` and `/health` "
    "have the shape of LibreTranslate's API. Every translation equals the one that "
    "`seq2seq translate` prints."
)


def create_app(
    pairs: LanguagePairs, limits: Limits | None = None, access: Access | None = None
) -> ASGIApp:
    """Return the application that serves these translators.

    Its lifespan starts and stops the thread that translates.
    """
    limits, access, figures = limits or Limits(), access or Access(), Metrics()
    service = Service(pairs, TranslationQueue(limits.queue_lines, figures), limits, access, figures)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.queue.start()
        yield
        await asyncio.to_thread(service.queue.close)

    app = FastAPI(
        title="seq2seq",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,  # FastAPI's pages load scripts from the network
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers=_HANDLERS,
    )
    app.include_router(libretranslate.router(service))
    app.include_router(v1.router(service))
    app.include_router(page.router(app, service))

    @app.get("/metrics", tags=["server"], response_class=Response)
    async def show_metrics(request: Request) -> Response:
        """Return all figures in Prometheus' text format."""
        access.check_token(request)
        return Response(figures.text(), media_type=metrics.CONTENT_TYPE)

    if access.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=access.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    paths = frozenset({*app.openapi()["paths"], "/", "/docs", "/openapi.json"})
    return Guard(app, limits, access, figures, paths)
