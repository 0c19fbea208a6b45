"""Work on requests that grows with them."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fastapi import HTTPException, Request

from seq2seq.tools.serving.service import Worker


def request(message: str) -> Request:
    """Return a request whose client sends one message after its body."""

    async def receive() -> dict[str, Any]:
        return {"type": message, "body": b""}

    return Request({"type": "http", "client": ("127.0.0.2", 1), "state": {}}, receive)


def test_no_work_is_begun_for_a_client_that_has_left() -> None:
    calls = []

    async def work() -> None:
        worker = Worker()
        await worker.run(request("http.request"), calls.append, "present")
        with pytest.raises(HTTPException, match="499"):
            await worker.run(request("http.disconnect"), calls.append, "gone")
        worker.close()

    asyncio.run(work())
    assert calls == ["present"]
