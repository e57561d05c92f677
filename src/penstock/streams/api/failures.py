"""Failing well: errors as elements, further runs, resources that are closed, circuit breakers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.arguments import a_function, describe
from penstock.streams.api.hooks import Signal
from penstock.streams.fusion import operator
from penstock.streams.fusion.fragments import HandleSink
from penstock.streams.operators.circuit import CircuitBreaker
from penstock.streams.operators.recovery import FollowRule, FollowSource
from penstock.streams.operators.repetition import RepeatWhenSource
from penstock.streams.operators.resources import Cleanups, UsingWhenSource
from penstock.streams.operators.sources import DeferSource
from penstock.streams.source import IterableSource, Source
from penstock.streams.stream import Stream, T, as_mono, as_stream, flux_of, mono_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.stream import Streamable

__all__ = ["FluxFailures", "MonoFailures"]

R = TypeVar("R")
S = TypeVar("S")
E = TypeVar("E")


class FluxFailures(Stream[T]):
    """Operators of a Flux for the case that something fails."""

    __slots__ = ()

    def materialize(self) -> Flux[Signal[T]]:
        """Make an element of each signal: of the elements, and of the completion or the error as well.

        >>> numbers = Flux.just(1, 0).map(lambda n: 1 // n).materialize()
        >>> [signal.kind for signal in numbers]
        ['next', 'error']

        Emits when the source does, and once more at its end.
        Backpressures when its subscriber does.
        Completes when the signal of the end has been sent; it never fails.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-#
            a.materialize().map(lambda signal: signal.kind)
            >  N-(E|)
            where N = "next", E = "error"
        """
        return flux_of(_materialized(self, lambda: _EndRule(only_if_empty=False)))

    def dematerialize(self: Stream[Signal[R]]) -> Flux[R]:
        """Make signals of elements again: the opposite of :meth:`materialize`.

        The end is an element here, so it takes demand to learn of it.

        >>> Flux.just(1, 2).materialize().dematerialize().collect_list().block()
        [1, 2]

        Emits when a signal with an element arrives.
        Backpressures when its subscriber does.
        Completes when a signal of completion arrives, or the source completes.
        Cancels when its subscriber cancels, or a signal of an end arrives.

        Marble::

            a: 1-2-#
            a.materialize().dematerialize()
            >  1-2-#
        """
        return self._with(operator("handle", _as_signal, label="dematerialize", shows=()))

    def repeat_when(self, companion: Callable[[Flux[int]], Streamable[Any]]) -> Flux[T]:
        """After its end subscribe to the source again when another stream, the companion, says so.

        ``companion(ends)`` is called once for each subscriber. ``ends`` has a number for each end of the
        source, the number of elements in that run; each element of the companion starts another run. When
        the companion has completed, the next end of the source is the last.

        >>> poll = Flux.just("a")
        >>> poll.repeat_when(lambda ends: ends.delay_elements(0.001).take(2)).collect_list().block()
        ['a', 'a', 'a']

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when a run has ended and the companion has completed.
        Cancels when its subscriber cancels, also between two runs; an error of either is final.

        Marble::

            a: 12|
            a.repeat_when(lambda ends: ends.delay_elements(0.03).take(1))
            >  12---12|
        """
        return flux_of(_repeating(self, companion))

    def circuit_breaker(self, breaker: CircuitBreaker) -> Flux[T]:
        """Fail with CircuitOpen, without asking the source, while ``breaker`` is open.

        Give the same :class:`CircuitBreaker` to all streams that depend on the same service. It opens after
        so many failures in a row, and lets a single stream through as a trial when its pause is over. In a
        trial the first element counts as success.

        >>> breaker = CircuitBreaker(failures=1, pause=30)
        >>> broken = Flux.error(ConnectionError("refused")).circuit_breaker(breaker)
        >>> [signal.error for signal in broken.retry(1).materialize()]   # doctest: +ELLIPSIS
        [CircuitOpen('the circuit breaker is open for another 30 s, after 1 failures in a row; ...

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-#
            a.circuit_breaker(CircuitBreaker(1)).retry(1)
            >  1-#
        """
        return flux_of(_guarded(self, breaker, as_stream))

    @staticmethod
    def using_when(
        resource: Streamable[S] | Callable[[], Streamable[S]],
        stream: Callable[[S], Streamable[E]],
        cleanup: Callable[[S], Streamable[Any] | None],
        *,
        on_error: Callable[[S, BaseException], Streamable[Any] | None] | None = None,
        on_cancel: Callable[[S], Streamable[Any] | None] | None = None,
    ) -> Flux[E]:
        """A stream over a resource that is opened and closed asynchronously: a connection, a transaction.

        ``resource`` is a publisher, or a function that returns a publisher or an awaitable; its first element
        is the resource. The stream's last signal waits for ``cleanup(resource)``. After an error
        ``on_error(resource, error)`` is used if it is given, and after a cancel ``on_cancel(resource)``, for
        instance to roll back. Nobody waits for the cleanup after a cancel.

        >>> done = []
        >>> async def connect():
        ...     return "connection"
        >>> async def close(connection):
        ...     done.append(f"closed {connection}")
        >>> Flux.using_when(connect, lambda connection: Flux.range(3), close).collect_list().block()
        [0, 1, 2]
        >>> done
        ['closed connection']

        If both the stream and its cleanup fail, the error is an ExceptionGroup.

        Emits when the stream does.
        Completes when the cleanup has completed, or there is no resource.

        Marble::

            mono: --(r|)
            a:      1-2|
            Flux.using_when(mono, lambda resource: a, lambda resource: Mono.empty())
            >  --1-2|
        """
        return flux_of(_using_when(resource, stream, cleanup, on_error, on_cancel, as_stream))


class MonoFailures(Stream[T]):
    """Operators of a Mono for the case that something fails."""

    __slots__ = ()

    def materialize(self) -> Mono[Signal[T]]:
        """The one signal that says what became of this Mono: its element, its empty end or its error.

        >>> Mono.error(ValueError("x")).materialize().block().error
        ValueError('x')

        Emits when the element comes, or the Mono ends without one.
        Backpressures when its subscriber does.
        Completes when the signal has been sent; it never fails.
        Cancels when its subscriber cancels.

        Marble::

            mono: --(x|)
            mono.materialize().map(lambda signal: signal.kind)
            >     --(N|)
            where N = "next"
        """
        return mono_of(_materialized(self, lambda: _EndRule(only_if_empty=True)))

    def dematerialize(self: Stream[Signal[R]]) -> Mono[R]:
        """Make a signal of the element again: the opposite of :meth:`materialize`.

        >>> Mono.just(1).materialize().dematerialize().block()
        1

        Emits when the signal has an element.
        Backpressures when its subscriber does.
        Completes when the element has been sent, or the signal is that of completion.
        Cancels when its subscriber cancels, or the signal is that of an end.

        Marble::

            mono: --(x|)
            mono.materialize().dematerialize()
            >     --(x|)
        """
        return self._with(operator("handle", _as_signal, label="dematerialize", shows=()))

    def repeat_when(self, companion: Callable[[Flux[int]], Streamable[Any]]) -> Flux[T]:
        """After its end subscribe to the Mono again when another stream, the companion, says so.

        ``companion(ends)`` is called once for each subscriber. ``ends`` has a 1 for each run with an element
        and a 0 for each empty one; each element of the companion starts another run.

        >>> Mono.just("a").repeat_when(lambda ends: ends.take(2)).collect_list().block()
        ['a', 'a', 'a']

        Emits when the Mono does.
        Backpressures when its subscriber does.
        Completes when a run has ended and the companion has completed.
        Cancels when its subscriber cancels, also between two runs; an error of either is final.

        Marble::

            mono: -(x|)
            mono.repeat_when(lambda ends: ends.take(2))
            >     -xx(x|)
        """
        return flux_of(_repeating(self, companion))

    def circuit_breaker(self, breaker: CircuitBreaker) -> Mono[T]:
        """Fail with CircuitOpen, without asking the source, while ``breaker`` is open.

        Give the same :class:`CircuitBreaker` to all streams that depend on the same service.

        >>> Mono.just("fine").circuit_breaker(CircuitBreaker()).block()
        'fine'

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            mono: --#
            mono.circuit_breaker(CircuitBreaker(1)).retry(3)
            >     --#
        """
        return mono_of(_guarded(self, breaker, as_mono))

    @staticmethod
    def using_when(
        resource: Streamable[S] | Callable[[], Streamable[S]],
        stream: Callable[[S], Streamable[E]],
        cleanup: Callable[[S], Streamable[Any] | None],
        *,
        on_error: Callable[[S, BaseException], Streamable[Any] | None] | None = None,
        on_cancel: Callable[[S], Streamable[Any] | None] | None = None,
    ) -> Mono[E]:
        """A Mono over a resource that is opened and closed asynchronously: a connection, a transaction.

        The arguments are those of ``Flux.using_when``.

        >>> Mono.using_when(Mono.just(20), lambda n: Mono.just(n + 1), lambda n: None).block()
        21

        Emits when the inner Mono does.
        Completes when the cleanup has completed, or there is no resource.

        Marble::

            mono: --(r|)
            Mono.using_when(mono, lambda resource: Mono.just(1), lambda resource: Mono.empty())
            >     --(1|)
        """
        return mono_of(_using_when(resource, stream, cleanup, on_error, on_cancel, as_mono))


class _EndRule(FollowRule):
    """After the end of a stream, the signal of its end."""

    __slots__ = ("_only_if_empty", "_said")

    def __init__(self, only_if_empty: bool) -> None:
        self._said = False
        self._only_if_empty = only_if_empty

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        if self._said or (self._only_if_empty and self.elements):
            return None
        self._said = True
        end: Signal[Any] = Signal("complete") if error is None else Signal("error", error=error)
        return flux_of(IterableSource.over("end", (end,)))


def _materialized(stream: Stream[Any], rule: Callable[[], FollowRule]) -> Source:
    signals = stream._with(
        operator("map", lambda element: Signal("next", element), label="signals", shows=())
    )
    return FollowSource("materialize", signals, rule)


def _as_signal(signal: Any, sink: HandleSink[Any]) -> None:
    if not isinstance(signal, Signal):
        raise TypeError(f"dematerialize() needs the signals that materialize() makes, not {describe(signal)}")
    if signal.error is not None:
        raise signal.error
    if signal.kind == "next":
        sink.next(signal.element)
    else:
        sink.complete()


def _repeating(stream: Stream[Any], companion: Callable[[Any], Any]) -> Source:
    a_function(companion, "repeat_when()", may_await=True)

    def of_ends(ends: Any) -> Stream[Any]:
        return as_stream(companion(ends), "the function of repeat_when()")

    return RepeatWhenSource(stream, of_ends, companion)


def _guarded(
    stream: Stream[Any], breaker: CircuitBreaker, convert: Callable[[Any, str], Stream[Any]]
) -> Source:
    if not isinstance(breaker, CircuitBreaker):
        raise TypeError(
            f"circuit_breaker() needs a CircuitBreaker(failures=5, pause=30), not {describe(breaker)}"
        )
    return DeferSource("circuit_breaker", lambda: stream._with(breaker._admit()), convert)


def _using_when(
    resource: Any,
    stream: Callable[[Any], Any],
    cleanup: Callable[..., Any],
    on_error: Callable[..., Any] | None,
    on_cancel: Callable[..., Any] | None,
    convert: Callable[[Any, str], Stream[Any]],
) -> Source:
    for function in (stream, cleanup, on_error or cleanup, on_cancel or cleanup):
        a_function(function, "using_when()", may_await=True)
    after_cancel = on_cancel or cleanup

    def after_error(held: Any, error: BaseException) -> Stream[Any]:
        return _cleaning(cleanup(held) if on_error is None else on_error(held, error))

    is_function = callable(resource) and not hasattr(resource, "subscribe")
    return UsingWhenSource(
        lambda: as_mono(resource() if is_function else resource, "using_when()"),
        lambda held: convert(stream(held), "the function of using_when()"),
        Cleanups(
            lambda held: _cleaning(cleanup(held)), after_error, lambda held: _cleaning(after_cancel(held))
        ),
        resource,
        stream,
    )


def _cleaning(result: Any) -> Stream[Any]:
    """What a cleanup returned, as a stream; a plain function has cleaned up when it returns None."""
    if result is None:
        return flux_of(IterableSource.over("empty", ()))
    return as_stream(result, "the cleanup of using_when()")
