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

from collections.abc import Callable
from typing import Any

from penstock.interop.rsocket_subscriber import RSocketSubscriber, running_loop
from penstock.spec import Publisher, Subscriber, check_subscriber, none_subscriber
from penstock.streams import Flux, schedulers
from penstock.streams.arguments import a_count

try:
    from reactivestreams.publisher import Publisher as TheirPublisher  # type: ignore[import-untyped]
    from reactivestreams.subscription import DefaultSubscription  # type: ignore[import-untyped]
    from rsocket.streams.backpressureapi import BackpressureApi  # type: ignore[import-untyped]
    from rsocket.streams.stream_from_generator import StreamFromGenerator  # type: ignore[import-untyped]
except ImportError as missing:
    raise ImportError(
        "penstock.interop.rsocket_bridge needs rsocket: pip install 'penstock-streams[interop]'"
    ) from missing

__all__ = ["RSocketPublisher", "from_rsocket", "to_rsocket", "to_rsocket_subscriber"]


def from_rsocket(publisher: Any | Callable[[], Any], *, prefetch: int = 256) -> Flux[Any]:
    """The elements of a Publisher of rsocket-py, or of the one that a function returns for each subscriber.

    Such a Publisher serves one subscriber; a second one of this Flux gets an error, unless you pass a
    function. At first ``prefetch`` elements are asked for, and the next when three quarters of them have been
    sent on, so this many wait here at most. A request of a socket starts with that number, too.

    It runs on the event loop that the subscriber runs on. From a thread without one, say on which loop the
    socket lives: ``from_rsocket(…).subscribe_on(schedulers.loop(the_loop)).block_last()``. What has no socket
    runs on the loop that the package keeps in a background thread.

    A generator of rsocket-py that ends without saying so sends an empty element with its end. That one is
    taken for the end; over a socket nobody can tell it from an element.
    """
    a_count(prefetch, "from_rsocket")
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
    """A Publisher of rsocket-py as one of ours, to be subscribed to on its event loop, with one window."""

    def __init__(self, make: Callable[[], Any], window: int) -> None:
        self._make = make
        self._window = window

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        ours = RSocketSubscriber(subscriber)
        try:
            publisher = self._make()
            if isinstance(publisher, BackpressureApi):
                # Its request for elements is part of the frame that opens the stream, and "all" by default.
                publisher.initial_request_n(self._window)
                ours.granted(self._window)
            if isinstance(publisher, StreamFromGenerator):
                ours.take_empty_for_end()
            publisher.subscribe(ours)
        except Exception as error:
            ours.on_subscribe(DefaultSubscription())  # unless it has got one
            ours.on_error(error)


def to_rsocket(publisher: Publisher[Any], *, prefetch: int = 256) -> RSocketPublisher:
    """A Flux, a Mono or any other Publisher, for the handlers and requests of rsocket-py.

    Its elements have to be what rsocket-py sends: ``Payload`` objects. It serves any number of subscribers.
    Each gets what it asks for, on the event loop on which it subscribed; up to ``prefetch`` elements more
    wait for it there.
    """
    a_count(prefetch, "to_rsocket")
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
            # No loop is running: then nobody here can mind on which thread the signals come.
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
