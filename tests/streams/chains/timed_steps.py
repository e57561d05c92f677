"""Operators whose elements depend on time, as steps on traces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from penstock.streams import Flux, Mono, Overflow, Retry
from tests.streams.chains import traces
from tests.streams.chains.flux_steps import POOL, SINGLE, collected, identity
from tests.streams.chains.lists import weight
from tests.streams.chains.runs import Failed
from tests.streams.chains.traces import TRIFLES, Trace, ticks

SIZE = 3
"""Of windows and lists, and the burst of ``rate_limit``."""

MANY = 10_000
"""Inner streams at a time: in the simulations nothing waits."""


class TimedStep(NamedTuple):
    """An operator with a duration, twice: as we have it and on a trace."""

    text: str
    on_stream: Callable[[Any, float], Any]
    on_trace: Callable[[Trace, float], Trace] = lambda trace, _: trace
    steady: bool = False
    """Its elements are there at their times, whether or not anybody asks for them then."""
    slows: bool = False
    """It does not ask for everything, so that what is above it must be steady."""
    error_goes_first: bool = False
    """What an error leaves of the elements that wait is not simulated."""

    def __repr__(self) -> str:
        return self.text


def stream_of(x: Any, period: float) -> Flux[Any]:
    """As :func:`traces.inner` says."""
    return Flux.interval(period).take(1 + weight(x) % 3).map(lambda tick: weight(x) + tick)


def other(period: float) -> Flux[Any]:
    return Flux.interval(period).take(3)


def napping(s: Any, nap: float, ordered: bool) -> Any:
    # The timers of asyncio have no order if they ring at the same time.
    numbers = count()

    async def nap_first(x: Any) -> Any:
        await asyncio.sleep(nap * (weight(x) % 3) + next(numbers) * 1e-8)
        return x

    return s.map_async(nap_first, concurrency=MANY, ordered=ordered)


def moment(t: float) -> int:
    """A time as an element that has a weight."""
    return round(t * 10_000)


def elapsed(trace: Trace, _: float) -> Trace:
    before = [0.0, *(t for t, _ in trace.signals)]
    moments = iter(before)
    return trace.each(lambda t, x: (moment(t - next(moments)), x))


def exhausted(error: BaseException) -> BaseException:
    return error if isinstance(error, Failed) else Failed(error)


def keeps_one(s: Any, _: float) -> Any:
    return s.on_backpressure_latest()


STEPS = [
    TimedStep(
        "map",
        lambda s, d: s.map(lambda x: weight(x) + 1),
        lambda t, d: t.each(lambda _, x: weight(x) + 1),
        steady=True,
    ),
    TimedStep("delay_sequence", lambda s, d: s.delay_sequence(d), Trace.later),
    TimedStep("delay_subscription", lambda s, d: s.delay_subscription(d), Trace.later, steady=True),
    TimedStep(
        "delay_subscription(other)",
        lambda s, d: s.delay_subscription(Mono.timer(d)),
        Trace.later,
        steady=True,
    ),
    TimedStep(
        "delay_elements",
        lambda s, d: s.delay_elements(d),
        traces.delayed_each,
        slows=True,
        error_goes_first=True,
    ),
    TimedStep(
        "rate_limit",
        lambda s, d: s.rate_limit(1, per=d, burst=SIZE),
        lambda t, d: traces.rate_limited(t, d, SIZE),
        slows=True,
        error_goes_first=True,
    ),
    TimedStep("debounce", lambda s, d: s.debounce(d), traces.debounced),
    TimedStep("throttle_first", lambda s, d: s.throttle_first(d), traces.throttled_to_first),
    TimedStep("throttle_last", lambda s, d: s.throttle_last(d), traces.throttled_to_last),
    TimedStep("sample", lambda s, d: s.sample(d), traces.sampled),
    TimedStep("sample(other)", lambda s, d: s.sample(Flux.interval(d)), traces.sampled),
    TimedStep("conflate", lambda s, d: s.conflate(identity, lambda a, b: [a, b])),
    TimedStep("on_backpressure_latest", keeps_one),
    TimedStep("on_backpressure_drop", lambda s, d: s.on_backpressure_drop()),
    TimedStep("on_backpressure_error", lambda s, d: s.on_backpressure_error()),
    TimedStep("on_backpressure_buffer", lambda s, d: s.on_backpressure_buffer(4, Overflow.DROP_OLDEST)),
    TimedStep("timeout", lambda s, d: s.timeout(d, Flux.just(9)), lambda t, d: traces.timed_out(t, d, 9)),
    TimedStep("elapsed", lambda s, d: s.elapsed().map(lambda pair: (moment(pair[0]), pair[1])), elapsed),
    TimedStep(
        "buffer_timeout",
        lambda s, d: s.buffer_timeout(SIZE, d),
        lambda t, d: traces.buffered(t, SIZE, d),
        slows=True,
    ),
    TimedStep(
        "window_timeout",
        lambda s, d: s.window_timeout(SIZE, d).flat_map(collected),
        lambda t, d: traces.windowed(t, SIZE, d),
        slows=True,
    ),
    TimedStep("window(every)", lambda s, d: s.window(every=d).flat_map(collected), traces.windowed_every),
    TimedStep("window", lambda s, d: s.window(SIZE).concat_map(identity), error_goes_first=True, slows=True),
    TimedStep("group_by", lambda s, d: s.group_by(lambda x: weight(x) % 3).flat_map(identity)),
    TimedStep("partition", lambda s, d: Flux.merge(*s.partition(lambda x: weight(x) % 2), prefetch=MANY)),
    TimedStep("switch_map", lambda s, d: s.switch_map(lambda x: stream_of(x, d)), traces.switched),
    TimedStep(
        "flat_map",
        lambda s, d: s.flat_map(lambda x: stream_of(x, d), concurrency=MANY),
        traces.flat_mapped,
        steady=True,
    ),
    TimedStep(
        "flat_map_sequential",
        lambda s, d: s.flat_map_sequential(lambda x: stream_of(x, d), concurrency=MANY),
        traces.flat_mapped_in_order,
        error_goes_first=True,
    ),
    TimedStep(
        "concat_map",
        lambda s, d: s.concat_map(lambda x: stream_of(x, d)),
        traces.concat_mapped,
        slows=True,
        error_goes_first=True,
    ),
    TimedStep(
        "map_async",
        lambda s, d: napping(s, d, True),
        lambda t, d: traces.awaited(t, d, ordered=True),
        error_goes_first=True,
    ),
    TimedStep(
        "map_async(unordered)",
        lambda s, d: napping(s, d, False),
        lambda t, d: traces.awaited(t, d, ordered=False),
        error_goes_first=True,
    ),
    TimedStep(
        "merge",
        lambda s, d: Flux.merge(s, other(d), prefetch=MANY),
        lambda t, d: traces.merged(t, ticks(d, 3)),
        steady=True,
    ),
    TimedStep(
        "merge_with",
        lambda s, d: s.merge_with(other(d)),
        lambda t, d: traces.merged(t, ticks(d, 3)),
        slows=True,
    ),
    TimedStep(
        "merge_priority",
        lambda s, d: Flux.merge_priority(s, other(d), prefetch=MANY),
        lambda t, d: traces.merged(t, ticks(d, 3)),
    ),
    TimedStep(
        "merge_delay_error",
        lambda s, d: Flux.merge_delay_error(s, other(d), prefetch=MANY),
        lambda t, d: traces.merged_to_the_end(t, ticks(d, 3)),
    ),
    TimedStep(
        "merge_sequential",
        lambda s, d: Flux.merge_sequential(s, other(d), prefetch=MANY),
        lambda t, d: traces.merged_in_order(t, ticks(d, 3)),
    ),
    TimedStep(
        "combine_latest",
        lambda s, d: Flux.combine_latest(s, other(d), prefetch=MANY),
        lambda t, d: traces.combined(t, ticks(d, 3)),
        steady=True,
    ),
    TimedStep(
        "with_latest_from",
        lambda s, d: s.with_latest_from(other(d)),
        lambda t, d: traces.with_latest(t, ticks(d, 3)),
    ),
    TimedStep(
        "zip",
        lambda s, d: Flux.zip(s, other(d), prefetch=MANY),
        lambda t, d: traces.zipped(t, ticks(d, 3)),
        error_goes_first=True,
    ),
    TimedStep(
        "first_with_signal",
        lambda s, d: Flux.first_with_signal(s, other(d)),
        lambda t, d: traces.quicker(t, ticks(d, 3), value=False),
    ),
    TimedStep(
        "first_with_value",
        lambda s, d: Flux.first_with_value(s, other(d)),
        lambda t, d: traces.quicker(t, ticks(d, 3), value=True),
    ),
    TimedStep(
        "take_until_other",
        lambda s, d: s.take_until_other(Mono.timer(d)),
        lambda t, d: t if t.end < d else Trace(t.until(d), d),
    ),
    TimedStep(
        "skip_until_other",
        lambda s, d: s.skip_until_other(Mono.timer(d)),
        lambda t, d: t._replace(signals=[signal for signal in t.signals if signal[0] > d]),
    ),
    TimedStep(
        "repeat_when",
        lambda s, d: s.repeat_when(lambda ends: ends.delay_elements(d).take(1)),
        lambda t, d: t if t.failed else traces.again(t, d),
    ),
    TimedStep(
        "retry_when",
        lambda s, d: s.retry_when(Retry.fixed(1, pause=d)).on_error_map(exhausted),
        lambda t, d: traces.again(t, d) if t.failed else t,
    ),
    TimedStep(
        "using_when",
        lambda s, d: Flux.using_when(Mono.timer(d), lambda _: s, lambda _: Mono.timer(d)),
        lambda t, d: t.later(d)._replace(end=t.end + 2 * d),
    ),
    TimedStep("publish_on", lambda s, d: s.publish_on(POOL)),
    TimedStep("subscribe_on", lambda s, d: s.subscribe_on(SINGLE)),
    TimedStep("limit_rate", lambda s, d: s.limit_rate(4), slows=True),
    TimedStep("share", lambda s, d: s.share()),
    # Shorter than any pause after which a later step subscribes again: it would join the stream midway.
    TimedStep("publish", lambda s, d: s.publish().ref_count(grace=min(TRIFLES) / 2)),
    TimedStep("replay", lambda s, d: s.replay(ttl=d).ref_count()),
]

LOSING = {
    step.text: step
    for step in STEPS
    if step.text
    in (
        "debounce",
        "throttle_first",
        "throttle_last",
        "sample",
        "sample(other)",
        "on_backpressure_latest",
        "on_backpressure_drop",
    )
}
"""Operators that leave elements out if nobody asks for them."""
SLOTS = {"on_backpressure_drop": 0}
"""How many elements wait for demand in them, if it is not one."""
