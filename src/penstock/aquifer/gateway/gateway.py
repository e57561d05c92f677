"""The gateway: a Subscriber of any Publisher that serves what it gets to many subscribers elsewhere.

Three threads work for it. The intake requests elements from the source. The writer packs them and appends
them to the log. The server owns the sockets and the session table. They share the log, which is thread-safe;
nothing else is shared. A gateway of several streams has an intake, a writer and a table for each, and one
server for all.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

import zmq

from penstock.aquifer.gateway.listener import GatewayListener
from penstock.aquifer.gateway.server import Server
from penstock.aquifer.gateway.socket_ports import SocketPorts
from penstock.aquifer.gateway.stream import GatewayStream, StreamOptions, check_source
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Journal
from penstock.aquifer.options import GatewayOptions, OnBadRecord
from penstock.aquifer.protocol.administration import Administration
from penstock.aquifer.protocol.stream_directory import StreamDirectory
from penstock.aquifer.records import Codec
from penstock.aquifer.security import Authenticator, CurveServer
from penstock.aquifer.status import CursorMove, GatewayStatus, IdList, IdStatus, SessionStatus
from penstock.delivery import FeedState
from penstock.endpoint import Endpoint, check_stream_name
from penstock.spec import Publisher

__all__ = ["Gateway"]

_DEFAULT: Final = GatewayOptions()

T = TypeVar("T")
Source: TypeAlias = Publisher[Any] | Callable[[int], Publisher[Any]]
"""A Publisher, or a function that makes one when it is told how many records the journal has."""


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

    ``on_bad_record`` says what happens to an element that cannot become a record, or that a feed calls bad:
    ``"fail"`` ends the stream with an error, ``"skip"`` leaves it out and counts it, and ``"dead-letter"``
    keeps it, with the reason, in the stream ``dead-letters``.

    With ``compress="zstd"`` batches are compressed when they come in, where that makes them clearly smaller.
    The journal has them like that, and so do readers that know zstd; others get them as they were. A level
    from 1 to 19 can be given as in ``"zstd:9"``.

    ``streams`` are further streams by name, each with a source, a journal and a codec of its own
    (:class:`StreamOptions`). They are read and written at ``tcp://HOST:PORT/NAME``. Without a name,
    readers get the gateway's own source, or, if it has none, the first of the streams.

    ``options`` are the same options as one object, in place of the single ones.
    """

    def __init__(
        self,
        publisher: Source | None = None,
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
        on_bad_record: OnBadRecord = _DEFAULT.on_bad_record,
        compress: str | None = _DEFAULT.compress,
        streams: Mapping[str, StreamOptions] | None = None,
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
            on_bad_record=on_bad_record,
            compress=compress,
        )
        if publisher is not None or options.writable or not streams:
            check_source(publisher, "Gateway", writable=options.writable)
        elif journal is not None:
            raise ValueError(
                "Gateway(journal=…) is for a source of its own: give each of the streams its journal"
            )
        if (curve is None) != (options.curve_control is None):
            raise ValueError("Gateway(curve=…, curve_control=…): keys and their endpoint go together")
        self._limits = limits or Limits()
        self._curve = curve
        named = {check_stream_name(name): one for name, one in (streams or {}).items()}
        if publisher is not None or options.writable:
            named = {"": self._own_stream(publisher, journal), **named}
        self._streams: dict[str, GatewayStream] = {}
        for name, one in named.items():
            for stream in GatewayStream(name, one, self._limits).with_dead_letters():
                if self._streams.setdefault(stream.name, stream) is not stream:
                    raise ValueError(
                        f"Gateway(streams=…): {stream.name!r} is the name for dead letters; choose another"
                    )
        self._default = next(iter(self._streams.values()))
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._authenticator: Authenticator | None = None
        self._listeners: list[GatewayListener] = []
        self._closed = False
        self._process = os.getpid()
        self._mutex = threading.Lock()

    def _own_stream(self, source: Source | None, journal: Journal | None) -> StreamOptions:
        options = self._options
        return StreamOptions(
            source,
            journal=journal,
            codec=options.codec,
            batched=options.batched,
            prefetch=options.prefetch,
            prefetch_bytes=options.prefetch_bytes,
            keep_plain=options.keep_plain,
            writable=options.writable,
            on_bad_record=options.on_bad_record,
            compress=options.compress,
        )

    # ---------------------------------------------------------------- life
    def start(self) -> Self:
        """Listen, subscribe to the source, and serve; ``with`` and ``async with`` do this."""
        self._refuse_in_child()
        if self._context is not None or self._closed:
            raise RuntimeError("this gateway was started or closed before: make a new one")
        self._context = zmq.Context()
        try:
            if self._curve is not None:
                self._authenticator = Authenticator(self._context, self._curve)
                self._authenticator.start()
            for stream in self._streams.values():
                stream.claim_journal()
                stream.check_codec()
            self._listen(self._context)
        except BaseException:
            self._abandon()
            raise
        poller = zmq.Poller()
        ports = SocketPorts(self._listeners, self._limits, poller)
        access = self._curve.access if self._curve is not None else None
        names = tuple(self._streams)
        tables = [stream.open_table(ports, access, names) for stream in self._streams.values()]
        self._server = Server(StreamDirectory(tables), self._listeners, ports, poller)
        self._server.start()
        for stream in self._streams.values():
            stream.start()
        try:
            for stream in self._streams.values():
                stream.subscribe()
        except BaseException:
            self.close()
            raise
        return self

    def _listen(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        options = self._options
        writable = any(stream.options.writable for stream in self._streams.values())
        attached = self._limits.staged_bytes if writable else 0
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

    def close(self) -> None:
        """Cancel the source, store what has arrived, tell the subscribers, close everything. Idempotent.

        JournalError if the journal could not be closed properly, because its file was removed, for instance.
        A forked child does not close the gateway of its parent.
        """
        if self._process != os.getpid():
            return
        with self._mutex:
            if self._closed:
                return
            self._closed = True
        if self._context is None:
            self._close_streams()
            return
        for stream in self._streams.values():
            stream.stop()
        self._server.stop()
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()
        self._close_streams()

    def _close_streams(self) -> None:
        """Close every journal, also if one of them cannot be closed."""
        with ExitStack() as closing:
            for stream in self._streams.values():
                closing.callback(stream.close)

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
        self._close_streams()
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

    def _refuse_in_child(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError(
                "this gateway was made before a fork, and runs in the parent process: call it there, ask it "
                "with penstock.aquifer.probe or an Administrator, or make another one in the child"
            )

    def complete(self, error: BaseException | None = None, *, stream: str = "") -> None:
        """End a stream that others write to; the gateway refuses what they publish later."""
        self._refuse_in_child()
        self._stream(stream).complete(error)

    def lift_bounds(self) -> None:
        """Let the logs grow without a bound from now on, so that no producer has to wait."""
        self._refuse_in_child()
        for stream in self._streams.values():
            stream.log.lift_bounds()

    def _stream(self, name: str) -> GatewayStream:
        if not name:
            return self._default
        if name not in self._streams:
            names = ", ".join(filter(None, self._streams)) or "one, without a name"
            raise LookupError(f"this gateway has no stream {name!r}; its streams are: {names}")
        return self._streams[name]

    # ---------------------------------------------------------------- waiting
    def join(self, timeout: float | None = None) -> bool:
        """Wait until all sources have ended, and are in their logs; False after ``timeout`` seconds."""
        self._refuse_in_child()
        until = None if timeout is None else time.monotonic() + timeout
        for stream in self._streams.values():
            left = None if until is None else max(until - time.monotonic(), 0.0)
            if not stream.log.wait_until_ended(left):
                return False
        return True

    async def wait_until_ended(self) -> None:
        """:meth:`join` without blocking the event loop."""
        while not await asyncio.to_thread(self.join, 0.5):
            pass

    def drained(self) -> bool:
        """Whether the source has ended, a reader has had all of it, and no required reader lacks anything.

        With several streams: of each, but for dead letters, which nobody has to read. Members of reader
        groups have left, too, because they know of the end then.
        """
        self._refuse_in_child()
        counted = set(self._streams).difference(self.dead_letters)
        return self._server.look(lambda streams: all(streams[name].is_drained() for name in counted))

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
        """Why a source ended, if it did not complete."""
        failures = ((name, stream.log.failure) for name, stream in self._streams.items())
        return next((_of(name, why) for name, why in failures if why is not None), None)

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams, the default one first; one that needs no name has an empty one."""
        return tuple(self._streams)

    @property
    def dead_letters(self) -> tuple[str, ...]:
        """The names of the streams that have the dead letters of the others."""
        return tuple(name for name, stream in self._streams.items() if stream.for_dead_letters)

    @property
    def skipped(self) -> int:
        """How many elements the sources have left out, because they could not become records."""
        return sum(stream.intake.skipped for stream in self._streams.values())

    @property
    def feed_state(self) -> FeedState | None:
        """Whether the feed of the default stream is there, since when, and why not; None without a feed."""
        return self._default.intake.state

    def status(self, stream: str = "") -> GatewayStatus:
        """The log, the subscribers and the counters at this moment: what ``gateway status`` shows."""
        self._refuse_in_child()
        return self._server.look(lambda streams: streams[stream].status())

    def looks(self, endpoint: str | None = None) -> dict[str, Callable[[], GatewayStatus]]:
        """Functions that return the status of each stream, by its endpoint, for an observer::

            looks = gateway.looks()
            observer = Observer(*looks, looks=looks)

        ``endpoint`` is that of the gateway, if another one than :attr:`endpoint` is to be shown.
        """
        at = endpoint or self.endpoint
        return {f"{at}/{name}" if name else at: partial(self.status, name) for name in self._streams}

    # ---------------------------------------------------------------- administering
    def reload_keys(self) -> bool:
        """Read the access list again now; it is also read when it has changed, within a few seconds.

        When this returns, a client that is not on it any more is cut off. False if the list cannot be read:
        then the last good one stays in force, and the log says why.
        """
        self._refuse_in_child()
        if self._curve is None:
            return True
        done = self._curve.access.reload()
        if self._context is not None and not self._closed:
            self._server.revoke()
        return done

    def ids(self, stream: str = "") -> IdList:
        """All durable ids, here or away, and the sessions without one: what ``gateway ls`` shows."""

        def page(*after: str) -> IdList:
            return self._administer(stream, lambda one: one.list(*after))

        listed = page()
        while listed.next is not None:
            more = page(listed.next)
            listed.ids += more.ids
            listed.next = more.next
        return listed

    def evict(self, who: str | int, stream: str = "") -> SessionStatus:
        """End a session, by its id or its number. Its reader gets an error; an id keeps its cursor.

        LookupError if there is no such session.
        """
        return self._administer(stream, lambda one: one.evict(who))

    def forget(self, id: str, stream: str = "") -> IdStatus:
        """Delete a durable id and its cursor. A session that uses it ends.

        LookupError if there is no such id.
        """
        return self._administer(stream, lambda one: one.forget(id))

    def move(self, id: str, offset: int, stream: str = "") -> CursorMove:
        """Let a durable id continue at another offset, of those that the log has. A session of it ends.

        LookupError if there is no such id, ValueError if the log does not have the offset.
        """
        return self._administer(stream, lambda one: one.move(id, offset))

    def _administer(self, stream: str, what: Callable[[Administration], T]) -> T:
        self._refuse_in_child()
        if self._context is None or self._closed:
            raise RuntimeError(
                "this gateway is not running; start it first, or make a new one if it was closed"
            )

        def administer(streams: StreamDirectory) -> T:
            table = streams[stream]
            with table.log.keeping_everything():
                return what(table.administration)

        return self._server.call(administer)


def _of(name: str, failure: str) -> str:
    return f"{name}: {failure}" if name else failure
