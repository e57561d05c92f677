"""The gateway: a Subscriber of any Publisher that serves what it gets to many subscribers elsewhere."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import zmq

from penstock.aquifer.gateway.listener import Listener
from penstock.aquifer.gateway.server import Server
from penstock.aquifer.gateway.writer import Writer
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Journal, MemoryJournal
from penstock.aquifer.log.journal import Cursor
from penstock.aquifer.log.log import Log
from penstock.aquifer.protocol.administration import Administration
from penstock.aquifer.protocol.session_table import SessionTable
from penstock.aquifer.protocol.transactions import PendingTransaction
from penstock.aquifer.records.codecs import Codec, codec_named
from penstock.aquifer.records.packer import Packer
from penstock.aquifer.security import Authenticator, CurveServer, check_bind
from penstock.endpoint import Endpoint
from penstock.spec import Publisher

__all__ = ["Gateway"]


class Gateway:
    """Buffers or journals a source, and serves it to any number of subscribers, each at its own pace.

    ::

        async with Gateway(flux, control="tcp://127.0.0.1:5556") as gateway:
            await gateway.wait_until_ended()

    or, without an event loop, ``with Gateway(…) as gateway: gateway.join()``.

    Every subscriber gets the same sequence, from the oldest record that is still there (rule 1.12). The
    source is asked for more only while there is room in the journal: when a subscriber that has to be kept
    is a full journal behind, the source waits.

    ``publisher`` is a Publisher, or a function that makes one when it is told how many records the journal
    has already: a source that can be read again, a file or a table, then goes on where it stopped.

    With ``batched`` each element is a list of records, as ``buffer`` makes them: a source that has many at a
    time then costs one signal for all of them. ``codec`` says what a record looks like as bytes.

    The source is asked for at most ``prefetch`` records ahead of the log, and for as many as should have
    ``prefetch_bytes`` together.

    With ``writable`` others may write to it, in batches that are published exactly once: a Spark query, for
    instance. Then ``publisher`` may be None.

    ``control`` is the endpoint that subscribers connect to, ``data`` that of the extended subscribers'
    records (by default any free port of the same interface). Only loopback is bound without ``curve``,
    unless ``allow_remote`` says that the network can be trusted. With ``curve`` and ``curve_control`` there
    is a second, encrypted endpoint beside the first; with ``control=None`` it is the only one.
    """

    def __init__(
        self,
        publisher: Publisher[Any] | Callable[[int], Publisher[Any]] | None,
        control: str | None = "tcp://127.0.0.1:5556",
        *,
        data: str | None = None,
        journal: Journal | None = None,
        codec: str | Codec = "bytes",
        batched: bool = False,
        limits: Limits | None = None,
        prefetch: int = 65_536,
        prefetch_bytes: int = 32 * 1024 * 1024,
        keep_plain: bool = True,
        curve: CurveServer | None = None,
        curve_control: str | None = None,
        allow_remote: bool = False,
        writable: bool = False,
    ) -> None:
        if publisher is None and not writable:
            raise TypeError("Gateway(None) has no source: give it a Publisher, or writable=True")
        if publisher is not None and not isinstance(publisher, Publisher) and not callable(publisher):
            raise TypeError(f"Gateway() needs a Publisher, or a function that makes one, not {publisher!r}")
        if isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 1:
            raise ValueError(f"Gateway(prefetch=…) needs a whole number of at least 1, not {prefetch!r}")
        if isinstance(prefetch_bytes, bool) or not isinstance(prefetch_bytes, int) or prefetch_bytes < 1:
            raise ValueError(
                f"Gateway(prefetch_bytes=…) needs a whole number of at least 1, not {prefetch_bytes!r}"
            )
        if (curve is None) != (curve_control is None):
            raise ValueError("Gateway(curve=…, curve_control=…): keys and their endpoint go together")
        self._endpoints: list[tuple[Endpoint, Endpoint, CurveServer | None]] = []
        for endpoint, keys in ((control, None), (curve_control, curve)):
            if endpoint is not None:
                check_bind(endpoint, secure=keys is not None, allow_remote=allow_remote)
                at = Endpoint.parse(endpoint)
                data_at = Endpoint(at.host, 0)
                if data is not None and keys is None:
                    check_bind(data, secure=False, allow_remote=allow_remote)
                    data_at = Endpoint.parse(data)
                self._endpoints.append((at, data_at, keys))
        if not self._endpoints:
            raise ValueError("Gateway() needs an endpoint: control=… or curve_control=…")
        self.skipped = 0
        """How many elements the source has left out: set by whoever made the source, shown by ``status``."""
        self._publisher = publisher
        self._codec = codec_named(codec)
        if batched and self._codec.name == "arrow":
            raise ValueError("Gateway(batched=True, codec='arrow'): an Arrow batch is a batch already")
        self._batched = batched
        self._limits = limits or Limits()
        self._prefetch = prefetch
        self._prefetch_bytes = prefetch_bytes
        self._writable = writable
        self._keep_plain = keep_plain
        self._curve = curve
        self._journal = journal if journal is not None else MemoryJournal()
        self._log = Log(self._journal)
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._authenticator: Authenticator | None = None
        self._listeners: list[Listener] = []
        self._started = 0.0
        self._closed = False
        self._ended = threading.Event()
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
            self._journal.use_codec(self._codec.name)
            attached = self._limits.staged_bytes if self._writable else 0
            for control, data, keys in self._endpoints:
                self._listeners.append(Listener(self._context, control, data, keys, self._limits, attached))
        except BaseException:
            self._abandon()
            raise
        self._server = Server(self._log, self._limits, self._listeners, self._make_table)
        self._writer = Writer(
            self._log,
            Packer(self._codec, self._batch_limits(), batched=self._batched),
            prefetch=self._prefetch,
            prefetch_bytes=self._prefetch_bytes,
            published=self._on_published,
            take_cursors=self._take_cursors,
        )
        self._started = time.monotonic()
        self._server.start()
        self._writer.start()
        try:
            publisher = self._publisher
            if publisher is not None and not isinstance(publisher, Publisher):
                publisher = publisher(self._journal.head)
            if publisher is not None:
                publisher.subscribe(self._writer.intake)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Cancel the source, store what has arrived, tell the subscribers, close everything. Idempotent.

        JournalError if the journal could not be closed in order, because its file was removed, for instance.
        """
        with self._mutex:
            if self._closed:
                return
            self._closed = True
        if self._context is None:
            self._journal.close()
            return
        self._writer.stop()
        self._server.stop()
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()
        self._server.table.note_all()
        for name, cursor in self._take_cursors().items():
            self._journal.save_cursor(name, cursor)
        try:
            self._journal.close()
        finally:
            self._ended.set()

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
        self._journal.close()
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
        """End the stream of a gateway that others write to; what they publish later is not taken."""
        if self._publisher is not None:
            raise RuntimeError("this gateway ends when its source does")
        if error is None:
            self._writer.intake.on_complete()
        else:
            self._writer.intake.on_error(error)

    # ---------------------------------------------------------------- waiting
    def join(self, timeout: float | None = None) -> bool:
        """Wait until the source has ended and all of it is in the log; False if the time is over first."""
        return self._ended.wait(timeout)

    async def wait_until_ended(self) -> None:
        """:meth:`join` without blocking the event loop."""
        while not await asyncio.to_thread(self._ended.wait, 0.5):
            pass

    def drained(self) -> bool:
        """Whether the source has ended, somebody has had all of it, and nobody who is kept waits for more."""
        end, table = self._log.end, self._server.table
        if end is None:
            return False
        kept = [session.acknowledged for session in list(table.sessions.values()) if session.keep]
        kept += [saved.acknowledged for saved in list(table.absent.values())]
        return min(kept, default=end) >= end and max([*kept, table.departed["to"]]) >= end

    # ---------------------------------------------------------------- what there is to know
    @property
    def endpoint(self) -> str:
        """Where subscribers connect to; with the port that was found, if any would do."""
        return str(self._listeners[0].control_endpoint)

    @property
    def curve_endpoint(self) -> str:
        """Where subscribers with keys connect to."""
        return str(self._listeners[-1].control_endpoint)

    @property
    def failure(self) -> str | None:
        """Why the source ended, if it did not complete."""
        return self._log.failure

    def status(self) -> dict[str, Any]:
        """The log, the subscribers and the counters at this moment: what ``gateway status`` shows."""
        journal, intake, table = self._journal, self._writer.intake, self._server.table
        held = journal.held
        return {
            "epoch": journal.epoch,
            "uptime": round(time.monotonic() - self._started, 3),
            "first": journal.first,
            "head": journal.head,
            "floor": self._log.low_watermark,
            "end": self._log.end,
            "failure": self._log.failure,
            "durable": journal.durable,
            "records": held.records,
            "max_records": journal.max_records,
            "bytes": held.nbytes,
            "max_bytes": journal.max_bytes,
            "stalled": self._writer.stalled,
            "codec": self._codec.name,
            "source": {
                "requested": intake.requested,
                "received": intake.received,
                "skipped": self.skipped,
            },
            "subscribers": [session.describe() for session in list(table.sessions.values())],
            "absent": table.cursors.describe(),
            "departed": dict(table.departed),
            "counters": dict(table.counters),
        }

    # ---------------------------------------------------------------- administering
    def reload_keys(self) -> bool:
        """Read the list of clients again now; it is also read when it has changed, within a few seconds.

        Who is not on it any more is cut off. False if the list cannot be read: then the last good one stays
        in force, and the log says why.
        """
        if self._curve is None:
            return True
        done = self._curve.access.reload()
        if self._context is not None and not self._closed:
            self._server.wake()
        return done

    def ids(self) -> dict[str, Any]:
        """All durable ids, here or away, and the sessions without one: what ``gateway ids`` shows."""

        def page(after: str) -> dict[str, Any]:
            return self._administer(lambda administration: administration.list(after))

        listed = page("")
        while (after := listed["next"]) is not None:
            more = page(after)
            listed["ids"] += more["ids"]
            listed["next"] = more["next"]
        return listed

    def evict(self, who: str | int) -> dict[str, Any]:
        """End a session, by its id or its number. Its reader gets an error; an id keeps its place."""
        return self._administer(lambda administration: administration.evict(who))

    def forget(self, id: str) -> dict[str, Any]:
        """Delete a durable id: nothing is kept for it any more. A session that has it ends."""
        return self._administer(lambda administration: administration.forget(id))

    def _administer(self, what: Callable[[Administration], dict[str, Any]]) -> dict[str, Any]:
        if self._context is None or self._closed:
            raise RuntimeError("this gateway does not run: nobody uses it")
        return self._server.call(lambda table: what(table.administration))

    # ---------------------------------------------------------------- between the threads
    def _make_table(self, server: Server) -> SessionTable:
        return SessionTable(
            self._log,
            self._limits,
            server,
            cursors=self._journal.cursors,
            keep_plain=self._keep_plain,
            status=self.status,
            marks=lambda: self._journal.marks,
            has_room_for_mark=self._journal.has_room_for_mark,
            submit=self._submit if self._writable else None,
            access=self._curve.access if self._curve is not None else None,
        )

    def _batch_limits(self) -> Limits:
        """Batches are forgotten as a whole, so a small log is made of small ones."""
        return replace(
            self._limits,
            max_frame=min(self._limits.max_frame, max(1, self._journal.max_bytes // 8)),
            max_frame_records=min(self._limits.max_frame_records, max(1, self._journal.max_records // 8)),
        )

    def _submit(self, delivery: PendingTransaction) -> None:
        self._writer.submit(delivery)

    def _on_published(self) -> None:
        self._server.wake()
        if self._log.end is not None:
            self._ended.set()

    def _take_cursors(self) -> Mapping[str, Cursor | None]:
        return self._server.table.cursors.take_changed()
