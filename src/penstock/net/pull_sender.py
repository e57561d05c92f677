"""The sender for elements that are at hand: a list, a generator, a file, and operators on them.

Nobody has to be asked for such elements. The sender takes a handful, writes it as one, and goes on while the
socket has room. There is no demand to keep, and nothing of ours is called for an element.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import Final

from penstock.net.sender import Done, StreamSender
from penstock.net.transport import Transport
from penstock.streams.spi import asks_main_thread_to_stop, drop_error

__all__ = ["STEP", "HandfulSender", "PullSender", "are_large"]

_JOINED: Final = 128 * 1024
"""About this many bytes make a write."""
_MOST: Final = 1024
"""No handful has more elements than this: the next one may be much larger than the last."""
STEP: Final = 128
"""After so many elements of a handful there is a look whether they have become much larger."""
_GROWTH: Final = 8
"""A handful has at most so many times the elements of the one before."""
_FAIR_TIME: Final = 0.001
"""Seconds after which the others on the loop get a turn."""
_FAIR_BYTES: Final = 2 * _JOINED
"""The same in bytes: a fast machine writes a lot in a millisecond, and each of the others has to wait."""


def are_large(last: bytes) -> bool:
    """Whether a handful that was sized for small elements has got large ones, which fill the memory."""
    return len(last) * STEP > _JOINED


class HandfulSender(StreamSender):
    """Writes elements in handfuls, as long as the socket has room for them.

    A handful grows as long as its elements are small and come fast. A source that takes its time, because it
    reads from a disk for instance, soon has its elements written one by one.
    """

    __slots__ = ("_handful", "_taken", "_working")

    def __init__(
        self, transport: Transport, write: Callable[[bytes], None], writable: bool, done: Done
    ) -> None:
        super().__init__(transport, write, writable, None, done)
        self._handful = 1
        self._taken: list[bytes] = []
        self._working = False
        """Code of the user is making a handful, and what it works on cannot be released."""

    @abstractmethod
    def _take(self, most: int) -> bool:
        """Put up to this many elements into ``_taken``. Returns whether there may be more; may raise."""

    @abstractmethod
    def _ran_out(self) -> None:
        """There is nothing at hand any more."""

    @abstractmethod
    def _release(self) -> None:
        """Let go of what is at hand. May be called more than once."""

    def _has_room(self) -> bool:
        """Whether to go on."""
        return self._writable

    def _failed(self, fault: BaseException) -> None:
        """The source has failed. What came before has been written."""
        self._source_ended(fault)

    def _refill(self) -> None:
        if self._working or self._scheduled:
            return  # Room in the socket brings no second turn beside the one that is due.
        began = late = 0.0
        most = self._bytes + _FAIR_BYTES
        while self._has_room() and self._done is not None and not self._finishing:
            fault, more = None, True
            self._working = True
            try:
                more = self._take(self._handful)
            except BaseException as error:
                fault = error
            self._working = False
            if self._done is None:
                self._release()  # The user's code has ended this send.
            elif self._taken:
                self._write_taken()
            if fault is not None:
                self._release()
                self._failed(fault)
                if asks_main_thread_to_stop(fault):
                    raise fault
                return
            if not more:
                self._ran_out()
                return
            now = monotonic()
            if not began:
                late = now + _FAIR_TIME
            elif now - began > _FAIR_TIME:
                self._handful = 1
            if now > late or self._bytes >= most:
                self._scheduled = True
                self._loop.call_soon(self._take_turn)
                return
            began = now

    def _take_turn(self) -> None:
        self._scheduled = False
        self._refill()

    def _write_taken(self) -> None:
        taken = self._taken
        count = len(taken)
        data = taken[0] if count == 1 else b"".join(taken)
        taken.clear()
        size = len(data)
        self._asked += count
        self._bytes += size
        self._handful = max(1, min(count * _GROWTH, _MOST, _JOINED * count // (size or 1)))
        if size:
            self._write(data)

    def _stop(self, *, cancel: bool) -> None:
        if not self._working:
            self._release()
        super()._stop(cancel=cancel)


class PullSender(HandfulSender):
    """Sends what an iterable has, after the operators that are on it."""

    __slots__ = ("_elements",)

    _elements: Iterator[bytes] | None

    def begin(self, open_elements: Callable[[], Iterator[bytes]]) -> None:
        """Open the iterable, and take the first elements."""
        self._elements = None
        try:
            self._elements = open_elements()
        except BaseException as fault:
            self._failed(fault)
            if asks_main_thread_to_stop(fault):
                raise
            return
        self._refill()

    def _take(self, most: int) -> bool:
        elements, taken = self._elements, self._taken
        if elements is None:
            return False
        count = 0
        while count < most:
            step = min(most - count, STEP)
            count += step
            taken.extend(islice(elements, step))  # What comes before an error stays in the list.
            if len(taken) < count:
                return False
            if are_large(taken[-1]):
                break
        return True

    def _ran_out(self) -> None:
        self._release()
        self._source_ended(None)

    def _release(self) -> None:
        elements, self._elements = self._elements, None
        close = getattr(elements, "close", None)
        if close is not None:
            try:
                close()
            except BaseException as fault:
                drop_error(fault, "closing what was sent")
                if asks_main_thread_to_stop(fault):
                    raise
