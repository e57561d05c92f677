"""Streams that use a clock: timers, ticks and timeouts."""

from __future__ import annotations

from _thread import allocate_lock
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber, Subscription
from penstock.streams.errors import Place
from penstock.streams.fusion import ExpectsLarge, Op, Relay, relay_for
from penstock.streams.operators.concat import Switching
from penstock.streams.operators.overflow import Overflow, Overflowing
from penstock.streams.schedulers import Alarm, Scheduler, Timer, shared_timer
from penstock.streams.schedulers.threads import ThreadedScheduler
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["IntervalSource", "TimeoutSource", "TimerSource"]

MOMENT = 1e-6
"""Seconds too few to wait for. Differences of floating-point times are never exact."""
GRACE = 0.05
"""Seconds that a scheduler given to ``timeout`` has to find a thread for the alarm."""


class TimerSource(Source):
    """The number 0, after a while."""

    def __init__(self, seconds: float, scheduler: Scheduler) -> None:
        super().__init__("timer", seconds)
        self._seconds = seconds
        self._scheduler = scheduler

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Set the timer; if it rings before there is demand, the number waits."""
        relay = Relay(ops, downstream, self.label, self.place)
        relay.introduce()
        if not relay.closed:
            _Ringing(relay, self._seconds, self._scheduler).start()

    def runs_on(self) -> str:
        return self._scheduler.name


class _Ringing:
    """Rings once. There is no demand that a timer could wait for: the relay keeps the number."""

    __slots__ = ("_cancelled", "_relay", "_scheduler", "_seconds", "_timer")

    def __init__(self, relay: Relay, seconds: float, scheduler: Scheduler) -> None:
        self._relay = relay
        self._seconds = seconds
        self._scheduler = scheduler
        self._cancelled = False
        self._timer: Timer | None = None

    def start(self) -> None:
        # The timer comes last. If it could ring while this thread is at work in the relay, the number would
        # go down on this thread instead of the scheduler's.
        self._relay.on_subscribe(self)
        if self._cancelled:
            return
        try:
            alarm = Alarm(copy_context(), self._ring, self._relay.on_error)
            self._timer = self._scheduler.submit_after(self._seconds, alarm)
        except Exception as refused:
            self._relay.on_error(refused)
            return
        if self._cancelled:
            self._timer.cancel()  # another thread did so meanwhile

    def _ring(self) -> None:
        self._relay.on_next(0)
        self._relay.on_complete()

    def request(self, n: int, /) -> None:
        """A timer cannot be asked to ring earlier."""

    def cancel(self) -> None:
        self._cancelled = True
        if self._timer is not None:
            self._timer.cancel()


class IntervalSource(Source):
    """0, 1, 2, … at a steady pace."""

    def __init__(self, period: float, delay: float, scheduler: Scheduler) -> None:
        super().__init__("interval", period)
        self._period = period
        self._delay = delay
        self._scheduler = scheduler

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        target = relay_for(ops, downstream, self.label, self.place)
        stage = Overflowing(0, Overflow.ERROR, None, target, self.label, self.place)
        stage.introduce()
        if not stage.closed:
            _Ticking(stage, self._period, self._delay, self._scheduler).start()

    def runs_on(self) -> str:
        return self._scheduler.name


class _Ticking:
    """Each tick sets the timer of the next one, measured from the first, so that delays do not add up."""

    __slots__ = ("_begin", "_cancelled", "_context", "_period", "_scheduler", "_stage", "_ticks", "_timer")

    def __init__(self, stage: Overflowing, period: float, delay: float, scheduler: Scheduler) -> None:
        self._stage = stage
        self._period = period
        self._scheduler = scheduler
        self._begin = scheduler.now() + delay
        self._ticks = 0
        self._cancelled = False
        self._timer: Timer | None = None
        self._context = copy_context()

    def start(self) -> None:
        self._stage.on_subscribe(self)
        self._set()

    def _set(self) -> None:
        due = self._begin + self._ticks * self._period
        try:
            alarm = Alarm(self._context, self._tick, self._refused)
            self._timer = self._scheduler.submit_after(max(0.0, due - self._scheduler.now()), alarm)
        except Exception as refused:
            self._refused(refused)

    def _refused(self, error: BaseException) -> None:
        if not self._cancelled:
            self._stage.on_error(error)

    def _tick(self) -> None:
        if self._cancelled:
            return
        tick, self._ticks = self._ticks, self._ticks + 1
        self._stage.on_next(tick)
        if not self._cancelled:
            self._set()

    def request(self, n: int, /) -> None:
        """A clock cannot be asked for ticks."""

    def cancel(self) -> None:
        self._cancelled = True
        if self._timer is not None:
            self._timer.cancel()


class TimeoutSource(Source):
    """``timeout``: a requested element must arrive in time."""

    frames = 7

    def __init__(
        self, upstream: Stream[Any], seconds: float, fallback: Stream[Any] | None, scheduler: Scheduler
    ) -> None:
        super().__init__("timeout", seconds)
        self._upstream = upstream
        self._seconds = seconds
        self._fallback = fallback
        self._scheduler = scheduler

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        stage = _Timing(
            self._seconds, self._fallback, self._scheduler, ops, downstream, self.label, self.place
        )
        stage.introduce()
        if stage.closed:
            return None
        stage.start()
        return self._upstream, stage.leg

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def runs_on(self) -> str:
        return self._upstream._source.runs_on()


class _Timing(Switching):
    """One timer at a time: when it rings too early, because elements came meanwhile, it is set again.

    The clock runs only while there is open demand, so a slow *subscriber* does not make the source late.
    """

    __slots__ = (
        "_context",
        "_fallback",
        "_round",
        "_scheduler",
        "_seconds",
        "_since",
        "_spare",
        "_timed",
        "_timer",
        "leg",
    )

    def __init__(
        self,
        seconds: float,
        fallback: Stream[Any] | None,
        scheduler: Scheduler,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._seconds = seconds
        self._fallback = fallback
        self._scheduler = scheduler
        self._context = copy_context()
        self._since = scheduler.now()
        self._timed = 0
        """How many elements had been taken when the clock was last set back."""
        self._timer: Timer | None = None
        self._spare: Timer | None = None
        """Rings on a thread of our own if all threads of the given scheduler are busy."""
        self._round = allocate_lock()
        """Held from the setting of the timers until the first of them rings."""
        self.leg: _Leg = _Leg(self)

    def start(self) -> None:
        self._set(self._seconds)

    def _set(self, seconds: float) -> None:
        self._round.acquire(False)
        try:
            alarm = Alarm(self._context, self._ring, self.leg.cut)
            self._timer = self._scheduler.submit_after(seconds, alarm)
            if isinstance(self._scheduler, ThreadedScheduler):
                rescue = Alarm(self._context, self._ring, self.leg.cut)
                self._spare = shared_timer().submit_after(seconds + GRACE, rescue)
        except Exception as refused:
            self.leg.cut(refused)  # the scheduler is closed, so nothing would ring
            return
        if self.closed:
            self._cancel_timers()

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._spare):
            if timer is not None:
                timer.cancel()

    def request(self, n: int, /) -> None:
        if self.demand <= self.emitted:
            self._since = self._scheduler.now()
        super().request(n)

    def arrived(self) -> None:
        self.dirty = True
        self.drain()

    def wanted(self) -> int:
        if self.taken != self._timed:  # everything that came was sent down: the clock starts again
            self._timed = self.taken
            self._since = self._scheduler.now()
        return super().wanted()

    def _ring(self) -> None:
        try:
            self._round.release()
        except RuntimeError:
            return  # the other timer of this round was first
        self._cancel_timers()
        if self.closed or not self.leg.active:
            return
        waited = self._scheduler.now() - self._since
        asked = self.demand > self.emitted or bool(self.mailbox)
        if not asked or self.queue or self._owner.locked():
            self._set(self._seconds)
        elif self._seconds - waited > MOMENT:
            self._set(self._seconds - waited)
        else:
            self.leg.cut(
                TimeoutError(
                    f"no element within {self._seconds} s after it was requested; "
                    "give timeout() more time, or a fallback to go on with"
                )
            )

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        fallback, self._fallback = self._fallback, None
        return fallback if isinstance(error, TimeoutError) and self.leg.was_cut else None

    def release(self) -> None:
        super().release()
        self.leg.active = False
        self._cancel_timers()


class _Leg(ExpectsLarge):
    """Receives the first source for the stage; once cut, it passes nothing on (§2.8)."""

    __slots__ = ("_door", "_stage", "_subscription", "active", "below", "home", "was_cut")

    def __init__(self, stage: _Timing) -> None:
        self._stage = stage
        self.home = stage.home
        self.below = stage.below
        self._subscription: Subscription | None = None
        self.active = True
        self.was_cut = False
        self._door = allocate_lock()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscription = subscription
        if self.active:
            self._stage.on_subscribe(subscription)
        else:
            subscription.cancel()

    def expect_large(self, step: int) -> bool:
        """What comes from above goes straight down."""
        return self._stage.expect_large(step)

    def is_starving(self) -> bool:
        """Whether somebody below waits for an element."""
        return self._stage.is_starving()

    def on_next(self, element: Any, /) -> None:
        with self._door:  # an element is either before the cut, and delivered, or after it, and not
            if not self.active:
                return
            self._stage.queue.append(element)
        self._stage.arrived()

    def on_error(self, error: BaseException, /) -> None:
        if self._close():
            self._stage.on_error(error)

    def on_complete(self) -> None:
        if self._close():
            self._stage.on_complete()

    def _close(self) -> bool:
        with self._door:
            was, self.active = self.active, False
        return was

    def cut(self, error: BaseException) -> None:
        """The source is late: pass on nothing that still comes."""
        if not self._close():
            return
        self.was_cut = True
        if self._subscription is not None:
            self._subscription.cancel()
        self._stage.on_error(error)
