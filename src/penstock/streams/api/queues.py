"""Queues of the standard library: from one into a stream, and from a stream into one."""

from __future__ import annotations

import asyncio
import queue
from typing import TYPE_CHECKING, Any, Never, TypeVar, overload

from penstock.arguments import describe
from penstock.streams.operators.queues import AsyncQueueSource, AsyncQueueTarget, QueueSource, QueueTarget
from penstock.streams.stream import Stream, T, flux_of, mono_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono

__all__ = ["FluxQueues"]

E = TypeVar("E")


class FluxQueues(Stream[T]):
    """A Flux from a queue, and into one."""

    __slots__ = ()

    @overload
    @staticmethod
    def from_queue(
        queue: asyncio.Queue[E | None] | queue.Queue[E | None], *, end: object = None
    ) -> Flux[E]: ...
    @overload
    @staticmethod
    def from_queue(queue: asyncio.Queue[E] | queue.Queue[E], *, end: object = None) -> Flux[E]: ...
    @staticmethod
    def from_queue(queue: asyncio.Queue[Any] | queue.Queue[Any], *, end: object = None) -> Flux[Any]:
        """The elements of an ``asyncio.Queue`` or a ``queue.Queue``, as they are put in.

        An element is taken out when there is demand for it, so a slow subscriber leaves the queue full, and a
        bounded queue then holds back its producers. Several subscribers share the elements between them.

        >>> numbers = queue.Queue()
        >>> for n in (1, 2, None):
        ...     numbers.put(n)
        >>> Flux.from_queue(numbers).collect_list().block()
        [1, 2]

        A queue has no end of its own. Put ``None``, or whatever you pass as ``end``, behind the last element;
        from Python 3.13 on, ``queue.shutdown()`` ends the stream as well. ``end`` ends the subscriber that
        receives it and all that come later; a shutdown ends those, too, that are waiting now.

        A reader such as ``async for`` asks for 256 elements ahead, and those it has not used when it leaves
        are lost with it. To leave them in the queue, read with ``stream(prefetch=1)``.

        An asyncio queue is read on the event loop on which this method was called or, if there was none, on
        that of the subscriber. A ``queue.Queue`` is waited for on a thread of the package.

        Emits when the queue has an element and there is demand.
        Completes when ``end`` comes out of the queue, or the queue was shut down and is empty.
        """
        if isinstance(queue, asyncio.Queue):
            return flux_of(AsyncQueueSource(queue, end))
        return flux_of(QueueSource(_a_queue(queue, "from_queue()"), end))

    def to_queue(self, queue: asyncio.Queue[Any] | queue.Queue[Any], *, end: object = None) -> Mono[Never]:
        """Put the elements into an ``asyncio.Queue`` or a ``queue.Queue``, then ``end``; a Mono of the end.

        A full queue holds the stream back: one element waits outside of it, and no more are asked for.

        >>> letters = queue.Queue()
        >>> Flux.just("a", "b").to_queue(letters).block()
        >>> [letters.get(), letters.get(), letters.get()]
        ['a', 'b', None]

        ``end`` is put also when the stream fails, so that a reader of the queue does not wait for ever; the
        error comes out of the Mono. If the Mono is cancelled, nothing more is put. If the queue is shut down
        (Python 3.13), the Mono fails with ``queue.ShutDown`` or ``asyncio.QueueShutDown``, and the stream is
        cancelled.

        Never emits.
        Backpressures when the queue is full.
        Completes when the source has completed and ``end`` is in the queue.
        Cancels when its subscriber cancels, or the queue is shut down.
        """
        if isinstance(queue, asyncio.Queue):
            return mono_of(AsyncQueueTarget(self, queue, end))
        return mono_of(QueueTarget(self, _a_queue(queue, "to_queue()"), end))


def _a_queue(given: Any, wanted_by: str) -> queue.Queue[Any]:
    if isinstance(given, queue.Queue):
        return given
    raise TypeError(f"{wanted_by} needs an asyncio.Queue or a queue.Queue, not {describe(given)}")
