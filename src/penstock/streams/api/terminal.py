"""Consuming a stream: subscribe, iterate, await, block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload

from penstock.arguments import a_count, a_function, patience
from penstock.spec import Subscriber, check_subscriber, none_subscriber
from penstock.streams.api.boundaries import PREFETCH
from penstock.streams.explain import explain
from penstock.streams.fusion import operator, pull, pull_async
from penstock.streams.home import refuse_trio
from penstock.streams.source import IterableSource
from penstock.streams.stream import Stream, T
from penstock.streams.terminal import (
    Running,
    await_one,
    first_future,
    iterate,
    iterate_async,
    opened,
    wait_for_one,
)

if TYPE_CHECKING:
    from penstock.streams.flux import Flux

__all__ = ["FluxTerminal", "MonoTerminal"]

R = TypeVar("R")
_NOT_GIVEN: Any = object()


class _Terminal(Stream[T]):
    """What Flux and Mono share."""

    __slots__ = ()

    @overload
    def subscribe(self, subscriber: Subscriber[T], /) -> None: ...

    @overload
    def subscribe(
        self,
        on_next: Callable[[T], object] | None = ...,
        *,
        on_error: Callable[[BaseException], object] | None = ...,
        on_complete: Callable[[], object] | None = ...,
        prefetch: int = ...,
    ) -> Running: ...

    def subscribe(
        self,
        on_next: Any = _NOT_GIVEN,
        *,
        on_error: Callable[[BaseException], object] | None = None,
        on_complete: Callable[[], object] | None = None,
        prefetch: int = PREFETCH,
    ) -> Running | None:
        """Start the stream, for a Subscriber or for functions.

        A Subscriber itself decides how much to request, and when. With functions, the stream requests
        ``prefetch`` elements at a time, and returns an object that can cancel it::

            running = flux.subscribe(print, on_error=log.error)
            running.cancel()

        An error without ``on_error`` goes to the hook for dropped errors, which logs it. If ``on_next``
        raises, the stream is cancelled and the error goes to ``on_error``.
        """
        if on_next is None and on_error is None and on_complete is None:
            raise none_subscriber()  # §1.9
        if on_next is not _NOT_GIVEN and on_next is not None and not _is_function(on_next):
            check_subscriber(on_next)
            self._connect(on_next)
            return None
        call = None if on_next is _NOT_GIVEN else on_next
        for function in (call, on_error, on_complete):
            if function is not None:
                a_function(function, "subscribe()")
        running = Running(call, on_error, on_complete, a_count(prefetch, "subscribe()"))
        self._connect(running)
        return running

    def explain(self) -> str:
        """Draw the stream: what runs where, and how much may wait in between.

        >>> print(Flux.range(9).map(str).publish_on(schedulers.shared_pool()).filter(str.isdigit).explain())
        range(9) map(str) | filter(isdigit)
        --- R1: caller -- | - R2: shared-pool -
                       256/192
        """
        return explain(self)

    def transform(self, function: Callable[[Self], R]) -> R:
        """Apply a function of your own to the whole stream: a reusable piece of chain.

        >>> def even(flux):
        ...     return flux.filter(lambda n: n % 2 == 0)
        >>> Flux.range(5).transform(even).collect_list().block()
        [0, 2, 4]

        Emits when what the function returns does.
        Backpressures when what the function returns does.
        Completes when what the function returns does.
        Cancels when what the function returns does.

        Marble::

            a: 1-2-|
            a.transform(lambda stream: stream.take(1))
            >  (1|)
        """
        return cast("R", a_function(function, "transform()")(self))

    def _pulled(self) -> Iterator[Any]:
        source = self._source
        assert isinstance(source, IterableSource)
        return pull(source, self._ops)


def _is_function(thing: Any) -> bool:
    return callable(thing) and not hasattr(thing, "on_subscribe")


class FluxTerminal(_Terminal[T]):
    """Methods that consume a Flux."""

    __slots__ = ()

    def __iter__(self) -> Iterator[T]:
        """Iterate over the elements; leaving the loop cancels the stream.

        The loop itself runs a stream over an iterable, element by element. Any other stream is read ahead by
        up to 256 elements, or by 256 KiB where elements can be large, as those of a socket. To read ahead by
        another number use :meth:`to_iterable`.
        """
        return self.to_iterable()

    def to_iterable(self, prefetch: int | None = None) -> Iterator[T]:
        """The elements as an iterator, reading ahead by ``prefetch`` elements at most."""
        if self._pullable and prefetch is None:
            return self._pulled()
        if prefetch is not None:
            return iterate(self, a_count(prefetch, "to_iterable()"))
        return iterate(self, 1 if isinstance(self._source, IterableSource) else None)

    def __aiter__(self) -> AsyncIterator[T]:
        """Iterate over the elements in a coroutine; leaving the loop cancels the stream."""
        return self.to_async_iterable()

    def to_async_iterable(self, prefetch: int | None = None) -> AsyncIterator[T]:
        """The elements as an asynchronous iterator, reading ahead by ``prefetch`` elements at most."""
        source = self._source
        if self._pullable and prefetch is None and isinstance(source, IterableSource):
            refuse_trio()
            return cast(
                "AsyncIterator[T]",
                pull_async(source, self._ops, _breathe),
            )
        return iterate_async(self, None if prefetch is None else a_count(prefetch, "to_async_iterable()"))

    def stream(self, prefetch: int | None = None) -> AbstractAsyncContextManager[AsyncIterator[T]]:
        """The elements, for the length of a block: ``async with flux.stream() as elements``.

        When the block has been left, by its end, ``break``, ``return``, an error or a cancellation, the
        stream has been cancelled and everything that worked for it has cleaned up: coroutines, asynchronous
        generators, and iterators that other threads were stepping through. A plain ``async for`` promises
        less: Python closes its iterator some time after a ``break``.

        >>> async def first_even():
        ...     async with Flux.range(1, 9).stream() as numbers:
        ...         async for number in numbers:
        ...             if number % 2 == 0:
        ...                 return number
        >>> asyncio.run(first_even())
        2

        The stream reads ahead by ``prefetch`` elements at most, 256 by default.
        """
        return opened(self, None if prefetch is None else a_count(prefetch, "stream()"))

    def block_first(self, timeout: float | timedelta | None = None) -> T | None:
        """Wait for the first element; None if there is none. The stream is cancelled after it."""
        return wait_for_one(self._as_mono(operator("take", 1)), _patience(timeout))

    def block_last(self, timeout: float | timedelta | None = None) -> T | None:
        """Wait for the stream to complete; returns the last element, or None if there was none."""
        return wait_for_one(self._as_mono(operator("last")), _patience(timeout))


class MonoTerminal(_Terminal[T]):
    """Methods that consume a Mono."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, T | None]:
        """Wait for the element in a coroutine; None if there is none."""
        in_place = None if self._ops else self._source.in_place
        return await_one(self).__await__() if in_place is None else in_place().__await__()

    def block(self, timeout: float | timedelta | None = None) -> T | None:
        """Wait for the element on this thread; None if there is none.

        After ``timeout`` seconds it cancels the stream and raises TimeoutError. On a thread that runs an
        event loop it raises RuntimeError instead of blocking the loop; use ``await`` there.
        """
        return wait_for_one(self, _patience(timeout))

    def to_future(self) -> Future[T | None]:
        """The element as a future, for threads; cancelling it cancels the stream."""
        return first_future(self)

    def flux(self) -> Flux[T]:
        """The same stream as a Flux.

        Emits when this Mono does.
        Backpressures when its subscriber does.
        Completes when this Mono does.
        Cancels when its subscriber cancels.

        Marble::

            mono: --(x|)
            mono.flux()
            >     --(x|)
        """
        return self._as_flux()


async def _breathe() -> None:
    await asyncio.sleep(0)


def _patience(timeout: float | timedelta | None) -> float | None:
    return patience(timeout, "block()")
