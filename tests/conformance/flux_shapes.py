"""Every source and operator of Flux, and every sink, in a shape that the kit can verify."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pyarrow

from penstock.streams import CircuitBreaker, Flux, Mono, Overflow, Retry, Sinks
from tests.conformance.shapes import (
    POOL,
    SINGLE,
    Fails,
    FilledAfterwards,
    Foreign,
    Shape,
    awaited,
    counting,
    emitted,
    filled,
    folding,
    identity,
    numbers,
    prompted,
    queued,
    recovering,
    threads,
    through,
    ticking,
)


def record_batches(flux: Flux[int]) -> Flux[Any]:
    """Record batches of one row each."""
    return flux.map(lambda x: {"x": x}).to_arrow({"x": "int64"}, 1)


def table(n: int) -> Any:
    """A table of ``n`` record batches."""
    batch = pyarrow.record_batch({"x": [1]})
    return pyarrow.Table.from_batches([batch] * n, batch.schema)


PROCESSES = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
"""One process for all tests of ``map_parallel``; it starts with the first of them."""

FLUX_SOURCES: dict[str, Shape] = {
    "combine_latest": Shape(
        lambda n: Flux.combine_latest(Flux.just(1), Flux.range(n)),
        lambda: Flux.combine_latest(Flux.error(Fails), Flux.range(3)),
    ),
    "concat": Shape(
        lambda n: Flux.concat(Flux.range(n // 2), Flux.range(n - n // 2)),
        lambda: Flux.concat(Flux.error(Fails)),
    ),
    "concat_delay_error": Shape(
        lambda n: Flux.concat_delay_error(Flux.range(n // 2), Flux.range(n - n // 2)),
        lambda: Flux.concat_delay_error(Flux.error(Fails)),
    ),
    "create": Shape(emitted, lambda: Flux.create(lambda emitter: emitter.error(Fails())), most=20_000),
    "defer": Shape(
        lambda n: Flux.defer(lambda: Flux.range(n)), lambda: Flux.defer(lambda: Flux.error(Fails))
    ),
    "empty": Shape(lambda n: Flux.empty(), most=0),
    "error": Shape(lambda n: Flux.range(n), lambda: Flux.error(Fails)),
    "first_with_signal": Shape(
        lambda n: Flux.first_with_signal(Flux.range(n), Flux.never()),
        lambda: Flux.first_with_signal(Flux.error(Fails), Flux.never()),
    ),
    "first_with_value": Shape(
        lambda n: Flux.first_with_value(Flux.range(n), Flux.error(Fails)) if n else Flux.empty(),
        lambda: Flux.first_with_value(Flux.error(Fails), Flux.empty()),
    ),
    "from_arrow": Shape(lambda n: Flux.from_arrow(table(n)), most=1000),
    "from_async_iterable": Shape(lambda n: Flux.from_async_iterable(lambda: numbers(n)), profile="threads"),
    "from_iterable": Shape(lambda n: Flux.from_iterable(list(range(n)))),
    "from_publisher": Shape(
        lambda n: Flux.from_publisher(Foreign(Flux.range(n))),
        lambda: Flux.from_publisher(Foreign(Flux.error(Fails))),
    ),
    "from_queue": Shape(lambda n: Flux.from_queue(queued(n)), profile="threads"),
    "generate": Shape(
        lambda n: (
            Flux.generate(lambda: 0, lambda state, sink: counting(state, sink, n))
            if n
            else Flux.generate(lambda: 0, lambda state, sink: sink.complete())
        )
    ),
    "interval": Shape(
        lambda n: Flux.interval(0.0002).on_backpressure_buffer(100_000).take(n), profile="threads", most=100
    ),
    "just": Shape(lambda n: Flux.just(*range(n))),
    "merge": Shape(
        lambda n: Flux.merge(Flux.range(n // 2), Flux.range(n - n // 2)),
        lambda: Flux.merge(Flux.error(Fails)),
    ),
    "merge_delay_error": Shape(
        lambda n: Flux.merge_delay_error(Flux.range(n // 2), Flux.range(n - n // 2)),
        lambda: Flux.merge_delay_error(Flux.error(Fails)),
    ),
    "merge_ordered": Shape(
        lambda n: Flux.merge_ordered(Flux.range(n // 2), Flux.range(n - n // 2)),
        lambda: Flux.merge_ordered(Flux.error(Fails), Flux.range(3)),
    ),
    "merge_priority": Shape(
        lambda n: Flux.merge_priority(Flux.range(n // 2), Flux.range(n - n // 2)),
        lambda: Flux.merge_priority(Flux.error(Fails), Flux.range(3)),
    ),
    "merge_sequential": Shape(
        lambda n: Flux.merge_sequential(Flux.range(n // 2), Flux.range(n - n // 2)),
        lambda: Flux.merge_sequential(Flux.error(Fails), Flux.range(3)),
    ),
    "merge_sequential_delay_error": Shape(
        lambda n: Flux.merge_sequential_delay_error(Flux.range(n // 2), Flux.range(n - n // 2)),
        lambda: Flux.merge_sequential_delay_error(Flux.error(Fails)),
    ),
    "never": Shape(lambda n: Flux.never().timeout(0.001, Flux.range(n)), profile="threads"),
    "range": Shape(lambda n: Flux.range(n)),
    "using": Shape(
        lambda n: Flux.using(lambda: n, Flux.range, lambda _: None),
        lambda: Flux.using(lambda: 0, lambda _: Flux.error(Fails), lambda _: None),
    ),
    "using_when": Shape(
        lambda n: Flux.using_when(Mono.just(n), Flux.range, lambda _: None),
        lambda: Flux.using_when(Mono.just(0), lambda _: Flux.error(Fails), lambda _: None),
    ),
    "zip": Shape(
        lambda n: Flux.zip(Flux.range(n), Flux.range(n)), lambda: Flux.zip(Flux.error(Fails), Flux.range(3))
    ),
}

FLUX_OPERATORS: dict[str, Shape] = {
    "all": folding(lambda f: f.all(bool)),
    "any": folding(lambda f: f.any(bool)),
    "batch": through(lambda f: record_batches(f).batch(1)),
    "batch_weighted": through(lambda f: f.batch_weighted(1, lambda _: 1)),
    "buffer": through(lambda f: f.buffer(1)),
    "buffer_timeout": through(lambda f: f.buffer_timeout(1, 60)),
    "buffer_until": through(lambda f: f.buffer_until(lambda _: True)),
    "buffer_until_changed": through(lambda f: f.buffer_until_changed()),
    "buffer_while": Shape(
        lambda n: Flux.range(2 * n).buffer_while(lambda x: x % 2 == 0),
        lambda: Flux.error(Fails).buffer_while(bool),
    ),
    "cache": through(lambda f: f.cache(), fanout="multicast"),
    "cast": through(lambda f: f.cast(int)),
    "checkpoint": through(lambda f: f.checkpoint("here")),
    "circuit_breaker": through(lambda f: f.circuit_breaker(CircuitBreaker(1000))),
    "collect": folding(lambda f: f.collect(list, list.append)),
    "collect_dict": folding(lambda f: f.collect_dict(identity)),
    "collect_list": folding(lambda f: f.collect_list()),
    "collect_multimap": folding(lambda f: f.collect_multimap(identity)),
    "collect_set": folding(lambda f: f.collect_set()),
    "conflate": prompted(lambda f: f.conflate(identity, lambda a, b: b)),
    "concat_map": through(lambda f: f.concat_map(lambda x: Flux.just(x))),
    "concat_map_delay_error": through(lambda f: f.concat_map_delay_error(lambda x: Flux.just(x))),
    "concat_with": through(lambda f: f.concat_with(Flux.empty())),
    "count": folding(lambda f: f.count()),
    "default_if_empty": Shape(
        lambda n: Flux.range(n).default_if_empty(-1).filter(lambda x: x >= 0),
        lambda: Flux.error(Fails).default_if_empty(1),
    ),
    "debounce": threads(ticking(lambda f: f.debounce(0.0001))),
    "delay_elements": threads(through(lambda f: f.delay_elements(0), most=100)),
    "delay_until": through(lambda f: f.delay_until(lambda x: Flux.range(2))),
    "dematerialize": Shape(
        lambda n: Flux.range(n).materialize().dematerialize(), lambda: Flux.error(Fails).dematerialize()
    ),
    "delay_sequence": threads(through(lambda f: f.delay_sequence(0.001, prefetch=4), most=100)),
    "delay_subscription": threads(through(lambda f: f.delay_subscription(0))),
    "distinct": through(lambda f: f.distinct()),
    "distinct_until_changed": through(lambda f: f.distinct_until_changed()),
    "do_finally": through(lambda f: f.do_finally(lambda outcome: None)),
    "do_on_cancel": through(lambda f: f.do_on_cancel(lambda: None)),
    "do_on_complete": through(lambda f: f.do_on_complete(lambda: None)),
    "do_on_each": through(lambda f: f.do_on_each(lambda signal: None)),
    "do_on_error": through(lambda f: f.do_on_error(lambda error: None)),
    "do_on_next": through(lambda f: f.do_on_next(lambda x: None)),
    "do_on_request": through(lambda f: f.do_on_request(lambda n: None)),
    "do_on_subscribe": through(lambda f: f.do_on_subscribe(lambda subscription: None)),
    "do_on_terminate": through(lambda f: f.do_on_terminate(lambda: None)),
    "elapsed": through(lambda f: f.elapsed()),
    "element_at": folding(lambda f: f.element_at(1)),
    "expand": through(lambda f: f.expand(lambda x: Flux.empty())),
    "expand_deep": through(lambda f: f.expand_deep(lambda x: Flux.empty())),
    "filter": Shape(
        lambda n: Flux.range(2 * n).filter(lambda x: x % 2), lambda: Flux.error(Fails).filter(bool)
    ),
    "filter_when": Shape(
        lambda n: Flux.range(2 * n).filter_when(lambda x: Mono.just(x % 2)),
        lambda: Flux.error(Fails).filter_when(Mono.just),
    ),
    "first": folding(lambda f: f.first()),
    "flat_map": through(lambda f: f.flat_map(lambda x: Flux.just(x))),
    "flat_map_delay_error": through(lambda f: f.flat_map_delay_error(lambda x: Flux.just(x))),
    "flat_map_iterable": through(lambda f: f.flat_map_iterable(lambda x: [x])),
    "flat_map_sequential": through(lambda f: f.flat_map_sequential(lambda x: Flux.just(x))),
    "flat_map_sequential_delay_error": through(
        lambda f: f.flat_map_sequential_delay_error(lambda x: Flux.just(x))
    ),
    "group_by": through(lambda f: f.group_by(lambda x: x % 3).flat_map(identity)),
    "handle": through(lambda f: f.handle(lambda x, sink: sink.next(x))),
    "has_element": folding(lambda f: f.has_element(1)),
    "has_elements": folding(lambda f: f.has_elements()),
    "ignore_elements": Shape(
        lambda n: Flux.range(3).ignore_elements(), lambda: Flux.error(Fails).ignore_elements(), most=0
    ),
    "index": through(lambda f: f.index()),
    "last": folding(lambda f: f.last()),
    "limit_rate": through(lambda f: f.limit_rate(4)),
    "log": through(lambda f: f.log("conformance", level=5)),
    "map": through(lambda f: f.map(identity)),
    "map_async": threads(through(lambda f: f.map_async(awaited))),
    "map_not_none": through(lambda f: f.map_not_none(identity)),
    "materialize": Shape(lambda n: Flux.range(n - 1).materialize() if n else Flux.empty()),
    "map_parallel": threads(through(lambda f: f.map_parallel(int, workers=1, pool=PROCESSES))),
    "merge_with": through(lambda f: f.merge_with(Flux.empty())),
    "named": through(lambda f: f.named("x")),
    "of_type": through(lambda f: f.of_type(int)),
    "on_backpressure_buffer": prompted(lambda f: f.on_backpressure_buffer(8, Overflow.ERROR)),
    "on_backpressure_drop": prompted(lambda f: f.on_backpressure_drop()),
    "on_backpressure_error": prompted(lambda f: f.on_backpressure_error()),
    "on_backpressure_latest": prompted(lambda f: f.on_backpressure_latest()),
    "on_error_complete": recovering(lambda f: f.on_error_complete()),
    "on_error_map": through(lambda f: f.on_error_map(lambda error: Fails())),
    "on_error_resume": recovering(lambda f: f.on_error_resume(lambda error: Flux.empty())),
    "on_error_return": recovering(lambda f: f.on_error_return(0)),
    "parallel": through(lambda f: f.parallel(2).sequential()),
    "partition": through(lambda f: Flux.merge(*f.partition(lambda x: x % 3))),
    "publish": through(lambda f: f.publish().ref_count(), fanout=None),
    "publish_on": threads(through(lambda f: f.publish_on(POOL, prefetch=4))),
    "rate_limit": threads(through(lambda f: f.rate_limit(100_000, burst=4), most=20_000)),
    "reduce": folding(lambda f: f.reduce(lambda a, b: a + b)),
    "reduce_with": folding(lambda f: f.reduce_with(int, lambda a, b: a + b)),
    "repeat": Shape(lambda n: Flux.range(n).repeat(0)),
    "repeat_when": through(lambda f: f.repeat_when(lambda ends: Flux.empty())),
    "replay": through(lambda f: f.replay().auto_connect(), fanout="multicast"),
    "retry": recovering(lambda f: f.retry(1)),
    "retry_when": recovering(lambda f: f.retry_when(Retry.backoff(1, first=0.001))),
    "route": through(lambda f: Flux.merge(*f.route({"a": lambda x: x % 3, "b": lambda _: True}).values())),
    "sample": threads(ticking(lambda f: f.sample(0.0005))),
    "scan": through(lambda f: f.scan(lambda a, b: b)),
    "scan_with": Shape(lambda n: Flux.range(n).scan_with(int, lambda a, b: b).skip(1)),
    "share": through(lambda f: f.share(), fanout=None),
    "single": folding(lambda f: f.take(1).single()),
    "skip": Shape(lambda n: Flux.range(n + 2).skip(2), lambda: Flux.error(Fails).skip(2)),
    "skip_last": Shape(lambda n: Flux.range(n + 2).skip_last(2), lambda: Flux.error(Fails).skip_last(2)),
    "skip_until_other": through(lambda f: f.skip_until_other(Flux.empty())),
    "skip_while": Shape(
        lambda n: Flux.range(n + 2).skip_while(lambda x: x < 2), lambda: Flux.error(Fails).skip_while(bool)
    ),
    "sort": through(lambda f: f.sort()),
    "start_with": Shape(
        lambda n: Flux.range(n - 1).start_with(-1) if n else Flux.empty().start_with(),
        lambda: Flux.error(Fails).start_with(),
    ),
    "subscribe_on": threads(through(lambda f: f.subscribe_on(SINGLE))),
    "switch_if_empty": through(lambda f: f.switch_if_empty(Flux.empty())),
    "switch_map": Shape(
        lambda n: Flux.just(0).switch_map(lambda _: Flux.range(n)),
        lambda: Flux.error(Fails).switch_map(Flux.just),
    ),
    "take": Shape(lambda n: Flux.range(n + 5).take(n), lambda: Flux.error(Fails).take(1)),
    "take_last": Shape(lambda n: Flux.range(n + 5).take_last(n), lambda: Flux.error(Fails).take_last(1)),
    "take_until": Shape(
        lambda n: Flux.range(n + 5).take_until(lambda x: x == n - 1) if n else Flux.empty().take_until(bool),
        lambda: Flux.error(Fails).take_until(bool),
    ),
    "take_until_other": through(lambda f: f.take_until_other(Flux.never())),
    "take_while": Shape(
        lambda n: Flux.range(n + 5).take_while(lambda x: x < n), lambda: Flux.error(Fails).take_while(bool)
    ),
    "then": Shape(
        lambda n: Flux.range(3).then(Mono.just(1) if n else None), lambda: Flux.error(Fails).then(), most=1
    ),
    "then_many": Shape(
        lambda n: Flux.range(3).then_many(Flux.range(n)), lambda: Flux.error(Fails).then_many(Flux.range(3))
    ),
    "throttle_first": threads(ticking(lambda f: f.throttle_first(0.0001))),
    "throttle_last": threads(ticking(lambda f: f.throttle_last(0.0001))),
    "timeout": through(lambda f: f.timeout(30)),
    "timestamp": through(lambda f: f.timestamp()),
    "to_queue": Shape(
        lambda n: Flux.range(3).to_queue(queued(0)), lambda: Flux.error(Fails).to_queue(queued(0)), most=0
    ),
    "to_arrow": through(record_batches),
    "transform": through(lambda f: f.transform(lambda g: g.map(identity))),
    "unbatch": through(lambda f: record_batches(f).unbatch()),
    "window": Shape(
        lambda n: Flux.range(2 * n).window(1, skip=2).concat_map(identity).window(3).concat_map(identity),
        lambda: Flux.error(Fails).window(2, skip=1).concat_map(identity),
    ),
    "window_timeout": through(lambda f: f.window_timeout(3, 60).concat_map(identity)),
    "window_until": through(lambda f: f.window_until(lambda x: x % 3 == 0).concat_map(identity)),
    "window_until_changed": through(lambda f: f.window_until_changed(lambda x: x // 3).concat_map(identity)),
    "window_while": Shape(
        lambda n: Flux.range(2 * n).window_while(lambda x: x % 2).concat_map(identity),
        lambda: Flux.error(Fails).window_while(bool),
    ),
    "with_latest_from": through(lambda f: f.with_latest_from(Flux.just(1))),
    "zip_with": through(lambda f: f.zip_with(Flux.range(30_000), lambda a, b: a), most=30_000),
}

RAILS: dict[str, Shape] = {
    "concat_map": through(lambda f: f.parallel(2).concat_map(lambda x: [x]).sequential()),
    "do_on_next": through(lambda f: f.parallel(2).do_on_next(lambda x: None).sequential()),
    "filter": Shape(
        lambda n: Flux.range(2 * n).parallel(2).filter(lambda x: x % 2).sequential(),
        lambda: Flux.error(Fails).parallel(2).filter(bool).sequential(),
    ),
    "flat_map": through(lambda f: f.parallel(2).flat_map(lambda x: Flux.just(x)).sequential()),
    "flat_map_iterable": through(lambda f: f.parallel(2).flat_map_iterable(lambda x: [x]).sequential()),
    "handle": through(lambda f: f.parallel(2).handle(lambda x, sink: sink.next(x)).sequential()),
    "map": through(lambda f: f.parallel(3).map(identity).sequential(prefetch=1)),
    "ordered": threads(through(lambda f: f.parallel(2).run_on(POOL, prefetch=2).ordered(prefetch=2))),
    "reduce": folding(lambda f: f.parallel(2).reduce(lambda a, b: a + b)),
    "reduce_with": folding(lambda f: f.parallel(1).reduce_with(int, lambda a, b: a + b).sequential()),
    "run_on": threads(through(lambda f: f.parallel(3).run_on(POOL, prefetch=4).map(identity).sequential())),
    "sequential": through(lambda f: f.parallel(1).sequential()),
    "transform_rails": threads(
        through(lambda f: f.parallel(2).transform_rails(lambda rail: rail.subscribe_on(POOL)).sequential())
    ),
}
"""What a ParallelFlux can do, with one rail or more."""

SINKS: dict[str, Shape] = {
    "best_effort": Shape(lambda n: FilledAfterwards(n), fanout=None, most=20_000),
    "unicast": Shape(lambda n: filled(Sinks.unicast(20_000), n), fanout=None, most=20_000),
    "multicast": Shape(lambda n: filled(Sinks.multicast(20_000), n), fanout=None, most=20_000),
    "replay": Shape(lambda n: filled(Sinks.replay(20_000), n), fanout="multicast", most=20_000),
}

EXITS = {"block_first", "block_last", "explain", "stream", "subscribe", "to_async_iterable", "to_iterable"}
"""Not operators: ways out of a stream, and looks at it."""
