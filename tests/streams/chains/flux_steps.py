"""Every operator of Flux that loses nothing, as a step: with queues, threads, coroutines and timers."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from heapq import merge as merged
from itertools import accumulate
from operator import itemgetter
from typing import Any

from penstock.streams import CircuitBreaker, Flux, Mono, Retry, schedulers
from penstock.testing import marble
from tests.streams.chains.lists import (
    cut,
    depths,
    grouped,
    heaviness,
    levels,
    neighbours,
    pieces,
    runs,
    unchanged,
    up_to,
    weighed,
    weight,
)
from tests.streams.chains.runs import LONG, Failed, Functions, Run, Step, each, first_error, fold, same

POOL, SINGLE = schedulers.shared_pool(), schedulers.shared_single()
FROM_NOW = itemgetter(1)
"""The element of a pair of time and element."""


class Here(Executor):
    """Runs a call at once: what ``map_parallel`` gives to its pool, without processes."""

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **named))
        return future


def all_steps(n: int, m: int) -> list[Step]:
    """Every step of this page."""
    functions = Functions(n, m)
    tables = (plain, inner, splitting, railed, merging, timed, shared, failing, columns)
    return [step for table in tables for step in table(functions)]


def identity(x: Any) -> Any:
    return x


def collected(window: Any) -> Any:
    return window.collect_list()


def sorted_by_text(flux: Any) -> Any:
    """For operators whose order depends on the demand: all elements at the end, in an order of their own."""
    return settled(flux.collect_list().flat_map_iterable(lambda xs: sorted(xs, key=repr)))


def settled(flux: Any) -> Any:
    """A boundary. In the stage above, an error overtakes also what ``start_with`` would send first."""
    return flux.limit_rate(256)


def plain(f: Functions) -> list[Step]:
    """Operators that are compiled into their chain."""
    n, m = f.n, f.m
    return [
        each("map", lambda s: s.map(f.changed), lambda xs: [*map(f.changed, xs)]),
        each("filter", lambda s: s.filter(f.matches), lambda xs: [*filter(f.matches, xs)]),
        Step("map(fails)", lambda s: s.map(f.fails), f.until_it_fails),
        Step(f"take({n})", lambda s: s.take(n), lambda r: r.upto(lambda xs: (xs[:n], len(xs) >= n))),
        Step(
            "take_until",
            lambda s: s.take_until(f.matches),
            lambda r: r.upto(lambda xs: (up_to(xs, f.matches), any(map(f.matches, xs)))),
        ),
        each(f"skip({n})", lambda s: s.skip(n), lambda xs: xs[n:]),
        each(f"skip_last({n})", lambda s: s.skip_last(n), lambda xs: xs[: max(0, len(xs) - n)]),
        each("scan", lambda s: s.scan(f.add), lambda xs: [*accumulate(xs, f.add)]),
        each("index", lambda s: s.index(), lambda xs: [*enumerate(xs)]),
        each(
            "distinct_until_changed",
            lambda s: s.distinct_until_changed(weight),
            lambda xs: unchanged(xs, weight),
        ),
        Step(
            f"buffer({m})",
            lambda s: s.buffer(m),
            lambda r: r.each(lambda xs: pieces(xs[: len(xs) // m * m] if r.failed else xs, m, m)),
        ),
        first_error(
            each(
                f"batch_weighted({n + 1})",
                lambda s: s.batch_weighted(n + 1, heaviness),
                lambda xs: weighed(xs, n + 1),
            )
        ),
        first_error(
            each(
                "buffer_until_changed",
                lambda s: s.buffer_until_changed(f.key),
                lambda xs: neighbours(xs, f.key),
            )
        ),
        fold("sort", lambda s: s.sort(weight), lambda xs: sorted(xs, key=weight)),
        fold(f"take_last({n})", lambda s: s.take_last(n), lambda xs: xs[-n:] if n else []),
        fold("count", lambda s: s.count().flux(), lambda xs: [len(xs)]),
        Step("start_with", lambda s: s.start_with(n), lambda r: Run([n, *r.elements], r.failed)),
        Step(
            "default_if_empty",
            lambda s: s.default_if_empty(n),
            lambda r: r if r.failed or r.elements else Run([n]),
        ),
        Step("hooks", lambda s: s.do_on_next(weight).do_finally(str).named("x")),
        Step("materialize", lambda s: s.materialize().dematerialize()),
    ]


def inner(f: Functions) -> list[Step]:
    """Streams of streams, one after the other."""
    n, m = f.n, f.m
    two = Flux.just(n, m)
    return [
        Step("concat_with", lambda s: s.concat_with(two), lambda r: r.then(lambda: [n, m])),
        Step("concat_with(time)", lambda s: s.concat_with(marble("-1-2|")), lambda r: r.then(lambda: [1, 2])),
        Step("concat", lambda s: Flux.concat(two, s), lambda r: Run([n, m, *r.elements], r.failed)),
        Step(
            "concat_delay_error",
            lambda s: Flux.concat_delay_error(s, Flux.just(n)),
            lambda r: Run([*r.elements, n], r.failed),
        ),
        Step(
            "switch_if_empty",
            lambda s: s.switch_if_empty(two),
            lambda r: r if r.failed or r.elements else Run([n, m]),
        ),
        fold("then", lambda s: s.then(Mono.just(n)).flux(), lambda xs: [n]),
        fold("then_many", lambda s: s.then_many(two), lambda xs: [n, m]),
        each("concat_map", lambda s: s.concat_map(lambda x: Flux.from_iterable(f.parts(x))), f.flattened),
        each("concat_map(time)", lambda s: s.concat_map(f.in_time), f.flattened),
        each("concat_map_delay_error", lambda s: s.concat_map_delay_error(f.in_time), f.flattened),
        each(
            "flat_map_delay_error(1)",
            lambda s: s.flat_map_delay_error(f.in_time, concurrency=1),
            f.flattened,
        ),
        each(
            f"flat_map_sequential_delay_error({m})",
            lambda s: s.flat_map_sequential_delay_error(f.in_time, concurrency=m),
            f.flattened,
        ),
        Step("delay_until", lambda s: s.delay_until(f.in_time)),
        first_error(
            each(
                f"filter_when({m})",
                lambda s: s.filter_when(lambda x: Mono.just(f.matches(x)).delay_element(0.01), concurrency=m),
                lambda xs: [*filter(f.matches, xs)],
            )
        ),
        first_error(
            each(
                "flat_map(1)",
                lambda s: s.flat_map(lambda x: Flux.from_iterable(f.parts(x)), concurrency=1),
                f.flattened,
            )
        ),
        first_error(
            each(
                f"flat_map_sequential({m})",
                lambda s: s.flat_map_sequential(f.in_time, concurrency=m),
                f.flattened,
            )
        ),
        fold(
            f"flat_map({m})",
            lambda s: sorted_by_text(s.flat_map(f.in_time, concurrency=m, prefetch=m)),
            lambda xs: sorted(f.flattened(xs), key=repr),
        ),
        fold("switch_map", lambda s: settled(s.collect_list().flux().switch_map(identity)), identity),
        first_error(each("expand", lambda s: s.expand(f.smaller), lambda xs: levels(xs, f.smaller))),
        first_error(
            each("expand_deep", lambda s: s.expand_deep(f.smaller), lambda xs: depths(xs, f.smaller))
        ),
        first_error(
            each(
                f"map_async({m})",
                lambda s: s.map_async(f.awaited, concurrency=m),
                lambda xs: [*map(f.changed, xs)],
            )
        ),
        first_error(Step("map_async(1)", lambda s: s.map_async(f.awaited_later, concurrency=1))),
        first_error(
            each(
                f"map_parallel({m})",
                lambda s: s.map_parallel(weight, m, pool=Here()),
                lambda xs: [*map(weight, xs)],
            )
        ),
    ]


def splitting(f: Functions) -> list[Step]:
    """One stream into several, and together again."""
    n, m = f.n, f.m
    return [
        fold(
            "group_by",
            lambda s: (
                s.group_by(f.key, prefetch=m)
                .flat_map(lambda group: group.collect_list().map(lambda xs: (group.key, xs)))
                .sort(itemgetter(0))
                .map(itemgetter(1))
            ),
            lambda xs: [part for _, part in sorted(grouped(xs, f.key).items())],
        ),
        fold(
            "group_by, read as it comes",
            lambda s: sorted_by_text(s.group_by(f.key, prefetch=m).flat_map(identity, prefetch=m)),
            lambda xs: sorted(xs, key=repr),
        ),
        first_error(
            each(
                "partition",
                lambda s: Flux.merge_sequential(*s.partition(f.matches)),
                lambda xs: [*filter(f.matches, xs), *(x for x in xs if not f.matches(x))],
            )
        ),
        fold(
            "route",
            lambda s: sorted_by_text(
                Flux.merge(*s.route({"a": f.matches, "b": f.below}, prefetch=m).values())
            ),
            lambda xs: sorted((x for x in xs if f.matches(x) or f.below(x)), key=repr),
        ),
        first_error(
            each(f"window({m})", lambda s: s.window(m).concat_map(collected), lambda xs: pieces(xs, m, m))
        ),
        first_error(
            each(
                f"window({n + 1}, {m})",
                lambda s: s.window(n + 1, m).concat_map(collected),
                lambda xs: pieces(xs, n + 1, m),
            )
        ),
        first_error(
            each(
                "window_until_changed",
                lambda s: s.window_until_changed(f.key, prefetch=m).concat_map(collected),
                lambda xs: neighbours(xs, f.key),
            )
        ),
        first_error(
            each(
                "window_until",
                lambda s: s.window_until(f.matches).concat_map(collected),
                lambda xs: cut(xs, f.matches, before=False),
            )
        ),
        first_error(
            each(
                "window_until(cut_before)",
                lambda s: s.window_until(f.matches, cut_before=True, prefetch=m).concat_map(collected),
                lambda xs: cut(xs, f.matches, before=True),
            )
        ),
        first_error(
            each(
                "window_while",
                lambda s: s.window_while(f.below, prefetch=m).concat_map(collected),
                lambda xs: runs(xs, f.below),
            )
        ),
    ]


def railed(f: Functions) -> list[Step]:
    """Rails side by side, and one stream again."""
    m = f.m

    def rails(s: Any) -> Any:
        return s.parallel(m).run_on(POOL, prefetch=m)

    return [
        fold(
            f"parallel({m})",
            lambda s: sorted_by_text(rails(s).map(f.changed).filter(f.below).sequential(prefetch=m)),
            lambda xs: sorted((y for x in xs if f.below(y := f.changed(x))), key=repr),
        ),
        first_error(
            each(
                f"parallel({m}), in order",
                lambda s: rails(s.index()).ordered(itemgetter(0), prefetch=m).map(itemgetter(1)),
                identity,
            )
        ),
        fold(
            f"parallel({m}), inner streams",
            lambda s: sorted_by_text(s.parallel(m).concat_map(f.in_time).sequential()),
            lambda xs: sorted(f.flattened(xs), key=repr),
        ),
        fold(
            f"parallel({m}), reduced",
            lambda s: settled(rails(s).map(weight).reduce(f.add).flux()),
            lambda xs: [sum(map(weight, xs))] if xs else [],
        ),
    ]


def merging(f: Functions) -> list[Step]:
    """Several streams into one."""
    n, m = f.n, f.m
    two = Flux.just(n, m)

    def with_two(xs: Any) -> Any:
        return sorted([*xs, n, m], key=repr)

    return [
        fold("merge", lambda s: sorted_by_text(Flux.merge(s, two, prefetch=m)), with_two),
        fold(
            "merge_with",
            lambda s: sorted_by_text(s.merge_with(marble("-1-2|"))),
            lambda xs: sorted([*xs, 1, 2], key=repr),
        ),
        fold("merge_delay_error", lambda s: sorted_by_text(Flux.merge_delay_error(two, s)), with_two),
        fold("merge_priority", lambda s: sorted_by_text(Flux.merge_priority(s, two, prefetch=m)), with_two),
        fold(
            "merge_ordered",
            lambda s: settled(Flux.merge_ordered(s.sort(weight), two.sort(weight), key=weight, prefetch=m)),
            lambda xs: [*merged(sorted(xs, key=weight), sorted([n, m], key=weight), key=weight)],
        ),
        first_error(
            Step(
                "merge_sequential",
                lambda s: Flux.merge_sequential(s, Flux.just(n), prefetch=m),
                lambda r: r.then(lambda: [n]),
            )
        ),
        Step(
            "merge_sequential_delay_error",
            lambda s: Flux.merge_sequential_delay_error(s, marble("-1-2|"), prefetch=m),
            lambda r: Run([*r.elements, 1, 2], r.failed),
        ),
        first_error(Step("first_with_signal", lambda s: Flux.first_with_signal(s, Flux.never()))),
        first_error(
            Step(
                "first_with_value",
                lambda s: Flux.first_with_value(s.start_with(n), Flux.empty(), Flux.error(Failed)),
                lambda r: Run([n, *r.elements], r.failed),
            )
        ),
        first_error(
            each(
                "zip_with",
                lambda s: s.zip_with(Flux.range(1000)),
                lambda xs: [(x, number) for number, x in enumerate(xs)],
            )
        ),
        first_error(
            each(
                "zip",
                lambda s: Flux.zip(s, Flux.range(n), marble("1-2-3-4|"), prefetch=m),
                lambda xs: [*zip(xs, range(n), (1, 2, 3, 4), strict=False)],
            )
        ),
        first_error(
            each(
                "combine_latest",
                lambda s: Flux.combine_latest(Flux.just(n), s, prefetch=m),
                lambda xs: [(n, x) for x in xs],
            )
        ),
        first_error(
            each("with_latest_from", lambda s: s.with_latest_from(two), lambda xs: [(x, m) for x in xs])
        ),
    ]


def timed(f: Functions) -> list[Step]:
    """Threads and clocks that lose nothing."""
    m = f.m
    return [
        Step("publish_on", lambda s: s.publish_on(POOL, prefetch=m)),
        Step("subscribe_on", lambda s: s.subscribe_on(SINGLE)),
        Step(f"limit_rate({m})", lambda s: s.limit_rate(m)),
        Step("delay_elements", lambda s: s.delay_elements(0.02)),
        first_error(Step("delay_sequence", lambda s: s.delay_sequence(0.03, prefetch=m))),
        Step("delay_subscription", lambda s: s.delay_subscription(0.02)),
        Step("delay_subscription(other)", lambda s: s.delay_subscription(marble("--|"))),
        first_error(Step("rate_limit", lambda s: s.rate_limit(1, per=0.02, burst=m))),
        Step("timeout", lambda s: s.timeout(10 * LONG)),
        Step("elapsed", lambda s: s.elapsed().map(FROM_NOW)),
        Step("timestamp", lambda s: s.timestamp().map(FROM_NOW)),
        Step("take_until_other", lambda s: s.take_until_other(Flux.never())),
        Step("skip_until_other", lambda s: s.skip_until_other(Flux.empty())),
        first_error(
            each(
                f"buffer_timeout({m})",
                lambda s: s.buffer_timeout(m, 10 * LONG),
                lambda xs: pieces(xs, m, m),
            )
        ),
        Step("buffer_timeout", lambda s: s.buffer_timeout(m, 0.015).flat_map_iterable(identity)),
        first_error(Step("window_timeout", lambda s: s.window_timeout(m, 0.015).concat_map(identity))),
        first_error(Step("window(every)", lambda s: s.window(every=0.025, prefetch=m).concat_map(identity))),
        first_error(
            Step(
                "conflate",
                lambda s: s.conflate(lambda x: [x], lambda xs, x: [*xs, x]).flat_map_iterable(identity),
            )
        ),
        first_error(Step("on_backpressure_buffer", lambda s: s.on_backpressure_buffer(10_000))),
    ]


def shared(f: Functions) -> list[Step]:
    """One run for several subscribers."""
    m = f.m
    return [
        Step("cache", lambda s: s.cache(), outlives=True),
        Step("cache(ttl)", lambda s: s.cache(ttl=10 * LONG), outlives=True),
        Step("share", lambda s: s.share(prefetch=m)),
        Step("publish", lambda s: s.publish(prefetch=m).ref_count()),
        Step("publish(grace)", lambda s: s.publish(prefetch=m).ref_count(grace=0.01)),
        # Each run of these has its own subscribers: a later one would receive what is kept, and the end.
        Step(
            "auto_connect",
            lambda s: Flux.defer(lambda: s.publish(prefetch=m).auto_connect()),
            outlives=True,
        ),
        Step("replay", lambda s: Flux.defer(lambda: s.replay(m).auto_connect()), outlives=True),
        Step("replay, ref_count", lambda s: s.replay().ref_count()),
    ]


def failing(f: Functions) -> list[Step]:
    """What comes after an error, or after the end."""
    n = f.n

    def exhausted(error: BaseException) -> BaseException:
        return error if isinstance(error, Failed) else Failed(error)

    return [
        Step("on_error_return", lambda s: s.on_error_return(n), lambda r: r.recovered([n])),
        Step("on_error_complete", lambda s: s.on_error_complete(), lambda r: Run(r.elements)),
        Step(
            "on_error_resume",
            lambda s: s.on_error_resume(lambda _: marble("-7-8|")),
            lambda r: r.recovered([7, 8]),
        ),
        Step("on_error_map", lambda s: s.on_error_map(lambda _: Failed())),
        Step("repeat(1)", lambda s: s.repeat(1), lambda r: r.then(lambda: r.elements)),
        Step(
            "repeat_when",
            lambda s: s.repeat_when(lambda ends: ends.delay_elements(0.01).take(2)),
            lambda r: r.then(lambda: r.elements * 2),
        ),
        Step("retry(1)", lambda s: s.retry(1), lambda r: Run(r.elements * 2, True) if r.failed else r),
        Step(
            "retry_when",
            lambda s: s.retry_when(Retry.fixed(1, pause=0.01)).on_error_map(exhausted),
            lambda r: Run(r.elements * 2, True) if r.failed else r,
        ),
        Step("circuit_breaker", lambda s: s.circuit_breaker(CircuitBreaker(1000)), same),
        Step("using", lambda s: Flux.using(lambda: s, identity, id)),
        Step(
            "using_when", lambda s: Flux.using_when(Mono.timer(0.01), lambda _: s, lambda _: Mono.timer(0.01))
        ),
    ]


def columns(f: Functions) -> list[Step]:
    """Elements as rows of record batches, and back."""
    m = f.m

    def rows(s: Any) -> Any:
        return s.map(lambda x: {"x": weight(x)})

    def weights(xs: Any) -> Any:
        return [*map(weight, xs)]

    return [
        first_error(
            each(
                f"to_arrow({m})",
                lambda s: rows(s).to_arrow({"x": "int64"}, m).unbatch().map(itemgetter("x")),
                weights,
            )
        ),
        first_error(
            each(
                f"batch({m})",
                lambda s: rows(s).to_arrow({"x": "int64"}, 2).batch(m).unbatch().map(itemgetter("x")),
                weights,
            )
        ),
    ]
