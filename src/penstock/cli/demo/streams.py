"""``penstock demo --only-streams``: a fast source, a queue, a slow subscriber, and the demand on screen."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any

from penstock.cli.block import Block
from penstock.cli.screen import Screen
from penstock.cli.table import bar, columns, fit, row, wrap
from penstock.spec import Subscription
from penstock.streams import Flux, StageState, scan, schedulers

__all__ = ["StreamFigures", "StreamView", "drawing", "line", "run_streams"]

PREFETCH = 256
REQUEST = 64
"""How many elements the subscriber requests at a time."""
SLOWLY = 0.001
"""Seconds that the slow subscriber takes for an element."""
REFRESH = 0.2
_ANY = 10_000
"""Columns, where there is no screen."""


class SlowSubscriber:
    """A conforming Subscriber that requests some elements at a time, and can be made slow."""

    def __init__(self) -> None:
        self.pause = 0.0
        self.received = 0
        self.requested = 0
        self.out_of_order = 0
        self.finished = threading.Event()
        self.error: BaseException | None = None
        self.subscription: Subscription | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Make the first request."""
        self.subscription = subscription
        self._request()

    def on_next(self, element: int, /) -> None:
        """Take an element; request more when half of the last request has arrived."""
        if element != self.received * 2 + 1:
            self.out_of_order += 1
        self.received += 1
        if self.pause:
            time.sleep(self.pause)
        if self.requested - self.received <= REQUEST // 2:
            self._request()

    def on_error(self, error: BaseException, /) -> None:
        """Keep it for the verdict."""
        self.error = error
        self.finished.set()

    def on_complete(self) -> None:
        """Note the end, although this source has none."""
        self.finished.set()

    def cancel(self) -> None:
        """Cancel the subscription."""
        if self.subscription is not None:
            self.subscription.cancel()

    def _request(self) -> None:
        assert self.subscription is not None
        self.requested += REQUEST
        self.subscription.request(REQUEST)


def run_streams(duration: float, *, headless: bool) -> int:
    """Run the demo; 0 if nothing was lost and the queue stayed within its bound."""
    stopped = threading.Event()
    before = {number: signal.signal(number, _stopper(stopped)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _run(duration, headless, stopped)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stopper(stopped: threading.Event) -> Any:
    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    return stop


def _run(duration: float, headless: bool, stopped: threading.Event) -> int:
    def double(number: int) -> int:
        return number * 2

    def plus_one(number: int) -> int:
        return number + 1

    with schedulers.single("source") as source, schedulers.single("subscriber") as there:
        stream = (
            Flux.from_iterable(itertools.count())
            .map(double)
            .map(plus_one)
            .subscribe_on(source)
            .publish_on(there, prefetch=PREFETCH)
        )
        view = StreamView(Screen(sys.stdout, must_be_read=True), headless=headless)
        view.open(stream.explain())
        subscriber = SlowSubscriber()
        stream.subscribe(subscriber)
        worst = _watch(subscriber, view, duration, stopped)
        subscriber.cancel()
    view.close(_verdict(subscriber, worst, stopped.is_set()))
    lost = subscriber.out_of_order or subscriber.error is not None or worst > PREFETCH
    return 1 if lost else 130 if stopped.is_set() else 0


def _watch(subscriber: SlowSubscriber, view: StreamView, duration: float, stopped: threading.Event) -> int:
    """Draw until the time is over; return the longest queue that was seen."""
    begin = last = time.monotonic()
    emitted = received = worst = 0
    while (now := time.monotonic()) - begin < duration and not subscriber.finished.is_set():
        slow = 1 / 3 <= (now - begin) / duration < 2 / 3
        subscriber.pause = SLOWLY if slow else 0.0
        if stopped.wait(REFRESH):
            break
        stages = scan(subscriber.subscription)
        boundary, top = stages[0], stages[-1]
        seconds, last = time.monotonic() - last, time.monotonic()
        taken = boundary.emitted
        worst = max(worst, boundary.queued)
        view.show(
            StreamFigures(
                elapsed=last - begin,
                slow=slow,
                source_rate=(top.emitted - emitted) / seconds,
                subscriber_rate=(taken - received) / seconds,
                queued=boundary.queued,
                capacity=PREFETCH,
                open_demand=_open(boundary),
                source_demand=_open(top),
            )
        )
        emitted, received = top.emitted, taken
    return worst


def _open(stage: StageState) -> int:
    return max(0, stage.requested - stage.emitted)


def _verdict(subscriber: SlowSubscriber, worst: int, stopped: bool) -> str:
    if subscriber.error is not None:
        return f"FAILED: {subscriber.error!r}"
    ended = "stopped early" if stopped else "done"
    order = "all in order" if not subscriber.out_of_order else f"{subscriber.out_of_order} OUT OF ORDER"
    return (
        f"{ended}: {subscriber.received:,} elements received, {order}; "
        f"never more than {worst} of {PREFETCH} waiting"
    )


# ---------------------------------------------------------------- the screen
@dataclass(frozen=True, slots=True)
class StreamFigures:
    """The run at one moment."""

    elapsed: float
    slow: bool
    source_rate: float
    subscriber_rate: float
    queued: int
    capacity: int
    open_demand: int
    source_demand: int


class StreamView:
    """Shows figures on a terminal, or as lines where there is none."""

    def __init__(self, out: Screen, *, headless: bool) -> None:
        self._out = out
        self._block = Block(out) if out.is_terminal and not headless else None
        self._width = out.width if out.is_terminal else _ANY
        self._last_line = -1

    def open(self, picture: str) -> None:
        """Show what runs where."""
        lines = picture.splitlines()
        if all(columns(line) <= self._width for line in lines):
            self._out.write(f"{picture}\n\n")
        said = "Data goes right, demand goes left. The subscriber slows down in the middle."
        self._out.write("\n".join(wrap(said, self._width)) + "\n\n")

    def show(self, figures: StreamFigures) -> None:
        """Redraw, or print a line if a second has passed."""
        if self._block is not None:
            self._block.draw(drawing(figures, self._out.width))
        elif int(figures.elapsed) > self._last_line:
            self._last_line = int(figures.elapsed)
            self._out.write(line(figures, self._width) + "\n")

    def close(self, verdict: str) -> None:
        """Show the verdict."""
        if self._block is not None:
            self._block.leave()
        self._out.write("\n" + "\n".join(wrap(verdict, self._width)) + "\n")


def drawing(f: StreamFigures, width: int) -> list[str]:
    """Lay out a moment for a screen of ``width`` columns."""
    queue = bar(f.queued / f.capacity, max(min(32, width - 30), 6))
    return [
        f"  {f.elapsed:5.1f} s   subscriber is {'SLOW' if f.slow else 'fast'}",
        row("source", [f"{f.source_rate:>11,.0f}/s", f"demand {f.source_demand:>7}"], width)[0],
        row("queue", [queue, f"{f.queued:>4} of {f.capacity}"], width)[0],
        row("subscriber", [f"{f.subscriber_rate:>11,.0f}/s", f"demand {f.open_demand:>7}"], width)[0],
    ]


def line(f: StreamFigures, width: int = _ANY) -> str:
    """Write a moment in one line, in full if it fits."""
    pace = "slow" if f.slow else "fast"
    full = (
        f"{f.elapsed:5.1f} s  subscriber {pace}  source {f.source_rate:>10,.0f}/s  "
        f"queue {f.queued:>3}/{f.capacity}  subscriber {f.subscriber_rate:>10,.0f}/s  "
        f"demand {f.open_demand:>3}"
    )
    short = f"{f.elapsed:5.1f} s {pace} {f.source_rate:>9,.0f}/s ▸ {f.queued:>3} ▸ {f.subscriber_rate:,.0f}/s"
    return full if columns(full) <= width else fit(short, width)
