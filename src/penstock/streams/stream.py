"""What ``Flux`` and ``Mono`` have in common, and how a publisher or an iterable becomes a stream."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Iterable
from concurrent.futures import Future
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from penstock.spec import Publisher, RuleViolation, Subscriber, check_publisher, check_subscriber, strict
from penstock.streams.errors import drop_error
from penstock.streams.fusion import Op, announce_large, operator
from penstock.streams.operators.async_sources import AsyncIterableSource, FutureSource
from penstock.streams.operators.sources import FailedSource
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.source import IterableSource, PublisherSource, Source, too_deep

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.single import Single

__all__ = ["Stream", "Streamable", "T", "as_mono", "as_same_kind", "as_stream", "flux_of", "mono_of"]

T = TypeVar("T", covariant=True)
"""The type of a stream's elements. A stream only sends them, so a Flux[bool] is a Flux[int]."""
E = TypeVar("E")

Streamable = Publisher[E] | AsyncIterable[E] | Iterable[E] | Awaitable[E | None] | Future[E]
"""Whatever :func:`as_stream` makes a stream of; an awaitable that gives None is an empty one."""


_new = object.__new__


class Stream(Generic[T]):
    """An immutable description of a stream, a Flux or a Mono. Nothing happens before somebody subscribes."""

    __slots__ = ("_ops", "_source")
    _source: Source
    _ops: tuple[Op, ...]

    def __init__(self, *arguments: object) -> None:
        """Raise TypeError: a stream has a source, and each kind of source has a class method."""
        kind = type(self).__name__
        raise TypeError(
            f"{kind}(…) does not make a stream: call the method for its source, for instance "
            f"{kind}.just(element), or Flux.from_iterable(elements) for a collection"
        )

    @classmethod
    def _of(cls, source: Source, ops: tuple[Op, ...] = ()) -> Self:
        stream = cls.__new__(cls)
        stream._source = source
        stream._ops = ops
        return stream

    def _with(self, op: Op) -> Any:
        """The same kind of stream with one more operator; typed by the fluent method that calls it."""
        stream = _new(type(self))  # what _of() does, without the call
        stream._source = self._source
        stream._ops = (*self._ops, op)
        return stream

    def _as_mono(self, op: Op) -> Single[Any]:
        """A Mono of this stream's operators and one more, which lets at most one element through."""
        return mono_of(self._source, *self._ops, op)

    def _as_flux(self, *more: Op) -> Flux[Any]:
        """A Flux of the same source and operators, and perhaps more."""
        return flux_of(self._source, *self._ops, *more)

    def _connect(self, downstream: Subscriber[Any]) -> None:
        """Subscribe without checks: for our own operators."""
        error = too_deep(self._source, getattr(downstream, "below", 0))
        if error is not None:
            FailedSource(error, self._source.label).attach(self._ops, downstream)
            return
        if self._source.ahead is not None:
            announce_large(downstream, self._source.ahead)
        step = self._source.attach(self._ops, downstream)
        while step is not None:
            stream, subscriber = step
            if stream._source.ahead is not None:
                announce_large(subscriber, stream._source.ahead)
            step = stream._source.attach(stream._ops, subscriber)

    def _subscribe(self, subscriber: Subscriber[Any]) -> None:
        check_subscriber(subscriber)  # §1.9
        self._connect(subscriber)

    @property
    def _pullable(self) -> bool:
        """Whether a plain loop can run this stream: over an iterable, without operators that watch."""
        return isinstance(self._source, IterableSource) and all(op.watch is None for op in self._ops)

    def __repr__(self) -> str:
        chain = " ".join([self._source.label, *(op.label for op in self._ops)])
        return f"<{type(self).__name__} {chain}>"


# Flux imports all modules of api/, so these cannot import Flux at their top: they make one here.


@cache
def _flux() -> type[Flux[Any]]:
    from penstock.streams.flux import Flux

    return Flux


@cache
def _mono() -> type[Mono[Any]]:
    from penstock.streams.mono import Mono

    return Mono


@cache
def _single() -> type[Single[Any]]:
    from penstock.streams.single import Single

    return Single


def flux_of(source: Source, *ops: Op) -> Flux[Any]:
    """A Flux of this source; typed by the fluent method that calls it."""
    return _flux()._of(source, ops)


def mono_of(source: Source, *ops: Op) -> Single[Any]:
    """A Mono of this source, which sends one element at most; typed by the fluent method that calls it."""
    return _single()._of(source, ops)


def as_stream(thing: Any, wanted_by: str) -> Stream[Any]:
    """``thing`` as a stream. The strict guard watches a foreign publisher.

    A text or a mapping is refused, although both are iterable: ``flat_map(lambda word: word)`` would
    send the letters of each word.
    """
    if isinstance(thing, Stream):
        return thing
    if callable(getattr(thing, "subscribe", None)):
        check_publisher(thing)
        # An exit on a pool would leave the stage that asks in the middle of its work. It was told already.
        guarded = strict(thing, report=_report, propagates=asks_main_thread_to_stop)
        return flux_of(PublisherSource(guarded))
    if isinstance(thing, AsyncIterable):
        return flux_of(AsyncIterableSource.over("from_async_iterable", thing, thing))
    if inspect.isawaitable(thing) or isinstance(thing, Future):
        return flux_of(FutureSource("from_future", lambda: thing, thing))
    if isinstance(thing, Iterable) and not isinstance(thing, str | bytes | bytearray | dict):
        return flux_of(IterableSource.over("from_iterable", thing, thing))
    # A function that makes plain values is one for `map`; anything else needs a stream of the value.
    plain = "map()" if "_map" in wanted_by else "just()"
    raise TypeError(
        f"{wanted_by} needs a publisher (a Flux, a Mono, anything with subscribe), an iterable or an "
        f"awaitable, not {thing!r}; for one plain value use {plain}"
    )


def _report(violation: RuleViolation) -> None:
    drop_error(violation, "the strict guard round a foreign publisher")


def as_mono(thing: Any, wanted_by: str) -> Mono[Any]:
    """``thing`` as a stream of at most one element, the first."""
    stream = as_stream(thing, wanted_by)
    return stream if isinstance(stream, _mono()) else stream._as_mono(operator("take", 1))


def as_same_kind(model: Stream[Any], thing: Any, wanted_by: str) -> Stream[Any]:
    """``thing`` as a stream of the same kind as ``model``, a Flux or a Mono."""
    return (as_mono if isinstance(model, _mono()) else as_stream)(thing, wanted_by)
