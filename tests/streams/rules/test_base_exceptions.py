"""``BaseException`` in the user's code, or an exhausted stack, ends a stream with a signal; nobody hangs."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any

import pytest

from penstock.spec import RuleViolation
from penstock.streams import Flux, Mono, Retry, Sinks, on_dropped, schedulers
from penstock.streams.fusion.codegen import SOURCE, Head, Tail
from penstock.streams.fusion.compiler import culprit, run, shape_of, states_of

PATIENCE = 60.0


class Stop(BaseException):
    """As pytest's ``fail`` and others raise it."""


def outcome_elsewhere(stream: Mono[Any]) -> Future[Any]:
    """Subscribe on a thread of its own.

    Whoever subscribes may take over what a pool has to do meanwhile. On the main thread, an exit or a Ctrl-C
    would rightly be raised there.
    """
    futures: queue.Queue[Future[Any]] = queue.Queue()
    threading.Thread(target=lambda: futures.put(stream.to_future())).start()
    return futures.get(timeout=PATIENCE)


def raising(error: BaseException) -> Callable[..., Any]:
    def function(*arguments: Any) -> Any:
        raise error

    return function


ERRORS = [
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    Stop(),
    RecursionError(),
]

OPERATORS: dict[str, Callable[[Any, Callable[..., Any]], Any]] = {
    "map": lambda flux, bad: flux.map(bad),
    "filter": lambda flux, bad: flux.filter(bad),
    "scan_with": lambda flux, bad: flux.scan_with(bad, lambda a, b: a),
    "do_on_next": lambda flux, bad: flux.do_on_next(bad),
    "do_on_subscribe": lambda flux, bad: flux.do_on_subscribe(bad),
    "do_on_complete": lambda flux, bad: flux.do_on_complete(bad),
    "do_on_error": lambda flux, bad: flux.concat_with(Flux.error(OSError())).do_on_error(bad),
    "flat_map": lambda flux, bad: flux.flat_map(bad),
    "flat_map_iterable": lambda flux, bad: flux.flat_map_iterable(bad),
    "concat_map": lambda flux, bad: flux.concat_map(bad),
    "expand": lambda flux, bad: flux.expand(bad),
    "zip": lambda flux, bad: flux.zip_with(Flux.just(1), bad),
    "defer": lambda flux, bad: flux.concat_with(Flux.defer(bad)),
    "error": lambda flux, bad: flux.concat_with(Flux.error(bad)),
    "create": lambda flux, bad: flux.concat_with(Flux.create(bad)),
    "generate": lambda flux, bad: flux.concat_with(Flux.generate(int, bad)),
    "using": lambda flux, bad: flux.concat_with(Flux.using(bad, bad, bad)),
    "on_error_resume": lambda flux, bad: flux.concat_with(Flux.error(OSError())).on_error_resume(bad),
    "on_error_map": lambda flux, bad: flux.concat_with(Flux.error(OSError())).on_error_map(bad),
    "sort": lambda flux, bad: flux.sort(bad),
    "from_callable": lambda flux, bad: flux.concat_with(Mono.from_callable(bad)),
}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("where", ["publish_on", "subscribe_on", "timer"])
def test_a_function_that_raises_on_a_scheduler_ends_the_stream(
    operator: str, where: str, error: BaseException
) -> None:
    if where == "publish_on":
        source = Flux.just(1).publish_on(schedulers.shared_pool())
        stream = OPERATORS[operator](source, raising(error))
    elif where == "subscribe_on":
        stream = OPERATORS[operator](Flux.just(1), raising(error)).subscribe_on(schedulers.shared_pool())
    else:
        later = Mono.timer(0.001)
        stream = later.flat_map_many(lambda _: OPERATORS[operator](Flux.just(1), raising(error)))
    assert outcome_elsewhere(stream.collect_list()).exception(PATIENCE) is error


@pytest.mark.parametrize("error", ERRORS[2:], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_function_that_raises_on_the_readers_thread_raises_in_the_reader(
    operator: str, error: BaseException
) -> None:
    with pytest.raises(type(error)) as raised:
        OPERATORS[operator](Flux.just(1), raising(error)).collect_list().block(PATIENCE)
    assert raised.value is error


@pytest.mark.parametrize("error", ERRORS[:2], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("operator", ["map", "filter", "flat_map", "concat_map", "defer", "create", "error"])
def test_exit_and_ctrl_c_on_the_main_thread_reach_the_subscriber_and_the_caller(
    operator: str, error: BaseException
) -> None:
    heard: list[BaseException] = []
    dropped: list[BaseException] = []
    with on_dropped(error=lambda error, where: dropped.append(error)), pytest.raises(type(error)) as raised:
        OPERATORS[operator](Flux.just(1), raising(error)).subscribe(print, on_error=heard.append)
    assert raised.value is error
    assert heard == [error]
    assert dropped == []


NESTED: dict[str, Callable[[], Any]] = {
    "flat_map": lambda: Flux.range(9).flat_map(lambda x: Flux.just(x, x)),
    "flat_map_sequential": lambda: Flux.range(9).flat_map_sequential(lambda x: Flux.just(x, x)),
    "flat_map in flat_map": lambda: Flux.range(9).flat_map(lambda x: Flux.just(x).flat_map(Flux.just)),
    "concat_map": lambda: Flux.range(9).concat_map(lambda x: Flux.just(x, x)),
    "merge": lambda: Flux.merge(Flux.range(9), Flux.range(9)),
    "zip": lambda: Flux.zip(Flux.range(9), Flux.range(9)),
    "share": lambda: Flux.range(9).share(),
}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("shape", NESTED)
def test_exit_and_ctrl_c_below_inner_streams_go_up_to_the_caller(shape: str, error: BaseException) -> None:
    stream = NESTED[shape]()
    heard: list[BaseException] = []
    dropped: list[BaseException] = []
    with on_dropped(error=lambda error, where: dropped.append(error)):
        with pytest.raises(type(error)) as raised:
            stream.map(raising(error)).subscribe(print, on_error=heard.append)
        assert raised.value is error
        with pytest.raises(type(error)):
            stream.subscribe(raising(error), on_error=heard.append)
        with pytest.raises(type(error)):
            stream.do_on_next(raising(error)).count().block(PATIENCE)
    assert heard == [error, error]
    assert dropped == []


@pytest.mark.parametrize("error", [SystemExit(3), Stop(), KeyboardInterrupt()], ids=repr)
def test_a_coroutine_that_raises_ends_the_stream(error: BaseException) -> None:
    async def bad(*_: Any) -> Any:
        raise error

    async def rows() -> Any:
        yield 1
        raise error

    for stream in (
        Flux.just(1).map_async(bad),
        Mono.from_callable(bad),
        Flux.from_async_iterable(rows),
        Flux.just(1).flat_map(bad),
        Flux.just(1).map_async(raising(error)),
        Flux.from_async_iterable(raising(error)),
    ):
        with on_dropped(error=lambda error, where: None):
            future = stream._as_flux().collect_list().to_future()
            assert future.exception(PATIENCE) is error


@pytest.mark.parametrize("error", [SystemExit(3), Stop(), asyncio.CancelledError()], ids=repr)
def test_a_callback_that_raises_on_a_pool_ends_the_subscription(error: BaseException) -> None:
    pooled = Flux.range(5).publish_on(schedulers.shared_pool())
    heard: list[BaseException] = []
    running = pooled.subscribe(raising(error), on_error=heard.append)
    assert running.wait(PATIENCE)
    assert (heard, running.error) == ([error], error)
    dropped: list[BaseException] = []
    with on_dropped(error=lambda error, where: dropped.append(error)):
        assert pooled.subscribe(print, on_complete=raising(error)).wait(PATIENCE)
        failing = pooled.map(raising(OSError()))
        assert failing.subscribe(print, on_error=raising(error)).wait(PATIENCE)
    assert dropped == [error, error]


def test_a_retry_policy_that_raises_ends_the_stream() -> None:
    error = Stop()
    policy = Retry(3, first=0.001, randomness=raising(error))
    failing = Flux.error(OSError()).publish_on(schedulers.shared_pool()).retry_when(policy)
    assert failing.collect_list().to_future().exception(PATIENCE) is error


def test_a_subscriber_that_exits_on_the_thread_of_an_emitter_does_not_harm_the_emitter() -> None:
    sink = Sinks.multicast()
    heard: list[int] = []
    done = threading.Event()

    def emit() -> None:
        sink.try_emit(1)
        sink.try_emit(2)
        done.set()

    with on_dropped(error=lambda error, where: None):
        running = sink.flux().subscribe(raising(SystemExit(1)))
        sink.flux().subscribe(heard.append)
        threading.Thread(target=emit).start()
        assert done.wait(PATIENCE)
    assert heard == [1, 2]
    assert isinstance(running.error, SystemExit)


def test_a_scheduler_without_a_thread_to_give_fails_the_stream() -> None:
    class Exhausted(schedulers.PoolScheduler):
        def submit(self, task: schedulers.Task) -> None:
            raise RuntimeError("can't start new thread")

    full = Exhausted(1)
    for stream in (
        Flux.just(1).publish_on(full),
        Flux.just(1).subscribe_on(full),
        Flux.just(1).concat_with(Flux.just(2).subscribe_on(full)),
    ):
        with pytest.raises(RuntimeError, match="can't start new thread"):
            stream.collect_list().block(PATIENCE)


def test_ctrl_c_between_two_lines_of_a_loop_is_not_lost_in_the_search_for_who_raised_it() -> None:
    ops = Flux.just(1).map(str)._ops
    shape = shape_of(ops, Head.ITERABLE, Tail.PUSH, watched=False)
    loop = run(shape, ops, states_of(ops, shape), None, iter([1]), print, "just")
    # A signal can come at an instruction that belongs to no line.
    trace = TracebackType(None, loop.gi_frame, 0, 0)
    assert culprit(KeyboardInterrupt().with_traceback(trace), shape) == SOURCE


class ForeignPublisher:
    """Not one of ours; it raises in one of the calls that the rules do not let raise."""

    def __init__(self, where: str, error: BaseException) -> None:
        self._where = where
        self._error = error

    def subscribe(self, subscriber: Any) -> None:
        self._raise_in("subscribe")
        self._subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int) -> None:
        self._raise_in("request")
        self._subscriber.on_next(1)

    def cancel(self) -> None:
        self._raise_in("cancel")

    def _raise_in(self, where: str) -> None:
        if where == self._where:
            raise self._error


FOREIGN: dict[str, Callable[[Any, schedulers.Scheduler], Flux[Any]]] = {
    "subscribe_on": lambda foreign, pool: Flux.from_publisher(foreign).subscribe_on(pool),
    "flat_map": lambda foreign, pool: Flux.just(1).publish_on(pool).flat_map(lambda _: foreign),
    "concat_map": lambda foreign, pool: Flux.just(1).publish_on(pool).concat_map(lambda _: foreign),
    "concat": lambda foreign, pool: Flux.empty().publish_on(pool).concat_with(foreign),
    "share": lambda foreign, pool: Flux.from_publisher(foreign).share().subscribe_on(pool),
    "zip": lambda foreign, pool: Flux.zip(foreign, foreign).subscribe_on(pool),
    "timer": lambda foreign, pool: Mono.timer(0.001).flat_map_many(lambda _: Flux.from_publisher(foreign)),
}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("shape", FOREIGN)
@pytest.mark.parametrize(("where", "rule"), [("subscribe", "1.9"), ("request", "3.16")])
def test_a_foreign_publisher_that_raises_on_a_pool_has_broken_a_rule_and_the_stream_ends(
    shape: str, where: str, rule: str, error: BaseException
) -> None:
    with on_dropped(error=lambda error, where: None):
        stream = FOREIGN[shape](ForeignPublisher(where, error), schedulers.shared_pool())
        failure = outcome_elsewhere(stream.collect_list()).exception(PATIENCE)
    assert isinstance(failure, RuleViolation)
    assert failure.rule == rule
    assert failure.__cause__ is error


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("shape", FOREIGN)
def test_a_foreign_publisher_that_raises_when_it_is_cancelled_on_a_pool_holds_nobody_up(
    shape: str, error: BaseException
) -> None:
    with on_dropped(error=lambda error, where: None):
        stream = FOREIGN[shape](ForeignPublisher("cancel", error), schedulers.shared_pool())
        assert outcome_elsewhere(stream.take(1).count()).result(PATIENCE) == 1


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_end_is_put_into_a_queue_whatever_the_error_of_the_stream_is(error: BaseException) -> None:
    failing = (
        Flux.just(1).concat_with(Flux.just(2).map(raising(error))).subscribe_on(schedulers.shared_pool())
    )
    between_threads: queue.Queue[Any] = queue.Queue()
    future = outcome_elsewhere(failing.to_queue(between_threads))
    assert future.exception(PATIENCE) is error
    assert [between_threads.get(timeout=PATIENCE) for _ in range(2)] == [1, None]

    async def main() -> None:
        on_the_loop: asyncio.Queue[Any] = asyncio.Queue()
        heard: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        failing.to_queue(on_the_loop).subscribe(print, on_error=heard.set_result)
        async with asyncio.timeout(PATIENCE):
            assert await heard is error
            assert [await on_the_loop.get() for _ in range(2)] == [1, None]

    asyncio.run(main())
