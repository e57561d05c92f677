"""Windows: one stream cut into a row of streams.

One window is open at a time, unless they overlap. It opens with its first element, when there is demand for
a window, so no window is empty and none is sent that was not asked for. How long it stays open is what the
kinds differ in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from enum import Enum
from math import floor
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED, Subscriber
from penstock.streams.fusion import Op, Relay
from penstock.streams.operators.boundaries import PREFETCH
from penstock.streams.operators.branch import Branch, BranchSource
from penstock.streams.operators.splitter import Outlet, Splitter
from penstock.streams.schedulers import Alarm, Scheduler, Timer
from penstock.streams.source import Next, Source
from penstock.streams.stream import flux_of

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["WindowEnd", "WindowSource", "at_another_key", "grid_of", "span_of"]


class WindowEnd(Enum):
    """Where a window ends, as its elements decide."""

    NOWHERE = "nowhere"
    AFTER = "after this element"
    BEFORE = "before this element"
    INSTEAD = "before this element, which is left out"


Judge = Callable[[Any], WindowEnd]
Span = Callable[[float, float], float]
"""When a window has to close, of the moment of subscription and that of its opening."""


def at_most(element: Any) -> WindowEnd:
    """For windows whose size, or clock, alone says where they end."""
    return WindowEnd.NOWHERE


def at_another_key(key_of: Callable[[Any], Any] | None) -> Judge:
    """For windows of neighbours with the same key; it remembers the last one."""
    before: list[Any] = []

    def judge(element: Any) -> WindowEnd:
        key = element if key_of is None else key_of(element)
        cut = WindowEnd.BEFORE if before and before[0] != key else WindowEnd.NOWHERE
        before[:] = [key]
        return cut

    return judge


def span_of(seconds: float) -> Span:
    """A window closes ``seconds`` after it has opened."""
    return lambda start, opened: opened + seconds


def grid_of(seconds: float) -> Span:
    """Windows close every ``seconds``, counted from the subscription."""
    return lambda start, opened: start + (floor((opened - start) / seconds) + 1) * seconds


class WindowSource(Source):
    """``window``, ``window_timeout``, ``window_until`` and ``window_while``."""

    frames = 12

    def __init__(
        self,
        label: str,
        upstream: Stream[Any],
        *shows: Any,
        prefetch: int,
        judge: Callable[[], Judge] = lambda: at_most,
        size: int | None = None,
        skip: int | None = None,
        span: Span | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        super().__init__(label, *shows)
        self._upstream = upstream
        self.judge = judge
        self.size = size
        self.skip = skip
        self.span = span
        self.scheduler = scheduler
        self.boundary = prefetch if size is None else None

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Demand for windows goes through a relay; the splitter opens no more than that."""
        outer = Relay(ops, downstream, self.label, self.place)
        outer.introduce()
        if outer.closed:
            return None
        splitter: Splitter
        if self.size is None:
            splitter = _Windowing(self, self.boundary or 0, outer)
        elif self.skip is not None:
            splitter = _Sliding(self, self.size, self.skip, outer)
        else:
            splitter = _Measured(self, self.size, outer)
        outer.on_subscribe(Outlet(splitter))
        return self._upstream, splitter

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def runs_on(self) -> str:
        return self._upstream._source.runs_on()


class _Windowing(Splitter):
    """Windows of any length: the source is asked for more as the present window is read."""

    def __init__(self, source: WindowSource, prefetch: int, outer: Relay) -> None:
        super().__init__(source.label, source.place, outer.home, outer.below, prefetch, outer)
        self.waits_for_readers = source.span is None  # a clock closes the window, read or not
        self.bounds_bytes = source.size is not None or prefetch == PREFETCH
        self._source = source
        self._judge = source.judge()
        self._context = copy_context()
        self._start = 0.0 if source.scheduler is None else source.scheduler.now()
        self._timer: Timer | None = None
        self._cut: WindowEnd | None = None
        """What the first element that waits decides; None if that was not asked yet."""
        self._opened = 0
        self.demand = 0
        self.present: Branch | None = None

    def place_one(self, element: Any) -> bool:
        if self._cut is None:
            self._cut = self._judge(element)
        cut = self._cut
        if cut in (WindowEnd.BEFORE, WindowEnd.INSTEAD):
            self.shut()
        if cut is not WindowEnd.INSTEAD:
            window = self.present or self._open()
            if window is None:
                return False
            self.give(window, element)
            if cut is WindowEnd.AFTER or self.full(window):
                self.shut()
        self._cut = None
        return True

    def full(self, window: Branch) -> bool:
        """Whether the window has as many elements as it may have."""
        return False

    def _open(self) -> Branch | None:
        outer = self.outer
        if outer is None or not self.demand:
            return None
        self.demand -= self.demand < UNBOUNDED
        self._opened += 1
        window = self.present = self.open(f"window {self._opened} of {self.name}")
        self._set_timer(window)
        outer.on_next(flux_of(BranchSource(window, self.place)))
        return window

    def shut(self) -> None:
        """Close the present window, if there is one. What waits in it stays there for its reader."""
        window, self.present = self.present, None
        self._stop_timer()
        if window is not None:
            if window in self.branches:
                self.close(window)
            window.end(None)

    def wants(self, n: int) -> None:
        self.demand = min(self.demand + n, UNBOUNDED)

    def closed_below(self) -> None:
        super().closed_below()
        self.demand = 0

    def finish(self, error: BaseException | None) -> None:
        """A window whose reader has left is not among the branches any more."""
        super().finish(error)
        self.present = None

    # ---------------------------------------------------------------- the clock
    def _set_timer(self, window: Branch) -> None:
        span, scheduler = self._source.span, self._source.scheduler
        if span is None or scheduler is None:
            return
        now = scheduler.now()
        alarm = Alarm(
            self._context,
            lambda: self.post(self._ring, window),
            lambda refused: self.post(self.fail, refused),
        )
        self._timer = scheduler.submit_after(max(0.0, span(self._start, now) - now), alarm)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _ring(self, window: Branch) -> None:
        if self.present is window:
            self.shut()

    def released(self) -> None:
        self._stop_timer()


class _Measured(_Windowing):
    """Windows of ``size`` elements at most: for each one that is asked for, so many elements are.

    So a window is never larger than its queue, and a window that nobody reads stops nothing.
    """

    def __init__(self, source: WindowSource, size: int, outer: Relay) -> None:
        super().__init__(source, size, outer)
        self.waits_for_readers = False
        self._size = size

    def full(self, window: Branch) -> bool:
        return window.given >= self._size

    def wanted(self, on_the_way: int) -> int:
        started = 0 if self.present is None else self._size - self.present.given
        needed = self.demand * self._size + started
        return UNBOUNDED if needed >= UNBOUNDED else max(0, needed - on_the_way - len(self.inbox))


class _Sliding(Splitter):
    """Windows of ``size`` elements, of which one begins every ``skip`` elements: they overlap, or leave gaps.

    A window that overlaps one that was asked for has to open, whether it was asked for or not. It waits here,
    with the elements that belong to both. So at most ``size / skip`` windows wait.
    """

    waits_for_readers = False
    bounds_bytes = False  # the present window needs elements that wait in the next ones as well

    def __init__(self, source: WindowSource, size: int, skip: int, outer: Relay) -> None:
        super().__init__(source.label, source.place, outer.home, outer.below, size, outer)
        self._size = size
        self._skip = skip
        self._seen = 0
        self._demand = 0
        self._opened = 0
        self._sent = 0
        self._unfilled: deque[Branch] = deque()
        """The windows that take elements, the oldest first."""
        self._unsent: deque[Branch] = deque()

    def place_one(self, element: Any) -> bool:
        if self._seen % self._skip == 0 and self.outer is not None:
            self._opened += 1
            window = self.open(f"window {self._opened} of {self.name}")
            self._unfilled.append(window)
            self._unsent.append(window)
            self._send()
        self._seen += 1
        for window in self._unfilled:
            self.give(window, element)
        if self._unfilled and self._unfilled[0].given == self._size:
            window = self._unfilled.popleft()
            if window in self.branches:
                self.close(window)
            window.end(None)
        return True

    def _send(self) -> None:
        while self._demand and self._unsent:
            self._demand -= self._demand < UNBOUNDED
            self._send_one()

    def _send_one(self) -> None:
        outer, window = self.outer, self._unsent.popleft()
        self._sent += 1
        if outer is not None:
            outer.on_next(flux_of(BranchSource(window, self.place)))

    def wanted(self, on_the_way: int) -> int:
        """What fills all windows that were asked for, less what the source was asked for: totals, both."""
        windows = self._sent + self._demand
        if not windows:
            return 0
        if self._demand >= UNBOUNDED:
            return UNBOUNDED
        return max(0, (windows - 1) * self._skip + self._size - self._asked)

    def wants(self, n: int) -> None:
        self._demand = min(self._demand + n, UNBOUNDED)
        self._send()

    def closed_below(self) -> None:
        """The windows that were sent go on; the others have never been."""
        super().closed_below()
        self._demand = 0
        for window in self._unsent:
            window.gone = True
            if window in self.branches:
                self.close(window)
        self._unsent.clear()

    def finish(self, error: BaseException | None) -> None:
        """The windows that wait are queued below, in front of the end."""
        while self._unsent:
            self._send_one()
        super().finish(error)

    def released(self) -> None:
        self._unfilled.clear()
        self._unsent.clear()
