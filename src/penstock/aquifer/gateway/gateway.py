"""The gateway: a Subscriber of any Publisher that serves what it gets to many subscribers elsewhere.

Three threads work for it. The intake requests elements from the source. The writer packs them and appends
them to the log. The server owns the sockets and the session table. They share the log, which is thread-safe;
nothing else is shared.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import zmq

from penstock.aquifer.gateway.intake import Intake, ReplayableSource
from penstock.aquifer.gateway.listener import GatewayListener
from penstock.aquifer.gateway.server import Server
from penstock.aquifer.gateway.socket_ports import SocketPorts
from penstock.aquifer.gateway.writer import FEED_MARK, LogWriter
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Journal, Log, MemoryJournal
from penstock.aquifer.options import GatewayOptions
from penstock.aquifer.protocol.session_table import SessionTable
from penstock.aquifer.records import Codec, codec_named
from penstock.aquifer.records.packer import Packer
from penstock.aquifer.security import Authenticator, CurveServer
from penstock.aquifer.status import CursorMove, GatewayStatus, IdList, IdStatus, SessionStatus
from penstock.delivery import FeedState
from penstock.endpoint import Endpoint
from penstock.spec import Publisher

__all__ = ["Gateway"]

_DEFAULT: Final = GatewayOptions()

T = TypeVar("T")


class Gateway:
    """Buffers or journals a source, and serves it to any number of subscribers, each at its own pace.

    ::

        async with Gateway(flux, control="tcp://127.0.0.1:5556") as gateway:
            await gateway.wait_until_ended()

    or, without an event loop, ``with Gateway(…) as gateway: gateway.join()``.

    Every subscriber gets the same sequence, from the oldest record that is still in the log (rule 1.12). The
    gateway requests more of the source only while the log has space: when the log is full of records that a
    required reader still needs, the source waits.

    ``publisher`` is a Publisher, or a function that makes one when it is told how many records the journal
    has already: a source that can be read again, a file or a table, then continues where it stopped. A
    :class:`ReplayableSource`, such as any :class:`penstock.feeds.Feed`, may emit :class:`Delivery` objects:
    its position is then stored with the records, and it is told when they are safe.

    With ``batched`` each element is a list of records, as ``buffer`` makes them: a source that has many at a
    time then costs one signal for all of them. ``codec`` says how an element becomes a record.

    The gateway requests at most ``prefetch`` records ahead of the log, and as many as should have
    ``prefetch_bytes`` together.

    With ``writable`` others may write to it, in batches that are published exactly once: a Spark query, for
    instance. Then ``publisher`` may be None.

    ``control`` is the endpoint that subscribers connect to, ``data`` that of the extended subscribers'
    records (by default any free port of the same interface). Without ``curve``, a gateway listens at loopback
    only, unless ``allow_remote`` says that the network can be trusted. With ``curve`` and ``curve_control``
    there is a second, encrypted endpoint beside the first; with ``control=None`` it is the only one.

    ``options`` are the same options as one object, in place of the single ones.
    """

    def __init__(
        self,
        publisher: Publisher[Any] | Callable[[int], Publisher[Any]] | None,
        control: str | None = _DEFAULT.control,
        *,
        data: str | None = _DEFAULT.data,
        journal: Journal | None = None,
        codec: str | Codec = _DEFAULT.codec,
        batched: bool = _DEFAULT.batched,
        limits: Limits | None = None,
        prefetch: int = _DEFAULT.prefetch,
        prefetch_bytes: int = _DEFAULT.prefetch_bytes,
        keep_plain: bool = _DEFAULT.keep_plain,
        curve: CurveServer | None = None,
        curve_control: str | None = _DEFAULT.curve_control,
        allow_remote: bool = _DEFAULT.allow_remote,
        writable: bool = _DEFAULT.writable,
        options: GatewayOptions | None = None,
    ) -> None:
        self._options = options = options or GatewayOptions(
            control=control,
            data=data,
            curve_control=curve_control,
            codec=codec,
            batched=batched,
            prefetch=prefetch,
            prefetch_bytes=prefetch_bytes,
            keep_plain=keep_plain,
            allow_remote=allow_remote,
            writable=writable,
        )
        if publisher is None and not options.writable:
            raise TypeError("Gateway(None) has no source: give it a Publisher, or writable=True")
        if publisher is not None and not isinstance(publisher, Publisher) and not callable(publisher):
            raise TypeError(f"Gateway() needs a Publisher, or a function that makes one, not {publisher!r}")
        if (curve is None) != (options.curve_control is None):
            raise ValueError("Gateway(curve=…, curve_control=…): keys and their endpoint go together")
        self._publisher = publisher
        self._codec = codec_named(options.codec)
        self._limits = limits or Limits()
        self._curve = curve
        self._journal = journal if journal is not None else MemoryJournal()
        self._log = Log(self._journal)
        self._intake = Intake(self._log, options.prefetch_bytes)
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._authenticator: Authenticator | None = None
        self._listeners: list[GatewayListener] = []
        self._closed = False
        self._mutex = threading.Lock()

    # ---------------------------------------------------------------- life
    def start(self) -> Self:
        """Listen, subscribe to the source, and serve; ``with`` and ``async with`` do this."""
        if self._context is not None or self._closed:
            raise RuntimeError("this gateway was started or closed before: make a new one")
        self._context = zmq.Context()
        try:
            if self._curve is not None:
                self._authenticator = Authenticator(self._context, self._curve)
                self._authenticator.start()
            self._log.use_codec(self._codec.name)
            self._listen(self._context)
        except BaseException:
            self._abandon()
            raise
        options, log = self._options, self._log
        poller = zmq.Poller()
        ports = SocketPorts(self._listeners, self._limits, poller)
        table = SessionTable(
            log,
            self._limits,
            ports,
            source=self._intake,
            keep_plain=options.keep_plain,
            writable=options.writable,
            access=self._curve.access if self._curve is not None else None,
        )
        self._server = Server(log, table, self._listeners, ports, poller)
        self._writer = LogWriter(
            log,
            self._intake,
            Packer(self._codec, self._batch_limits(), batched=options.batched),
            prefetch=options.prefetch,
            prefetch_bytes=options.prefetch_bytes,
        )
        self._server.start()
        self._writer.start()
        try:
            publisher = self._made_publisher()
            if publisher is not None:
                publisher.subscribe(self._intake)
        except BaseException:
            self.close()
            raise
        return self

    def _listen(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        options = self._options
        attached = self._limits.staged_bytes if options.writable else 0
        for endpoint, data, keys in (
            (options.control, options.data, None),
            (options.curve_control, None, self._curve),
        ):
            if endpoint is not None:
                control = Endpoint.parse(endpoint)
                data_at = Endpoint(control.host, 0) if data is None else Endpoint.parse(data)
                self._listeners.append(
                    GatewayListener(context, control, data_at, keys, self._limits, attached)
                )

    def _made_publisher(self) -> Publisher[Any] | None:
        source = self._publisher
        if source is None or isinstance(source, Publisher):
            return source
        if isinstance(source, ReplayableSource):
            self._intake.feed = source
            marks = self._log.marks.items()
            source.resume(
                {name.removeprefix(FEED_MARK): it for name, it in marks if name.startswith(FEED_MARK)}
            )
        return source(self._log.head)

    def close(self) -> None:
        """Cancel the source, store what has arrived, tell the subscribers, close everything. Idempotent.

        JournalError if the journal could not be closed properly, because its file was removed, for instance.
        """
        with self._mutex:
            if self._closed:
                return
            self._closed = True
        if self._context is None:
            self._log.close()
            return
        self._writer.stop()
        self._server.stop()
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()
        self._server.table.registry.note_all()
        try:
            self._log.close()
        finally:
            self._intake.note_stored(self._log.head)

    async def aclose(self) -> None:
        """:meth:`close` without blocking the event loop."""
        await asyncio.to_thread(self.close)

    def _abandon(self) -> None:
        for listener in self._listeners:
            listener.close()
        if self._authenticator is not None:
            self._authenticator.stop()
        if self._context is not None:
            self._context.destroy(0)
        self._log.close()
        self._closed = True

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        # On the loop's own thread, so that a source made of coroutines finds its loop; nothing here blocks.
        return self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def complete(self, error: BaseException | None = None) -> None:
        """End the stream of a gateway that others write to; it refuses what they publish later."""
        if self._publisher is not None:
            raise RuntimeError("this gateway ends when its source does")
        if error is None:
            self._intake.on_complete()
        else:
            self._intake.on_error(error)

    def lift_bounds(self) -> None:
        """Let the log grow without a bound from now on, so that no producer has to wait."""
        self._log.lift_bounds()

    # ---------------------------------------------------------------- waiting
    def join(self, timeout: float | None = None) -> bool:
        """Wait until the source has ended and all of it is in the log; False after ``timeout`` seconds."""
        return self._log.wait_until_ended(timeout)

    async def wait_until_ended(self) -> None:
        """:meth:`join` without blocking the event loop."""
        while not await asyncio.to_thread(self.join, 0.5):
            pass

    def drained(self) -> bool:
        """Whether the source has ended, a reader has had all of it, and no required reader lacks anything."""
        return self._server.call(lambda table: table.registry.is_drained())

    # ---------------------------------------------------------------- what there is to know
    @property
    def endpoint(self) -> str:
        """Where subscribers connect to; with the port that was found, if any free one was wanted."""
        return str(self._listeners[0].control_endpoint)

    @property
    def curve_endpoint(self) -> str:
        """Where subscribers with keys connect to."""
        return str(self._listeners[-1].control_endpoint)

    @property
    def failure(self) -> str | None:
        """Why the source ended, if it did not complete."""
        return self._log.failure

    @property
    def skipped(self) -> int:
        """How many elements the source has left out, because they could not become records."""
        return self._intake.skipped

    @property
    def feed_state(self) -> FeedState | None:
        """Whether the feed of this gateway is there, since when, and why not; None without a feed."""
        return self._intake.state

    def status(self) -> GatewayStatus:
        """The log, the subscribers and the counters at this moment: what ``gateway status`` shows."""
        return self._server.call(lambda table: table.status())

    # ---------------------------------------------------------------- administering
    def reload_keys(self) -> bool:
        """Read the access list again now; it is also read when it has changed, within a few seconds.

        A client that is not on it any more is cut off. False if the list cannot be read: then the last good
        one stays in force, and the log says why.
        """
        if self._curve is None:
            return True
        done = self._curve.access.reload()
        if self._context is not None and not self._closed:
            self._server.wake()
        return done

    def ids(self) -> IdList:
        """All durable ids, here or away, and the sessions without one: what ``gateway ls`` shows."""

        def page(*after: str) -> IdList:
            return self._administer(lambda table: table.administration.list(*after))

        listed = page()
        while listed.next is not None:
            more = page(listed.next)
            listed.ids += more.ids
            listed.next = more.next
        return listed

    def evict(self, who: str | int) -> SessionStatus:
        """End a session, by its id or its number. Its reader gets an error; an id keeps its cursor.

        LookupError if there is no such session.
        """
        return self._administer(lambda table: table.administration.evict(who))

    def forget(self, id: str) -> IdStatus:
        """Delete a durable id and its cursor. A session that uses it ends.

        LookupError if there is no such id.
        """
        return self._administer(lambda table: table.administration.forget(id))

    def move(self, id: str, offset: int) -> CursorMove:
        """Let a durable id continue at another offset, of those that the log has. A session of it ends.

        LookupError if there is no such id, ValueError if the log does not have the offset.
        """
        return self._administer(lambda table: table.administration.move(id, offset))

    def _administer(self, what: Callable[[SessionTable], T]) -> T:
        if self._context is None or self._closed:
            raise RuntimeError("this gateway does not run: nobody uses it")
        return self._server.call(what)

    def _batch_limits(self) -> Limits:
        """Batches are forgotten as a whole, so a small log is made of small ones."""
        return replace(
            self._limits,
            max_frame=min(self._limits.max_frame, self._log.ack_every_bytes),
            max_frame_records=min(self._limits.max_frame_records, self._log.ack_every_records),
        )
