"""Make one stream of several, side by side: an element of each makes one element."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Never, TypeVar, overload

from penstock.arguments import a_count, a_function
from penstock.streams.api.combination import FluxCombination, streams_of
from penstock.streams.api.flat_map import INNER_PREFETCH
from penstock.streams.fusion import operator
from penstock.streams.operators.side_by_side import ZipSource
from penstock.streams.source import IterableSource
from penstock.streams.stream import Stream, T, flux_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.single import Single
    from penstock.streams.stream import Streamable

__all__ = ["FluxZips", "MonoZips"]

R = TypeVar("R")
E = TypeVar("E")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


class FluxZips(Stream[T]):
    """Operators of a Flux that put it beside others."""

    __slots__ = ()

    @overload
    @staticmethod
    def zip(a: Streamable[A], b: Streamable[B], /, *, prefetch: int = ...) -> Flux[tuple[A, B]]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[A], b: Streamable[B], /, *, combinator: Callable[[A, B], R], prefetch: int = ...
    ) -> Flux[R]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[A], b: Streamable[B], c: Streamable[C], /, *, prefetch: int = ...
    ) -> Flux[tuple[A, B, C]]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[A],
        b: Streamable[B],
        c: Streamable[C],
        /,
        *,
        combinator: Callable[[A, B, C], R],
        prefetch: int = ...,
    ) -> Flux[R]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[A], b: Streamable[B], c: Streamable[C], d: Streamable[D], /, *, prefetch: int = ...
    ) -> Flux[tuple[A, B, C, D]]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[A],
        b: Streamable[B],
        c: Streamable[C],
        d: Streamable[D],
        /,
        *,
        combinator: Callable[[A, B, C, D], R],
        prefetch: int = ...,
    ) -> Flux[R]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[A],
        b: Streamable[B],
        c: Streamable[C],
        d: Streamable[D],
        e: Streamable[E],
        /,
        *,
        prefetch: int = ...,
    ) -> Flux[tuple[A, B, C, D, E]]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[A],
        b: Streamable[B],
        c: Streamable[C],
        d: Streamable[D],
        e: Streamable[E],
        /,
        *,
        combinator: Callable[[A, B, C, D, E], R],
        prefetch: int = ...,
    ) -> Flux[R]: ...
    @overload
    @staticmethod
    def zip(*publishers: Streamable[A], prefetch: int = ...) -> Flux[tuple[A, ...]]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[Any],
        b: Streamable[Any],
        c: Streamable[Any],
        d: Streamable[Any],
        e: Streamable[Any],
        f: Streamable[Any],
        /,
        *more: Streamable[Any],
        combinator: Callable[..., R],
        prefetch: int = ...,
    ) -> Flux[R]: ...
    @staticmethod
    def zip(
        *publishers: Streamable[Any],
        combinator: Callable[..., Any] | None = None,
        prefetch: int = INNER_PREFETCH,
    ) -> Flux[Any]:
        """The first elements of all publishers together, then the second ones, and so on.

        A row is a tuple, or what ``combinator(*row)`` makes of it.

        >>> Flux.zip(Flux.just(1, 2), Flux.just("a", "b", "c")).collect_list().block()
        [(1, 'a'), (2, 'b')]

        Emits when each of them has an element; ``prefetch`` of each may wait here.
        Completes when one of them has completed and nothing of it is left; the others are cancelled.

        Marble::

            a: 1-2-3-|
            b: -x-y---|
            Flux.zip(a, b)
            >  -A-B---|
            where A = (1, "x"), B = (2, "y")
        """
        return _zipped("zip()", publishers, combinator, prefetch)

    @overload
    def zip_with(self, other: Streamable[E]) -> Flux[tuple[T, E]]: ...
    @overload
    def zip_with(self, other: Streamable[E], combinator: Callable[[T, E], R]) -> Flux[R]: ...
    def zip_with(self, other: Any, combinator: Callable[[T, Any], Any] | None = None) -> Flux[Any]:
        """Put each element together with one of another publisher.

        Emits when both have an element.
        Backpressures when its subscriber does.
        Completes when one of them has completed; the other is cancelled.
        Cancels when its subscriber cancels, or any of them fails.

        Marble::

            a: 1-2-3-|
            b: -x-y---|
            a.zip_with(b)
            >  -A-B---|
            where A = (1, "x"), B = (2, "y")
        """
        return _zipped("zip_with()", (self, other), combinator)


class MonoZips(Stream[T]):
    """Operators of a Mono that put it beside others."""

    __slots__ = ()

    @overload
    @staticmethod
    def zip(a: Single[A], b: Single[B], /) -> Single[tuple[A, B]]: ...
    @overload
    @staticmethod
    def zip(a: Single[A], b: Single[B], c: Single[C], /) -> Single[tuple[A, B, C]]: ...
    @overload
    @staticmethod
    def zip(a: Single[A], b: Single[B], c: Single[C], d: Single[D], /) -> Single[tuple[A, B, C, D]]: ...
    @overload
    @staticmethod
    def zip(
        a: Single[A], b: Single[B], c: Single[C], d: Single[D], e: Single[E], /
    ) -> Single[tuple[A, B, C, D, E]]: ...
    @overload
    @staticmethod
    def zip(a: Streamable[A], b: Streamable[B], /) -> Mono[tuple[A, B]]: ...
    @overload
    @staticmethod
    def zip(a: Streamable[A], b: Streamable[B], /, *, combinator: Callable[[A, B], R]) -> Mono[R]: ...
    @overload
    @staticmethod
    def zip(a: Streamable[A], b: Streamable[B], c: Streamable[C], /) -> Mono[tuple[A, B, C]]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[A], b: Streamable[B], c: Streamable[C], /, *, combinator: Callable[[A, B, C], R]
    ) -> Mono[R]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[A], b: Streamable[B], c: Streamable[C], d: Streamable[D], /
    ) -> Mono[tuple[A, B, C, D]]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[A],
        b: Streamable[B],
        c: Streamable[C],
        d: Streamable[D],
        /,
        *,
        combinator: Callable[[A, B, C, D], R],
    ) -> Mono[R]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[A], b: Streamable[B], c: Streamable[C], d: Streamable[D], e: Streamable[E], /
    ) -> Mono[tuple[A, B, C, D, E]]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[A],
        b: Streamable[B],
        c: Streamable[C],
        d: Streamable[D],
        e: Streamable[E],
        /,
        *,
        combinator: Callable[[A, B, C, D, E], R],
    ) -> Mono[R]: ...
    @overload
    @staticmethod
    def zip(*monos: Streamable[A]) -> Mono[tuple[A, ...]]: ...
    @overload
    @staticmethod
    def zip(
        a: Streamable[Any],
        b: Streamable[Any],
        c: Streamable[Any],
        d: Streamable[Any],
        e: Streamable[Any],
        f: Streamable[Any],
        /,
        *more: Streamable[Any],
        combinator: Callable[..., R],
    ) -> Mono[R]: ...
    @staticmethod
    def zip(*monos: Streamable[Any], combinator: Callable[..., Any] | None = None) -> Mono[Any]:
        """The elements of all, together; nothing if one of them is empty.

        >>> Mono.zip(Mono.just(1), Mono.just("a")).block()
        (1, 'a')

        Emits when each of them has its element.
        Completes when the row has been sent, or one of them is empty.

        Marble::

            mono_a: -(1|)
            mono_b: --(x|)
            Mono.zip(mono_a, mono_b)
            >       --(A|)
            where A = (1, "x")
        """
        return _zipped("zip()", monos, combinator, 1)._as_mono(operator("take", 1))

    @staticmethod
    def when(*publishers: Streamable[Any]) -> Mono[Never]:
        """Complete when all publishers have; their elements are forgotten.

        Never emits.
        Completes when the last of them has completed.

        Marble::

            a: 1-2-|
            mono: --(x|)
            Mono.when(a, mono)
            >     ----|
        """
        return FluxCombination.merge(*publishers)._as_mono(operator("ignore", label="when"))

    @overload
    def zip_with(self, other: Streamable[E]) -> Mono[tuple[T, E]]: ...
    @overload
    def zip_with(self, other: Streamable[E], combinator: Callable[[T, E], R]) -> Mono[R]: ...
    def zip_with(self, other: Any, combinator: Callable[[T, Any], Any] | None = None) -> Mono[Any]:
        """Put the element together with that of another Mono.

        Emits when both have theirs.
        Backpressures when its subscriber does.
        Completes when the row has been sent, or one of them is empty.
        Cancels when its subscriber cancels, or one of them fails.

        Marble::

            mono_a: -(1|)
            mono_b: --(x|)
            mono_a.zip_with(mono_b)
            >       --(A|)
            where A = (1, "x")
        """
        return _zipped("zip_with()", (self, other), combinator, 1)._as_mono(operator("take", 1))


def _zipped(
    wanted_by: str,
    publishers: tuple[Any, ...],
    combinator: Callable[..., Any] | None,
    prefetch: int = INNER_PREFETCH,
) -> Flux[Any]:
    if combinator is not None:
        a_function(combinator, wanted_by)
    streams = streams_of(publishers, wanted_by)
    if not streams:
        return flux_of(IterableSource.over("zip", ()))
    return flux_of(ZipSource("zip", streams, combinator, a_count(prefetch, wanted_by)))
