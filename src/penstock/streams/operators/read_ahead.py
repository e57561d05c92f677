"""Reading ahead of a consumer when elements can be large: bounded in elements and in bytes.

A queue that is filled ahead of its consumer is bounded by its demand. Demand counts elements and cannot be
taken back, so reading 256 elements ahead is harmless with lines of text and means 256 MiB with frames of a
megabyte, whose size the sender chooses. So where a source says that its elements can be large
(:attr:`~penstock.streams.source.Source.ahead`), the queue measures the elements that wait, and stops the
source while they are above the bound. Small elements are still read ahead by the full number.

A queue learns in two ways that large elements come. Where the source is known beforehand, :func:`step_of`
finds it when the queue is made, so that the first request is small. A stream that is opened later (by
``flat_map``, say) announces it (:meth:`~penstock.streams.fusion.Link.expect_large`). By then the queue has
asked for all it can hold, so the stage above has to be one that can be paused.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.spec import Subscription
from penstock.streams.fusion import Pausable

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["BYTES_AHEAD", "SMALL", "ByteBound", "ReadAhead", "read_ahead_of", "step_of"]

BYTES_AHEAD: Final = 256 * 1024
"""Bytes that may wait for a consumer; the element that exceeds the bound is the last one."""

_MEASURED: Final = frozenset({bytes, str, bytearray})
"""Types whose size is known. Other elements count as what they were made of, if that is known."""
SMALL: Final = 1024
"""Elements below this need not be measured: 256 of them are within the bound."""


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


class ByteBound:
    """Measures the elements that wait in a queue, and pauses the stage above while they are too many bytes.

    Elements come on one thread and are taken on another. Both change the shared state with the lock, which
    they need only near the bound.
    """

    __slots__ = (
        "_bytes_left",
        "_mutex",
        "_on_stall",
        "_subscription",
        "_unmeasured",
        "_waiting",
        "small",
        "stalled",
    )

    def __init__(
        self, step: int, waiting: Callable[[], Sequence[Any]], on_stall: Callable[[], object] | None = None
    ) -> None:
        self._waiting = waiting
        """The elements that wait."""
        self._on_stall = on_stall
        self._unmeasured = BYTES_AHEAD // step
        """The assumed size of an element that cannot be measured: ``step`` of them reach the bound."""
        self._mutex = allocate_lock()
        self._subscription: Any = None
        self._bytes_left = 0  # the first one may be large
        """How many bytes may come before the queue has to be measured again."""
        self.small = 0
        """An element of so many bytes need not be measured if it is smaller."""
        self.stalled = False
        """Nothing comes until the consumer has taken an element and called :meth:`took`."""

    def measured(self, element: Any) -> None:
        """An element was put into the queue: pause the stage above if that was too much."""
        self._bytes_left -= len(element) if type(element) in _MEASURED else self._size_unseen()
        if self._bytes_left <= 0 and not self.stalled:
            self._hold_back()

    def go_on_if_half_empty(self) -> None:
        """The consumer has taken an element: let the stage above go on if half of the bytes are gone."""
        with self._mutex:
            goes_on = self.stalled and self._is_half_empty()
            if goes_on:
                self.stalled = False
        if goes_on:
            self._subscription.resume()

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

    def _stall(self) -> None:
        self.stalled = True
        if self._on_stall is not None:
            self._on_stall()

    def _is_half_empty(self) -> bool:
        return self._bytes() * 2 <= BYTES_AHEAD

    def _bytes(self, waiting: Sequence[Any] | None = None) -> int:
        """How many bytes wait."""
        unseen = self._size_unseen()
        elements = self._waiting() if waiting is None else waiting
        size = sum([len(one) if type(one) in _MEASURED else unseen for one in elements])
        self._bytes_left = BYTES_AHEAD - size
        return size

    def _size_unseen(self) -> int:
        """The size of an element that cannot be measured: what it was made of, or the assumed size."""
        above = self._subscription
        size = above.size_of_one() if isinstance(above, Pausable) else None
        return self._unmeasured if size is None else size


class ReadAhead(ByteBound):
    """The demand of one queue.

    A stage above that can be paused is asked for all ``most`` elements, and paused while too many bytes wait.
    Any other stage is asked for a few elements at a time, and for the next ones as these arrive.
    """

    __slots__ = ("_asked", "_came", "_go_on_at", "_low", "_most", "_on_pausable", "_step", "holds")

    def __init__(
        self,
        step: int,
        most: int,
        waiting: Callable[[], Sequence[Any]],
        on_stall: Callable[[], object] | None = None,
        on_pausable: Callable[[], object] | None = None,
    ) -> None:
        self._step = min(step, most)
        super().__init__(self._step, waiting, on_stall)
        self._low = self._step >> 1
        self._most = most
        self._on_pausable = on_pausable
        self._asked = 0
        self._came = 0
        self._go_on_at = 0
        """How many elements wait when half of the bytes are gone: before that there is no need to measure."""
        self.holds = False
        """The stage above can be paused; it was asked for ``most`` elements, and the consumer asks again."""

    def begin(self, subscription: Subscription) -> None:
        """Ask for the first elements."""
        self._subscription = subscription
        self._asked = self._step
        subscription.request(self._step)

    def join(self, subscription: Subscription) -> None:
        """Begin in the middle: the stage above can be paused, and was asked for ``most`` elements before."""
        self._subscription = subscription
        self._hold()

    def came(self, element: Any) -> None:
        """An element was put into the queue. Those below ``small`` need no call."""
        if self.holds:
            self.measured(element)
            return
        self._came += 1
        if self._came == 1:
            self._first_came()
        if self._asked - self._came <= self._low and not self.holds:
            self._ask()

    def took(self) -> None:
        """The consumer has taken an element from the queue while nothing was coming."""
        if self.holds:
            # Whatever was noted, an empty queue is always looked at.
            if len(self._waiting()) <= self._go_on_at:
                self.go_on_if_half_empty()
        else:
            self._ask()

    def _is_half_empty(self) -> bool:
        waiting = self._waiting()
        if self._bytes(waiting) * 2 <= BYTES_AHEAD:
            return True
        left, unseen, self._go_on_at = BYTES_AHEAD >> 1, self._size_unseen(), 0
        for one in reversed(waiting):  # the consumer takes the oldest first
            left -= len(one) if type(one) in _MEASURED else unseen
            if left < 0:
                break
            self._go_on_at += 1
        return False

    def _first_came(self) -> None:
        """By now the stages above are connected, and know whether they can be paused."""
        above = self._subscription
        if isinstance(above, Pausable) and above.can_pause():
            self._hold()
            if self._most > self._step:
                self._subscription.request(self._most - self._step)

    def _hold(self) -> None:
        self.holds = True
        self.small = SMALL
        if self._on_pausable is not None:
            self._on_pausable()

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

    def _wanted(self) -> int:
        due, waiting = self._asked - self._came, self._waiting()
        if self._bytes(waiting) >= BYTES_AHEAD:
            return 0
        return max(0, min(self._step - due, self._most - len(waiting) - due))


def read_ahead_of(
    made: list[ReadAhead],
    subscription: Subscription | None,
    step: int,
    most: int,
    *arguments: Callable[[], Any],
) -> ReadAhead | None:
    """The demand of a queue that hears of large elements; None if it has asked for too many already.

    Before it has its subscription it can begin with few. Afterwards the stage above has to be one that can be
    paused.

    Streams on several threads may announce large elements at the same moment. The first that is ``made`` for
    the queue counts for all of them: it may have paused the stage above by now, and only it would resume it.
    """
    ahead = ReadAhead(step, most, *arguments)
    if subscription is not None:
        if not (isinstance(subscription, Pausable) and subscription.can_pause()):
            return None
        ahead.join(subscription)
    made.append(ahead)
    return made[0]
