"""The sending side of a connection: sends that run one after the other, once somebody subscribes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar, cast

from penstock.arguments import whole
from penstock.net.errors import ConnectionAborted, SendRefused
from penstock.net.sender import Done, FlushRule
from penstock.spec import Publisher, Subscriber, check_subscriber, non_positive_request
from penstock.streams import Flux, Mono
from penstock.streams.spi import PublisherSource, Stream, as_flux, as_stream, drop_error, flux_of

if TYPE_CHECKING:
    from penstock.net.connection import Connection

__all__ = ["Outbound", "SendChain"]

S = TypeVar("S")

_FILE_CHUNK = 128 * 1024

_SENDS_A_TURN = 64
"""A coroutine that sends without ever waiting lets others run after this many sends."""


_new = object.__new__


class SendChain(ABC):
    """Sends in order. It is immutable: each method returns a longer chain."""

    def __init__(self, before: Mono[Any] | None) -> None:
        self._before = before

    @abstractmethod
    def _behind(self, before: Mono[Any]) -> Self:
        """The same side, after this has been done."""

    def _and(self, step: Stream[Any]) -> Self:
        following = as_flux(step).then()
        return self._behind(following if self._before is None else self._before.then(following))

    def then(self, publisher: Publisher[Any]) -> Self:
        """Run this publisher when everything before it has been sent. Its elements are not sent."""
        return self._and(as_stream(publisher, "then()"))

    def mono(self) -> Mono[Any]:
        """The whole chain as a Mono, which completes when everything has been sent."""
        return Mono.empty() if self._before is None else self._before

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Send. The subscriber learns how that ended; there are no elements."""
        self.mono().subscribe(subscriber)

    def __await__(self) -> Generator[Any, None, None]:
        return self.mono().__await__()


class Outbound(SendChain):
    """What to send over a connection, in order.

    Nothing happens before somebody subscribes to it, awaits it, or returns it from a handler. It completes
    when everything has been handed to the kernel, and fails if the connection breaks first.

    ::

        outbound.send_object(b"hello\\n").send(lines).then(audit)      # one after the other
        await outbound.send(lines)                                     # in a coroutine
    """

    def __init__(
        self, connection: Connection, before: Mono[Any] | None = None, data: bytes | None = None
    ) -> None:
        """Made by a connection, and by each of the methods below."""
        self._before = before  # not by super().__init__(): one of these is made for every send
        self._connection = connection
        self._data = data
        """If these bytes are all there is to send, most of the work can be saved."""

    # ---------------------------------------------------------------- what to send
    def send(self, data: Publisher[bytes] | bytes, *, flush: FlushRule | None = None) -> Outbound:
        """Send every element of a publisher of bytes, or just these bytes.

        Elements that come together are written together; ``flush`` says of an element whether it must be
        written at once. The publisher is asked for as much as the socket takes, so a peer that does not read
        stops it.

        Bytes that a coroutine awaits are written at once if no other send is under way, and the coroutine
        goes on as long as the socket has room for more.
        """
        self._connection.output.send_was_made = True
        if type(data) is bytes and flush is None and self._before is None and self._data is None:
            sending = _new(Outbound)  # what __init__() does, without the call
            sending._before, sending._connection, sending._data = None, self._connection, data
            return sending
        if isinstance(data, bytes | bytearray | memoryview):
            data = bytes(data)
            if self._before is None and self._data is None and flush is None:
                return Outbound(self._connection, data=data)
            data = Mono.just(data)
        elif isinstance(data, str):
            raise SendRefused(
                f"send() was given the text {data!r:.80}, and only bytes can be sent: send(text.encode()), "
                "or configure an encoder() and use send_object()"
            )
        work = SendPublisher(self._connection.output, as_stream(data, "send()"), flush)
        return self._and(flux_of(PublisherSource(work)))

    def send_object(self, thing: Any, *, flush: Callable[[Any], bool] | None = None) -> Outbound:
        """Send an object, or every object of a publisher, encoded by the ``encoder``."""
        encode = self._connection.settings.encoder
        if isinstance(thing, Publisher):
            objects = as_stream(thing, "send_object()")
            return self.send(as_flux(objects).map(encode), flush=flush)
        return self.send(Mono.defer(lambda: Mono.just(encode(thing))), flush=flush)

    def send_using(
        self,
        resource: Callable[[], S],
        stream: Callable[[S], Publisher[bytes]],
        cleanup: Callable[[S], object],
    ) -> Outbound:
        """Open a resource, send the stream that ``stream`` makes of it, and clean up in any case."""
        return self.send(Flux.using(resource, stream, cleanup))

    def send_file(
        self, path: str | os.PathLike[str], *, offset: int = 0, count: int | None = None
    ) -> Outbound:
        """Send a file, or ``count`` bytes of it from ``offset`` on, as fast as the socket takes them."""
        if offset < 0 or (count is not None and count < 0):
            raise ValueError(f"send_file(offset={offset}, count={count}): neither can be below 0")
        return self.send_using(
            lambda: open(path, "rb", buffering=0),
            lambda file: Flux.from_iterable(_chunks(file, offset, count)),
            lambda file: file.close(),
        )

    def keep_open(self) -> Outbound:
        """Complete only when the peer has closed its side, or the server is being closed."""
        connection = self._connection
        return self._and(
            Ending(connection, lambda done: connection.when_peer_ends(lambda: done(None))).mono()
        )

    def end(self) -> Outbound:
        """Close our direction when everything before has been sent; the peer may go on sending.

        The peer's ``receive()`` completes, and ours goes on. Nothing can be sent after that. TLS cannot close
        one direction only, so it fails there.
        """
        return self._and(Ending(self._connection, self._connection.output.end).mono())

    def _behind(self, before: Mono[Any]) -> Outbound:
        return Outbound(self._connection, before)

    def _and(self, step: Stream[Any]) -> Outbound:
        return (
            super()._and(step) if self._data is None else Outbound(self._connection, self.mono())._and(step)
        )

    def mono(self) -> Mono[Any]:
        """The whole chain as a Mono, which completes when everything has been sent."""
        if self._data is None:
            return super().mono()
        return self._sending(Mono.just(self._data))

    def _sending(self, stream: Stream[Any], written: int = 0) -> Mono[Any]:
        work = SendPublisher(self._connection.output, stream, None, written)
        return flux_of(PublisherSource(work)).then()

    def __await__(self) -> Generator[Any, None, None]:
        data = self._data
        if data is None:
            return super().__await__()
        output = self._connection.output
        has_room = output.sent_at_once(data)
        if has_room:
            output.sends_at_once = sends = output.sends_at_once + 1
            return _let_others_run() if sends % _SENDS_A_TURN == 0 else _NOTHING_TO_WAIT_FOR
        if has_room is None:
            return self.mono().__await__()
        return self._sending(Mono.empty(), len(data)).__await__()

    def with_connection(self, use: Callable[[Connection], object]) -> Outbound:
        """Call ``use`` with the connection, now."""
        use(self._connection)
        return self

    @property
    def connection(self) -> Connection:
        """The connection that this side belongs to."""
        return self._connection


_NOTHING_TO_WAIT_FOR: Final = cast("Generator[Any, None, None]", iter(()))
"""What ``await`` gets from a send that is done: it is at its end, and stays there."""


def _let_others_run() -> Generator[None, None, None]:
    """Nothing to wait for. But now and then the others on this loop get a turn."""
    yield


def _chunks(file: Any, offset: int, count: int | None) -> Iterator[bytes]:
    file.seek(offset)
    while count is None or count > 0:
        chunk = file.read(_FILE_CHUNK if count is None else min(_FILE_CHUNK, count))
        if not chunk:
            return
        if count is not None:
            count -= len(chunk)
        yield chunk


class SendPublisher:
    """One send as a Publisher. It has no elements, only an end."""

    def __init__(
        self, socket: SendingSocket, stream: Stream[Any], flush: FlushRule | None = None, written: int = 0
    ) -> None:
        self.socket = socket
        self.stream = stream
        self.flush = flush
        self.written = written
        """Bytes of it that have been written already."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Begin, on the socket's event loop."""
        check_subscriber(subscriber)  # §1.9
        sending = _SendSubscription(self, subscriber)
        subscriber.on_subscribe(sending)
        if not self.socket.on_loop(sending.begin):
            sending.done(_loop_is_closed(self.socket))


class LoopSocket(Protocol):
    """A connection, or a part of one, on its event loop."""

    @property
    def label(self) -> str:
        """Its name in the log."""
        ...

    def on_loop(self, call: Callable[..., object], *arguments: Any) -> bool:
        """Make a call on the event loop; False if that is closed."""
        ...


class SendingSocket(LoopSocket, Protocol):
    """What a send needs of the connection or the channel that it belongs to."""

    def start_sending(
        self, stream: Stream[Any], flush: FlushRule | None, done: Done, written: int = 0
    ) -> Callable[[], object]:
        """Send the elements of a stream; returns what stops it. Raises if nothing can be sent now."""
        ...


class Ending:
    """A Publisher without elements that completes when something has ended on a connection."""

    def __init__(self, socket: LoopSocket, begin: Callable[[Done], object]) -> None:
        self._socket = socket
        self._begin = begin
        """Tells its argument when that has happened, at once if it has already. On the event loop only."""

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Begin to wait."""
        check_subscriber(subscriber)  # §1.9
        waiting = _EndSubscription(subscriber)
        subscriber.on_subscribe(waiting)
        if not self._socket.on_loop(self._wait, waiting):
            waiting.end(_loop_is_closed(self._socket))

    def _wait(self, waiting: _EndSubscription) -> None:
        try:
            self._begin(waiting.end)
        except Exception as refused:
            waiting.end(refused)

    def mono(self) -> Mono[Any]:
        """The same as a Mono."""
        return flux_of(PublisherSource(self)).then()


def _loop_is_closed(socket: LoopSocket) -> ConnectionAborted:
    return ConnectionAborted(
        f"{socket.label} the event loop of this connection is closed, or has stayed in the parent process at "
        "a fork; open another connection"
    )


class _EndSubscription:
    """The Subscription of an Ending: there is nothing to ask for, but it can be cancelled."""

    __slots__ = ("_subscriber",)

    def __init__(self, subscriber: Subscriber[Any]) -> None:
        self._subscriber: Subscriber[Any] | None = subscriber

    def end(self, error: BaseException | None) -> None:
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is None:
            return
        if error is None:
            subscriber.on_complete()
        else:
            subscriber.on_error(error)

    def request(self, n: int, /) -> None:
        if (whole(n) or 0) < 1:
            self.end(non_positive_request(n))  # §3.9

    def cancel(self) -> None:
        self._subscriber = None  # §3.13


class _SendSubscription:
    """The Subscription of one send: there is nothing to ask for, but it can be cancelled."""

    __slots__ = ("_cancel", "_over", "_subscriber", "_work")

    def __init__(self, work: SendPublisher, subscriber: Subscriber[Any]) -> None:
        self._work = work
        self._subscriber: Subscriber[Any] | None = subscriber
        self._cancel: Callable[[], object] | None = None
        self._over = False

    def begin(self) -> None:
        if self._over:
            return
        try:
            work = self._work
            cancel = work.socket.start_sending(work.stream, work.flush, self.done, work.written)
        except Exception as refused:
            self.done(refused)
            return
        self._cancel = cancel
        if self._over:
            # The source or another thread cancelled it before there was anything to cancel.
            self._cancel = None
            cancel()

    def done(self, error: BaseException | None) -> None:
        subscriber, self._subscriber = self._subscriber, None
        self._over = True
        self._cancel = None
        if subscriber is None:
            if error is not None:
                drop_error(error, "a send that was cancelled")
        elif error is None:
            subscriber.on_complete()
        else:
            subscriber.on_error(error)

    def request(self, n: int, /) -> None:
        if (whole(n) or 0) < 1:
            subscriber = self._subscriber
            self.cancel()
            if subscriber is not None:
                subscriber.on_error(non_positive_request(n))  # §3.9

    def cancel(self) -> None:
        self._over = True
        self._subscriber = None  # §3.13
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
