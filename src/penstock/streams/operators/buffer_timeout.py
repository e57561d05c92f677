"""``buffer_timeout``: lists that are sent when they are full, or when their time is over."""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber
from penstock.streams.errors import Place
from penstock.streams.fusion import Op, QueueDrain
from penstock.streams.fusion.codegen import Head
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.schedulers import Alarm, Scheduler, Timer
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["BufferTimeoutSource"]

LISTS_AHEAD = 4
"""How many lists' worth of elements may wait."""


class BufferTimeoutSource(Source):
    """``buffer_timeout``: a list for each demand, of ``size`` elements at most."""

    frames = 8

    def __init__(self, upstream: Stream[Any], size: int, seconds: float, scheduler: Scheduler) -> None:
        super().__init__("buffer_timeout", size, seconds)
        self._upstream = upstream
        self._size = size
        self._seconds = seconds
        self._scheduler = scheduler
        self.boundary = LISTS_AHEAD * size

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        stage = _Buffering(
            self._size, self._seconds, self._scheduler, ops, downstream, self.label, self.place
        )
        stage.introduce()
        return None if stage.closed else (self._upstream, stage)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def runs_on(self) -> str:
        return self._scheduler.name


class _Buffering(QueueDrain):
    """Elements wait in the queue; a list is made when it can be sent, so there is never one too many.

    Only the owner of the drain looks at the clock and sets the timer. The timer's thread leaves a note.
    """

    head = Head.POLL
    __slots__ = (
        "_arrived",
        "_asked",
        "_bound",
        "_context",
        "_scheduler",
        "_seconds",
        "_since",
        "_size",
        "_timer",
    )

    def __init__(
        self,
        size: int,
        seconds: float,
        scheduler: Scheduler,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._size = size
        self._seconds = seconds
        self._scheduler = scheduler
        self._context = copy_context()
        self._bound = LISTS_AHEAD * size
        self._asked = 0
        self._arrived = 0
        self._since = 0.0
        """When the list that is being filled began."""
        self._timer: _ListTimer | None = None

    def on_next(self, element: Any, /) -> None:
        if self.closed:
            return  # §2.8: may still come after a cancel
        if not self.queue:
            self._since = self._scheduler.now()
        self.queue.append(element)
        self._arrived += 1  # after the append: an element is never counted neither here nor on its way
        self.dirty = True
        self.drain()

    def source(self) -> Any:
        return self.poll

    def poll(self) -> Any:
        """The next list, or PENDING if it may still grow."""
        waiting = len(self.queue)
        if waiting < self._size and not (self.done or self.error is not None):
            if not waiting or not self._is_due():
                return PENDING
            waiting = len(self.queue)
        elif not waiting:
            return PENDING
        popleft = self.queue.popleft
        batch = [popleft() for _ in range(min(waiting, self._size))]
        self._stop_timer()
        self._since = self._scheduler.now()
        return batch

    def finished(self) -> bool:
        """The source has completed and nothing waits."""
        return self.done and not self.queue

    def _is_due(self) -> bool:
        """Whether the list has waited long enough; if not, the timer is set."""
        if self._timer is not None:
            return self._timer.rang
        left = self._since + self._seconds - self._scheduler.now()
        if left <= 0:
            return True
        timer = self._timer = _ListTimer()
        alarm = Alarm(self._context, lambda: self._ring(timer), self.abort)
        timer.alarm = self._scheduler.submit_after(left, alarm)
        return timer.rang

    def _ring(self, timer: _ListTimer) -> None:
        timer.rang = True
        self.dirty = True
        self.drain()

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.alarm is not None:
            timer.alarm.cancel()

    def wanted(self) -> int:
        on_the_way = self._asked - self._arrived
        if self.upstream is None or self.done or self.error is not None or on_the_way > self._bound >> 2:
            return 0
        n = max(0, self._bound - len(self.queue) - on_the_way)
        self._asked += n
        return n

    def release(self) -> None:
        super().release()
        self._stop_timer()

    def capacity(self) -> int | None:
        return self._bound

    def runs_on(self) -> str:
        return self._scheduler.name


class _ListTimer:
    """The timer of one list: a late ring does not concern the next one."""

    __slots__ = ("alarm", "rang")

    def __init__(self) -> None:
        self.alarm: Timer | None = None
        self.rang = False
