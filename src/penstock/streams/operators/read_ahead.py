"""Reading ahead of a consumer when elements can be large: bounded in elements and in bytes.

A queue that is filled ahead of its consumer is bounded by what was asked for. Demand is counted in elements
and cannot be taken back, so a window of 256 that is harmless with lines of text is 256 MiB with frames of a
megabyte, and whoever sends the frames chooses their size. So where a source says that its elements can be
large (:attr:`~penstock.streams.source.Source.ahead`), what waits is measured, and nothing more comes while it
is above the bound. Small elements still fill the whole window.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.spec import Subscription
from penstock.streams.fusion import Drain

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["BYTES_AHEAD", "SMALL", "ReadAhead", "step_of"]

BYTES_AHEAD: Final = 256 * 1024
"""Bytes that may wait for a consumer, and the elements with which they are exceeded."""

_MEASURED: Final = frozenset({bytes, str, bytearray})
"""Elements whose size is known. Others count as much as what they were made of, if that is known."""
SMALL: Final = 1024
"""Elements below this need not be measured: a whole window of them is within the bound."""


def step_of(stream: Stream[Any]) -> int | None:
    """How many elements of this stream to ask for at a time; None if none of its sources says so."""
    unseen, step = [stream._source], None
    while unseen:
        one = unseen.pop()
        if one.ahead is not None:
            step = one.ahead if step is None else min(step, one.ahead)
        else:
            unseen += [stream._source for stream in one.upstreams()]
    return step


class ReadAhead:
    """The demand of one queue.

    A stage above that can be held back is asked for a whole window, and held back while too many bytes wait.
    Any other is asked for a few elements at a time, and for the next ones as these arrive.

    Elements come on one thread and are taken on another. What both change is changed with the lock, which is
    needed only when a bound is near.
    """

    __slots__ = (
        "_asked",
        "_came",
        "_low",
        "_most",
        "_mutex",
        "_on_stall",
        "_on_window",
        "_room",
        "_step",
        "_subscription",
        "_unmeasured",
        "_waiting",
        "holds",
        "stalled",
    )

    def __init__(
        self,
        step: int,
        most: int,
        waiting: Callable[[], Sequence[Any]],
        on_stall: Callable[[], object] | None = None,
        on_window: Callable[[], object] | None = None,
    ) -> None:
        self._step = min(step, most)
        self._low = self._step >> 1
        self._most = most
        self._waiting = waiting
        """The elements that wait."""
        self._on_stall = on_stall
        self._on_window = on_window
        self._unmeasured = BYTES_AHEAD // self._step
        """The size of an element that has none: of these, as many may wait as are asked for at a time."""
        self._mutex = allocate_lock()
        self._subscription: Any = None
        self._asked = 0
        self._came = 0
        self._room = BYTES_AHEAD
        """So many bytes may come before the queue has to be looked at again."""
        self.holds = False
        """The stage above can be held back: a whole window was asked for, and the consumer renews it."""
        self.stalled = False
        """Nothing more comes until the consumer has taken something: then it calls :meth:`took`."""

    def begin(self, subscription: Subscription) -> None:
        """Ask for the first elements."""
        self._subscription = subscription
        self._asked = self._step
        subscription.request(self._step)

    def came(self, element: Any) -> None:
        """An element has been put into the queue. If we hold, small ones need not be told (``SMALL``)."""
        if self.holds:
            self._room -= len(element) if type(element) in _MEASURED else self._size_unseen()
            if self._room <= 0 and not self.stalled:
                self._hold_back()
            return
        self._came += 1
        if self._came == 1:
            self._first_came()
        if self._asked - self._came <= self._low and not self.holds:
            self._ask()

    def took(self) -> None:
        """The consumer has taken something out of the queue, and nothing more was coming."""
        if not self.holds:
            self._ask()
            return
        with self._mutex:
            goes_on = self.stalled and self._is_half_empty()
            if goes_on:
                self.stalled = False
        if goes_on:
            self._subscription.resume()

    def _first_came(self) -> None:
        """Now the stages above are connected with each other, and know whether they can be held back."""
        above = self._subscription
        if isinstance(above, Drain) and above.can_pause():
            self.holds = True
            self._room = 0  # the first one may be large
            if self._on_window is not None:
                self._on_window()
            if self._most > self._step:
                above.request(self._most - self._step)

    def _hold_back(self) -> None:
        with self._mutex:
            if self._bytes() < BYTES_AHEAD:
                return
            self._subscription.pause()
            self._stall()
            # The consumer may have taken the last element before it could see that we are stalled.
            goes_on = self._is_half_empty()
            if goes_on:
                self.stalled = False
        if goes_on:
            self._subscription.resume()

    def _ask(self) -> None:
        with self._mutex:
            n = self._wanted()
            if not n and not self.stalled:
                self._stall()
                n = self._wanted()  # as above
            if n:
                self.stalled = False
                self._asked += n
        if n:
            self._subscription.request(n)

    def _stall(self) -> None:
        self.stalled = True
        if self._on_stall is not None:
            self._on_stall()

    def _wanted(self) -> int:
        due, waiting = self._asked - self._came, self._waiting()
        if self._bytes(waiting) >= BYTES_AHEAD:
            return 0
        return max(0, min(self._step - due, self._most - len(waiting) - due))

    def _is_half_empty(self) -> bool:
        return self._bytes() * 2 <= BYTES_AHEAD

    def _bytes(self, waiting: Sequence[Any] | None = None) -> int:
        """How many bytes wait."""
        unseen = self._size_unseen()
        elements = self._waiting() if waiting is None else waiting
        size = sum([len(one) if type(one) in _MEASURED else unseen for one in elements])
        self._room = BYTES_AHEAD - size
        return size

    def _size_unseen(self) -> int:
        """The size of an element that cannot be measured: what it was made of, or as much as it may be."""
        above = self._subscription
        size = above.size_of_one() if isinstance(above, Drain) else None
        return self._unmeasured if size is None else size
