"""A Processor: a Subscriber on one side, a Publisher on the other, and a stream's operators in between.

>>> doubled = processor(lambda flux: flux.map(lambda x: x * 2))
>>> seen = []
>>> running = Flux.from_publisher(doubled).subscribe(seen.append)
>>> Flux.just(1, 2, 3).subscribe(doubled)
>>> seen
[2, 4, 6]

Operators of this package connect without a Processor. You need one where a foreign publisher wants a
Subscriber, and a foreign subscriber wants a Publisher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.arguments import a_count, a_function
from penstock.spec import Publisher, Subscriber, Subscription, none_element, none_error, none_subscription
from penstock.streams.flux import Flux
from penstock.streams.operators.live_buffer import LiveBuffer
from penstock.streams.operators.share import CacheSource, Feeder, ReplaySource
from penstock.streams.stream import Stream, as_stream

__all__ = ["StreamProcessor", "processor"]

T = TypeVar("T")
R = TypeVar("R")


class StreamProcessor(Generic[T, R]):
    """Takes elements as a Subscriber and serves any number of subscribers as a Publisher.

    It asks its source for what the quickest subscriber wants, as long as the slowest is no more than
    ``capacity`` elements behind. Elements that come before the first subscriber wait for it. The operators
    run once for all subscribers. An error overtakes the elements that wait for slow subscribers (§4.2). When
    the last subscriber leaves, the source is cancelled.
    """

    def __init__(self, transform: Callable[[Flux[T]], Publisher[R]] | None, capacity: int) -> None:
        self._buffer = LiveBuffer(capacity, urgent_errors=True, when_deserted=self._deserted)
        self._feeder = Feeder(self._buffer)
        inlet: Flux[Any] = Flux._of(ReplaySource("processor", self._buffer))
        if transform is None:
            self._outlet: Stream[Any] = inlet
            return
        # A second buffer, below the operators. If the operators ran for each subscriber, one of their queues
        # would hold back an error behind elements that its own subscriber has not asked for, and would take
        # elements that the next subscriber should still receive.
        stream = as_stream(transform(inlet), "processor()")
        self._outlet = Flux._of(
            CacheSource("processor", stream, capacity, history=0, lasting=False, urgent_errors=True)
        )

    # ---------------------------------------------------------------- the Subscriber
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Keep the first source; a second one is cancelled (§2.5)."""
        if subscription is None:
            raise none_subscription()
        self._feeder.on_subscribe(subscription)

    def on_next(self, element: T, /) -> None:
        if element is None:
            raise none_element("processor")
        self._feeder.on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        """Pass the error on, at once."""
        if error is None:
            raise none_error()
        self._feeder.on_error(error)

    def on_complete(self) -> None:
        """Pass the end on, after the elements before it."""
        self._feeder.on_complete()

    # ---------------------------------------------------------------- the Publisher
    def subscribe(self, subscriber: Subscriber[R], /) -> None:
        """Serve another subscriber."""
        self._outlet._subscribe(subscriber)

    def _deserted(self) -> None:
        self._feeder.cancel()
        self._buffer.end(
            RuntimeError("this processor has shut down, because its last subscriber left (§3.14)")
        )


def processor(
    transform: Callable[[Flux[Any]], Publisher[Any]] | None = None, *, capacity: int = 256
) -> StreamProcessor[Any, Any]:
    """A Processor whose output is ``transform`` of its input; without one, the input itself."""
    if transform is not None:
        a_function(transform, "processor()")
    return StreamProcessor(transform, a_count(capacity, "processor()"))
