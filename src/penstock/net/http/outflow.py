"""The subscriber behind everything that is sent: it keeps what has come until the other side takes it.

Demand is counted in elements and steered by bytes: the window follows the mean size of the elements, so that
about ``BUDGET`` bytes wait here whether an element has ten bytes or a million.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from penstock.streams.spi import AsyncReader, ReadAhead, Stream, connect, step_of

__all__ = ["BUDGET", "LARGE", "MOST_BYTES", "PREFETCH", "Outflow", "as_bytes"]

PREFETCH: Final = 256
"""Elements that are asked for ahead at most."""
BUDGET: Final = 128 * 1024
"""Bytes that are asked for ahead, about."""
MOST_BYTES: Final = 64 * 1024
"""Elements are joined up to this many bytes; one that is longer goes alone."""

LARGE: Final = 2
"""How many chunks or messages are asked for at a time: they are as large as the other side makes them."""
_FIRST = 2
"""How many are asked for while nobody knows how large they are."""


class Outflow(AsyncReader):
    """Reads a stream in batches, and asks for more only when a batch was sent.

    The elements may come on any thread; all methods but those of a Subscriber belong to the event loop.
    """

    __slots__ = ("_asked", "_dropped", "_kept", "_most", "_sent_bytes", "_sent_elements", "_target")

    def __init__(self, prefetch: int = PREFETCH) -> None:
        self._target = min(_FIRST, prefetch)
        super().__init__(self._target)
        self._most = prefetch
        self._asked = self._target
        self._sent_elements = 0
        self._sent_bytes = 0
        self._kept: deque[Any] = deque()
        """What was not sent, where that is what a peer sends, and perhaps some that was."""
        self._dropped = 0
        """Elements that are not kept any more."""

    def begin(self, stream: Stream[Any]) -> None:
        """Subscribe."""
        step = step_of(stream)
        if step is not None:
            # What a peer sends may be small for a while and large then: a mean says nothing about it.
            self._ahead = ReadAhead(step, self._most, self._unsent, on_pausable=self._asked_for_all)
        connect(stream, self)

    def _asked_for_all(self) -> None:
        self._asked = self._target = self._most

    def _unsent(self) -> list[Any]:
        while self._kept and self._dropped < self._sent_elements:
            self._kept.popleft()
            self._dropped += 1
        return list(self._kept)

    def on_next(self, element: Any, /) -> None:
        """Keep the element until it is sent."""
        super().on_next(element)
        if self._ahead is not None:
            self._kept.append(element)
            self._ahead.came(element)

    async def batch(self, most_bytes: int = MOST_BYTES, patience: float | None = None) -> list[Any] | None:
        """What has come, up to so many bytes and at least one element; None at the end.

        The list is empty if nothing came for ``patience`` seconds. An error of the stream is raised when all
        elements before it were taken.
        """
        queue = self._queue
        while not queue:
            if self._over and not queue:
                error = self._take_error()
                if error is not None:
                    raise error
                return None
            with self._mutex:
                waiting = self._waiting = self._loop.create_future()
                self._idle = True
            if queue or self._over:
                self._idle = False
                continue
            if patience is None:
                await waiting
            elif not await self._waited(waiting, patience):
                return []
        # As many as are there now; more may come meanwhile, from another thread.
        take = queue.popleft
        taken = [take() for _ in range(len(queue))]
        if len(taken) > 1 and sum(map(len, taken)) > most_bytes:
            fits = _fitting(taken, most_bytes)
            queue.extendleft(reversed(taken[fits:]))
            del taken[fits:]
        return taken

    async def _waited(self, waiting: asyncio.Future[None], patience: float) -> bool:
        """Wait for the next signal; False if none came in time."""
        timer = self._loop.call_later(patience, _give_up, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
        self._idle = False
        return bool(self._queue) or self._over

    def sent(self, elements: int, size: int) -> None:
        """So much has left: ask for as much again, or for what the sizes seen so far allow."""
        self._sent_elements += elements
        self._sent_bytes += size
        if self._over or self._cancelled or self._subscription is None:
            return
        if self._ahead is not None:
            if self._ahead.stalled:
                self._ahead.took()
            if not self._ahead.holds:
                return
        waiting = self._asked - self._sent_elements
        if waiting > self._target >> 1:
            return
        if size:
            fitting = BUDGET * elements // size
            self._target = max(1, min(fitting, self._target * 2, self._most))
        if self._target > waiting:
            self._asked += self._target - waiting
            self._subscription.request(self._target - waiting)

    @property
    def left(self) -> bool:
        """Whether the reader has cancelled."""
        return self._cancelled


def _fitting(elements: list[Any], most_bytes: int) -> int:
    """How many of the first elements make a batch; at least one."""
    size = 0
    for number, element in enumerate(elements):
        size += len(element)
        if size > most_bytes:
            return max(1, number)
    return len(elements)


def as_bytes(element: Any) -> bytes:
    """An element as it goes over the wire."""
    if type(element) is bytes:
        return element
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, bytearray | memoryview):
        return bytes(element)  # its owner may change it before it is sent
    raise TypeError(
        f"only bytes and text can be sent, not {element!r:.80}; encode it before: .map(json_line)"
    )


def _give_up(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
