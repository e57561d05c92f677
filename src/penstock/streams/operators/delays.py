"""Elements that wait for their time: ``delay_sequence`` and ``rate_limit``.

Nothing is lost here. A few elements wait in a bounded queue, and the source is asked for no more.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextvars import copy_context
from math import inf, nan
from typing import TYPE_CHECKING, Any

from penstock.arguments import a_number
from penstock.streams.errors import drop_elements
from penstock.streams.fusion import Relay
from penstock.streams.fusion.codegen import Head
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.fusion.queue_drain import needed_above
from penstock.streams.operators.boundaries import PREFETCH, replenish_at
from penstock.streams.operators.timing import MOMENT
from penstock.streams.schedulers import Alarm, Scheduler, Timer
from penstock.streams.source import Source, StageSource
from penstock.token_bucket import TokenBucket

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["delayed_sequence", "rate_limited"]


def delayed_sequence(upstream: Stream[Any], delay: float, ahead: int, scheduler: Scheduler) -> Source:
    """``delay_sequence``: everything happens later, with the same time between two elements."""
    return StageSource(
        "delay_sequence", upstream, ahead, lambda *a: _Shifted(delay, ahead, scheduler, *a), delay
    )


def rate_limited(
    upstream: Stream[Any],
    rate: float,
    burst: float,
    weight: Callable[[Any], float] | None,
    scheduler: Scheduler,
    *shows: Any,
) -> Source:
    """``rate_limit``: each element takes tokens out of a bucket.

    What an element weighs is known when it has come, so with a weight one waits at a time.
    """
    ahead = 1 if weight is not None else max(1, min(PREFETCH, int(burst)))
    return StageSource(
        "rate_limit", upstream, ahead, lambda *a: _Limited(rate, burst, weight, ahead, scheduler, *a), *shows
    )


class _Waiting(Relay):
    """A queue of at most ``ahead`` elements, whose first one goes down when its time has come.

    Only the owner of the drain looks at the time, so one timer is enough: for what is next.
    """

    head = Head.POLL  # the loop must ask whether the time has come
    can_flow = False
    __slots__ = ("_ahead", "_asleep", "_context", "_slack", "_timer", "scheduler")

    def __init__(self, ahead: int, scheduler: Scheduler, *attached: Any) -> None:
        super().__init__(*attached)
        self.scheduler = scheduler
        self._ahead = ahead
        self._slack = ahead - replenish_at(ahead)
        """Ask for the next elements when no more than this many are here or on their way."""
        self._context = copy_context()
        self._timer: Timer | None = None
        self._asleep = False

    @abstractmethod
    def poll(self) -> Any:
        """The first element of the queue if its time has come, otherwise PENDING."""

    def source(self) -> Any:
        return self.poll

    def finished(self) -> bool:
        """The source has completed and nothing waits."""
        return self.done and not self.queue

    def take(self) -> Any:
        """Take the first element out of the queue."""
        self.taken += 1
        return self.queue.popleft()

    def wanted(self) -> int:
        """Enough for the open demand, and no more than the queue may hold; in batches."""
        upstream = self.upstream
        if self.paused or upstream is None or self.done or self.error is not None:
            return 0
        need = needed_above(self)
        here = self.asked - self.taken
        n = min(need, self._ahead) - here
        if n <= 0 or (need > self._ahead and here > self._slack):
            return 0
        self.asked += n
        self._owed.append((upstream, n))
        return n

    # ---------------------------------------------------------------- the clock
    def sleep(self, seconds: float) -> bool:
        """Whether to wait; if so, look again when the time is over. Called by the owner."""
        if seconds <= MOMENT:
            return False
        if not self._asleep:
            self._asleep = True
            try:
                self._timer = self.scheduler.submit_after(
                    seconds, Alarm(self._context, self._wake_up, self.abort)
                )
            except Exception as refused:
                self.abort(refused)  # the scheduler is closed, so nothing would wake us
        return True

    def _wake_up(self) -> None:
        self._asleep = False
        self.dirty = True
        self.drain()

    def release(self) -> None:
        super().release()
        timer = self._timer
        if timer is not None:
            timer.cancel()

    def discard(self, left: list[Any]) -> None:
        """Report what waits also when the clock has failed."""
        if self.error is not None or (self.violation is not None and not self.cancelled):
            drop_elements(left, self.name)

    def capacity(self) -> int | None:
        return self._ahead


class _Shifted(_Waiting):
    """Each element, and the end, with the time at which it is due."""

    __slots__ = ("_delay", "_ends")

    def __init__(self, delay: float, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._delay = delay
        self._ends = inf
        """When the end is due."""

    def _due(self) -> float:
        return self.scheduler.now() + self._delay

    def on_next(self, element: Any, /) -> None:
        super().on_next((self._due(), element))

    def on_error(self, error: BaseException, /) -> None:
        self._ends = self._due()
        super().on_error(error)

    def on_complete(self) -> None:
        self._ends = self._due()
        super().on_complete()

    def poll(self) -> Any:
        if not self.queue or self.sleep(self.queue[0][0] - self.scheduler.now()):
            return PENDING
        return self.take()[1]

    def finished(self) -> bool:
        return super().finished() and not self.sleep(self._ends - self.scheduler.now())

    def due_error(self) -> BaseException | None:
        error = super().due_error()
        return None if error is None or self.sleep(self._ends - self.scheduler.now()) else error

    def discard(self, left: list[Any]) -> None:
        super().discard([element for _, element in left])


class _Limited(_Waiting):
    """Each element takes tokens out of a bucket."""

    __slots__ = ("_bucket", "_cost", "_weight")

    def __init__(
        self,
        rate: float,
        burst: float,
        weight: Callable[[Any], float] | None,
        ahead: int,
        scheduler: Scheduler,
        *attached: Any,
    ) -> None:
        super().__init__(ahead, scheduler, *attached)
        self._bucket = TokenBucket(rate, burst, scheduler.now())
        self._weight = weight
        self._cost = 1.0 if weight is None else nan
        """What the first element of the queue costs; nan if it has not been weighed yet."""

    def poll(self) -> Any:
        if not self.queue:
            return PENDING
        if self._weight is not None and self._cost != self._cost:
            self._cost = a_number(self._weight(self.queue[0]), "the weight of rate_limit()", least=0)
        if self.sleep(self._bucket.take(self.scheduler.now(), self._cost)):
            return PENDING
        if self._weight is not None:
            self._cost = nan
        return self.take()
