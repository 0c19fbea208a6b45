"""Run the application on a socket until a signal, then answer what has been accepted."""

import errno
import os
import signal
import socket
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from seq2seq.runtime.errors import UserError, argument

MAX_CONNECTIONS = 2_000  # open at once; further ones are answered 503
_SECONDS_TO_CLOSE = 5  # beyond the longest request
_KEEP_ALIVE = 30  # seconds that an idle connection is kept


class _Server(uvicorn.Server):
    """Server that a signal stops, and that then returns instead of raising the signal again."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Stop accepting requests; a second Ctrl-C stops at once."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what has been accepted, or cancel it, then stop the application."""
        await super().shutdown(sockets)
        if self.force_exit:
            for task in self.server_state.tasks:
                task.cancel()
            await self.lifespan.shutdown()  # or the process would end with its thread in torch


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raises UserError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        number = error.errno or 0
        reason = os.strerror(number) if number in errno.errorcode else error.strerror
        raise UserError(
            f"{argument('host', host)} {argument('port', port)}: cannot listen there ({reason}); "
            "choose another port, or an address of this machine"
        ) from None


def address_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_for(app: ASGIApp, longest_request: float) -> uvicorn.Server:
    """Return a server; `run(sockets=[listen(...)])` serves until SIGINT or SIGTERM.

    Requests that were accepted are answered before it returns.
    """
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=round(longest_request) + _SECONDS_TO_CLOSE,
    )
    return _Server(config)
