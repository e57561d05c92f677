"""Every source and operator of Mono in a shape that the kit can verify."""

from __future__ import annotations

from penstock.streams import CircuitBreaker, Flux, Mono, Retry
from tests.conformance.shapes import (
    POOL,
    SINGLE,
    Fails,
    Shape,
    awaited,
    identity,
    settled,
    single,
    threads,
)

MONO_SOURCES: dict[str, Shape] = {
    "defer": Shape(
        lambda n: Mono.defer(lambda: Mono.just(1) if n else Mono.empty()),
        lambda: Mono.defer(lambda: Mono.error(Fails)),
        most=1,
    ),
    "empty": Shape(lambda n: Mono.empty(), most=0),
    "error": Shape(lambda n: Mono.empty(), lambda: Mono.error(Fails), most=0),
    "first_with_signal": single(lambda m: Mono.first_with_signal(m, Mono.never())),
    "first_with_value": Shape(
        lambda n: Mono.first_with_value(Mono.empty(), Mono.just(1)) if n else Mono.empty(),
        lambda: Mono.first_with_value(Mono.error(Fails), Mono.empty()),
        most=1,
    ),
    "from_callable": Shape(lambda n: Mono.from_callable(lambda: 1 if n else None), most=1),
    "from_future": Shape(lambda n: Mono.from_future(settled(1 if n else None)), most=1),
    "from_publisher": Shape(
        lambda n: Mono.from_publisher(Flux.range(3 * n)),
        lambda: Mono.from_publisher(Flux.error(Fails)),
        most=1,
    ),
    "just": Shape(lambda n: Mono.just(1) if n else Mono.empty(), most=1),
    "just_or_empty": Shape(lambda n: Mono.just_or_empty(1 if n else None), most=1),
    "never": Shape(
        lambda n: Mono.never().timeout(0.001, Mono.just_or_empty(1 if n else None)), profile="threads", most=1
    ),
    "timer": threads(single(lambda m: m.then(Mono.timer(0)), recovers=True)),
    "using": Shape(
        lambda n: Mono.using(lambda: n, lambda n: Mono.just_or_empty(1 if n else None), lambda _: None),
        most=1,
    ),
    "using_when": Shape(
        lambda n: Mono.using_when(Mono.just(n), lambda n: Mono.just_or_empty(n or None), lambda _: None),
        lambda: Mono.using_when(Mono.just(0), lambda _: Mono.error(Fails), lambda _: None),
        most=1,
    ),
    "when": Shape(
        lambda n: Mono.when(Flux.range(3), Mono.just(1)), lambda: Mono.when(Flux.error(Fails)), most=0
    ),
    "when_delay_error": Shape(
        lambda n: Mono.when_delay_error(Flux.range(3), Mono.just(1)),
        lambda: Mono.when_delay_error(Flux.error(Fails)),
        most=0,
    ),
    "zip": single(lambda m: Mono.zip(m, Mono.just(1))),
}

MONO_OPERATORS: dict[str, Shape] = {
    "cache": single(lambda m: m.cache(), fanout="multicast"),
    "cast": single(lambda m: m.cast(int)),
    "checkpoint": single(lambda m: m.checkpoint("here")),
    "circuit_breaker": single(lambda m: m.circuit_breaker(CircuitBreaker(1000))),
    "concat_with": single(lambda m: m.concat_with(Flux.empty())),
    "default_if_empty": Shape(
        lambda n: (
            Mono.empty().default_if_empty(1)
            if n
            else Mono.just(1).default_if_empty(2).filter(lambda _: False)
        ),
        lambda: Mono.error(Fails).default_if_empty(1),
        most=1,
    ),
    "delay_element": threads(single(lambda m: m.delay_element(0))),
    "dematerialize": Shape(
        lambda n: Mono.just_or_empty(n or None).materialize().dematerialize(),
        lambda: Mono.error(Fails).dematerialize(),
        most=1,
    ),
    "delay_subscription": threads(single(lambda m: m.delay_subscription(0))),
    "do_finally": single(lambda m: m.do_finally(lambda outcome: None)),
    "do_on_cancel": single(lambda m: m.do_on_cancel(lambda: None)),
    "do_on_complete": single(lambda m: m.do_on_complete(lambda: None)),
    "do_on_each": single(lambda m: m.do_on_each(lambda signal: None)),
    "do_on_error": single(lambda m: m.do_on_error(lambda error: None)),
    "do_on_next": single(lambda m: m.do_on_next(lambda x: None)),
    "do_on_request": single(lambda m: m.do_on_request(lambda n: None)),
    "do_on_subscribe": single(lambda m: m.do_on_subscribe(lambda subscription: None)),
    "do_on_success": single(lambda m: m.do_on_success(lambda x: None)),
    "do_on_terminate": single(lambda m: m.do_on_terminate(lambda: None)),
    "expand": single(lambda m: m.expand(lambda x: Flux.empty())),
    "expand_deep": single(lambda m: m.expand_deep(lambda x: Flux.empty())),
    "delay_until": single(lambda m: m.delay_until(lambda x: Flux.range(2))),
    "elapsed": single(lambda m: m.elapsed()),
    "filter": single(lambda m: m.filter(lambda x: True)),
    "filter_when": single(lambda m: m.filter_when(lambda x: Mono.just(True))),
    "flat_map": single(lambda m: m.flat_map(lambda x: Mono.just(x))),
    "flat_map_iterable": single(lambda m: m.flat_map_iterable(lambda x: [x])),
    "flat_map_many": single(lambda m: m.flat_map_many(lambda x: Flux.just(x))),
    "flux": single(lambda m: m.flux()),
    "handle": single(lambda m: m.handle(lambda x, sink: sink.next(x))),
    "has_element": Shape(
        lambda n: Mono.just(1).has_element() if n else Mono.just(1).has_element().filter(lambda _: False),
        lambda: Mono.error(Fails).has_element(),
        most=1,
    ),
    "ignore_element": Shape(
        lambda n: Mono.just(1).ignore_element(), lambda: Mono.error(Fails).ignore_element(), most=0
    ),
    "log": single(lambda m: m.log("conformance", level=5)),
    "map": single(lambda m: m.map(identity)),
    "map_async": threads(single(lambda m: m.map_async(awaited))),
    "map_not_none": single(lambda m: m.map_not_none(identity)),
    "materialize": Shape(lambda n: Mono.just(n).materialize() if n else Mono.empty(), most=1),
    "merge_with": single(lambda m: m.merge_with(Flux.empty())),
    "named": single(lambda m: m.named("x")),
    "of_type": single(lambda m: m.of_type(int)),
    "on_error_complete": single(lambda m: m.on_error_complete(), recovers=True),
    "on_error_map": single(lambda m: m.on_error_map(lambda error: Fails())),
    "on_error_resume": single(lambda m: m.on_error_resume(lambda error: Mono.empty()), recovers=True),
    "on_error_return": single(lambda m: m.on_error_return(1), recovers=True),
    "publish_on": threads(single(lambda m: m.publish_on(POOL))),
    "repeat": single(lambda m: m.repeat(0)),
    "repeat_when": single(lambda m: m.repeat_when(lambda ends: Flux.empty())),
    "retry": single(lambda m: m.retry(1)),
    "retry_when": single(lambda m: m.retry_when(Retry.backoff(1, first=0.001)), recovers=True),
    "share": single(lambda m: m.share(), fanout=None),
    "single": Shape(
        lambda n: Mono.just(1).single() if n else Mono.just(1).single().filter(lambda _: False),
        lambda: Mono.error(Fails).single(),
        most=1,
    ),
    "subscribe_on": threads(single(lambda m: m.subscribe_on(SINGLE))),
    "switch_if_empty": single(lambda m: m.switch_if_empty(Mono.empty())),
    "take_until_other": single(lambda m: m.take_until_other(Flux.never())),
    "then": single(lambda m: m.then(Mono.just(1)).filter(lambda _: True), recovers=False, fanout="unicast"),
    "then_many": Shape(
        lambda n: Mono.just(1).then_many(Flux.range(n)), lambda: Mono.error(Fails).then_many(Flux.range(3))
    ),
    "then_return": Shape(
        lambda n: Mono.just(1).then_return(2) if n else Mono.just(1).then_return(2).filter(lambda _: False),
        lambda: Mono.error(Fails).then_return(2),
        most=1,
    ),
    "timeout": single(lambda m: m.timeout(30)),
    "timestamp": single(lambda m: m.timestamp()),
    "transform": single(lambda m: m.transform(lambda n: n.map(identity))),
    "zip_when": single(lambda m: m.zip_when(lambda x: Mono.just(1))),
    "zip_with": single(lambda m: m.zip_with(Mono.just(1))),
}

EXITS = {"block", "explain", "subscribe", "to_future"}
"""Not operators: ways out of a stream, and looks at it."""
