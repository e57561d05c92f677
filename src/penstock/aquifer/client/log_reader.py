"""Asking a gateway about its log, and having a place in it kept, without reading anything."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from penstock.aquifer.client.connection import Asker
from penstock.aquifer.client.driver import Driver
from penstock.aquifer.client.segment_reader import Lookout
from penstock.aquifer.client.sockets import GatewaySockets
from penstock.aquifer.errors import GatewayUnreachable, ProtocolViolation
from penstock.aquifer.protocol.frames import Frame
from penstock.aquifer.protocol.messages import (
    VERSION,
    Control,
    OnError,
    OnSubscribe,
    Subscribe,
    SubscribeFields,
    encode,
    extension,
)
from penstock.aquifer.protocol.remote_errors import error_from
from penstock.aquifer.protocol.subscribe_options import SubscribeOptions
from penstock.aquifer.protocol.subscriber_side import SubscriberSide
from penstock.aquifer.records.batch import MSGPACK
from penstock.aquifer.security import CurveClient
from penstock.endpoint import Endpoint

__all__ = ["LogClient", "LogState", "frames"]

_LONGEST_WAIT: Final = 30.0
"""Seconds; a gateway answers after so many at the latest."""
_LONGEST_LEASE: Final = 366 * 24 * 3600.0
"""Seconds, to keep the number within bounds; a gateway has its own."""
_LONG: Final = 0.05
"""Seconds that the sockets may be left alone while there are frames to hand on."""


class LogState(NamedTuple):
    """What a gateway says of its log."""

    epoch: str
    first: int
    """The oldest offset that is there."""
    head: int
    """The offset that the next record will get."""
    acknowledged: int | None
    """The place that is kept under the name that was given, if there is one."""
    end: int | None
    """Where the stream ended, if it has."""
    failure: str | None
    """Why it ended there, if its source did not complete."""
    records: int
    nbytes: int
    """What is in the log."""
    lease: float | None = None
    """The seconds for which the place is kept, if there is one and the gateway says so."""
    fits: tuple[int, int] | None = None
    """How many records from ``start`` on are ``within`` a number of bytes, and how many bytes they have."""


class LogClient:
    """A connection for questions; used by one thread at a time."""

    def __init__(self, endpoint: str, *, patience: float = 30.0, curve: CurveClient | None = None) -> None:
        self._endpoint = Endpoint.parse(endpoint)
        self._patience = patience
        self._asker = Asker(self._endpoint, curve)

    def look(
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
        patience: float | None = None,
    ) -> LogState:
        """How the log is; with ``beyond`` and ``wait``, as soon as it goes further, or the time is over.

        With a ``name`` and ``acknowledge`` the gateway keeps every record from that offset on, until the next
        look, and for ``lease`` seconds after it. Everything that is said is absolute, so it does no harm that
        a question may be asked twice. With an ``epoch``, what is said holds for that log only: if there is
        another one by now, this raises :class:`~penstock.aquifer.EpochChanged`. With ``start`` and ``within``
        it also says how many records from there on have no more than so many bytes: all, or those among the
        first few megabytes. With ``patience`` this look waits so many seconds for an answer, and not as long
        as others.
        """
        if name is not None and not name:
            raise ValueError("look(name=''): give a name that is not empty, or None for none")
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
            )
        )
        answer = self._ask(encode(question), wait, self._patience if patience is None else patience)
        if isinstance(answer, OnError):
            raise error_from(answer)
        details = extension(answer.x) if isinstance(answer, OnSubscribe) else None
        if details is None or details.first is UNSET or details.head is UNSET or details.status is UNSET:
            raise ProtocolViolation(f"the gateway at {self._endpoint} speaks the plain dialect only")
        status: dict[str, Any] = details.status
        return LogState(
            epoch=str(details.epoch),
            first=details.first,
            head=details.head,
            acknowledged=details.next if details.next is not UNSET else None,
            end=status.get("end"),
            failure=status.get("failure"),
            records=int(status.get("records", 0)),
            nbytes=int(status.get("bytes", 0)),
            lease=details.lease / 1000 if details.lease is not UNSET else None,
            fits=details.fits if details.fits is not UNSET else None,
        )

    def close(self) -> None:
        """Let go of the connection."""
        self._asker.close()

    def _ask(self, question: bytes, wait: float, patience: float) -> Control:
        give_up = time.monotonic() + patience + wait
        while (left := give_up - time.monotonic()) > 0:
            answer = self._asker.ask(question, patience=max(left - wait, 0.0), held=wait)
            if answer is None:
                break
            if (rest := _asked_to_wait(answer)) is None:
                return answer
            time.sleep(max(0.0, min(rest, give_up - time.monotonic())))
        raise GatewayUnreachable(
            f"no gateway answers at {self._endpoint} after {patience:g} s; is it running there, and do "
            "both sides use keys or neither?"
        )


def _asked_to_wait(answer: Control) -> float | None:
    """For how many seconds a gateway that has too much to do wants to be left alone; None if it answered."""
    details = extension(answer.x) if isinstance(answer, OnError) else None
    if details is None or details.code not in ("BUSY", "CLOSING"):
        return None
    return min(max(details.retry if details.retry is not UNSET else 200, 1), 1000) / 1000


def frames(
    endpoint: str,
    *,
    start: int,
    stop: int,
    epoch: str | None = None,
    format: str = MSGPACK,
    patience: float = 30.0,
    window: int = 65_536,
    window_bytes: int = 8 * 1024 * 1024,
    curve: CurveClient | None = None,
) -> Iterator[Frame]:
    """The records from offset ``start`` up to, but not with, ``stop``: in order, none twice, none missing.

    The payload of a large frame is a view of what has come: it costs no copy, and lives as long as somebody
    looks at it.

    Who reads a range is not kept: somebody else has to see to it that the gateway does not forget it. If it
    has, or does, this raises :class:`~penstock.aquifer.OffsetGone`.
    """
    address = Endpoint.parse(endpoint)
    lookout = Lookout(endpoint) if address.is_loopback else None
    wishes = SubscribeOptions(
        start=start,
        stop=stop,
        epoch=epoch,
        keep=False,
        formats=[format],
        dialect="extended",
        window=window,
        max_window=window,
        window_bytes=window_bytes,
        patience=patience,
        shelves=lookout,
    )
    reader = _RangeReader(SubscriberSide(endpoint, wishes), GatewaySockets(address, curve, views=True))
    try:
        yield from reader.run()
    finally:
        reader.close()
        if lookout is not None:
            lookout.close()


class _RangeReader:
    """Drives the subscriber's side from within a generator."""

    def __init__(self, side: SubscriberSide, sockets: GatewaySockets) -> None:
        self._side = side
        self._sockets = sockets
        self._waiting: deque[Frame] = deque()
        self._driver = Driver(side, sockets, self._waiting.append)
        self._heard = 0.0
        """When the sockets were last looked at."""

    def run(self) -> Iterator[Frame]:
        side = self._side
        self._driver.do(side.start(time.monotonic()))
        while True:
            while self._waiting:
                frame = self._waiting.popleft()
                yield frame
                nbytes = len(frame.payload) + len(frame.metadata)
                side.reading.hand_on(frame.first + frame.count, nbytes)
                side.reading.acknowledged = frame.first + frame.count
                now = time.monotonic()
                if not self._waiting or now - self._heard >= _LONG:
                    self._hear(now)  # Before it is asked for how long there was silence.
                self._driver.do(side.tick(now))
            if self._driver.finished is not None:
                if self._driver.finished.error is not None:
                    raise self._driver.finished.error
                return
            if side.reading is not None and side.reading.ended:
                return
            now = time.monotonic()
            self._driver.do(side.tick(now))
            self._sockets.wait(max(0.0, min(side.deadline() - now, 0.5)))
            self._hear(time.monotonic())

    def _hear(self, now: float) -> None:
        self._heard = now
        self._driver.hear(now)

    def close(self) -> None:
        self._driver.do(self._side.leave())
        self._sockets.close()
