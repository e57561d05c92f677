"""Where elements come from."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Never, TypeVar, overload

from penstock.arguments import (
    a_count,
    a_function,
    a_value,
    a_whole_number,
    describe,
    is_asynchronous,
    seconds,
)
from penstock.streams.fusion import Watch, operator
from penstock.streams.operators.async_sources import AsyncIterableSource, FutureSource
from penstock.streams.operators.overflow import Overflow, a_policy
from penstock.streams.operators.sources import (
    CreateSource,
    DeferSource,
    Emitter,
    FailedSource,
    GenerateSink,
    Once,
    SilentSource,
    generating,
)
from penstock.streams.operators.timing import IntervalSource, TimerSource
from penstock.streams.schedulers import Scheduler, shared_timer
from penstock.streams.source import IterableSource, Source
from penstock.streams.stream import Stream, T, as_mono, as_stream, flux_of, mono_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.single import Single
    from penstock.streams.stream import Streamable

__all__ = ["FluxCreation", "MonoCreation"]

E = TypeVar("E")
S = TypeVar("S")


class FluxCreation(Stream[T]):
    """Sources of a Flux."""

    __slots__ = ()

    @staticmethod
    def just(*elements: E) -> Flux[E]:
        """The given elements.

        >>> Flux.just("a", "b").collect_list().block()
        ['a', 'b']

        Emits when there is demand.
        Completes when the last one has been sent.

        Marble::

            Flux.just(1, 2)
            >  (12|)
        """
        for element in elements:
            a_value(element, "just()")
        return flux_of(IterableSource.over("just", elements, *elements))

    @staticmethod
    def empty() -> Flux[Never]:
        """No element at all.

        Never emits.
        Completes when subscribed to, without waiting for demand.

        Marble::

            Flux.empty()
            >  |
        """
        return flux_of(IterableSource.over("empty", ()))

    @staticmethod
    def never() -> Flux[Never]:
        """No element and no end: for tests, and for connections that must stay open.

        Never emits.
        Never completes.

        Marble::

            Flux.never()
            >  --------
        """
        return flux_of(SilentSource("never"))

    @staticmethod
    def error(error: BaseException | Callable[[], BaseException]) -> Flux[Never]:
        """Nothing but an error; a function makes a new one for each subscriber.

        Never emits; the error comes without waiting for demand.
        Never completes.

        Marble::

            Flux.error(ValueError("no"))
            >  #
        """
        return flux_of(FailedSource(_an_error(error)))

    @staticmethod
    def defer(factory: Callable[[], Streamable[E]]) -> Flux[E]:
        """The stream that ``factory`` returns; it is called anew for each subscriber.

        Emits when that stream does.
        Completes when that stream does.

        Marble::

            a: 1-2-|
            Flux.defer(lambda: a)
            >  1-2-|
        """
        return flux_of(
            DeferSource("defer", a_function(factory, "defer()", may_await=True), as_stream, factory)
        )

    @staticmethod
    def from_publisher(publisher: Streamable[E]) -> Flux[E]:
        """The elements of any Reactive Streams publisher.

        A foreign publisher is watched by the strict guard: if it breaks a rule, the stream fails with a
        RuleViolation that names it, instead of misbehaving somewhere below.

        Emits when the publisher does.
        Completes when the publisher does.

        Marble::

            a: 1-2-|
            Flux.from_publisher(a)
            >  1-2-|
        """
        return as_stream(publisher, "from_publisher")._as_flux()

    @staticmethod
    def from_iterable(iterable: Iterable[E]) -> Flux[E]:
        """The elements of an iterable: a list, a generator, a file.

        It is read only as far as there is demand, and closed when the subscriber leaves. A list can be
        subscribed to many times; an iterator or a generator once.

        >>> Flux.from_iterable([1, 2, 3]).collect_list().block()
        [1, 2, 3]

        Emits when there is demand.
        Completes when the iterable is at its end.

        Marble::

            Flux.from_iterable([1, 2])
            >  (12|)
        """
        if not isinstance(iterable, Iterable):
            raise TypeError(f"from_iterable() needs something to iterate over, not {describe(iterable)}")
        return flux_of(IterableSource.over("from_iterable", iterable, iterable))

    @staticmethod
    def from_async_iterable(iterable: AsyncIterable[E] | Callable[[], AsyncIterable[E]]) -> Flux[E]:
        """The elements of an asynchronous iterable, or of the one that a function returns.

        A task steps through it, one step for each element of demand. The task runs on the subscriber's event
        loop or, if there is none, on a loop that the package keeps in a background thread.

        Emits when the iterable has an element and there is demand.
        Completes when the iterable is at its end.

        Marble::

            a: 1-2-|
            Flux.from_async_iterable(lambda: a.to_async_iterable())
            >  1-2-|
        """
        if not isinstance(iterable, AsyncIterable) and not callable(iterable):
            raise TypeError(f"from_async_iterable() needs an asynchronous iterable, not {describe(iterable)}")
        if isinstance(iterable, AsyncIterable):
            return flux_of(AsyncIterableSource.over("from_async_iterable", iterable, iterable))
        return flux_of(AsyncIterableSource("from_async_iterable", iterable, iterable))

    @staticmethod
    def range(start: int, count: int | None = None) -> Flux[int]:
        """``count`` whole numbers from ``start`` on; with one argument, that many from 0 on.

        >>> Flux.range(5, 3).collect_list().block()
        [5, 6, 7]

        Emits when there is demand.
        Completes when the last number has been sent.

        Marble::

            Flux.range(5, 3)
            >  (567|)
        """
        if count is None:
            count = a_count(start, "range()", least=0)
            return flux_of(IterableSource.over("range", range(count), count))
        start, count = a_whole_number(start, "range()"), a_count(count, "range()", least=0)
        return flux_of(IterableSource.over("range", range(start, start + count), start, count))

    @staticmethod
    def generate(state: Callable[[], S], step: Callable[[S, GenerateSink[E]], S]) -> Flux[E]:
        """Elements computed one after the other from a state.

        ``step`` gets the state and a sink, calls ``sink.next(element)`` once (or ``sink.complete()``), and
        returns the state for the next step. It runs only when an element is asked for.

        >>> def fibonacci(pair, sink):
        ...     sink.next(pair[0])
        ...     return pair[1], pair[0] + pair[1]
        >>> Flux.generate(lambda: (0, 1), fibonacci).take(7).collect_list().block()
        [0, 1, 1, 2, 3, 5, 8]

        Emits when there is demand.
        Completes when ``step`` says so.

        Marble::

            Flux.generate(lambda: 1, lambda n, sink: (sink.next(n), n * 2)[1]).take(3)
            >  (124|)
        """
        a_function(state, "generate()")
        a_function(step, "generate()")
        return flux_of(IterableSource("generate", lambda: generating(state, step), step))

    @staticmethod
    def create(
        emitter: Callable[[Emitter[E]], object],
        *,
        overflow: Overflow = Overflow.ERROR,
        capacity: int = 256,
    ) -> Flux[E]:
        """Elements that callbacks deliver, from any thread.

        ``emitter`` is called for each subscriber with an Emitter, and connects it to the callbacks. Callbacks
        cannot be slowed down: up to ``capacity`` elements wait for demand, then ``overflow`` says what to
        drop. For a source that *can* wait, use a sink and ``await sink.emit(x)``.

        Emits when a callback has delivered an element and there is demand.
        Completes when the emitter says so.

        Marble::

            Flux.create(lambda emitter: (emitter.next(1), emitter.next(2), emitter.complete()))
            >  (12|)
        """
        a_function(emitter, "create()")
        policy = a_policy(overflow, "create()")
        return flux_of(CreateSource(emitter, policy, a_count(capacity, "create()")))

    @staticmethod
    def using(
        resource: Callable[[], S],
        stream: Callable[[S], Streamable[E]],
        cleanup: Callable[[S], object],
    ) -> Flux[E]:
        """A stream over a resource that is opened for each subscriber and cleaned up however the stream ends.

        >>> file = io.StringIO("a\\nb\\n")
        >>> Flux.using(lambda: file, Flux.from_iterable, lambda file: file.close()).count().block()
        2
        >>> file.closed
        True

        Emits when the stream does.
        Completes when the stream does; ``cleanup`` runs before the last signal, or at the cancel.

        Marble::

            a: 1-2-|
            Flux.using(lambda: 10, lambda opened: a.map(lambda x: x + opened), lambda opened: None)
            >  A-B-|
            where A = 11, B = 12
        """
        return flux_of(_using(resource, stream, cleanup, as_stream))

    @staticmethod
    def interval(
        period: float | timedelta,
        delay: float | timedelta | None = None,
        scheduler: Scheduler | None = None,
    ) -> Flux[int]:
        """0, 1, 2, … every ``period`` seconds, the first after ``delay`` (by default also a period).

        A clock cannot be slowed down: a tick without demand ends the stream with BufferOverflow. To skip such
        ticks use ``on_backpressure_drop()`` or ``on_backpressure_latest()``.

        Emits when the time has come.
        Never completes.

        Marble::

            Flux.interval(0.02)
            >  --0-1-2-3
        """
        every = seconds(period, "interval()")
        first = every if delay is None else seconds(delay, "interval()")
        return flux_of(IntervalSource(every, first, scheduler or shared_timer()))


class MonoCreation(Stream[T]):
    """Sources of a Mono."""

    __slots__ = ()

    @staticmethod
    def just(element: E) -> Single[E]:
        """The given element.

        >>> Mono.just("a").block()
        'a'

        Emits when there is demand.
        Completes when it has been sent.

        Marble::

            Mono.just(1)
            >  (1|)
        """
        return mono_of(IterableSource.over("just", (a_value(element, "just()"),), element))

    @staticmethod
    def just_or_empty(element: E | None) -> Mono[E]:
        """The given element, or nothing if it is None.

        Emits when there is demand.
        Completes when it has been sent.

        Marble::

            Mono.just_or_empty(1)
            >  (1|)

            Mono.just_or_empty(None)
            >  |
        """
        elements = () if element is None else (element,)
        return mono_of(IterableSource.over("just_or_empty", elements, *elements))

    @staticmethod
    def empty() -> Mono[Never]:
        """No element: just the end.

        Never emits.
        Completes when subscribed to, without waiting for demand.

        Marble::

            Mono.empty()
            >  |
        """
        return mono_of(IterableSource.over("empty", ()))

    @staticmethod
    def never() -> Mono[Never]:
        """No element and no end.

        Never emits.
        Never completes.

        Marble::

            Mono.never()
            >  --------
        """
        return mono_of(SilentSource("never"))

    @staticmethod
    def error(error: BaseException | Callable[[], BaseException]) -> Mono[Never]:
        """Nothing but an error; a function makes a new one for each subscriber.

        Never emits; the error comes without waiting for demand.
        Never completes.

        Marble::

            Mono.error(ValueError("no"))
            >  #
        """
        return mono_of(FailedSource(_an_error(error)))

    @staticmethod
    def defer(factory: Callable[[], Streamable[E]]) -> Mono[E]:
        """The Mono that ``factory`` returns; it is called anew for each subscriber.

        Emits when that Mono does.
        Completes when that Mono does.

        Marble::

            mono: --(x|)
            Mono.defer(lambda: mono)
            >     --(x|)
        """
        return mono_of(DeferSource("defer", a_function(factory, "defer()", may_await=True), as_mono, factory))

    @staticmethod
    def from_publisher(publisher: Streamable[E]) -> Mono[E]:
        """The first element of any publisher; the publisher is cancelled after it.

        Emits when the publisher has an element.
        Completes when it has been sent, or the publisher is empty.

        Marble::

            a: -1-2-|
            Mono.from_publisher(a)
            >  -(1|)
        """
        return as_mono(publisher, "from_publisher")

    @overload
    @staticmethod
    def from_callable(function: Callable[[], Awaitable[E | None]]) -> Mono[E]: ...
    @overload
    @staticmethod
    def from_callable(function: Callable[[], E | None]) -> Mono[E]: ...
    @staticmethod
    def from_callable(function: Callable[[], Any]) -> Mono[Any]:
        """The result of a function, called for each subscriber; nothing if it is None.

        A coroutine function runs on the subscriber's event loop or, if there is none, on a loop that the
        package keeps in a background thread.

        >>> Mono.from_callable(lambda: 6 * 7).block()
        42

        Emits when the function has returned.
        Completes when the result has been sent.

        Marble::

            Mono.from_callable(lambda: 2 * 3)
            >  (6|)
        """
        a_function(function, "from_callable()", may_await=True)
        if inspect.isasyncgenfunction(function):
            raise TypeError(
                f"from_callable() sends one result, and {describe(function)} is an async generator; "
                "use Flux.from_async_iterable()"
            )
        if is_asynchronous(function):
            return mono_of(FutureSource("from_callable", function, function))
        source = IterableSource("from_callable", lambda: once, function)
        once = Once(function)
        source.sized = once
        return mono_of(source)

    @staticmethod
    def from_future(future: Future[E] | Awaitable[E | None]) -> Mono[E]:
        """The result of a future (of threads or of asyncio) or of any awaitable; nothing if it is None.

        Cancelling the subscription cancels the future.

        Emits when the future has its result and there is demand.
        Completes when the result has been sent.

        Marble::

            Mono.from_future(asyncio.sleep(0.03, "x"))
            >  ---(x|)
        """
        if not inspect.isawaitable(future) and not isinstance(future, Future):
            raise TypeError(f"from_future() needs a future or an awaitable, not {describe(future)}")
        return mono_of(FutureSource("from_future", lambda: future, future))

    @staticmethod
    def using(
        resource: Callable[[], S],
        stream: Callable[[S], Streamable[E]],
        cleanup: Callable[[S], object],
    ) -> Mono[E]:
        """A Mono over a resource that is opened for each subscriber and cleaned up however the Mono ends.

        Emits when the inner Mono does.
        Completes when the inner Mono does; ``cleanup`` runs before the last signal, or at the cancel.

        Marble::

            mono: --(1|)
            Mono.using(lambda: 2, lambda opened: mono.map(lambda x: x + opened), lambda opened: None)
            >     --(3|)
        """
        return mono_of(_using(resource, stream, cleanup, as_mono))

    @staticmethod
    def timer(delay: float | timedelta, scheduler: Scheduler | None = None) -> Single[int]:
        """The number 0, after ``delay`` seconds.

        Emits when the time has come and there is demand.
        Completes when the number has been sent.

        Marble::

            Mono.timer(0.03)
            >  ---(0|)
        """
        return mono_of(TimerSource(seconds(delay, "timer()"), scheduler or shared_timer()))


def _using(
    resource: Callable[[], S],
    stream: Callable[[S], Any],
    cleanup: Callable[[S], object],
    convert: Callable[[Any, str], Stream[Any]],
) -> Source:
    a_function(resource, "using()")
    a_function(stream, "using()", may_await=True)
    a_function(cleanup, "using()")

    def opened() -> Stream[Any]:
        held = [resource()]

        def clean_up() -> None:
            if held:
                cleanup(held.pop())

        try:
            inner = convert(stream(held[0]), "using")
        except BaseException:
            clean_up()
            raise
        # At the end, so that an error of the cleanup is the stream's; otherwise as soon as it is closed.
        watch = Watch(completed=clean_up, released=clean_up)
        return inner._of(inner._source, (*inner._ops, operator("watch", label="using", watch=watch)))

    return DeferSource("using", opened, as_stream, stream)


def _an_error(error: Any) -> BaseException | Callable[[], BaseException]:
    if isinstance(error, BaseException):
        return error
    if callable(error):
        return a_function(error, "error()")
    raise TypeError(f"error() needs an exception, or a function that makes one, not {describe(error)}")
