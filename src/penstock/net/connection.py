"""A connection as its user holds it: its two sides, its handler, and its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.net.errors import ConnectionAborted, IdleTimeout, ReceiveStopped
from penstock.net.handler import HandlerRun, handler_stream, tell_failure, tells_failure
from penstock.net.identity import ConnectionIdentity
from penstock.net.inbound import Inbound
from penstock.net.lifecycle import ConnectionState, IdleWatch, Shutdown, limits_of, tell_state
from penstock.net.metrics import Traffic
from penstock.net.outbound import Ending, Outbound
from penstock.net.output import ConnectionOutput
from penstock.net.receiver import Receiver
from penstock.net.tls import cut_off
from penstock.net.transport import TimerHandle, Transport
from penstock.streams import Mono
from penstock.streams.spi import connect

if TYPE_CHECKING:
    from penstock.net.bridge import Bridge
    from penstock.net.connections import Connections
    from penstock.net.proxies.header import ProxyHeader

__all__ = ["Connection"]

_log = logging.getLogger("penstock.net")

_UNUSED = 0.1
"""An unused connection whose peer has closed its side is kept for this many seconds at least."""
_UNREAD = 60.0
"""The same if bytes have arrived that nobody has begun to read: the handler may be busy."""


class Connection(ConnectionIdentity):
    """A connection. A client returns one; a handler gets its two sides.

    ::

        async with await TcpClient.create().host("localhost").port(7000).connect() as connection:
            await connection.outbound.send(b"hello\\n")
            async for chunk in connection.inbound.receive(): ...

    Every method may be called from any thread.
    """

    __slots__ = (
        "__weakref__",
        "_aborted",
        "_bridge",
        "_closing",
        "_handler",
        "_on_lost",
        "_on_peer_end",
        "_receiver",
        "_sound",
        "_stopped",
        "_timer",
        "_watch",
        "inbound",
        "outbound",
        "output",
        "peer_has_ended",
    )

    def __init__(
        self,
        bridge: Bridge,
        transport: Transport,
        receiver: Receiver,
        traffic: Traffic | None,
        connections: Connections,
    ) -> None:
        """Made by ``connect()`` and by a server, for each connection."""
        super().__init__(transport, traffic, connections)
        self._bridge = bridge
        self._receiver = receiver
        self._handler: HandlerRun | None = None
        self._watch: IdleWatch | None = None
        self._timer: TimerHandle | None = None
        self._closing: Shutdown | None = None
        self._stopped = False
        self.peer_has_ended = False
        """Whether the peer sends no more."""
        self._on_peer_end: list[Callable[[], object]] | None = None
        self._sound = True
        """Whether nothing failed, so that a pool may use the socket again."""
        self._aborted: BaseException | None = None
        self._on_lost: list[Callable[[], object]] | None = None
        self.output = ConnectionOutput(self, bridge, receiver)
        """What ``outbound`` sends through."""
        self.inbound = Inbound(self, receiver)
        """The receiving side."""
        self.outbound = Outbound(self)
        """The sending side."""

    @property
    def proxy_header(self) -> ProxyHeader | None:
        """What a proxy told with the PROXY protocol, or None."""
        return self._bridge.proxy_header

    @property
    def busy(self) -> bool:
        """Whether its handler is running, or a send, or bytes of a send have not left."""
        flushing = self._closing is not None and self._closing.flushing
        return flushing or self.output.sender is not None or not (self._handler is None or self._handler.over)

    # ---------------------------------------------------------------- what the bridge calls
    def begin(self) -> None:
        """Begin: start receiving, tell the observers, run the handler."""
        if not self._connections.admit(self):
            self._lost = self.output.closed = True
            return
        self._receiver.open(self.transport)
        for option in self.settings.socket_options:
            self._connections.set_option(self, option)
        for state in self._connections.opening:
            self._tell(state)
        self._watch = self._watching()
        self._tell(ConnectionState.CONFIGURED)
        with tells_failure(self._handler_done):
            for call in self.settings.on_connection:
                call(self)
            if self.settings.handler is not None:
                self._run(self.settings.handler(self.inbound, self.outbound))

    def _run(self, work: Any) -> None:
        stream = handler_stream(work, "connection")
        advice = self._connections.advice
        self._handler = HandlerRun(
            self._handler_done, lambda element: advice.elements_dropped(self.label, work, element)
        )
        connect(stream, self._handler)

    def _tell(self, state: ConnectionState) -> None:
        tell_state(self, state, self.settings.wiretap, self.settings.observers)

    def _handler_done(self, error: BaseException | None) -> None:
        self._sound = self._sound and error is None
        if error is not None and tell_failure(self.label, error, lost=self._lost, stopped=self._stopped):
            self._connections.count_error()
        elif error is None and self.output.was_forgotten:
            self._connections.advice.nothing_sent(self.label)
        self.on_loop(self._close)

    def peer_ended(self) -> bool:
        """The peer sends no more: whether the connection stays, so that we may go on sending."""
        self.peer_has_ended = True
        self._receiver.end(self.cut_off())
        self._tell_peer_end()
        # TLS has no half of a connection: its end is the end of both directions.
        stays = self._closing is None and self.transport.can_write_eof()
        if stays:
            self.expect_use()
        return stays

    def cut_off(self) -> ConnectionAborted | None:
        """The error if the peer has ended its TCP connection without ending TLS first; otherwise None."""
        session = self.tls
        return None if session is None or session.ended else cut_off(self.label)

    def expect_use(self) -> None:
        """The peer has closed its side, and may be gone: as long as nothing is sent, that looks the same.

        A handler that reads to the end, or sends, finds out and decides. An unused connection is closed.
        """
        if self._timer is None and self._closing is None and not self._lost:
            unread = self.busy and self._receiver.waiting and not self._receiver.taken
            patience = max(self.settings.linger, _UNREAD if unread else _UNUSED)
            self._timer = self._loop.call_later(patience, self._close_unless_used)

    def _close_unless_used(self) -> None:
        self._timer = None
        if self._lost or self._closing is not None or self.output.sender is not None:
            return  # This is called again when the send ends.
        handler = self._handler
        if handler is None or handler.over:
            if not self._receiver.heard or self._on_lost:
                self._close()
        elif not self._receiver.heard:
            _log.info(
                "%s the peer has closed its side, and the handler neither reads nor sends: cancelling it",
                self.label,
            )
            handler.cancel()
            self._close()

    def when_peer_ends(self, call: Callable[[], object]) -> None:
        """Call this when nothing more is received, for whatever reason; now if that is so already."""
        if self._lost or self._receiver.ended:
            call()
        elif self._on_peer_end is None:
            self._on_peer_end = [call]
        else:
            self._on_peer_end.append(call)

    def _tell_peer_end(self) -> None:
        calls, self._on_peer_end = self._on_peer_end, None
        for call in calls or ():
            call()

    def pause_writing(self) -> None:
        """The transport holds as many bytes as it should."""
        self.output.pause()

    def resume_writing(self) -> None:
        """The transport has room again."""
        if not self.output.resume() and self._closing is not None:
            self._closing.resume()

    def lost(self, error: BaseException | None) -> None:
        """The socket is closed: everything ends, with an error if nobody asked for that."""
        if not self._lost:  # If it was refused, nobody knows of it.
            self._end(error, ConnectionState.DISCONNECTING)

    def release(self) -> None:
        """The socket goes back to its pool. For its user this connection is closed."""
        self._receiver.end(ReceiveStopped(f"{self.label} this connection was given back to its pool"))
        self._end(None, ConnectionState.RELEASED)

    @property
    def receiving(self) -> bool:
        """Whether there is a subscriber to what is received."""
        return self._receiver.heard

    @property
    def reusable(self) -> bool:
        """Whether a pool may hand out the socket again: nothing failed, nothing is unread, all was sent."""
        return (
            self._sound
            and not (self.busy or self._lost or self.peer_has_ended or self.output.ended)
            and self._receiver.settled
            and self.output.writable
            and not self.transport.get_write_buffer_size()
            and not self.transport.is_closing()
        )

    def _end(self, error: BaseException | None, state: ConnectionState) -> None:
        self._lost = True
        if error is not None:
            self._connections.count_error()
        error = error or self._aborted
        if self._timer is not None:
            self._timer.cancel()
        if self._closing is not None:
            self._closing.over()
        if self._watch is not None:
            self._watch.cancel()
        sender = self.output.cut()
        self._receiver.end(self._broken(error))
        why = "the connection was closed" if error is None else f"the connection was lost ({error})"
        if sender is not None:
            sender.lost(why, error)
        self.output.fail_waiting(why)
        self._tell_peer_end()
        self._tell(state)
        self._connections.remove(self)
        calls, self._on_lost = self._on_lost, None
        for call in calls or ():
            call()
        handler = self._handler
        if handler is None or handler.over:
            return
        if not self._receiver.taken and self._receiver.waiting:
            # It has not begun to read what has arrived: give it a moment.
            self._timer = self._loop.call_later(
                self.settings.linger, self._leave, handler, sender is not None
            )
        else:
            self._leave(handler, sender is not None)

    def _leave(self, handler: HandlerRun, was_sending: bool) -> None:
        """A handler that reads or sends has learned of the end, and may finish. Any other is cancelled."""
        if self._receiver.taken or was_sending:
            self._connections.leave(self, handler)
        else:
            handler.cancel()

    def _broken(self, error: BaseException | None) -> BaseException | None:
        if error is None:
            if self._closing is None and self.tls is not None:
                return self.cut_off()  # uvloop reports nothing else when TCP ends below TLS.
            return ReceiveStopped(f"{self.label} this side closed the connection")
        if isinstance(error, IdleTimeout):
            return error
        broken = ConnectionAborted(f"{self.label} the connection was lost: {error}")
        broken.__cause__ = error
        return broken

    # ---------------------------------------------------------------- the end
    def close(self) -> None:
        """Flush what was sent, then close. This does not wait; :meth:`aclose` does."""
        self.on_loop(self._close)

    def abort(self, why: BaseException | None = None) -> None:
        """Close now, with a reset. What has not left is lost, and ``receive()`` and sends fail."""
        self.on_loop(self._abort, why or ConnectionAborted(f"{self.label} was aborted by its owner"))

    async def aclose(self) -> None:
        """Flush, close, and wait until it is closed."""
        self.close()
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed, whoever closes it."""
        await self.on_dispose()

    def on_dispose(self) -> Mono[Any]:
        """A Mono that completes when the connection is closed; may be awaited on any loop, or blocked on."""
        return Ending(self, lambda done: self._when_lost(lambda: done(None))).mono()

    def _when_lost(self, call: Callable[[], object]) -> None:
        if self._lost:
            call()
            return
        if self.peer_has_ended:
            self.expect_use()
        if self._on_lost is None:
            self._on_lost = []
        self._on_lost.append(call)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sound = self._sound and kind is None
        if kind is None:
            await self._connections.settle(self)
        await self.aclose()

    def finish(self) -> None:
        """Stop receiving: ``receive()`` ends after what has arrived, so that the handler can end.

        It fails with ReceiveStopped, because the peer has not ended: the input may be half a line, or half an
        upload.
        """
        if self._closing is not None:
            return  # It still reads, but only to see the peer's end.
        self._stopped = True
        why = ReceiveStopped(
            f"{self.label} nothing more is received, because this side is being closed; "
            "the peer had not ended"
        )
        self._receiver.stop(why)
        self.output.finish_echo(why)
        self._tell_peer_end()
        if self._handler is None:
            self._close()

    def _close(self) -> None:
        if self._closing is not None or self._lost:
            return
        self.output.write_joined()
        if self._connections.takes_back(self):
            return
        self._closing = Shutdown(self.transport)
        if self._timer is not None:
            self._timer.cancel()
        cut_short = self.output.close("this side closed the connection")
        # A send that is cut short has failed, and says what had not left. Otherwise nothing may be missing.
        if self._closing.begin(self.settings.linger, self.peer_has_ended, flush=not cut_short):
            self._receiver.discard(ReceiveStopped(f"{self.label} this side closed the connection"))

    def _abort(self, why: BaseException, *, cut: bool = True) -> None:
        if not self._lost:
            self._aborted = why
            self.output.abort()
            # A peer that has seen our end has seen everything before it.
            cut = cut and (self._closing is None or self._closing.flushing)
            self._closing = self._closing or Shutdown(self.transport)
            (self.transport.reset if cut else self.transport.abort)()

    # ---------------------------------------------------------------- timeouts
    def _watching(self) -> IdleWatch | None:
        if self._traffic is None:
            return None
        limits = limits_of(
            self.settings,
            self._traffic,
            self.transport,
            receiving=lambda: self._receiver.wanted,
            flushing=lambda: self.output.flushing,
        )
        return IdleWatch(self._loop, limits, self._idle) if limits else None

    def _idle(self, timeout: IdleTimeout) -> None:
        _log.info("%s %s: closing", self.label, timeout)
        self._connections.count_error()
        self._abort(timeout, cut=False)
