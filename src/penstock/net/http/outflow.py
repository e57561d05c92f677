"""The subscriber behind every response, upload and WebSocket: it keeps elements until the other side takes
them.

Demand is counted in elements and steered by bytes. It follows the mean size of the elements, so that about
``BUDGET`` bytes wait here, whether an element has ten bytes or a million.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from penstock.streams.spi import AsyncReader, ReadAhead, Stream, connect, step_of

__all__ = ["BUDGET", "LARGE", "MOST_BYTES", "PREFETCH", "Outflow", "as_bytes"]

PREFETCH: Final = 256
"""The demand for elements never exceeds this."""
BUDGET: Final = 128 * 1024
"""About this many bytes are asked for ahead."""
MOST_BYTES: Final = 64 * 1024
"""Elements are joined up to this many bytes. A longer one is sent alone."""

LARGE: Final = 2
"""The demand for chunks or messages of a peer, which are as large as the peer likes."""
_FIRST = 2
"""The first demand, while the size of the elements is unknown."""


class Outflow(AsyncReader):
    """Reads a stream in batches, and asks for more only when a batch has been sent.

    The elements may come on any thread. All methods except those of a Subscriber belong to the event loop.
    """

    __slots__ = ("_asked", "_dropped", "_kept", "_most", "_sent_bytes", "_sent_elements", "_target")

    def __init__(self, prefetch: int = PREFETCH) -> None:
        self._target = min(_FIRST, prefetch)
        super().__init__(self._target)
        self._is_fed = True  # it is no iterator, with which a forked child could go on
        self._most = prefetch
        self._asked = self._target
        self._sent_elements = 0
        self._sent_bytes = 0
        self._kept: deque[Any] = deque()
        """Elements of a peer that have not been sent, and perhaps some that have."""
        self._dropped = 0
        """How many elements are not kept any more."""

    def begin(self, stream: Stream[Any]) -> None:
        """Subscribe."""
        step = step_of(stream)
        if step is not None:
            # A peer may send small chunks for a while and then large ones: a mean says nothing about that.
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
        if self._ahead is not None:
            self._kept.append(element)
        super().on_next(element)

    async def batch(self, most_bytes: int = MOST_BYTES, patience: float | None = None) -> list[Any] | None:
        """The elements that have arrived, at least one and up to so many bytes; None at the end.

        The list is empty if nothing arrived for ``patience`` seconds. An error of the stream is raised when
        all elements before it have been returned; one that is not an ``Exception`` as a RuntimeError.
        """
        queue = self._queue
        while not queue:
            if self._over and not queue:
                error = self._take_error()
                if isinstance(error, Exception):
                    raise error
                if error is not None:
                    # Raised as itself, an exit would end the server, and a CancelledError would look like the
                    # cancel of this task.
                    raise RuntimeError(f"the stream failed with {error!r}") from error
                return None
            with self._mutex:
                waiting = self._waiting = self._loop.create_future()
                self.idle = True
            if queue or self._over:
                self.idle = False
                continue
            if patience is None:
                await waiting
            elif not await self._waited(waiting, patience):
                return []
        # As many as there are now. Another thread may add more meanwhile.
        take = queue.popleft
        taken = [take() for _ in range(len(queue))]
        if len(taken) > 1 and sum(map(len, taken)) > most_bytes:
            fits = _fitting(taken, most_bytes)
            queue.extendleft(reversed(taken[fits:]))
            del taken[fits:]
        return taken

    async def _waited(self, waiting: asyncio.Future[None], patience: float) -> bool:
        """Wait for the next signal. False if there was none in time."""
        timer = self._loop.call_later(patience, _give_up, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
        self.idle = False
        return bool(self._queue) or self._over

    def sent(self, elements: int, size: int) -> None:
        """So much has been sent: ask for more, as the sizes seen so far allow."""
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
        """Whether the source has been cancelled."""
        return self._cancelled


def _fitting(elements: list[Any], most_bytes: int) -> int:
    """How many of the first elements fit into a batch; at least one."""
    size = 0
    for number, element in enumerate(elements):
        size += len(element)
        if size > most_bytes:
            return max(1, number)
    return len(elements)


def as_bytes(element: Any) -> bytes:
    """An element as bytes."""
    if type(element) is bytes:
        return element
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, bytearray | memoryview):
        return bytes(element)  # its owner may change it before it is sent
    raise TypeError(f"only bytes and text can be sent, not {element!r:.80}; encode it first: .map(json_line)")


def _give_up(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
