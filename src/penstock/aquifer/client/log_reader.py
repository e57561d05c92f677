"""Reading ranges of a gateway's log in the caller's own thread, and asking how far the log goes.

The gateway gets more credit when the caller comes back for the next batch, so a loop that stands still holds
no more than one window.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Final, NamedTuple, Self

import zmq
from msgspec import UNSET

from penstock.aquifer.client.connection import GatewayConnection
from penstock.aquifer.client.driver import Driver
from penstock.aquifer.client.keys import key_list
from penstock.aquifer.client.segment_reader import SegmentFinder
from penstock.aquifer.client.sockets import GatewaySockets
from penstock.aquifer.errors import EpochChanged, OffsetGone, ProtocolViolation
from penstock.aquifer.protocol.frames import Frame, payload_of
from penstock.aquifer.protocol.messages import (
    VERSION,
    OnSubscribe,
    Subscribe,
    SubscribeFields,
    extension,
    read_status,
)
from penstock.aquifer.protocol.subscribe_options import SubscribeOptions
from penstock.aquifer.protocol.subscriber_side import SubscriberSide
from penstock.aquifer.records.batch import MSGPACK, Batch, unpack_metadata
from penstock.aquifer.security import CurveClient
from penstock.aquifer.status import CursorStatus, GatewayStatus, QueryReport
from penstock.endpoint import Endpoint

__all__ = ["LogReader", "LogState"]

_LONGEST_WAIT: Final = 30.0
"""Seconds after which a gateway answers at the latest."""
_LONGEST_LEASE: Final = 366 * 24 * 3600.0
"""Seconds; keeps the number within bounds. A gateway has a limit of its own."""
_LONG: Final = 0.05
"""Seconds for which the sockets may be left alone while there are batches to yield."""


class LogState(NamedTuple):
    """What a gateway says about its log."""

    epoch: str
    """Identifies the log: offsets belong to one epoch."""
    first: int
    """The oldest offset in the log."""
    head: int
    """The offset that the next record will get."""
    acknowledged: int | None
    """The offset of the cursor that was asked about, if it exists."""
    end: int | None
    """Where the stream ended, if it has."""
    failure: str | None
    """Why it ended there, if its source did not complete."""
    records: int
    nbytes: int
    """How many records, and how many bytes, are in the log."""
    lease: float | None = None
    """The seconds for which the gateway keeps the cursor, if there is one and the gateway says so."""
    fits: tuple[int, int] | None = None
    """How many records from ``start`` on are ``within`` a number of bytes, and how many bytes they have."""
    saved: Mapping[str, CursorStatus] = MappingProxyType({})
    """The cursors of this caller that the gateway keeps, by id; if there are very many, some of them."""


class LogReader:
    """Reads ranges of the log of one gateway, and asks for its state; used by one thread at a time.

    ::

        with LogReader("tcp://127.0.0.1:5556") as log:
            state = log.state()
            for batch in log.read(state.first, state.head):
                print(batch.first, batch.count)

    Without a ``context`` of ØMQ, it starts threads of its own, and stops them at the end. Programs that make
    many readers, one after the other, share one: ``context=zmq.Context.instance()``.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        patience: float = 30.0,
        curve: CurveClient | None = None,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        self._endpoint = Endpoint.parse(endpoint)
        self._patience = patience
        self._curve = curve
        self._context = context
        self._connection = GatewayConnection(self._endpoint, curve, patience=patience, context=context)

    def state(
        self,
        *,
        name: str | None = None,
        epoch: str | None = None,
        lease: float | None = None,
        acknowledge: int | None = None,
        beyond: int | None = None,
        wait: float = 0.0,
        start: int | None = None,
        within: int | None = None,
        report: QueryReport | None = None,
        patience: float | None = None,
        while_waiting: Callable[[], object] | None = None,
    ) -> LogState:
        """Return the state of the log.

        With ``beyond`` and ``wait`` the gateway answers as soon as the log goes beyond that offset, or after
        ``wait`` seconds.

        ``name`` is the id of a cursor. With ``acknowledge`` the gateway keeps every record from that offset
        on, for ``lease`` seconds after the last call with this name. All figures are absolute, so a question
        that is asked twice changes nothing.

        With ``epoch`` the call is about that log only: if the gateway has another one by now, this raises
        :class:`~penstock.aquifer.EpochChanged`.

        With ``start`` and ``within``, ``fits`` tells how many records from ``start`` on have no more than
        ``within`` bytes. The gateway looks at a few megabytes at most, so there may be more.

        ``report`` tells the gateway about the last batch of the query that reads under ``name``, for the
        gateway's status.

        ``patience`` replaces the reader's own for this call. ``while_waiting`` is called several times a
        second until the answer is there; it may raise.
        """
        if name is not None and not name:
            raise ValueError("state(name=''): give a name that is not empty, or None")
        wait = min(wait, _LONGEST_WAIT)
        question = Subscribe(
            x=SubscribeFields(
                v=VERSION,
                probe=True,
                id=name if name is not None else UNSET,
                epoch=epoch if epoch is not None else UNSET,
                lease=max(1, round(min(lease, _LONGEST_LEASE) * 1000)) if lease is not None else UNSET,
                ack=acknowledge if acknowledge is not None else UNSET,
                beyond=beyond if beyond is not None else UNSET,
                wait=round(wait * 1000) if beyond is not None else UNSET,
                from_=start if start is not None else UNSET,
                within=within if within is not None else UNSET,
                report=report if report is not None else UNSET,
            )
        )
        answer = self._connection.ask(question, patience=patience, held=wait, while_waiting=while_waiting)
        details = extension(answer.x) if isinstance(answer, OnSubscribe) else None
        if details is None or details.first is UNSET or details.head is UNSET or details.status is UNSET:
            raise ProtocolViolation(f"the gateway at {self._endpoint} speaks the plain dialect only")
        status = read_status(details.status, GatewayStatus)
        return LogState(
            epoch=str(details.epoch),
            first=details.first,
            head=details.head,
            acknowledged=details.next if details.next is not UNSET else None,
            end=status.end,
            failure=status.failure,
            records=status.records,
            nbytes=status.bytes,
            lease=details.lease / 1000 if details.lease is not UNSET else None,
            fits=details.fits if details.fits is not UNSET else None,
            saved=status.saved,
        )

    def read(
        self,
        start: int,
        stop: int,
        *,
        epoch: str | None = None,
        format: str = MSGPACK,
        keys: Iterable[bytes | str] | None = None,
        window: int = 65_536,
        window_bytes: int = 8 * 1024 * 1024,
    ) -> Iterator[Batch]:
        """Yield the records from offset ``start`` up to, but not including, ``stop``: in order, each once.

        The payload of a large batch is a view of the bytes that arrived. It costs no copy, and stays valid
        for as long as it is referenced.

        With ``keys`` only the records with one of these keys come. ``batch.end`` is then how far the log was
        searched, :func:`~penstock.aquifer.offsets_of` has the offset of each record, and a batch may have no
        record.

        The gateway does not wait for a range reader. If you need the range, keep a cursor in front of it: see
        :meth:`state`. If the records are gone, this raises :class:`~penstock.aquifer.OffsetGone`.
        """
        finder = SegmentFinder(self._endpoint.address) if self._endpoint.is_loopback else None
        options = SubscribeOptions(
            stream=self._endpoint.stream,
            start=start,
            stop=stop,
            epoch=epoch,
            keys=None if keys is None else key_list(keys, "LogReader.read"),
            keep=False,
            formats=[format],
            dialect="extended",
            window=window,
            max_window=window,
            window_bytes=window_bytes,
            patience=self._patience,
            encrypted=self._curve is not None,
            segments=finder,
        )
        side = SubscriberSide(self._endpoint.address, options)
        sockets = GatewaySockets(self._endpoint, self._curve, views=True, context=self._context)
        reader = _RangeReader(side, sockets)
        try:
            for frame in reader.frames():
                span = None if frame.chosen is None else frame.count
                yield Batch(frame.first, frame.records, payload_of(frame), frame.metadata, format, span=span)
        finally:
            reader.close()
            if finder is not None:
                finder.close()

    def time_of(self, offset: int, *, epoch: str | None = None, format: str = MSGPACK) -> int | None:
        """Return the timestamp of a record, in microseconds since 1970; None if it is gone."""
        try:
            return self._time_in_log(offset, epoch, format)
        except EpochChanged:
            return None

    def _time_in_log(self, offset: int, epoch: str | None, format: str) -> int | None:
        """The same, and EpochChanged if the gateway has another log."""
        try:
            batch = next(self.read(offset, offset + 1, epoch=epoch, format=format))
        except OffsetGone:
            return None
        metadata = unpack_metadata(batch.metadata)
        return metadata.timestamp if metadata.timestamps is None else metadata.timestamps[0]

    def offset_at(self, timestamp: int, *, state: LogState | None = None, format: str = MSGPACK) -> int:
        """Return the offset of the first record with this timestamp or a later one.

        ``timestamp`` is in microseconds since 1970. The result is the end of the log if there is no such
        record. With ``state`` the log counts as it was at that moment.

        A search over the log asks for a few records only: they are in the order in which they arrived. If
        producers have given them timestamps in another order, the result is an offset at which an earlier
        record is followed by one that is not.

        Raises :class:`~penstock.aquifer.EpochChanged` if the gateway has another log than in ``state``.
        """
        state = self.state() if state is None else state
        first, last = state.first, state.head
        while first < last:
            middle = (first + last) // 2
            found = self._time_in_log(middle, state.epoch, format)
            if found is None or found < timestamp:  # The oldest may go: then the time is in a later one.
                first = middle + 1
            else:
                last = middle
        return first

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _RangeReader:
    """Drives the subscriber's side of the protocol from within a generator."""

    def __init__(self, side: SubscriberSide, sockets: GatewaySockets) -> None:
        self._side = side
        self._sockets = sockets
        self._waiting: deque[Frame] = deque()
        self._driver = Driver(side, sockets, self._waiting.append)
        self._listened = 0.0
        """When the sockets were last read."""

    def frames(self) -> Iterator[Frame]:
        side = self._side
        self._driver.do(side.start(time.monotonic()))
        while True:
            while self._waiting:
                frame = self._waiting.popleft()
                yield frame
                if self._sockets.is_of_parent:
                    raise RuntimeError(
                        "this read of a log was begun before a fork, and the parent process has the rest of "
                        "it; make a new LogReader in this one, and read on from the last offset"
                    )
                self._handed_on(frame)
                now = time.monotonic()
                if not self._waiting or now - self._listened >= _LONG:
                    self._listen(now)  # Before the tick, which measures how long the gateway was silent.
                self._driver.do(side.tick(now))
            if self._driver.finished is not None:
                if self._driver.finished.error is not None:
                    raise self._driver.finished.error
                return
            if side.reader is not None and side.reader.ended:
                return
            now = time.monotonic()
            self._driver.do(side.tick(now))
            self._sockets.wait(max(0.0, min(side.deadline() - now, 0.5)))
            self._listen(time.monotonic())

    def _handed_on(self, frame: Frame) -> None:
        reader, end = self._side.reader, frame.first + frame.count
        assert reader is not None, "a frame came from a reader"
        reader.hand_on(end, len(frame.payload) + len(frame.metadata))
        reader.acknowledged = end

    def _listen(self, now: float) -> None:
        self._listened = now
        self._driver.listen(now)

    def close(self) -> None:
        if not self._sockets.is_of_parent:
            self._driver.do(self._side.leave())
        self._sockets.close()
