"""One run for several subscribers, with a choice of when it starts and stops."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.arguments import a_count, seconds
from penstock.spec import UNBOUNDED
from penstock.streams.operators.boundaries import PREFETCH
from penstock.streams.operators.connectable import Broadcast
from penstock.streams.operators.share import CacheSource
from penstock.streams.schedulers import Scheduler
from penstock.streams.stream import Stream, T, mono_of

if TYPE_CHECKING:
    from penstock.streams.connectable import ConnectableFlux
    from penstock.streams.mono import Mono

__all__ = ["FluxConnections", "MonoConnections"]


class FluxConnections(Stream[T]):
    """Operators of a Flux that share a run and say when to connect."""

    __slots__ = ()

    def publish(self, *, prefetch: int = PREFETCH) -> ConnectableFlux[T]:
        """Run the source once for all subscribers, and start it with ``connect()``.

        Instead of ``connect()`` use ``publish().auto_connect(n)``, which starts with the n-th subscriber, or
        ``publish().ref_count(n, grace)``, which also stops some time after the last subscriber has left.

        >>> Flux.range(3).publish().ref_count().collect_list().block()
        [0, 1, 2]

        Emits when the source has emitted.
        Backpressures when its subscriber does; the source, when the slowest is ``prefetch`` elements behind.
        Completes when the source has completed and all of it has been sent.
        Cancels when the run is cancelled; ``ref_count`` does so when the last subscriber has left.

        Marble::

            a: 1-2-|
            a.publish().ref_count()
            >  1-2-|
        """
        from penstock.streams.connectable import ConnectableFlux

        return ConnectableFlux._over("publish", Broadcast(self, a_count(prefetch, "publish()"), 0))

    def replay(
        self,
        history: int | None = None,
        ttl: float | timedelta | None = None,
        scheduler: Scheduler | None = None,
    ) -> ConnectableFlux[T]:
        """As ``publish``, but late subscribers first receive the last ``history`` elements; by default all.

        With ``ttl`` they receive none that is older than so many seconds. An unbounded history is bounded by
        the time to live alone.

        >>> numbers = Flux.range(5).replay(2).auto_connect()
        >>> numbers.collect_list().block(), numbers.collect_list().block()
        ([0, 1, 2, 3, 4], [3, 4])

        Emits when the source has emitted, or had before.
        Backpressures when its subscriber does; the source, when the slowest is ``history`` elements behind.
        Completes when the source has completed and all of it has been sent.
        Cancels when the run is cancelled; ``ref_count`` does so when the last subscriber has left.

        Marble::

            a: 1-2-|
            a.replay(1).auto_connect()
            >  1-2-|
        """
        from penstock.streams.connectable import ConnectableFlux

        kept = UNBOUNDED if history is None else a_count(history, "replay()")
        lives = None if ttl is None else seconds(ttl, "replay(ttl=…)", positive=True)
        shows = () if history is None else (history,)
        return ConnectableFlux._over("replay", Broadcast(self, kept, kept, lives, scheduler), *shows)


class MonoConnections(Stream[T]):
    """Operators of a Mono that share a run."""

    __slots__ = ()

    def share(self) -> Mono[T]:
        """Run the source once for all subscribers that are there at the same time.

        The source is cancelled when the last subscriber leaves, and started anew by the next one after its
        end. To keep the result use :meth:`cache`.

        >>> Mono.just(1).share().block()
        1

        Emits when the source has emitted.
        Backpressures when its subscriber does.
        Completes when the element has been sent.
        Cancels when the last subscriber cancels.

        Marble::

            mono: --(x|)
            mono.share()
            >     --(x|)
        """
        return mono_of(CacheSource("share", self, PREFETCH, 0, lasting=False))
