"""Every operator of Mono as a step. A run of a Mono has one element, or it is empty, or it failed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from logging import DEBUG
from operator import itemgetter
from typing import Any

from penstock.streams import CircuitBreaker, Flux, Mono, Retry
from penstock.testing import marble
from tests.streams.chains.flux_steps import POOL, SINGLE, collected, identity, sorted_by_text
from tests.streams.chains.lists import Elements, depths, levels, weight
from tests.streams.chains.runs import LONG, Failed, Functions, Run, Step, each, fold

CAME = itemgetter(1)
"""The element of a pair of time and element."""


def all_steps(n: int, m: int) -> list[Step]:
    """Every step of this page."""
    functions = Functions(n, m)
    return [step for table in (plain, timed, several, failing) for step in table(functions)]


def plain(f: Functions) -> list[Step]:
    """Operators on the one element."""
    n = f.n

    def handled(x: Any, sink: Any) -> None:
        if not f.matches(x):
            sink.next(f.changed(x))

    return [
        each("map", lambda s: s.map(f.changed), lambda xs: [*map(f.changed, xs)]),
        each("filter", lambda s: s.filter(f.matches), lambda xs: [*filter(f.matches, xs)]),
        Step("map(fails)", lambda s: s.map(f.fails), f.until_it_fails),
        each(
            "map_not_none",
            lambda s: s.map_not_none(f.halved),
            lambda xs: [y for x in xs if (y := f.halved(x)) is not None],
        ),
        each(
            "handle", lambda s: s.handle(handled), lambda xs: [f.changed(x) for x in xs if not f.matches(x)]
        ),
        each("of_type", lambda s: s.of_type(int), lambda xs: [x for x in xs if isinstance(x, int)]),
        Step("cast", lambda s: s.cast(object)),
        Step("checkpoint", lambda s: s.checkpoint("here").named("x").log("chains", DEBUG)),
        Step("transform", lambda s: s.transform(identity)),
        Step("do_on_next", lambda s: s.do_on_next(weight).do_on_success(str).do_on_each(str)),
        Step("do_on_complete", lambda s: s.do_on_complete(list).do_on_error(str).do_on_terminate(list)),
        Step("do_on_cancel", lambda s: s.do_on_cancel(list).do_on_request(str).do_on_subscribe(id)),
        Step("do_finally", lambda s: s.do_finally(str)),
        Step("materialize", lambda s: s.materialize().dematerialize()),
        fold("has_element", lambda s: s.has_element(), lambda xs: [bool(xs)]),
        fold("ignore_element", lambda s: s.ignore_element(), lambda xs: []),
        fold("default_if_empty", lambda s: s.default_if_empty(n), lambda xs: xs or [n]),
        fold("single", lambda s: s.default_if_empty(n).single(), lambda xs: xs or [n]),
        fold("then_return", lambda s: s.then_return(n), lambda xs: [n]),
        fold("then", lambda s: s.then(Mono.just(n)), lambda xs: [n]),
        fold("then_many", lambda s: collected(s.then_many(Flux.just(n, n))), lambda xs: [[n, n]]),
        fold("flux", lambda s: collected(s.flux()), lambda xs: [xs]),
        fold(
            "flat_map_iterable",
            lambda s: collected(s.flat_map_iterable(f.parts)),
            lambda xs: [f.flattened(xs)],
        ),
    ]


def timed(f: Functions) -> list[Step]:
    """Threads, clocks and coroutines."""
    return [
        Step("publish_on", lambda s: s.publish_on(POOL)),
        Step("subscribe_on", lambda s: s.subscribe_on(SINGLE)),
        Step("delay_element", lambda s: s.delay_element(0.02)),
        Step("delay_subscription", lambda s: s.delay_subscription(0.02)),
        Step("timeout", lambda s: s.timeout(10 * LONG)),
        Step("timeout(passed)", lambda s: Mono.never().timeout(0.01, s)),
        Step("elapsed", lambda s: s.elapsed().map(CAME)),
        Step("timestamp", lambda s: s.timestamp().map(CAME)),
        Step("take_until_other", lambda s: s.take_until_other(Mono.never())),
        each("map_async", lambda s: s.map_async(f.awaited), lambda xs: [*map(f.changed, xs)]),
        Step("cache", lambda s: s.cache(), outlives=True),
        Step("cache(ttl)", lambda s: s.cache(ttl=10 * LONG), outlives=True),
        Step("share", lambda s: s.share()),
    ]


def several(f: Functions) -> list[Step]:
    """Several streams, inside each other or side by side."""
    n, m = f.n, f.m

    def smaller(xs: Elements) -> Elements:
        return sorted([*xs, 1, 2], key=repr)

    return [
        each(
            "flat_map", lambda s: s.flat_map(lambda x: f.in_time(x).first()), lambda xs: f.flattened(xs)[:1]
        ),
        each(
            "filter_when",
            lambda s: s.filter_when(lambda x: Mono.just(f.matches(x)).delay_element(0.01)),
            lambda xs: [*filter(f.matches, xs)],
        ),
        Step("delay_until", lambda s: s.delay_until(f.in_time)),
        each("zip_when", lambda s: s.zip_when(lambda x: Mono.just(n)), lambda xs: [(x, n) for x in xs]),
        fold("flat_map_many", lambda s: collected(s.flat_map_many(f.in_time)), lambda xs: [f.flattened(xs)]),
        fold("expand", lambda s: collected(s.expand(f.smaller)), lambda xs: [levels(xs, f.smaller)]),
        fold(
            "expand_deep", lambda s: collected(s.expand_deep(f.smaller)), lambda xs: [depths(xs, f.smaller)]
        ),
        fold("concat_with", lambda s: collected(s.concat_with(marble("-1-2|"))), lambda xs: [[*xs, 1, 2]]),
        fold(
            "merge_with",
            lambda s: collected(sorted_by_text(s.merge_with(marble("-1-2|")))),
            lambda xs: [smaller(xs)],
        ),
        fold("switch_if_empty", lambda s: s.switch_if_empty(Mono.timer(0.01)), lambda xs: xs or [0]),
        Step("first_with_signal", lambda s: Mono.first_with_signal(s, Mono.never())),
        fold(
            "first_with_value",
            lambda s: Mono.first_with_value(Mono.empty(), Mono.error(Failed), s.default_if_empty(n)),
            lambda xs: xs or [n],
        )._replace(error_goes_first=True),
        fold(
            "zip", lambda s: Mono.zip(s, Mono.just(n), Mono.timer(0.01)), lambda xs: [(x, n, 0) for x in xs]
        ),
        fold("zip_with", lambda s: s.zip_with(Mono.just(m)), lambda xs: [(x, m) for x in xs]),
        fold("when", lambda s: Mono.when(s, marble("-1-2|")), lambda xs: []),
        fold("when_delay_error", lambda s: Mono.when_delay_error(marble("-1|"), s), lambda xs: []),
        fold("repeat(1)", lambda s: collected(s.repeat(1)), lambda xs: [xs * 2]),
        fold(
            "repeat_when",
            lambda s: collected(s.repeat_when(lambda ends: ends.delay_elements(0.01).take(1))),
            lambda xs: [xs * 2],
        ),
    ]


def failing(f: Functions) -> list[Step]:
    """What comes after an error."""
    n = f.n

    def exhausted(error: BaseException) -> BaseException:
        return error if isinstance(error, Failed) else Failed(error)

    return [
        Step("on_error_return", lambda s: s.on_error_return(n), lambda r: r.recovered([n])),
        Step("on_error_complete", lambda s: s.on_error_complete(), lambda r: Run(r.elements)),
        Step(
            "on_error_resume",
            lambda s: s.on_error_resume(lambda _: Mono.timer(0.01)),
            lambda r: r.recovered([0]),
        ),
        Step("on_error_map", lambda s: s.on_error_map(lambda _: Failed())),
        Step("retry(1)", lambda s: s.retry(1)),
        Step("retry_when", lambda s: s.retry_when(Retry.fixed(1, pause=0.01)).on_error_map(exhausted)),
        Step("circuit_breaker", lambda s: s.circuit_breaker(CircuitBreaker(1000))),
        Step("using", lambda s: Mono.using(lambda: s, identity, id)),
        Step(
            "using_when", lambda s: Mono.using_when(Mono.timer(0.01), lambda _: s, lambda _: Mono.timer(0.01))
        ),
    ]


def called(xs: Elements, failed: bool) -> Any:
    if failed:
        raise Failed
    return xs[0] if xs else None


async def awaited(xs: Elements, failed: bool) -> Any:
    return called(xs, failed)


async def yielded(xs: Elements, failed: bool) -> AsyncIterator[Any]:
    for x in xs:
        yield x
    called(xs, failed)


def known(xs: Elements, failed: bool) -> Mono[Any]:
    if failed:
        return Mono.error(Failed)
    return Mono.just(xs[0]) if xs else Mono.empty()


MONO_SOURCES: dict[str, Callable[[Elements, bool], Mono[Any]]] = {
    "just, empty and error": known,
    "just_or_empty": lambda xs, failed: (
        Mono.error(Failed) if failed else Mono.just_or_empty(xs[0] if xs else None)
    ),
    "defer": lambda xs, failed: Mono.defer(lambda: known(xs, failed)),
    "from_callable": lambda xs, failed: Mono.from_callable(lambda: called(xs, failed)),
    "from_future": lambda xs, failed: Mono.defer(lambda: Mono.from_future(awaited(xs, failed))),
    "from_publisher": lambda xs, failed: Mono.from_publisher(
        Flux.from_async_iterable(lambda: yielded(xs, failed))
    ),
    "timer": lambda xs, failed: Mono.timer(0.03).flat_map(lambda _: known(xs, failed)),
    "never": lambda xs, failed: Mono.never().timeout(0.01, known(xs, failed)),
    "using": lambda xs, failed: Mono.using(lambda: xs, lambda held: known(held, failed), id),
    "using_when": lambda xs, failed: Mono.using_when(
        Mono.timer(0.01), lambda _: known(xs, failed), lambda _: Mono.empty()
    ),
}
