"""Mistakes that would go unnoticed: refused where they are written, with the way out."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from penstock.spec import RuleViolation
from penstock.streams import Flux, Mono, Overflow, Retry, Sinks, on_dropped, processor, schedulers
from tests.streams.recording import Recorder


async def coroutine_function(*_: Any) -> Any:
    raise AssertionError("never called")


async def async_generator(*_: Any) -> Any:
    raise AssertionError("never called")
    yield


class Callable_:
    async def __call__(self, *_: Any) -> Any:
        raise AssertionError("never called")

    async def method(self, *_: Any) -> Any:
        raise AssertionError("never called")


ASYNC = {
    "async def": coroutine_function,
    "async generator": async_generator,
    "partial": functools.partial(coroutine_function, 1),
    "object": Callable_(),
    "method": Callable_().method,
}

one, many = Mono.just(1), Flux.just(1)

PLAIN: dict[str, Callable[[Any], object]] = {
    "map": lambda f: many.map(f),
    "Mono.map": lambda f: one.map(f),
    "map_not_none": lambda f: many.map_not_none(f),
    "flat_map_iterable": lambda f: many.flat_map_iterable(f),
    "handle": lambda f: many.handle(f),
    "scan": lambda f: many.scan(f),
    "scan from a seed": lambda f: many.scan(f, 0),
    "scan_with a seed": lambda f: many.scan_with(f, max),
    "scan_with": lambda f: many.scan_with(int, f),
    "filter": lambda f: many.filter(f),
    "Mono.filter": lambda f: one.filter(f),
    "take_while": lambda f: many.take_while(f),
    "take_until": lambda f: many.take_until(f),
    "skip_while": lambda f: many.skip_while(f),
    "distinct": lambda f: many.distinct(f),
    "distinct_until_changed": lambda f: many.distinct_until_changed(f),
    "buffer_until": lambda f: many.buffer_until(f),
    "buffer_while": lambda f: many.buffer_while(f),
    "reduce": lambda f: many.reduce(f),
    "reduce_with": lambda f: many.reduce_with(int, f),
    "collect": lambda f: many.collect(list, f),
    "collect into": lambda f: many.collect(f, list.append),
    "collect_dict": lambda f: many.collect_dict(f),
    "collect_dict of values": lambda f: many.collect_dict(str, f),
    "collect_multimap": lambda f: many.collect_multimap(f),
    "any": lambda f: many.any(f),
    "all": lambda f: many.all(f),
    "sort": lambda f: many.sort(f),
    "zip": lambda f: Flux.zip(many, many, combinator=f),
    "zip_with": lambda f: many.zip_with(many, f),
    "on_error_map": lambda f: many.on_error_map(f),
    "do_on_next": lambda f: many.do_on_next(f),
    "do_on_error": lambda f: many.do_on_error(f),
    "do_on_complete": lambda f: many.do_on_complete(f),
    "do_on_cancel": lambda f: many.do_on_cancel(f),
    "do_on_subscribe": lambda f: many.do_on_subscribe(f),
    "do_on_request": lambda f: many.do_on_request(f),
    "do_on_each": lambda f: many.do_on_each(f),
    "do_on_terminate": lambda f: many.do_on_terminate(f),
    "do_finally": lambda f: many.do_finally(f),
    "do_on_success": lambda f: one.do_on_success(f),
    "on_backpressure_drop": lambda f: many.on_backpressure_drop(f),
    "on_backpressure_buffer": lambda f: many.on_backpressure_buffer(2, Overflow.DROP_OLDEST, f),
    "transform": lambda f: many.transform(f),
    "create": lambda f: Flux.create(f),
    "generate a state": lambda f: Flux.generate(f, lambda state, sink: None),
    "generate": lambda f: Flux.generate(int, f),
    "using a resource": lambda f: Flux.using(f, lambda _: many, print),
    "using": lambda f: Flux.using(int, lambda _: many, f),
    "error": lambda f: Flux.error(f),
    "subscribe": lambda f: many.subscribe(f),
    "subscribe for errors": lambda f: many.subscribe(print, on_error=f),
    "subscribe for the end": lambda f: many.subscribe(print, on_complete=f),
    "processor": lambda f: processor(f),
}


@pytest.mark.parametrize("function", ASYNC.values(), ids=ASYNC)
@pytest.mark.parametrize("use", PLAIN)
def test_an_async_function_is_refused_where_it_would_not_be_awaited(use: str, function: Any) -> None:
    operator = use.removeprefix("Mono.").split()[0]
    with pytest.raises(
        TypeError, match=rf"{operator}\(\) calls plain functions, and .* is an async function; "
    ):
        PLAIN[use](function)


def generator_function(*_: Any) -> Any:
    raise AssertionError("never called")
    yield


class Yielding:
    def __call__(self, *_: Any) -> Any:
        raise AssertionError("never called")
        yield

    def method(self, *_: Any) -> Any:
        raise AssertionError("never called")
        yield


GENERATORS = {
    "def": generator_function,
    "partial": functools.partial(generator_function, 1),
    "object": Yielding(),
    "method": Yielding().method,
}
ITERATED_OR_PASSED_ON = {
    "map",
    "Mono.map",
    "map_not_none",
    "flat_map_iterable",
    "scan",
    "scan from a seed",
    "scan_with a seed",
    "scan_with",
    "reduce",
    "reduce_with",
    "collect_dict",
    "collect_dict of values",
    "collect_multimap",
    "sort",
    "zip",
    "zip_with",
    "on_error_map",
    "transform",
    "generate a state",
    "generate",
    "using a resource",
    "using",
    "error",
    "processor",
}


@pytest.mark.parametrize("function", GENERATORS.values(), ids=GENERATORS)
@pytest.mark.parametrize("use", sorted(PLAIN.keys() - ITERATED_OR_PASSED_ON))
def test_a_generator_function_is_refused_where_its_body_would_never_run(use: str, function: Any) -> None:
    operator = use.removeprefix("Mono.").split()[0]
    with pytest.raises(
        TypeError, match=rf"{operator}\(\) calls plain functions, and .* is a generator function, whose body"
    ):
        PLAIN[use](function)


def test_the_error_names_what_takes_a_generator_function() -> None:
    with pytest.raises(TypeError, match=r"use flat_map_iterable\(generator_function\)"):
        many.handle(generator_function)
    with pytest.raises(TypeError, match=r"use from_iterable\(generator_function\(\)\)"):
        Flux.create(generator_function)


def test_operators_that_iterate_take_generator_functions() -> None:
    def rows(n: int) -> Any:
        yield n
        yield n + 1

    for stream in (
        Flux.just(1).flat_map_iterable(rows),
        Flux.just(1).flat_map(rows),
        Flux.just(1).concat_map(functools.partial(rows)),
        Flux.just(1).map(rows).flat_map_iterable(list),
        Flux.using(lambda: 1, rows, print),
    ):
        assert stream.collect_list().block(30) == [1, 2]


@pytest.mark.parametrize(
    ("use", "instead"),
    {
        "map": r"use map_async\(coroutine_function\)",
        "filter": r"map_async\(\)",
        "do_on_next": r"map_async\(\)",
        "subscribe": r"'async for'",
        "flat_map_iterable": r"concat_map\(coroutine_function\)",
        "create": r"from_async_iterable\(\)",
        "using": r"from_async_iterable\(\)",
    }.items(),
)
def test_the_error_names_the_operator_to_use_instead(use: str, instead: str) -> None:
    with pytest.raises(TypeError, match=instead):
        PLAIN[use](coroutine_function)


def test_operators_that_await_take_async_functions() -> None:
    async def twice(n: int) -> int:
        return 2 * n

    async def rows(n: int) -> Any:
        yield n
        yield n + 1

    async def mended(error: BaseException) -> int:
        return 5

    for stream, expected in (
        (Flux.just(1).map_async(twice), [2]),
        (Flux.just(1).flat_map(twice), [2]),
        (Flux.just(1).flat_map(rows), [1, 2]),
        (Flux.just(1).concat_map(functools.partial(twice)), [2]),
        (Flux.just(1).flat_map_sequential(rows), [1, 2]),
        (Flux.just(1).expand(lambda n: twice(n) if n < 4 else Flux.empty()), [1, 2, 4]),
        (Mono.just(1).flat_map(twice), [2]),
        (Mono.just(1).flat_map_many(rows), [1, 2]),
        (Mono.from_callable(functools.partial(twice, 4)), [8]),
        (Flux.defer(functools.partial(rows, 7)), [7, 8]),
        (Flux.error(OSError()).on_error_resume(mended), [5]),
        (Flux.using(int, rows, print), [0, 1]),
    ):
        assert stream._as_flux().collect_list().block(30) == expected


def test_a_function_that_returns_a_coroutine_is_refused_where_it_is_called_once() -> None:
    async def answer() -> int:
        raise AssertionError("never started")

    with pytest.raises(TypeError, match=r"returned the coroutine answer.*pass the async function itself"):
        Mono.from_callable(lambda: answer()).block()
    with pytest.raises(TypeError, match=r"is an async generator; use Flux.from_async_iterable\(\)"):
        Mono.from_callable(async_generator)


@pytest.mark.parametrize("collection", [list, tuple, set, frozenset])
@pytest.mark.parametrize(
    "use",
    [
        lambda streams: Flux.merge(streams),
        lambda streams: Flux.concat(streams),
        lambda streams: Flux.zip(streams),
        lambda streams: Mono.zip(streams),
        lambda streams: Mono.when(streams),
        lambda streams: many.merge_with(streams),
        lambda streams: many.concat_with(streams),
        lambda streams: many.zip_with(streams),
        lambda streams: one.concat_with(streams),
        lambda streams: many.then_many(streams),
    ],
)
def test_a_collection_of_streams_in_place_of_the_streams_is_refused(use: Any, collection: Any) -> None:
    with pytest.raises(TypeError, match=r"takes streams one by one.*\*streams\)"):
        use(collection([many, one]))


def test_a_list_of_elements_is_a_stream_of_them() -> None:
    assert Flux.concat([1, 2], [3]).collect_list().block() == [1, 2, 3]
    assert Flux.merge([]).collect_list().block() == []


@pytest.mark.parametrize("overflow", ["drop", "drop oldest", None, 3])
def test_overflow_is_one_of_the_policies(overflow: Any) -> None:
    for use in (
        lambda: many.on_backpressure_buffer(3, overflow),
        lambda: Flux.create(print, overflow=overflow),
    ):
        with pytest.raises(TypeError, match=r"Overflow.ERROR, Overflow.DROP_NEWEST, Overflow.DROP_OLDEST"):
            use()


def test_retry_when_needs_a_policy() -> None:
    for stream in (many, one):
        with pytest.raises(TypeError, match=r"Retry.backoff\(5, first=0.1\), not 3; .*use retry\(times\)"):
            stream.retry_when(3)  # type: ignore[union-attr,arg-type]


def test_a_retry_policy_checks_its_numbers() -> None:
    assert Retry.fixed(Whole(2), pause=timedelta(seconds=1)).first == 1.0  # type: ignore[arg-type]
    for wrong in (lambda: Retry(2.5), lambda: Retry("3"), lambda: Retry(3, first="1")):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="at least 1"):
        Retry(0)


class Whole:
    """A whole number that is no int, as numpy's are."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


WITH_NUMBERS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "range": (lambda n: Flux.range(n(3)), [0, 1, 2]),
    "range from": (lambda n: Flux.range(n(2), n(2)), [2, 3]),
    "take": (lambda n: Flux.range(9).take(n(2)), [0, 1]),
    "take_last": (lambda n: Flux.range(9).take_last(n(2)), [7, 8]),
    "skip": (lambda n: Flux.range(4).skip(n(2)), [2, 3]),
    "element_at": (lambda n: Flux.range(9).element_at(n(2)), [2]),
    "buffer": (lambda n: Flux.range(4).buffer(n(2)), [[0, 1], [2, 3]]),
    "buffer with skip": (lambda n: Flux.range(4).buffer(n(1), n(2)), [[0], [2]]),
    "limit_rate": (lambda n: Flux.range(4).limit_rate(n(2), n(1)), [0, 1, 2, 3]),
    "publish_on": (lambda n: Flux.range(2).publish_on(schedulers.shared_pool(), prefetch=n(1)), [0, 1]),
    "flat_map": (lambda n: Flux.range(2).flat_map(Mono.just, concurrency=n(1), prefetch=n(1)), [0, 1]),
    "concat_map": (lambda n: Flux.range(2).concat_map(Mono.just, prefetch=n(1)), [0, 1]),
    "merge": (lambda n: Flux.merge(Flux.range(2), prefetch=n(1)), [0, 1]),
    "zip": (lambda n: Flux.zip(Flux.range(2), prefetch=n(1)), [(0,), (1,)]),
    "retry": (lambda n: Flux.range(2).retry(n(1)), [0, 1]),
    "repeat": (lambda n: Flux.range(2).repeat(n(1)), [0, 1, 0, 1]),
    "cache": (lambda n: Flux.range(2).cache(n(2)), [0, 1]),
    "share": (lambda n: Flux.range(2).share(prefetch=n(2)), [0, 1]),
    "on_backpressure_buffer": (lambda n: Flux.range(2).on_backpressure_buffer(n(2)), [0, 1]),
    "timeout": (lambda n: Flux.range(2).timeout(n(30)), [0, 1]),
    "delay_elements": (lambda n: Flux.range(2).delay_elements(n(0)), [0, 1]),
    "timer": (lambda n: Mono.timer(n(0)), [0]),
    "interval": (lambda n: Flux.interval(n(0)).take(1), [0]),
}


@pytest.mark.parametrize("use", WITH_NUMBERS)
def test_numbers_with_index_are_numbers(use: str) -> None:
    make, expected = WITH_NUMBERS[use]
    assert make(Whole)._as_flux().collect_list().block(30) == expected


def test_seconds_may_be_any_number() -> None:
    assert Mono.timer(Fraction(1, 1000)).block(timeout=Fraction(30)) == 0  # type: ignore[arg-type]
    for wrong in ("1", None, True, [1]):
        with pytest.raises(TypeError, match="seconds as a number or a timedelta"):
            Mono.timer(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "stream",
    [
        Flux.range(9),
        Flux.range(9).subscribe_on(schedulers.immediate()),
        Flux.range(9).on_backpressure_buffer(),
        Flux.range(9).publish_on(schedulers.immediate()),
    ],
)
def test_a_subscriber_may_request_any_whole_number(stream: Flux[int]) -> None:
    recorder = Recorder.of(stream)
    recorder._requested = 3
    recorder.subscription.request(Whole(3))  # type: ignore[arg-type]
    assert recorder.check().items == [0, 1, 2]


@pytest.mark.parametrize("n", [True, 1.0, "1", None])
def test_what_is_not_a_whole_number_is_no_request(n: Any) -> None:
    recorder = Recorder.of(Flux.range(9))
    recorder.subscription.request(n)
    assert isinstance(recorder.error, RuleViolation)
    assert recorder.items == []


def test_a_sink_takes_any_whole_number_and_a_pool_too() -> None:
    sink = Sinks.unicast(Whole(1))  # type: ignore[arg-type]
    sink.try_emit(1)
    with pytest.raises(TimeoutError):
        sink.emit_blocking(2, timeout=0)
    with schedulers.pool(Whole(2)) as pool:  # type: ignore[arg-type]
        assert pool.threads == 2
    with pytest.raises(TypeError, match="whole number"):
        schedulers.pool(2.5)  # type: ignore[arg-type]


def test_waiting_on_the_thread_of_an_event_loop_is_refused() -> None:
    sink: Any = Sinks.unicast(1)
    sink.try_emit(0)
    running = Flux.never().subscribe(print)

    async def main() -> None:
        with pytest.raises(
            RuntimeError, match=r"emit_blocking\(\) would block .* use 'await sink.emit\(x\)'"
        ):
            sink.emit_blocking(1)
        with pytest.raises(RuntimeError, match="emit_blocking"):
            sink.emit_blocking(1, timeout=0.1)
        with pytest.raises(TimeoutError):
            sink.emit_blocking(1, timeout=0)
        with pytest.raises(RuntimeError, match=r"wait\(\) would block .* use 'async for'"):
            running.wait()
        with pytest.raises(RuntimeError, match=r"wait\(\) would block"):
            running.wait(0.1)
        assert running.wait(0) is False
        for stream in (Flux.never().first(), Mono.never()):
            with pytest.raises(RuntimeError, match=r"block\(\) would block .* use 'await'"):
                stream.block(1)
        with pytest.raises(RuntimeError, match="block the event loop"):
            next(iter(Flux.never()))
        running.cancel()
        assert running.wait() is True

    asyncio.run(main())


def test_what_does_not_have_to_wait_may_be_done_on_an_event_loop() -> None:
    async def main() -> None:
        sink: Any = Sinks.unicast(2)
        sink.emit_blocking(1)
        assert Flux.just(1).subscribe(lambda x: None).wait()
        assert await asyncio.to_thread(Mono.timer(0.001).block) == 0

    asyncio.run(main())


def test_hooks_of_an_emitter_are_plain_functions() -> None:
    failed: list[BaseException] = []
    done = threading.Event()
    with on_dropped(error=lambda error, where: None):
        Flux.create(lambda emitter: emitter.on_dispose(coroutine_function)).subscribe(
            print, on_error=lambda error: (failed.append(error), done.set())
        )
    assert done.wait(30)
    assert "on_dispose() calls plain functions" in str(failed[0])


class Several:
    """Has ``__index__`` by its type, but is no number, as an array of numpy's."""

    def __index__(self) -> int:
        raise TypeError("only integer scalar arrays can be converted to a scalar index")


def test_what_only_looks_like_a_number_is_refused_as_any_other_object() -> None:
    with pytest.raises(TypeError, match=r"take\(\) needs a whole number"):
        Flux.range(3).take(Several())  # type: ignore[arg-type]
    for stream in (Flux.range(3), Flux.range(3).limit_rate(2), Flux.range(3).flat_map(Flux.just)):
        recorder = Recorder.of(stream)
        recorder.subscription.request(Several())  # type: ignore[arg-type]
        assert isinstance(recorder.error, RuleViolation)


@pytest.mark.parametrize("kind", [Flux, Mono])
@pytest.mark.parametrize("arguments", [(), ([1, 2],), (1, 2)])
def test_a_stream_that_is_called_into_being_says_how_it_is_made(
    kind: type[Any], arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__}\.just\(element\), or Flux\.from_iterable"):
        kind(*arguments)
