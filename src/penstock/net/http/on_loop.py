"""Sources that belong to one event loop, whoever subscribes from wherever.

What an ASGI server hands to an application can be awaited on the server's loop alone, while a stream may well
be subscribed to on a pool's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any

from penstock.spec import Subscriber
from penstock.streams import Flux, Mono
from penstock.streams.segment import Op
from penstock.streams.source import Source
from penstock.streams.stages.awaiting import AsyncIterableSource, FutureSource
from penstock.streams.stream import flux_of, mono_of

__all__ = ["end_of", "steps_of"]


class _OnLoop(Source):
    """Attaches another source on the loop that it runs on."""

    def __init__(self, inner: Source, loop: asyncio.AbstractEventLoop, label: str) -> None:
        super().__init__(label)
        self.label = f"{label}()"
        self._inner = inner
        self._loop = loop

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Now, or as soon as the loop has a turn for it."""
        if asyncio._get_running_loop() is self._loop:
            self._inner.attach(ops, downstream)
        else:
            self._loop.call_soon_threadsafe(self._inner.attach, ops, downstream)

    def runs_on(self) -> str:
        """The loop of the server."""
        return "event loop of the connection"


def steps_of(factory: Callable[[], AsyncIterable[Any]], label: str) -> Flux[Any]:
    """A Flux that steps through an asynchronous iterable, once for each element asked for, on this loop."""
    here = asyncio.get_running_loop()
    return flux_of(_OnLoop(AsyncIterableSource(label, factory, loop=here), here, label))


def end_of(
    factory: Callable[[], Awaitable[Any]], label: str, loop: asyncio.AbstractEventLoop | None = None
) -> Mono[Any]:
    """A Mono of the end of a coroutine, which runs on this loop for each subscriber."""
    there = loop or asyncio.get_running_loop()
    return mono_of(_OnLoop(FutureSource(label, factory, loop=there), there, label))
