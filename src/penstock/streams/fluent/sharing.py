"""Let several subscribers share one run of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spec import UNBOUNDED
from penstock.streams.arguments import a_count
from penstock.streams.fluent.pressure import PREFETCH
from penstock.streams.stages.sharing import CacheSource
from penstock.streams.stream import Stream, T, flux_of, mono_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono

__all__ = ["FluxSharing", "MonoSharing"]


class FluxSharing(Stream[T]):
    """Operators of a Flux about having several subscribers."""

    __slots__ = ()

    def cache(self, history: int | None = None) -> Flux[T]:
        """Run the source once and keep its last ``history`` elements for later subscribers; by default all.

        The first subscriber starts the source, which then runs as fast as the quickest subscriber asks, and
        with a bounded history never more than ``history`` elements ahead of the slowest. It is not cancelled
        when all have left: what it was asked for by then is kept, at most 256 elements, and it waits for the
        next one to ask.

        >>> calls = []
        >>> numbers = Flux.range(2).do_on_next(calls.append).cache()
        >>> numbers.collect_list().block(), numbers.collect_list().block(), calls
        ([0, 1], [0, 1], [0, 1])

        Emits when the source has emitted, or had before.
        Backpressures when its subscriber does; the source, when no subscriber asks for more.
        Completes when the source has completed and all of it has been sent.
        Cancels when never: the source belongs to all.
        """
        kept = UNBOUNDED if history is None else a_count(history, "cache")
        return flux_of(CacheSource("cache", self, kept, kept, lasting=True, ahead=PREFETCH))

    def share(self, *, prefetch: int = PREFETCH) -> Flux[T]:
        """Run the source once for all who are subscribed at the same time.

        Each subscriber starts with the oldest element that is still there, that is, that the slowest one has
        not taken yet. The source is cancelled when the last subscriber leaves, and started anew by the next.

        Emits when the source has emitted.
        Backpressures when its subscriber does; the source, when the slowest is ``prefetch`` elements behind.
        Completes when the source has completed and all of it has been sent.
        Cancels when the last subscriber cancels.
        """
        capacity = a_count(prefetch, "share")
        return flux_of(CacheSource("share", self, capacity, 0, lasting=False))


class MonoSharing(Stream[T]):
    """Operators of a Mono about having several subscribers."""

    __slots__ = ()

    def cache(self) -> Mono[T]:
        """Run the source once and give its element, or its error, to every subscriber.

        Emits when the source has emitted, or had before.
        Backpressures when its subscriber does.
        Completes when the element has been sent.
        Cancels when never: the source belongs to all.
        """
        return mono_of(CacheSource("cache", self, UNBOUNDED, UNBOUNDED, lasting=True))
