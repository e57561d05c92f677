"""Any chain over the whole library gives what the same steps on a list give, in virtual time.

Queues, threads, coroutines and timers take part, with random requests, cancels and errors. In virtual time
all of them are deterministic, so a list with an end (complete or failed) predicts what comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, schedulers
from penstock.testing import DroppedSignals, marble, virtual_time
from tests.streams.operators.test_random_chains import cut, pieces, unchanged, up_to, weight
from tests.streams.recording import Recorder

Elements = list[Any]
POOL, SINGLE = schedulers.shared_pool(), schedulers.shared_single()
LONG = 100.0
"""Seconds of virtual time, in which every chain here comes to its end."""


class Failed(Exception):
    """What a source or a function fails with."""


class Run(NamedTuple):
    """What a stream does: its elements, and whether it fails after them."""

    elements: Elements
    failed: bool = False

    def each(self, change: Callable[[Elements], Elements]) -> Run:
        """Elements change one by one; an error stays."""
        return Run(change(self.elements), self.failed)

    def fold(self, change: Callable[[Elements], Elements]) -> Run:
        """The result comes at the end; an error comes instead of it."""
        return Run([], True) if self.failed else Run(change(self.elements))

    def upto(self, change: Callable[[Elements], tuple[Elements, bool]]) -> Run:
        """A part of the elements; if that ends the stream, the error never comes."""
        kept, ended = change(self.elements)
        return Run(kept, self.failed and not ended)

    def then(self, following: Callable[[], Elements]) -> Run:
        """More elements after the end, unless that is an error."""
        return self if self.failed else Run([*self.elements, *following()])


class Step(NamedTuple):
    """An operator, twice: as we have it and on a run."""

    text: str
    on_stream: Callable[[Any], Any]
    on_run: Callable[[Run], Run]
    error_goes_first: bool = False
    """An error overtakes elements here (decision 0006), so a list does not predict what an error leaves."""

    def __repr__(self) -> str:
        return self.text


def same(run: Run) -> Run:
    return run


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """One operator with small random arguments."""
    n = draw(st.integers(0, 6))
    m = draw(st.integers(1, 4))

    def matches(x: Any) -> bool:
        return weight(x) % (m + 1) == n % (m + 1)

    def changed(x: Any) -> int:
        return weight(x) + m

    def add(total: Any, x: Any) -> int:
        return weight(total) + weight(x)

    def parts(x: Any) -> Elements:
        return [weight(x) + i for i in range(weight(x) % 3)]

    def fails(x: Any) -> Any:
        if weight(x) % 7 == n:
            raise Failed
        return x

    def until_it_fails(run: Run) -> Run:
        for number, x in enumerate(run.elements):
            if weight(x) % 7 == n:
                return Run(run.elements[:number], True)
        return run

    async def awaited(x: Any) -> int:
        await asyncio.sleep(0.01 * (weight(x) % m))
        return changed(x)

    async def awaited_later(x: Any) -> Any:
        await asyncio.sleep(0.01)
        return x

    def flattened(xs: Elements) -> Elements:
        return [y for x in xs for y in parts(x)]

    def in_time(x: Any) -> Flux[Any]:
        return Flux.from_iterable(parts(x)).delay_elements(0.01)

    def matching(xs: Elements) -> Elements:
        return [*filter(matches, xs)]

    def last(xs: Elements) -> Elements:
        return xs[-n:] if n else []

    two = Flux.just(n, m)
    return draw(
        st.sampled_from(
            [
                Step("map", lambda f: f.map(changed), lambda r: r.each(lambda xs: [*map(changed, xs)])),
                Step(
                    "filter", lambda f: f.filter(matches), lambda r: r.each(lambda xs: [*filter(matches, xs)])
                ),
                Step("map(fails)", lambda f: f.map(fails), until_it_fails),
                Step(f"take({n})", lambda f: f.take(n), lambda r: r.upto(lambda xs: (xs[:n], len(xs) >= n))),
                Step(
                    "take_until",
                    lambda f: f.take_until(matches),
                    lambda r: r.upto(lambda xs: (up_to(xs, matches), any(map(matches, xs)))),
                ),
                Step(f"skip({n})", lambda f: f.skip(n), lambda r: r.each(lambda xs: xs[n:])),
                Step("scan", lambda f: f.scan(add), lambda r: r.each(lambda xs: [*accumulate(xs, add)])),
                Step("index", lambda f: f.index(), lambda r: r.each(lambda xs: [*enumerate(xs)])),
                Step(
                    "distinct_until_changed",
                    lambda f: f.distinct_until_changed(weight),
                    lambda r: r.each(lambda xs: unchanged(xs, weight)),
                ),
                Step(
                    f"buffer({m})",
                    lambda f: f.buffer(m),
                    lambda r: r.each(
                        lambda xs: pieces(xs[: len(xs) // m * m] if r.failed else xs, m, m),
                    ),
                ),
                Step("sort", lambda f: f.sort(weight), lambda r: r.fold(lambda xs: sorted(xs, key=weight))),
                Step(
                    f"take_last({n})",
                    lambda f: f.take_last(n),
                    lambda r: r.fold(last),
                ),
                Step("count", lambda f: f.count().flux(), lambda r: r.fold(lambda xs: [len(xs)])),
                Step("start_with", lambda f: f.start_with(n), lambda r: Run([n, *r.elements], r.failed)),
                Step("concat_with", lambda f: f.concat_with(two), lambda r: r.then(lambda: [n, m])),
                Step(
                    "concat_with(time)",
                    lambda f: f.concat_with(marble("-1-2|")),
                    lambda r: r.then(lambda: [1, 2]),
                ),
                Step(
                    "default_if_empty",
                    lambda f: f.default_if_empty(n),
                    lambda r: r if r.failed or r.elements else Run([n]),
                ),
                Step(
                    "switch_if_empty",
                    lambda f: f.switch_if_empty(two),
                    lambda r: r if r.failed or r.elements else Run([n, m]),
                ),
                Step(
                    "concat_map",
                    lambda f: f.concat_map(lambda x: Flux.from_iterable(parts(x))),
                    lambda r: r.each(flattened),
                ),
                Step(
                    "concat_map(time)",
                    lambda f: f.concat_map(in_time),
                    lambda r: r.each(flattened),
                ),
                Step("publish_on", lambda f: f.publish_on(POOL, prefetch=m), same),
                Step("subscribe_on", lambda f: f.subscribe_on(SINGLE), same),
                Step(f"limit_rate({m})", lambda f: f.limit_rate(m), same),
                Step("delay_elements", lambda f: f.delay_elements(0.02), same),
                Step("timeout", lambda f: f.timeout(10 * LONG), same),
                Step("cache", lambda f: f.cache(), same),
                Step("share", lambda f: f.share(prefetch=m), same),
                Step("log-free hooks", lambda f: f.do_on_next(weight).do_finally(str).named("x"), same),
                Step(
                    f"map_async({m})",
                    lambda f: f.map_async(awaited, concurrency=m),
                    lambda r: r.each(lambda xs: [*map(changed, xs)]),
                    error_goes_first=True,
                ),
                Step(
                    "map_async(1)",
                    lambda f: f.map_async(awaited_later, concurrency=1),
                    same,
                    error_goes_first=True,
                ),
                Step(
                    "flat_map(1)",
                    lambda f: f.flat_map(lambda x: Flux.from_iterable(parts(x)), concurrency=1),
                    lambda r: r.each(flattened),
                    error_goes_first=True,
                ),
                Step(
                    f"flat_map_sequential({m})",
                    lambda f: f.flat_map_sequential(in_time, concurrency=m),
                    lambda r: r.each(flattened),
                    error_goes_first=True,
                ),
                Step(
                    "zip_with",
                    lambda f: f.zip_with(Flux.range(1000)),
                    lambda r: r.each(lambda xs: [(x, number) for number, x in enumerate(xs)]),
                    error_goes_first=True,
                ),
                Step(
                    "merge_sequential",
                    lambda f: Flux.merge_sequential(f, Flux.just(n)),
                    lambda r: r.then(lambda: [n]),
                    error_goes_first=True,
                ),
                Step(
                    "first_with_signal",
                    lambda f: Flux.first_with_signal(f, Flux.never()),
                    same,
                    error_goes_first=True,
                ),
                Step(
                    f"window({m})",
                    lambda f: f.window(m).concat_map(lambda window: window.collect_list()),
                    lambda r: r.each(lambda xs: pieces(xs, m, m)),
                    error_goes_first=True,
                ),
                Step(
                    "window_until",
                    lambda f: f.window_until(matches).concat_map(lambda window: window.collect_list()),
                    lambda r: r.each(lambda xs: cut(xs, matches, before=False)),
                    error_goes_first=True,
                ),
                Step(
                    f"buffer_timeout({m})",
                    lambda f: f.buffer_timeout(m, 10 * LONG),
                    lambda r: r.each(lambda xs: pieces(xs, m, m)),
                    error_goes_first=True,
                ),
                Step(
                    "partition",
                    lambda f: Flux.merge_sequential(*f.partition(matches)),
                    lambda r: r.each(lambda xs: [*matching(xs), *(x for x in xs if not matches(x))]),
                    error_goes_first=True,
                ),
                Step("expand", lambda f: f.expand(lambda _: Flux.empty()), same),
                Step("expand_deep", lambda f: f.expand_deep(lambda _: []), same, error_goes_first=True),
                Step("materialize", lambda f: f.materialize().dematerialize(), same),
                Step(
                    "concat_map_delay_error",
                    lambda f: f.concat_map_delay_error(in_time),
                    lambda r: r.each(flattened),
                ),
                Step(
                    "flat_map_delay_error(1)",
                    lambda f: f.flat_map_delay_error(in_time, concurrency=1),
                    lambda r: r.each(flattened),
                ),
                Step(
                    "concat_delay_error",
                    lambda f: Flux.concat_delay_error(f, Flux.just(n)),
                    lambda r: Run([*r.elements, n], r.failed),
                ),
                Step(
                    "on_error_return",
                    lambda f: f.on_error_return(n),
                    lambda r: Run([*r.elements, n]) if r.failed else r,
                ),
                Step("on_error_complete", lambda f: f.on_error_complete(), lambda r: Run(r.elements)),
                Step(
                    "on_error_resume",
                    lambda f: f.on_error_resume(lambda _: marble("-7-8|")),
                    lambda r: Run([*r.elements, 7, 8]) if r.failed else r,
                ),
                Step("repeat(1)", lambda f: f.repeat(1), lambda r: r.then(lambda: r.elements)),
                Step(
                    "retry(1)",
                    lambda f: f.retry(1),
                    lambda r: Run(r.elements * 2, True) if r.failed else r,
                ),
            ]
        )
    )


def listed(xs: Elements, failed: bool) -> Flux[Any]:
    flux = Flux.from_iterable(xs)
    return flux.concat_with(Flux.error(Failed)) if failed else flux


def pushed(xs: Elements, failed: bool) -> Flux[Any]:
    """Elements that come when they like, some together."""
    names = {chr(0x4E00 + number): x for number, x in enumerate(xs)}
    line = "".join(f"({name})" if number % 3 else f"-{name}" for number, name in enumerate(names))
    return marble(f"{line}{'#' if failed else '|'}", {**names, "#": Failed})


SOURCES = {"list": listed, "in time": pushed}
Numbers = st.lists(st.integers(0, 30), max_size=15)
Chain = st.lists(steps(), max_size=6)
Requests = st.lists(st.integers(1, 7) | st.just(UNBOUNDED), min_size=1, max_size=5)


def through(chain: list[Step], source: Flux[Any], run: Run) -> tuple[Any, Run]:
    flux: Any = source
    for step in chain:
        if not (run.failed and step.error_goes_first):
            flux, run = step.on_stream(flux), step.on_run(run)
    return flux, run


@settings(max_examples=200, deadline=None)
@given(
    source=st.sampled_from(sorted(SOURCES)),
    numbers=Numbers,
    failed=st.booleans(),
    chain=Chain,
    requests=Requests,
    pause=st.floats(0, 0.1),
)
def test_a_subscriber_gets_what_a_list_would_give(
    source: str, numbers: Elements, failed: bool, chain: list[Step], requests: list[int], pause: float
) -> None:
    with virtual_time() as clock, DroppedSignals():
        flux, expected = through(chain, SOURCES[source](numbers, failed), Run(numbers, failed))
        recorder = Recorder()
        flux.subscribe(recorder)
        clock.run_pending()
        for number in range(len(expected.elements) + 2):
            recorder.request(requests[number % len(requests)])
            clock.advance_by(pause)
            assert recorder.items == expected.elements[: len(recorder.items)]
        clock.advance_by(LONG)
        if not recorder.terminated:
            recorder.request(UNBOUNDED)
            clock.advance_by(LONG)

        recorder.check()
        assert recorder.items == expected.elements
        assert isinstance(recorder.error, Failed) is expected.failed
        assert recorder.completed is not expected.failed


@settings(max_examples=200, deadline=None)
@given(
    source=st.sampled_from(sorted(SOURCES)),
    numbers=Numbers,
    chain=Chain,
    before=st.integers(1, 10),
    moment=st.floats(0, 0.3),
)
def test_after_a_cancel_nothing_comes_and_no_timer_is_left(
    source: str, numbers: Elements, chain: list[Step], before: int, moment: float
) -> None:
    with virtual_time() as clock, DroppedSignals():
        above = SOURCES[source](numbers, False)
        # A cache lives on without subscribers, and so do the timers above it.
        flux, expected = through([step for step in chain if step.text != "cache"], above, Run(numbers))
        recorder = Recorder(before)
        flux.subscribe(recorder)
        clock.run_pending()
        clock.advance_by(moment)
        recorder.cancel()
        got = list(recorder.items)
        recorder.request(5)
        clock.advance_by(2 * LONG)

        recorder.check()
        assert recorder.items == got == expected.elements[: len(got)]
        assert clock.pending == 0
