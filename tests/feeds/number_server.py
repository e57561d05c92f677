"""A server in uvicorn that gives numbers: as events, or over WebSocket until they are acknowledged.

As a program: ``python -m tests.feeds.number_server PORT TOTAL STATE``. Events begin after the Last-Event-ID.
Messages begin with what was not acknowledged, and the file STATE remembers that over a kill.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import uvicorn

BLOCK = 50
"""Events in one write."""


class NumberServer:
    """The numbers up to a total."""

    def __init__(self, total: int, state: Path) -> None:
        self._total = total
        self._state = state
        self._safe = int(state.read_text()) if state.exists() else 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self._converse(receive, send)
        else:
            await self._events(int(dict(scope["headers"]).get(b"last-event-id", b"-1")) + 1, send)

    async def _events(self, first: int, send: Any) -> None:
        status = 200 if first < self._total else 204
        # With X-Accel-Buffering nginx does not gather the response in files.
        headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for start in range(first, self._total, BLOCK):
            numbers = range(start, min(start + BLOCK, self._total))
            body = b"".join(b"retry: 50\nid: %d\ndata: %d\n\n" % (n, n) for n in numbers)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body"})

    async def _converse(self, receive: Any, send: Any) -> None:
        first = self._safe
        await receive()
        await send({"type": "websocket.accept"})
        listening = asyncio.ensure_future(self._listen(first, receive))
        try:
            for number in range(first, self._total):
                await send({"type": "websocket.send", "text": str(number)})
            await listening
        except OSError:
            return  # The gateway was killed. The next one gets what it has not acknowledged.
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening

    async def _listen(self, first: int, receive: Any) -> None:
        while (message := await receive())["type"] == "websocket.receive":
            self._safe = first + int(message["text"])
            new = self._state.with_suffix(".new")
            new.write_text(str(self._safe))
            os.replace(new, self._state)


def main(port: str, total: str, state: str) -> None:
    """Serve until killed."""
    application: Any = NumberServer(int(total), Path(state))
    uvicorn.run(application, host="127.0.0.1", port=int(port), lifespan="off", log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
