"""The ASGI application of both APIs and the page, and the server that runs it."""

import errno
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from seq2seq import __version__
from seq2seq.inference.settings import DEFAULT_SETTINGS, SearchSettings
from seq2seq.runtime import console
from seq2seq.runtime.errors import UserError, argument
from seq2seq.tools.serving import libretranslate, page, v1
from seq2seq.tools.serving.access import HANDLED, Access, Guard, on_error
from seq2seq.tools.serving.connection import IDLE, Connection
from seq2seq.tools.serving.limits import MAX_CONNECTIONS, MAX_HEAD, Limits
from seq2seq.tools.serving.service import LanguagePairs, Service
from seq2seq.tools.serving.translation_queue import TranslationQueue

if TYPE_CHECKING:
    from seq2seq.tools.serving.prometheus import Metrics

_OTHER_FILES = 200  # besides connections
_LAST_BODIES = 1.0  # seconds for bodies that are still arriving at a shutdown
_TO_CLOSE = 0.1  # of the time of a request, for what a shutdown has cancelled to end
_TO_EXIT = 0.05  # likewise, for the process to end
_TURN = 5e-4  # seconds for which a thread computes while another one waits
_TO_LOG = 0.5  # seconds for the last line of the log
_DESCRIPTION = (
    "`/translate`, `/languages` and `/health` have the shape of LibreTranslate's API. Every "
    "translation equals the one that `seq2seq translate` prints."
)


def create_app(
    pairs: LanguagePairs,
    limits: Limits | None = None,
    access: Access | None = None,
    settings: SearchSettings = DEFAULT_SETTINGS,
    metrics: "Metrics | None" = None,
) -> Guard:
    """Return the application; its lifespan ends once all is translated."""
    limits = limits or Limits()
    access = access or Access()
    queue = TranslationQueue(limits.queue_lines)
    service = Service(pairs, queue, limits, access, settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await queue.close()
        service.worker.close()

    app = FastAPI(
        title="seq2seq",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,  # FastAPI's pages load scripts from the network
        redoc_url=None,
        redirect_slashes=False,  # `Guard` drops a final slash
        lifespan=lifespan,
        exception_handlers=dict.fromkeys(HANDLED, on_error),
    )
    app.include_router(libretranslate.router(service))
    app.include_router(v1.router(service))
    app.include_router(page.router(service))

    if access.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=access.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    guard = Guard(app, access, service.stop_waiting)
    if metrics is not None:
        metrics.watch(queue)
        guard.on_answer = metrics.add
    return guard


class _Deadline:
    """End of the process some seconds after a signal, whatever it computes then.

    A thread of its own waits: neither a search that is not cancelled nor an event loop that has no
    time delays it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        limit = argument("timeout")  # spelled as the thread that begins spells it
        self._text = f"stopped by {limit}: not all accepted requests have been answered"
        self._is_signalled: SimpleQueue[bool] = SimpleQueue()  # which a handler may write to

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch for a signal until the end of the block."""
        threading.Thread(target=self._watch, name="deadline", daemon=True).start()
        try:
            yield
        finally:
            self._is_signalled.put(False)

    def begin(self) -> None:
        """Let the seconds begin."""
        self._is_signalled.put(True)

    def _watch(self) -> None:
        if not self._is_signalled.get():
            return
        latest = time.monotonic() + self._seconds
        try:
            while self._is_signalled.get(timeout=max(0.0, latest - time.monotonic())):
                pass
        except Empty:
            writer = threading.Thread(target=console.logger.error, args=(self._text,), daemon=True)
            writer.start()
            writer.join(_TO_LOG)  # the log may be a pipe that is not read
            os._exit(1)


@contextmanager
def _short_turns() -> Iterator[None]:
    """Let the interpreter's threads take turns more often than usual.

    The event loop lets others run at each of the ten system calls of a connection, and has to wait
    for 5 ms after each while two of them compute.
    """
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(_TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(switch_interval)


class _Server(uvicorn.Server):
    """Server that a signal stops, and that then returns instead of raising the signal again."""

    def __init__(self, config: uvicorn.Config, app: Guard, longest_shutdown: float) -> None:
        super().__init__(config)
        self._app = app
        self._deadline = _Deadline(longest_shutdown)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests until a signal, and for a limited time after it."""
        with self._deadline.watched(), _short_turns():
            super().run(sockets=sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGHUP, too, unless it is ignored as by nohup; it reloads nothing."""
        is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        is_main = threading.current_thread() is threading.main_thread()
        with super().capture_signals():
            if is_ignored or not is_main:
                yield
                return
            handler = signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Stop accepting requests; a second Ctrl-C stops at once."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self._deadline.begin()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what has been accepted, or cancel it, then stop the application."""
        self._app.stop_waiting(_LAST_BODIES)
        await super().shutdown(sockets)
        if self.force_exit:
            for task in self.server_state.tasks:
                task.cancel()
            await self.lifespan.shutdown()  # or the process would end with its thread in torch


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raises UserError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    max_files = MAX_CONNECTIONS + _OTHER_FILES
    max_files = max_files if hard == resource.RLIM_INFINITY else min(max_files, hard)
    if soft != resource.RLIM_INFINITY and soft < max_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, hard))
    try:
        return socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        number = error.errno or 0
        reason = os.strerror(number) if number in errno.errorcode else error.strerror
        remedy = "choose another port, or an address of this machine"
        place = f"{argument('host', host)} {argument('port', port)}"
        raise UserError(f"{place}: cannot listen there ({reason}); {remedy}") from None


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_for(app: Guard, longest_request: float) -> uvicorn.Server:
    """Return a server; `run(sockets=[listen(...)])` answers requests until a signal."""
    config = uvicorn.Config(
        app,
        access_log=False,
        loop="asyncio",  # uvloop accepts one connection between two steps of all others
        log_config=None,
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=Connection,
        h11_max_incomplete_event_size=MAX_HEAD,
        timeout_keep_alive=round(IDLE),
        timeout_graceful_shutdown=max(1, int(longest_request * (1 - _TO_CLOSE))),
    )
    return _Server(config, app, longest_request * (1 - _TO_EXIT))
