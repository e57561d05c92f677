"""Every kind of Flux that the kit is let loose on: each source, and each operator in a shape that changes
nothing, so that `n` elements above are `n` elements below.
"""

import threading
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

from penstock.streams import CircuitBreaker, EmissionFailed, Flux, Mono, Retry, Sink, Sinks
from penstock.streams.schedulers import background_loop, immediate, shared_pool
from tests.conformance.jvm.subject import Kind, Subject

Shape = Callable[[Flux[Any]], Any]


class Refused(Exception):
    """What a failed Publisher fails with."""


def failing() -> Flux[Any]:
    return Flux.error(Refused("as it should"))


def source(create: Callable[[int], Any], failed: Callable[[], Any] = failing) -> Subject:
    """A Flux by the number of its elements."""
    return Subject(Kind.PUBLISHER, create, failed)


def through(shape: Shape) -> Subject:
    """A range, and a failed Flux, below the same operators."""
    return Subject(Kind.PUBLISHER, lambda n: shape(Flux.range(n)), lambda: shape(failing()))


def over_all(shape: Callable[[list[Flux[Any]]], Any]) -> Subject:
    """Several ranges that have `n` elements together, and a failed Flux among ranges."""

    def create(n: int) -> Any:
        first = n // 2
        return shape([Flux.range(first), Flux.range(first, n - first)])

    return Subject(Kind.PUBLISHER, create, lambda: shape([failing(), Flux.range(3)]))


def same(element: Any) -> Any:
    return element


def alone(element: Any) -> list[Any]:
    return [element]


async def same_async(element: Any) -> Any:
    return element


def alike(element: Any) -> int:
    """Put below what mixes its elements at will: each subscriber shall see the same sequence."""
    return 0


def always(element: Any) -> bool:
    return True


async def counting(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


def stepping(n: int) -> Flux[int]:
    def step(state: int, sink: Any) -> int:
        if state == n:
            sink.complete()
        else:
            sink.next(state)
        return state + 1

    return Flux.generate(lambda: 0, step)


def created(n: int) -> Flux[int]:
    """Callbacks from another thread. They cannot be slowed down, so there are no more than have room."""

    def emit(emitter: Any) -> None:
        def run() -> None:
            for i in range(min(n, 200)):
                emitter.next(i)
            emitter.complete()

        threading.Thread(target=run, daemon=True).start()

    return Flux.create(emit)


def fed(make: Callable[[], Sink[Any]], n: int) -> Flux[int]:
    """What a thread puts into a sink, waiting for room. It gives up when nobody reads any more."""
    sink = make()

    def run() -> None:
        try:
            for i in range(n):
                sink.emit_blocking(i, timeout=5)
            sink.try_complete()
        except (EmissionFailed, TimeoutError):
            pass

    threading.Thread(target=run, daemon=True).start()
    return sink.flux()


def filled(make: Callable[[], Sink[Any]], n: int) -> Flux[int]:
    """What was put into a sink before anybody came."""
    sink = make()
    for i in range(min(n, 200)):
        sink.try_emit(i)
    sink.try_complete()
    return sink.flux()


def failed_sink() -> Flux[Any]:
    sink: Sink[Any] = Sinks.multicast()
    sink.try_error(Refused("as it should"))
    return sink.flux()


def fails_first(n: int) -> Callable[[], Flux[int]]:
    """A stream that fails for its first subscriber of two, again and again."""
    attempts = count()
    return lambda: failing() if next(attempts) % 2 == 0 else Flux.range(n)


def second_try(retried: Shape) -> Subject:
    """Each subscriber's first attempt fails, and the second one brings the elements."""
    return source(
        lambda n: Flux.defer(lambda: retried(Flux.defer(fails_first(n)))), lambda: retried(failing())
    )


def as_mono(n: int) -> Mono[int]:
    return Mono.just(1) if n else Mono.empty()


def foreign(flux: Flux[Any]) -> Flux[Any]:
    """The same stream as if it came from another library: watched by the guard."""

    class Foreign:
        def subscribe(self, subscriber: Any) -> None:
            flux.subscribe(subscriber)

    return Flux.from_publisher(Foreign())


SOURCES = {
    "range": source(Flux.range),
    "just": source(lambda n: Flux.just(*range(min(n, 1000)))),
    "from_iterable": source(lambda n: Flux.from_iterable(range(n))),
    "from_async_iterable": source(lambda n: Flux.from_async_iterable(lambda: counting(n))),
    "from_publisher": through(foreign),
    "generate": source(stepping),
    "create": source(created),
    "defer": source(lambda n: Flux.defer(lambda: Flux.range(n)), lambda: Flux.defer(failing)),
    "using": through(lambda flux: Flux.using(lambda: flux, same, same)),
    "interval": source(lambda n: Flux.interval(0.001).on_backpressure_buffer(10_000).take(n)),
    "multicast_sink": source(lambda n: fed(Sinks.multicast, n), failed_sink),
    "multicast_sink_filled": source(lambda n: filled(Sinks.multicast, n), failed_sink),
    "unicast_sink": source(lambda n: Flux.defer(lambda: fed(Sinks.unicast, n))),
    "replay_sink": source(lambda n: filled(lambda: Sinks.replay(256), n), failed_sink),
}

# What needs more than one element, and so cannot be asked of a Mono.
MONO_SKIPS = frozenset(
    {
        "optional_spec111_multicast_mustProduceTheSameElementsInTheSameSequenceToAllOfItsSubscribers" + how
        for how in (
            "WhenRequestingManyUpfront",
            "WhenRequestingManyUpfrontAndCompleteAsExpected",
            "WhenRequestingOneByOne",
        )
    }
    | {
        "optional_spec309_requestNegativeNumberMaySignalIllegalArgumentExceptionWithSpecificMessage",
        "required_createPublisher3MustProduceAStreamOfExactly3Elements",
        "required_spec101_subscriptionRequestMustResultInTheCorrectNumberOfProducedElements",
        "required_spec102_maySignalLessThanRequestedAndTerminateSubscription",
        "required_spec105_mustSignalOnCompleteWhenFiniteStreamTerminates",
        "required_spec302_mustAllowSynchronousRequestCallsFromOnNextAndOnSubscribe",
        "required_spec303_mustNotAllowUnboundedRecursion",
        "required_spec306_afterSubscriptionIsCancelledRequestMustBeNops",
        "required_spec309_requestNegativeNumberMustSignalIllegalArgumentException",
        "required_spec309_requestZeroMustSignalIllegalArgumentException",
        "required_spec312_cancelMustMakeThePublisherToEventuallyStopSignaling",
        "required_spec313_cancelMustMakeThePublisherEventuallyDropAllReferencesToTheSubscriber",
        "required_spec317_mustNotSignalOnErrorWhenPendingAboveLongMaxValue",
        "required_spec317_mustSupportACumulativePendingElementCountUpToLongMaxValue",
        "required_spec317_mustSupportAPendingElementCountUpToLongMaxValue",
        "stochastic_spec103_mustSignalOnMethodsSequentially",
    }
)


def mono(shape: Callable[[Mono[Any]], Any]) -> Subject:
    """A Mono below some operators."""
    error: Mono[Any] = Mono.error(Refused("as it should"))
    return Subject(
        Kind.PUBLISHER,
        lambda n: shape(as_mono(n)),
        lambda: shape(error),
        max_elements=1,
        skips=MONO_SKIPS,
    )


MONOS = {
    "mono": mono(same),
    "mono_flat_map": mono(lambda mono: mono.flat_map(Mono.just)),
    "mono_map_async": mono(lambda mono: mono.map_async(same_async)),
    "mono_publish_on": mono(lambda mono: mono.publish_on(shared_pool())),
}

OPERATORS = {
    # Within a segment.
    "map": through(lambda flux: flux.map(same)),
    "filter": source(lambda n: Flux.range(2 * n).filter(lambda i: i % 2), lambda: failing().filter(always)),
    "map_filter_map": through(lambda flux: flux.map(same).filter(always).map(same)),
    "take": source(lambda n: Flux.range(2**40).take(n), lambda: failing().take(3)),
    "take_while": source(lambda n: Flux.range(2**40).take_while(lambda i: i < n)),
    "skip": source(lambda n: Flux.range(n + 3).skip(3), lambda: failing().skip(3)),
    "distinct_until_changed": through(lambda flux: flux.distinct_until_changed()),
    "scan": through(lambda flux: flux.scan(lambda total, i: total + i)),
    "handle": through(lambda flux: flux.handle(lambda element, sink: sink.next(element))),
    "buffer_flattened": through(lambda flux: flux.buffer(3).flat_map_iterable(same)),
    "start_with": source(lambda n: Flux.range(n - 1).start_with(-1) if n else Flux.range(0)),
    "do_on_each": through(lambda flux: flux.do_on_each(same).do_on_request(same).do_finally(same)),
    # Streams of streams.
    "flat_map": through(lambda flux: flux.flat_map(Flux.just)),
    "flat_map_sequential": through(lambda flux: flux.flat_map_sequential(Flux.just)),
    "flat_map_on_pool": through(
        lambda flux: flux.flat_map(lambda i: Flux.just(i).subscribe_on(shared_pool())).map(alike)
    ),
    "concat_map": through(lambda flux: flux.concat_map(Flux.just)),
    "filter_when": through(lambda flux: flux.filter_when(lambda _: Mono.just(1), concurrency=2)),
    "delay_until": through(lambda flux: flux.delay_until(lambda _: Flux.range(2))),
    "map_async": through(lambda flux: flux.map_async(same_async)),
    "map_async_unordered": through(lambda flux: flux.map_async(same_async, ordered=False).map(alike)),
    "concat": over_all(lambda streams: Flux.concat(*streams)),
    "merge": over_all(lambda streams: Flux.merge(*streams)),
    "merge_on_pool": over_all(
        lambda streams: Flux.merge(*(flux.subscribe_on(shared_pool()) for flux in streams)).map(alike)
    ),
    "zip": through(lambda flux: Flux.zip(flux, Flux.from_iterable(range(2**40)))),
    "switch_if_empty": source(lambda n: Flux.empty().switch_if_empty(Flux.range(n))),
    "then_many": source(lambda n: Flux.range(3).then_many(Flux.range(n))),
    # One stream into several, and together again.
    "group_by": through(lambda flux: flux.group_by(alike).flat_map(same)),
    "partition": through(lambda flux: Flux.merge(*flux.partition(always))),
    "route": through(lambda flux: Flux.merge(*flux.route({"all": always}).values())),
    "window": through(lambda flux: flux.window(3).concat_map(same)),
    "window_overlapping": through(lambda flux: flux.window(2, skip=1).concat_map(lambda each: each.take(1))),
    "window_with_gaps": source(lambda n: Flux.range(3 * n).window(1, skip=3).concat_map(same)),
    "window_every": through(lambda flux: flux.window(every=0.002).concat_map(same)),
    "window_timeout": through(lambda flux: flux.window_timeout(3, 0.002).concat_map(same)),
    "window_until": through(lambda flux: flux.window_until(lambda i: i % 3 == 2).concat_map(same)),
    "window_while": through(lambda flux: flux.window_while(always).concat_map(same)),
    "buffer_timeout": through(lambda flux: flux.buffer_timeout(1, 0.001).map(len)),
    "parallel": through(lambda flux: flux.parallel(2).map(same).sequential()),
    "parallel_on_pool": through(
        lambda flux: flux.parallel(3).run_on(shared_pool(), prefetch=8).map(same).sequential().map(alike)
    ),
    "parallel_ordered": through(lambda flux: flux.parallel(2).run_on(shared_pool()).ordered()),
    "batch_weighted": through(lambda flux: flux.batch_weighted(1, lambda _: 1)),
    # Threads, windows and buffers.
    "publish_on": through(lambda flux: flux.publish_on(shared_pool())),
    "publish_on_loop": through(lambda flux: flux.publish_on(background_loop())),
    "publish_on_immediate": through(lambda flux: flux.publish_on(immediate(), prefetch=1)),
    "subscribe_on": through(lambda flux: flux.subscribe_on(shared_pool())),
    "subscribe_on_publish_on": through(
        lambda flux: flux.subscribe_on(shared_pool()).map(same).publish_on(background_loop())
    ),
    "limit_rate": through(lambda flux: flux.limit_rate(8)),
    "on_backpressure_buffer": source(
        lambda n: Flux.range(min(n, 200)).on_backpressure_buffer(), lambda: failing().on_backpressure_buffer()
    ),
    # Several subscribers.
    # It runs on when its subscribers have left, and keeps everything: no place for two thousand million.
    "cache": source(lambda n: Flux.range(min(n, 1000)).cache(), lambda: failing().cache()),
    "cache_bounded": through(lambda flux: flux.cache(4)),
    "share": through(lambda flux: flux.share()),
    "share_publish_on": through(lambda flux: flux.share().publish_on(shared_pool())),
    # Errors and time.
    "on_error_resume": source(
        lambda n: failing().on_error_resume(lambda error: Flux.range(n)),
        lambda: failing().on_error_resume(lambda error: failing()),
    ),
    "on_error_map": through(lambda flux: flux.on_error_map(lambda error: Refused("mapped"))),
    "retry": second_try(lambda flux: flux.retry(1)),
    "retry_when": second_try(lambda flux: flux.retry_when(Retry.fixed(1, pause=0.001))),
    "repeat": source(lambda n: Flux.just(1).repeat(n - 1) if n else Flux.empty()),
    "timeout": through(lambda flux: flux.timeout(10)),
    "delay_elements": through(lambda flux: flux.delay_elements(0.001)),
}

ORDER = {
    # Which stream goes first.
    "merge_sequential": over_all(lambda streams: Flux.merge_sequential(*streams)),
    "merge_priority": over_all(lambda streams: Flux.merge_priority(*streams).map(alike)),
    "merge_ordered": over_all(lambda streams: Flux.merge_ordered(*streams)),
    "merge_delay_error": through(lambda flux: Flux.merge_delay_error(flux, Flux.empty())),
    "concat_delay_error": through(lambda flux: Flux.concat_delay_error(flux, Flux.empty())),
    "first_with_signal": through(lambda flux: Flux.first_with_signal(flux, Flux.never())),
    "first_with_value": source(
        lambda n: Flux.first_with_value(Flux.range(n), failing()) if n else Flux.empty(),
        lambda: Flux.first_with_value(failing(), Flux.empty()),
    ),
    "combine_latest": through(lambda flux: Flux.combine_latest(Flux.just(1), flux)),
    "with_latest_from": through(lambda flux: flux.with_latest_from(Flux.just(1))),
    "switch_map": source(
        lambda n: Flux.just(0).switch_map(lambda _: Flux.range(n)), lambda: failing().switch_map(Flux.just)
    ),
    "expand": source(
        lambda n: Flux.just(1).expand(lambda i: [i + 1] if i < n else []) if n else Flux.empty(),
        lambda: failing().expand(alone),
    ),
    "expand_deep": source(
        lambda n: Flux.just(1).expand_deep(lambda i: [i + 1] if i < n else []) if n else Flux.empty(),
        lambda: failing().expand_deep(alone),
    ),
    "parallel": through(lambda flux: flux.parallel(2).map(alike).sequential()),
    "parallel_on_pool": through(lambda flux: flux.parallel(2).run_on(shared_pool()).map(alike).sequential()),
}

TIME = {
    "delay_sequence": through(lambda flux: flux.delay_sequence(0.001)),
    "delay_subscription": through(lambda flux: flux.delay_subscription(0.001)),
    "rate_limit": through(lambda flux: flux.rate_limit(100_000, burst=4)),
    "take_until_other": through(lambda flux: flux.take_until_other(Flux.never())),
    "skip_until_other": through(lambda flux: flux.skip_until_other(Flux.empty())),
    "elapsed": through(lambda flux: flux.elapsed().map(alike)),
    "timestamp": through(lambda flux: flux.timestamp().map(alike)),
    "skip_last": source(lambda n: Flux.range(n + 3).skip_last(3), lambda: failing().skip_last(3)),
    # A clock that nobody can slow down: there are no more elements than have room.
    "conflate": source(
        lambda n: Flux.range(min(n, 200)).conflate(same, lambda old, new: new).on_backpressure_buffer(),
        lambda: failing().conflate(same, lambda old, new: new),
    ),
}

SHARING = {
    "publish": through(lambda flux: flux.publish().ref_count()),
    "publish_grace": through(lambda flux: flux.publish().ref_count(1, 0.001)),
    # These run on when their subscribers have left, and keep what they are told to.
    "publish_auto_connect": source(
        lambda n: Flux.defer(lambda: Flux.range(n).publish().auto_connect()),
        lambda: failing().publish().auto_connect(),
    ),
    "replay": source(
        lambda n: Flux.range(min(n, 1000)).replay().auto_connect(), lambda: failing().replay().auto_connect()
    ),
    "replay_bounded": through(lambda flux: flux.replay(4).ref_count()),
    "cache_ttl": source(lambda n: Flux.range(min(n, 1000)).cache(ttl=60), lambda: failing().cache(ttl=60)),
    # The error of a materialized stream is an element, which waits for demand.
    "dematerialize": source(
        lambda n: Flux.range(n).materialize().dematerialize(), lambda: failing().dematerialize()
    ),
    "repeat_when": through(lambda flux: flux.repeat_when(lambda ends: Flux.empty())),
    "circuit_breaker": through(lambda flux: flux.circuit_breaker(CircuitBreaker(2**31))),
    "using_when": through(lambda flux: Flux.using_when(Mono.just(1), lambda _: flux, lambda _: Mono.empty())),
    "using_when_on_pool": through(
        lambda flux: Flux.using_when(
            Mono.just(1).publish_on(shared_pool()),
            lambda _: flux,
            lambda _: Mono.just(2).publish_on(shared_pool()),
        )
    ),
}

PUBLISHERS = {**SOURCES, **MONOS, **OPERATORS, **ORDER, **TIME, **SHARING}
