"""Publishers and Subscribers of rsocket-py, both ways: ``pip install 'penstock-streams[interop]'``.

rsocket-py brings its own interfaces along (the package ``reactivestreams``). They look like Reactive Streams
and differ in a few places: the last element may carry the end with it (``on_next(value, is_complete=True)``),
a publisher serves one subscriber, a request of a socket starts with everything unless told otherwise, and all
of it lives on one event loop. Here both sides get what they expect::

    from penstock.interop.rsocket_bridge import from_rsocket, to_rsocket
    from penstock.streams import Flux
    from rsocket.payload import Payload

    # a client: what the server streams, at most 64 elements ahead
    prices = from_rsocket(lambda: client.request_stream(Payload(b"prices")), prefetch=64)
    async for payload in prices.take(1000): ...

    # a server: the handler of a request returns a Publisher of rsocket-py
    async def request_stream(self, payload):
        return to_rsocket(Flux.range(1000).map(lambda n: Payload(b"%d" % n)))

The answer to ``request_response`` is a future: ``Mono.from_future(client.request_response(payload))``.
``to_rsocket(flux).subscribe(theirs)`` serves a Subscriber of rsocket-py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.arguments import a_count, whole
from penstock.spec import (
    Publisher,
    Subscriber,
    check_subscriber,
    non_positive_request,
    none_subscriber,
    none_subscription,
)
from penstock.streams import Flux, schedulers
from penstock.streams.spi import drop_error, drop_raised

try:
    from reactivestreams.publisher import Publisher as TheirPublisher  # type: ignore[import-untyped]
    from reactivestreams.subscriber import Subscriber as TheirSubscriber  # type: ignore[import-untyped]
    from reactivestreams.subscription import DefaultSubscription  # type: ignore[import-untyped]
    from rsocket.frame import MAX_REQUEST_N  # type: ignore[import-untyped]
    from rsocket.payload import Payload  # type: ignore[import-untyped]
    from rsocket.streams.backpressureapi import BackpressureApi  # type: ignore[import-untyped]
    from rsocket.streams.stream_from_generator import StreamFromGenerator  # type: ignore[import-untyped]
except ImportError as missing:
    raise ImportError(
        "penstock.interop.rsocket_bridge needs rsocket: pip install 'penstock-streams[interop]'"
    ) from missing

__all__ = [
    "RSocketPublisher",
    "RSocketSubscriber",
    "from_rsocket",
    "to_rsocket",
    "to_rsocket_subscriber",
]


def from_rsocket(publisher: Any | Callable[[], Any], *, prefetch: int = 256) -> Flux[Any]:
    """The elements of a Publisher of rsocket-py, or of the one that a function returns for each subscriber.

    Such a Publisher serves one subscriber; a second one of this Flux gets an error, unless you pass a
    function. At first ``prefetch`` elements are asked for, and the next when three quarters of them have been
    sent on, so this many wait here at most. A request of a socket starts with that number, too.

    It runs on the event loop that the subscriber runs on. From a thread without one, say on which loop the
    socket lives: ``from_rsocket(…).subscribe_on(schedulers.loop(the_loop)).block_last()``. What has no socket
    runs on the loop that the package keeps in a background thread.

    A generator of rsocket-py that ends without saying so sends an empty element with its end. That one is
    taken for the end; over a socket it cannot be told from an element.
    """
    a_count(prefetch, "from_rsocket()")
    if callable(getattr(publisher, "subscribe", None)):
        make = _once(publisher)
    elif callable(publisher):
        make = publisher
    else:
        raise TypeError(
            f"from_rsocket() needs a publisher of rsocket, or a function that makes one, not {publisher!r}"
        )

    def from_rsocket() -> Flux[Any]:  # its name is what explain() shows
        theirs: Flux[Any] = Flux.from_publisher(_Theirs(make, prefetch))
        bounded = theirs.limit_rate(prefetch)
        # Their publishers are made and called on an event loop only.
        return bounded if running_loop() is not None else bounded.subscribe_on(schedulers.background_loop())

    return Flux.defer(from_rsocket)


def _once(publisher: Any) -> Callable[[], Any]:
    unused = [publisher]

    def make() -> Any:
        try:
            return unused.pop()
        except IndexError:
            raise RuntimeError(
                f"this {type(publisher).__name__} of rsocket serves one subscriber and has had it; "
                "pass a function that makes a new one each time: from_rsocket(lambda: …)"
            ) from None

    return make


class _Theirs:
    """A Publisher of rsocket-py as one of ours, to be subscribed to on its event loop, with one prefetch."""

    def __init__(self, make: Callable[[], Any], prefetch: int) -> None:
        self._make = make
        self._prefetch = prefetch

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        ours = RSocketSubscriber(subscriber)
        try:
            publisher = self._make()
            if isinstance(publisher, BackpressureApi):
                # Its request for elements is part of the frame that opens the stream, and "all" by default.
                publisher.initial_request_n(self._prefetch)
                ours.request_ahead(self._prefetch)
            if isinstance(publisher, StreamFromGenerator):
                ours.take_empty_for_end()
            publisher.subscribe(ours)
        except BaseException as error:
            ours.on_subscribe(DefaultSubscription())  # unless it has got one
            ours.on_error(error)


def to_rsocket(publisher: Publisher[Any], *, prefetch: int = 256) -> RSocketPublisher:
    """A Flux, a Mono or any other Publisher, for the handlers and requests of rsocket-py.

    Its elements have to be what rsocket-py sends: ``Payload`` objects. It serves any number of subscribers.
    Each gets what it asks for, on the event loop on which it subscribed; up to ``prefetch`` elements more
    wait for it there.
    """
    a_count(prefetch, "to_rsocket()")
    return RSocketPublisher(Flux.from_publisher(publisher), prefetch)


class RSocketPublisher(TheirPublisher):  # type: ignore[misc]
    """A stream that has the interface of rsocket-py; made by :func:`to_rsocket`."""

    def __init__(self, stream: Flux[Any], prefetch: int) -> None:
        self._stream = stream
        self._prefetch = prefetch

    def subscribe(self, subscriber: Any) -> None:
        """Serve a Subscriber of rsocket-py, or of Reactive Streams, on the event loop that runs here."""
        if subscriber is None:
            raise none_subscriber()  # §1.9
        check_subscriber(subscriber)
        here = running_loop()
        if here is None:
            # No loop is running, so the thread of the signals does not matter.
            self._stream.subscribe(subscriber)
            return
        # Their sockets may be touched on their loop only, whatever thread the stream runs on. It also lets
        # others run when a stream that never waits is asked for everything.
        self._stream.publish_on(schedulers.loop(here), prefetch=self._prefetch).subscribe(subscriber)


def to_rsocket_subscriber(subscriber: Subscriber[Any]) -> RSocketSubscriber:
    """A Subscriber of ours for rsocket-py: what comes in on a channel, for example.

    Together with ``processor()`` it makes a Flux of it::

        async def request_channel(self, payload):
            incoming = processor()
            Flux.from_publisher(incoming).subscribe(print)
            return to_rsocket(outgoing), to_rsocket_subscriber(incoming)

    Requests and cancels may come from any thread; they are made on the event loop of rsocket-py.
    """
    check_subscriber(subscriber)
    return RSocketSubscriber(subscriber)


class RSocketSubscriber(TheirSubscriber):  # type: ignore[misc]
    """Passes the signals of rsocket-py on to a Subscriber of ours, and its requests back.

    Made by :func:`penstock.interop.rsocket_bridge.to_rsocket_subscriber`. It takes the end out of the last
    element, sends nothing after the end, keeps requests within what a frame can hold, and sees to it that
    rsocket-py is called on its event loop, not after its end, and to cancel only once.
    """

    def __init__(self, subscriber: Subscriber[Any]) -> None:
        """Serve ``subscriber``."""
        self._ours: Subscriber[Any] | None = subscriber
        self._theirs: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._empty_is_end = False
        self._requested_ahead = 0
        """Elements that are on their way although our Subscriber has not requested them yet."""
        self._asked = 0
        """Elements that rsocket-py has been asked for and has not sent."""
        self._owed = 0
        """Elements that it could not be asked for yet, because a frame holds no such number."""

    def request_ahead(self, n: int) -> None:
        """Count ``n`` elements as requested already: those that a request of a socket starts with."""
        self._requested_ahead += n
        self._asked += n

    def take_empty_for_end(self) -> None:
        """Take a last element without data and metadata for the end, not for an element."""
        self._empty_is_end = True

    # ---------------------------------------------------------------- signals, from rsocket-py
    def on_subscribe(self, subscription: Any) -> None:
        """Keep their Subscription, and be the one that our Subscriber gets."""
        if subscription is None:
            raise none_subscription()
        ours = self._ours
        if ours is None or self._theirs is not None:
            subscription.cancel()  # §2.5
            return
        self._theirs = subscription
        self._loop = running_loop()
        ours.on_subscribe(self)

    def on_next(self, value: Any, is_complete: bool = False) -> None:
        """Pass the element on, and the end that may come with it."""
        ours = self._ours
        if ours is None:
            return
        if not (is_complete and self._is_no_element(value)):
            self._asked -= 1
            ours.on_next(value)
        if is_complete:
            self.on_complete()
        elif self._owed and not self._asked:
            self._ask()

    def _is_no_element(self, value: Any) -> bool:
        if value is None:
            return True
        return (
            self._empty_is_end
            and isinstance(value, Payload)
            and value.data is None
            and value.metadata is None
        )

    def on_error(self, exception: BaseException) -> None:
        """Pass the error on; one that comes after the end goes to the hook for dropped errors."""
        ours = self._end()
        if ours is not None:
            ours.on_error(exception)
        else:
            drop_error(exception, "a publisher of rsocket, after its end")

    def on_complete(self) -> None:
        """Pass the end on, once."""
        ours = self._end()
        if ours is not None:
            ours.on_complete()

    def _end(self) -> Subscriber[Any] | None:
        """Let go of both sides (§3.13); only the first who asks gets the Subscriber."""
        ours, self._ours = self._ours, None
        self._theirs = None
        return ours

    # ---------------------------------------------------------------- demand, from our Subscriber
    def request(self, n: int) -> None:
        """Ask for more, on the event loop."""
        number = whole(n) or 0
        if not self._on_loop(lambda: self._more(number) if number > 0 else self._refuse(n)):
            ours = self._end()
            if ours is not None:
                ours.on_error(RuntimeError("the event loop of this rsocket publisher is closed"))

    def cancel(self) -> None:
        """Leave, on the event loop; nothing is sent from now on."""
        theirs = self._theirs
        self._end()
        if theirs is not None:
            self._on_loop(lambda: _cancel(theirs))

    def _more(self, n: int) -> None:
        already = min(n, self._requested_ahead)
        self._requested_ahead -= already
        self._owed += n - already
        self._ask()

    def _ask(self) -> None:
        n = min(self._owed, MAX_REQUEST_N - self._asked)
        if n > 0 and self._theirs is not None:
            self._owed -= n
            self._asked += n
            self._theirs.request(n)

    def _refuse(self, n: Any) -> None:
        theirs, ours = self._theirs, self._end()
        if theirs is not None:
            _cancel(theirs)
        if ours is not None:
            ours.on_error(non_positive_request(n))  # §3.9; rsocket-py itself says nothing

    def _on_loop(self, action: Callable[[], None]) -> bool:
        """Run ``action`` on the event loop, now or soon; False if the loop is closed."""
        loop = self._loop
        if loop is None or loop is running_loop():
            action()
            return True
        try:
            loop.call_soon_threadsafe(action)
        except RuntimeError:
            return False
        return True


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs on this thread, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _cancel(theirs: Any) -> None:
    try:
        theirs.cancel()
    except AttributeError:
        # A stream over a generator that has not been started yet stops its tasks, and then stumbles over the
        # generator that it does not have. There is nothing left to stop.
        return
    except BaseException as error:
        drop_raised(error, "a publisher of rsocket that was cancelled")
