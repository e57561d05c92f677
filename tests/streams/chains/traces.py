"""A trace, which is a stream with its times, and what timed operators make of one.

Each function here is a small simulation of an operator for a subscriber that asks for everything. Times are
counted from the subscription. No two clocks of a chain ever ring at the same moment: see :data:`TRIFLES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

from tests.streams.chains.lists import weight

Timed = list[tuple[float, Any]]

TRIFLES = (0.00314159, 0.00271828, 0.00141421, 0.00173205, 0.00223607, 0.00264575)
"""What the durations of a chain have in addition, one for each place, so that no two sums are equal."""


class Trace(NamedTuple):
    """What a stream does and when: elements, and an end or an error."""

    signals: Timed
    end: float
    failed: bool = False

    def until(self, moment: float) -> Timed:
        return [(t, x) for t, x in self.signals if t < moment]

    def later(self, seconds: float) -> Trace:
        return Trace([(t + seconds, x) for t, x in self.signals], self.end + seconds, self.failed)

    def each(self, change: Callable[[float, Any], Any]) -> Trace:
        return self._replace(signals=[(t, change(t, x)) for t, x in self.signals])

    def close(self, left: Timed, *, keep: bool = False) -> Trace:
        """These elements; those that would come after the end come with it, or an error takes their place."""
        kept = [(t, x) for t, x in left if t <= self.end]
        if keep or not self.failed:
            kept += [(self.end, x) for t, x in left if t > self.end]
        return self._replace(signals=kept)

    def cut(self, signals: Timed) -> Trace:
        """These elements up to the end. An element at the moment of the end came before it."""
        return self._replace(signals=[(t, x) for t, x in signals if t <= self.end])


def ticks(period: float, count: int) -> Trace:
    """``Flux.interval(period).take(count)``."""
    return Trace([((i + 1) * period, i) for i in range(count)], count * period)


def in_order(signals: Iterable[tuple[float, Any]]) -> Timed:
    """By time; what happens at the same time stays in its order."""
    return sorted(signals, key=lambda signal: round(signal[0], 9))


# -------------------------------------------------------------------- fewer elements
def debounced(trace: Trace, pause: float) -> Trace:
    following = [t for t, _ in trace.signals[1:]] + [inf]
    return trace.close(
        [(t + pause, x) for (t, x), next_ in zip(trace.signals, following, strict=True) if t + pause < next_]
        if trace.signals
        else []
    )


def throttled_to_first(trace: Trace, window: float) -> Trace:
    kept: Timed = []
    for t, x in trace.signals:
        if not kept or t >= kept[-1][0] + window:
            kept.append((t, x))
    return trace._replace(signals=kept)


def throttled_to_last(trace: Trace, window: float) -> Trace:
    return trace.close([(closes, piece[-1]) for closes, piece in _spans(trace, window)])


def _spans(trace: Trace, window: float) -> Timed:
    """What comes within ``window`` seconds of an element that opens a span, and when the span closes."""
    spans: Timed = []
    for t, x in trace.signals:
        if spans and t < spans[-1][0]:
            spans[-1][1].append(x)
        else:
            spans.append((t + window, [x]))
    return spans


def sampled(trace: Trace, period: float) -> Trace:
    return trace.close([(closes, piece[-1]) for closes, piece in _periods(trace, period)])


def _periods(trace: Trace, period: float) -> Timed:
    """What comes in each period that has anything, and when the period is over."""
    periods: dict[int, list[Any]] = {}
    for t, x in trace.signals:
        periods.setdefault(int(t / period), []).append(x)
    return [((number + 1) * period, piece) for number, piece in periods.items()]


# -------------------------------------------------------------------- pieces
def cut_by_time(trace: Trace, size: int, duration: float) -> Timed:
    """Pieces that are full, or whose time is over, each with that moment."""
    pieces: Timed = []
    full = True
    for t, x in trace.signals:
        if full or t >= pieces[-1][0]:
            pieces.append((t + duration, []))
        pieces[-1][1].append(x)
        full = len(pieces[-1][1]) == size
        if full:
            pieces[-1] = (t, pieces[-1][1])
    return pieces


def buffered(trace: Trace, size: int, duration: float) -> Trace:
    """An error lets what waits go first."""
    return trace.close(cut_by_time(trace, size, duration), keep=True)


def windowed(trace: Trace, size: int, duration: float) -> Trace:
    return trace.close(cut_by_time(trace, size, duration))


def windowed_every(trace: Trace, period: float) -> Trace:
    return trace.close(_periods(trace, period))


# -------------------------------------------------------------------- later
def delayed_each(trace: Trace, delay: float) -> Trace:
    signals: Timed = []
    for t, x in trace.signals:
        signals.append((max(t, signals[-1][0] if signals else 0.0) + delay, x))
    return Trace(signals, max(trace.end, signals[-1][0] if signals else 0.0))


def rate_limited(trace: Trace, per: float, burst: int) -> Trace:
    signals: Timed = []
    tokens, since = float(burst), 0.0
    for t, x in trace.signals:
        now = max(t, since)
        tokens = min(burst, tokens + (now - since) / per)
        if tokens < 1:
            now += (1 - tokens) * per
            tokens = 1.0
        tokens -= 1
        since = now
        signals.append((now, x))
    return Trace(signals, max(trace.end, since))


def timed_out(trace: Trace, limit: float, fallback: Any) -> Trace:
    waits_from = 0.0
    for t in [*(t for t, _ in trace.signals), trace.end]:
        if t > waits_from + limit:
            late = waits_from + limit
            return Trace([*trace.until(late), (late, fallback)], late)
        waits_from = t
    return trace


# -------------------------------------------------------------------- several streams
def inner(x: Any, period: float) -> Trace:
    """The stream of an element in the following simulations."""
    return ticks(period, 1 + weight(x) % 3).each(lambda _, tick: weight(x) + tick)


def switched(trace: Trace, period: float) -> Trace:
    signals: Timed = []
    ends = trace.end
    for number, (t, x) in enumerate(trace.signals):
        one = inner(x, period).later(t)
        last = number == len(trace.signals) - 1
        cut = (trace.end if trace.failed else inf) if last else trace.signals[number + 1][0]
        signals += one.until(cut)
        if last:
            ends = max(ends, one.end)
    return Trace(signals, trace.end if trace.failed else ends, trace.failed)


def flat_mapped(trace: Trace, period: float) -> Trace:
    every = [inner(x, period).later(t) for t, x in trace.signals]
    signals = in_order(signal for one in every for signal in one.signals)
    if trace.failed:
        return trace.cut(signals)
    return Trace(signals, max([trace.end, *(one.end for one in every)]))


def flat_mapped_in_order(trace: Trace, period: float) -> Trace:
    signals: Timed = []
    free = 0.0
    for t, x in trace.signals:
        one = inner(x, period).later(t)
        signals += [(max(moment, free), y) for moment, y in one.signals]
        free = max(free, one.end)
    return Trace(signals, max(trace.end, free))


def concat_mapped(trace: Trace, period: float) -> Trace:
    signals: Timed = []
    free = 0.0
    for t, x in trace.signals:
        one = inner(x, period).later(max(t, free))
        signals += one.signals
        free = one.end
    return Trace(signals, max(trace.end, free))


def awaited(trace: Trace, nap: float, *, ordered: bool) -> Trace:
    naps = [(t + nap * (weight(x) % 3), x) for t, x in trace.signals]
    if ordered:
        moments = accumulate((t for t, _ in naps), max)
        signals = [(t, x) for t, (_, x) in zip(moments, naps, strict=True)]
    else:
        signals = in_order(naps)
    return Trace(signals, max([trace.end, *(t for t, _ in signals)]))


def merged(trace: Trace, other: Trace) -> Trace:
    both = in_order([*trace.signals, *other.signals])
    if trace.failed:
        return trace.cut(both)
    return Trace(both, max(trace.end, other.end))


def merged_to_the_end(trace: Trace, other: Trace) -> Trace:
    both = in_order([*trace.signals, *other.signals])
    return Trace(both, max(trace.end, other.end), trace.failed)


def merged_in_order(trace: Trace, other: Trace) -> Trace:
    if trace.failed:
        return trace
    after = [(max(t, trace.end), x) for t, x in other.signals]
    return Trace([*trace.signals, *after], max(trace.end, other.end))


def combined(trace: Trace, other: Trace) -> Trace:
    signals: Timed = []
    newest: dict[int, Any] = {}
    events = in_order([*((t, (0, x)) for t, x in trace.signals), *((t, (1, x)) for t, x in other.signals)])
    for t, (which, x) in events:
        newest[which] = x
        if len(newest) == 2:
            signals.append((t, (newest[0], newest[1])))
    if trace.failed or not trace.signals:
        return trace.cut(signals)
    return Trace(signals, max(trace.end, other.end))


def with_latest(trace: Trace, other: Trace) -> Trace:
    return trace._replace(
        signals=[(t, (x, other.until(t)[-1][1])) for t, x in trace.signals if other.until(t)]
    )


def zipped(trace: Trace, other: Trace) -> Trace:
    rows = [(max(t, u), (x, y)) for (t, x), (u, y) in zip(trace.signals, other.signals, strict=False)]
    ends = [
        max(one.end, rows[len(one.signals) - 1][0] if one.signals else 0.0)
        for one in (trace, other)
        if len(one.signals) <= len(rows)
    ]
    return Trace(rows, min(ends))


def quicker(trace: Trace, other: Trace, *, value: bool) -> Trace:
    """The one whose first signal, or first element, comes first."""
    without_element = inf if value else trace.end
    first = trace.signals[0][0] if trace.signals else without_element
    return trace if first < other.signals[0][0] else other


# -------------------------------------------------------------------- again
def again(trace: Trace, pause: float) -> Trace:
    """The trace, and after a pause the same once more."""
    second = trace.later(trace.end + pause)
    return Trace([*trace.signals, *second.signals], second.end, second.failed)


# -------------------------------------------------------------------- demand
def one_waits(trace: Trace, requests: list[tuple[float, int]], *, slots: int = 1) -> Trace:
    """Without demand an element waits, until the next takes its place; ``slots=0``: it is dropped."""
    signals: Timed = []
    waiting: list[Any] = []
    demand, ends = 0, inf
    events = [*((t, 1, x) for t, x in trace.signals), *((t, 0, n) for t, n in requests), (trace.end, 2, None)]
    for t, kind, value in sorted(events, key=lambda event: (round(event[0], 9), event[1])):
        if kind == 0:
            demand += value
        elif kind == 1:
            waiting = [value]
        else:
            ends = t
        if waiting and demand:
            signals.append((t, waiting.pop()))
            demand -= 1
        waiting = waiting[:slots]
        if ends < inf and not waiting:
            return Trace(signals, t, trace.failed)
    return Trace(signals, inf)
