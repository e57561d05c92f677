"""``publish`` and ``replay``: one run for many subscribers, and a choice of when it starts and stops."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber
from penstock.streams.fusion import Op
from penstock.streams.home import Home, home_here, home_of
from penstock.streams.operators.boundaries import PREFETCH
from penstock.streams.operators.expiry import ExpiringBuffer, ExpiringCursor
from penstock.streams.operators.replay_buffer import BufferCursor, ReplayBuffer
from penstock.streams.operators.share import Feeder
from penstock.streams.schedulers import Alarm, Scheduler, SchedulerClosed, Timer, shared_timer
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["AutoConnectSource", "Broadcast", "ConnectSource", "Disconnected", "RefCountSource", "SharedRun"]


class Disconnected(RuntimeError):
    """A shared stream was disconnected from its source while this subscriber was reading it."""


class SharedRun:
    """One run of a shared source, returned by ``connect()``; it can be cancelled."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        """Made by ``connect()``."""
        self._buffer = buffer
        self._feeder: Feeder | None = None
        self._joined = 0
        """How many subscribers there have been."""
        self._counted = 0
        """How many subscribers of ``ref_count`` there are."""
        self._timer: Timer | None = None

    @property
    def done(self) -> bool:
        """Whether the source has ended, or was cancelled."""
        return self._feeder is not None and (self._feeder.done or self._feeder.cancelled)

    def cancel(self) -> None:
        """Cancel the source; subscribers that are still there fail with Disconnected."""
        if self._feeder is not None:
            self._feeder.cancel()
        self._buffer.end(
            Disconnected("the shared stream was disconnected from its source; subscribe again to a new run")
        )


class Broadcast:
    """What all views of one connectable stream have in common: the source, and its present run."""

    def __init__(
        self,
        upstream: Stream[Any],
        capacity: int,
        history: int,
        ttl: float | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.upstream = upstream
        self.capacity = capacity
        self._history = history
        self._ttl = ttl
        self._scheduler = scheduler
        self._mutex = allocate_lock()
        self._run: SharedRun | None = None

    # ---------------------------------------------------------------- runs
    def connect(self) -> SharedRun:
        """Start the present run if it has not started, or a new one if it has ended."""
        with self._mutex:
            run = self._run
            if run is None or run.done:
                run = self._new_run()
            feeder = self._start(run, home_here())
        if feeder is not None:
            self.upstream._connect(feeder)
        return run

    def start(self, run: SharedRun, home: Home) -> Next | None:
        """The step that connects this run; None if it was started before, or is not the present one."""
        with self._mutex:
            feeder = self._start(run, home) if run is self._run else None
        return None if feeder is None else (self.upstream, feeder)

    def _start(self, run: SharedRun, home: Home) -> Feeder | None:
        if run._feeder is not None:
            return None
        run._feeder = Feeder(run._buffer, PREFETCH, home.apart())
        return run._feeder

    def _new_run(self) -> SharedRun:
        if self._ttl is None:
            buffer = ReplayBuffer(self.capacity, self._history)
        else:
            buffer = ExpiringBuffer(self.capacity, self._history, self._ttl, self._now)
        self._run = SharedRun(buffer)
        return self._run

    def _now(self) -> float:
        return (self._scheduler or shared_timer()).now()

    # ---------------------------------------------------------------- subscribers
    def join(
        self,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        source: Source,
        *,
        renew: bool = True,
        when_left: Callable[[SharedRun], None] | None = None,
    ) -> tuple[SharedRun, BufferCursor]:
        """Take a place in the present run.

        With ``renew``, a run that has ended and has no history makes way for a new one.
        """
        with self._mutex:
            run = self._run
            if run is None or (renew and run.done and not self._history):
                run = self._new_run()
            kind = _cursor_type(self._ttl is not None, when_left is not None)
            cursor = kind(run._buffer, ops, downstream, source.label, source.place)
            if when_left is not None:
                cursor.when_left = lambda: when_left(run)
                run._counted += 1
                timer, run._timer = run._timer, None
            else:
                timer = None
            run._joined += 1
            run._buffer.join(cursor)
        if timer is not None:
            timer.cancel()
        return run, cursor

    def leave(self, run: SharedRun, grace: float, scheduler: Scheduler | None) -> None:
        """A counted subscriber has left; the last one takes the run with it, after a while."""
        with self._mutex:
            run._counted -= 1
            deserted = not run._counted and run._feeder is not None
        if not deserted:
            return
        if grace <= 0:
            self._drop(run)
            return

        def over(_: Any = None) -> None:
            with self._mutex:
                current = run._timer is mine
            if current:
                self._drop(run)

        mine = _Grace()
        with self._mutex:
            if run._counted:
                return
            run._timer = mine
        try:
            mine.set((scheduler or shared_timer()).submit_after(grace, Alarm(copy_context(), over, over)))
        except SchedulerClosed:
            over()  # the scheduler is closed, so nothing would ring

    def _drop(self, run: SharedRun) -> None:
        with self._mutex:
            if run._counted:
                return  # a subscriber has come back
            if self._run is run:
                self._run = None
        run.cancel()


class _Grace:
    """A timer that may be cancelled before it is set."""

    __slots__ = ("_cancelled", "_timer")

    def __init__(self) -> None:
        self._timer: Timer | None = None
        self._cancelled = False

    def set(self, timer: Timer) -> None:
        self._timer = timer
        if self._cancelled:
            timer.cancel()

    def cancel(self) -> None:
        self._cancelled = True
        if self._timer is not None:
            self._timer.cancel()


class _CountedCursor(BufferCursor):
    """Tells when its subscriber has left, for whatever reason."""

    __slots__ = ("when_left",)
    when_left: Callable[[], None]

    def release(self) -> None:
        super().release()
        self.when_left()


class _CountedExpiringCursor(ExpiringCursor):
    """The same, for a history with a time to live."""

    __slots__ = ("when_left",)
    when_left: Callable[[], None]

    def release(self) -> None:
        super().release()
        self.when_left()


def _cursor_type(expiring: bool, counted: bool) -> Any:
    if expiring:
        return _CountedExpiringCursor if counted else ExpiringCursor
    return _CountedCursor if counted else BufferCursor


class _SharedSource(Source):
    """A view of a broadcast."""

    frames = 8

    def __init__(self, label: str, broadcast: Broadcast, *shows: Any) -> None:
        super().__init__(label, *shows)
        self._broadcast = broadcast

    def upstreams(self) -> list[Stream[Any]]:
        return [self._broadcast.upstream]

    def runs_on(self) -> str:
        return self._broadcast.upstream._source.runs_on()


class ConnectSource(_SharedSource):
    """Subscribers wait until somebody calls ``connect()``."""

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        _, cursor = self._broadcast.join(ops, downstream, self)
        cursor.introduce()


class AutoConnectSource(_SharedSource):
    """The n-th subscriber starts the run, and nothing stops it."""

    def __init__(self, label: str, broadcast: Broadcast, subscribers: int, *shows: Any) -> None:
        super().__init__(label, broadcast, *shows)
        self._subscribers = subscribers

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        run, cursor = self._broadcast.join(ops, downstream, self, renew=False)
        cursor.introduce()
        if run._joined < self._subscribers:
            return None
        return self._broadcast.start(run, home_of(downstream))


class RefCountSource(_SharedSource):
    """The run starts with n subscribers, and stops after the last of them has left."""

    def __init__(
        self, broadcast: Broadcast, subscribers: int, grace: float, scheduler: Scheduler | None
    ) -> None:
        super().__init__("ref_count", broadcast, subscribers)
        self._subscribers = subscribers
        self._grace = grace
        self._scheduler = scheduler

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        run, cursor = self._broadcast.join(ops, downstream, self, when_left=self._left)
        cursor.introduce()
        if run._counted < self._subscribers:
            return None
        return self._broadcast.start(run, home_of(downstream))

    def _left(self, run: SharedRun) -> None:
        self._broadcast.leave(run, self._grace, self._scheduler)
