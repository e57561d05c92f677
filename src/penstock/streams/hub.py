"""A hub: producers and consumers come and go, and one bound holds for all of them together."""

from __future__ import annotations

from _thread import allocate_lock
from typing import Any, Generic, TypeVar

from penstock.arguments import a_count
from penstock.spec import Subscription, none_error
from penstock.streams.errors import drop_elements, drop_error
from penstock.streams.flux import Flux
from penstock.streams.operators.replay_buffer import EmitResult, ReplayBuffer, Ticket
from penstock.streams.operators.share import ReplaySource
from penstock.streams.stream import Streamable, as_stream

__all__ = ["Hub", "HubClosed", "HubProducer", "TooManyProducers"]

T = TypeVar("T")


class TooManyProducers(RuntimeError):
    """A hub has as many producers as its bound allows."""


class HubClosed(RuntimeError):
    """A producer was attached to a hub that has ended."""


class Hub(Generic[T]):
    """Sends the elements of all its producers to all its consumers.

    >>> hub = Hub(capacity=100, max_producers=10)
    >>> seen = []
    >>> consumer = hub.flux().subscribe(seen.append)
    >>> producers = hub.attach(Flux.just(1, 2)), hub.attach(Flux.just(3))
    >>> hub.close()
    >>> seen
    [1, 2, 3]

    However many producers and consumers there are, no more than ``capacity`` elements wait in the hub: one in
    the hand of each producer, and the rest in a common buffer. A producer is asked for its next element when
    the present one has found a place; producers that wait take turns. The slowest consumer decides how fast
    all of them go on. While there is no consumer, elements wait for the first one.
    """

    def __init__(self, capacity: int = 256, *, max_producers: int = 64) -> None:
        """Hold ``capacity`` elements at most, of ``max_producers`` producers at a time."""
        self._max_producers = a_count(max_producers, "Hub(max_producers=…)")
        places = a_count(capacity, "Hub()") - self._max_producers
        if places < 1:
            raise ValueError(
                f"Hub(): a capacity of {capacity} leaves no place beside one element for each of "
                f"{max_producers} producers; give it more capacity, or fewer producers"
            )
        self._buffer = ReplayBuffer(places, history=0)
        self._mutex = allocate_lock()
        self._producers: set[HubProducer] = set()
        self._closed = False

    def flux(self) -> Flux[T]:
        """The stream of all producers' elements; it begins with the oldest that is still there."""
        return Flux._of(ReplaySource("hub", self._buffer))

    def attach(self, publisher: Streamable[T]) -> HubProducer:
        """Send the elements of a publisher to all consumers, until it ends.

        Its end is not the end of the hub, and its error goes to the hook for dropped errors. Raises
        TooManyProducers, or HubClosed after :meth:`close`.
        """
        stream = as_stream(publisher, "attach()")
        producer = HubProducer(self, self._buffer)
        with self._mutex:
            if self._closed:
                raise HubClosed("this hub is closed; make a new one")
            if len(self._producers) >= self._max_producers:
                raise TooManyProducers(
                    f"this hub has {self._max_producers} producers, as many as it may; wait until one has "
                    "ended, or make the hub with a larger max_producers"
                )
            self._producers.add(producer)
        stream._connect(producer)
        return producer

    def close(self) -> None:
        """Cancel all producers, and complete when the consumers have read what waits in the buffer."""
        self._end(None)

    def fail(self, error: BaseException) -> None:
        """Cancel all producers, and fail when the consumers have read what waits in the buffer."""
        if error is None:
            raise none_error()
        self._end(error)

    def producer_count(self) -> int:
        """How many producers there are now."""
        return len(self._producers)

    def subscriber_count(self) -> int:
        """How many consumers there are now."""
        return self._buffer.subscriber_count()

    def _end(self, error: BaseException | None) -> None:
        with self._mutex:
            was_closed, self._closed = self._closed, True
        if was_closed:
            if error is not None:
                drop_error(error, "fail() of a hub that has ended")
            return
        self._buffer.end(error)
        for producer in tuple(self._producers):
            producer.cancel()

    def _remove(self, producer: HubProducer) -> None:
        with self._mutex:
            self._producers.discard(producer)


class HubProducer:
    """One publisher that is attached to a hub; it can be cancelled."""

    def __init__(self, hub: Hub[Any], buffer: ReplayBuffer) -> None:
        """Made by :meth:`Hub.attach`."""
        self._hub = hub
        self._buffer = buffer
        self._subscription: Subscription | None = None
        self._mutex = allocate_lock()
        self._held: list[Any] = []
        """The element that waits for a place."""
        self._ticket: Ticket | None = None
        self._called = False
        self._ended = False
        """The publisher has nothing more to send."""
        self._cancelled = False

    @property
    def done(self) -> bool:
        """Whether it has left the hub."""
        return self not in self._hub._producers

    def cancel(self) -> None:
        """Leave the hub; an element that waits for a place is not sent."""
        with self._mutex:
            self._cancelled = True
            ticket, self._ticket = self._ticket, None
            self._held.clear()
        if ticket is not None:
            self._buffer.withdraw(ticket)
        if self._subscription is not None and not self._ended:
            self._subscription.cancel()
        self._hub._remove(self)

    # ---------------------------------------------------------------- what the publisher calls
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Ask for the first element."""
        if self._subscription is not None:
            subscription.cancel()
            return
        self._subscription = subscription
        if self._cancelled:
            subscription.cancel()
            return
        subscription.request(1)

    def on_next(self, element: Any, /) -> None:
        """Put the element into the buffer, or get in line for a place there."""
        if self._cancelled:
            return
        result = self._buffer.append(element)
        if result is EmitResult.OVERFLOW:
            self._held.append(element)
            ticket = self._buffer.wait(self._wake)
            with self._mutex:
                self._ticket = ticket
                its_turn = self._called
            if its_turn:
                self._use_place()
            elif self._cancelled:
                self._buffer.withdraw(ticket)
        else:
            self._appended(result, element)

    def on_error(self, error: BaseException, /) -> None:
        """Leave the hub, which goes on."""
        drop_error(error, "a producer of a hub")
        self.on_complete()

    def on_complete(self) -> None:
        """Leave the hub, as soon as the last element has a place."""
        with self._mutex:
            self._ended = True
            waits = bool(self._held)
        if not waits:
            self._hub._remove(self)

    # ---------------------------------------------------------------- places
    def _wake(self) -> None:
        """It is our turn; this may come before wait() has returned the ticket."""
        with self._mutex:
            self._called = True
            its_turn = self._ticket is not None
        if its_turn:
            self._use_place()

    def _use_place(self) -> None:
        with self._mutex:
            ticket, self._ticket = self._ticket, None
            held, self._held = self._held, []
            self._called = False
        if ticket is None:
            return  # cancelled meanwhile
        if held:
            self._appended(self._buffer.append(held[0], ticket), held[0])
        self._buffer.withdraw(ticket)

    def _appended(self, result: EmitResult, element: Any) -> None:
        if result is not EmitResult.OK:
            drop_elements([element], "a hub that has ended")
            self.cancel()
        elif self._ended:
            self._hub._remove(self)
        elif self._subscription is not None:
            self._subscription.request(1)
