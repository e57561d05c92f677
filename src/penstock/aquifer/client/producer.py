"""Writing to a gateway in transactions: all records of a batch are published together, exactly once.

A transaction first leaves its records with the gateway, where no reader sees them (it *stages* them), and
then commits them with one message. Batches are numbered, and the gateway stores the number of the last batch
of each producer together with its records. So a batch that is run again, because nobody knows whether it got
through, is not published twice.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from types import TracebackType
from typing import Any, ClassVar, Final, NamedTuple, NoReturn, Self

import zmq
from msgspec import UNSET

from penstock.aquifer.client.connection import GatewayConnection, gateway_endpoint
from penstock.aquifer.errors import AlreadyReplayed, ProtocolViolation
from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.messages import (
    Commit,
    Complete,
    CompleteFields,
    Control,
    Next,
    NextFields,
    OnComplete,
    OnNext,
    Put,
    Replay,
    extension,
)
from penstock.aquifer.records.batch import Batch, Record
from penstock.aquifer.records.codecs import Codec, codec_named
from penstock.aquifer.records.packer import Packer
from penstock.aquifer.security import CurveClient
from penstock.arguments import a_whole_number, describe, seconds
from penstock.streams import StageState
from penstock.streams.spi import Glimpse, meters_for_new_streams

__all__ = ["PreparedPart", "Producer", "Transaction"]

_BUFFERED: Final = 1024
_BUFFERED_BYTES: Final = 1024 * 1024
"""Records are sent when there are this many of them, or about this many bytes."""
_COMMITTING, _IDLE, _SENDING = 0, 1, 2
"""What a producer does: it waits until its records are in the log, or for its program, or it sends."""
_MOST: Final = 2**63 - 1
_LONGEST_NAME: Final = 256


class PreparedPart(NamedTuple):
    """What one transaction has left with the gateway: enough for another process to commit it."""

    part: int
    attempt: int
    pieces: int
    """How many messages carried the records."""


class Producer:
    """Writes to one gateway, in transactions.

    ::

        with Producer("tcp://127.0.0.1:5556", "thermometer") as producer:
            with producer.transaction(17) as tx:
                tx.write([b"hot", Record(b"cold", key=b"sensor-7")])

    ``name`` identifies the producer to the gateway, also after a restart. Commit its batches in the order of
    their ids: the gateway takes a batch for published if one with the same or a higher id was. Without a name
    each producer gets a random one, so that its batches are never taken for those of an earlier run.
    ``codec`` encodes the values; it has to be the one that readers decode with.

    A question to the gateway is repeated for up to ``patience`` seconds, over new connections if need be. A
    commit may take longer, because it waits until there is space in the log: ``commit_timeout`` bounds it.

    Without a ``context`` of ØMQ, it starts threads of its own, and stops them at the end. Programs that make
    many producers, one after the other, share one: ``context=zmq.Context.instance()``.

    Threads may share a producer. They take turns: one request is under way at a time.
    """

    meter_kind: ClassVar[str] = "producer"

    def __init__(
        self,
        endpoint: str,
        name: str | None = None,
        *,
        codec: str | Codec = "bytes",
        patience: float = 30.0,
        commit_timeout: float = 600.0,
        curve: CurveClient | None = None,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        if name is not None and (not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME):
            raise ValueError(f"name={name!r}: give 1 to {_LONGEST_NAME} characters, or None")
        patience = seconds(patience, f"Producer({patience=!r})", positive=True)
        self.name = name if name is not None else f"producer-{secrets.token_hex(8)}"
        """The name under which the gateway knows this producer."""
        self._codec = codec_named(codec)
        self._commit_timeout = seconds(commit_timeout, f"Producer({commit_timeout=!r})", positive=True)
        self._connection = GatewayConnection(
            gateway_endpoint(endpoint, "Producer"), curve, patience=patience, context=context
        )
        self._turn = threading.RLock()
        """Held while a request is under way."""
        self._doing = _IDLE
        self._written = 0
        """How many records were left with the gateway."""
        self._closed = False
        for meter in meters_for_new_streams():
            meter.add(self)

    def transaction(self, batch_id: int, *, part: int = 0) -> Transaction:
        """Begin a transaction for a batch.

        As a context manager it commits at the end of the block, and aborts if the block raises. A batch that
        several processes write together has one transaction for each ``part``: each ends with
        :meth:`Transaction.prepare`, and one process calls :meth:`commit` for all.
        """
        a_whole_number(batch_id, "transaction(batch_id)", least=0, most=_MOST)
        a_whole_number(part, "transaction(part)", least=0, most=_MOST)
        return Transaction(self, batch_id, part, Packer(self._codec, Limits()))

    def commit(
        self,
        batch_id: int,
        parts: Iterable[PreparedPart],
        *,
        timeout: float | None = None,
        follows: int | None = None,
        replay: tuple[str, Sequence[int]] | None = None,
        while_waiting: Callable[[], object] | None = None,
    ) -> None:
        """Publish the prepared parts of a batch, in the order of their numbers.

        Returns when the records are in the log. That may take until there is space: the required readers of
        the gateway set the pace. A batch that was published before is not published again.

        Raises :class:`~penstock.aquifer.TransactionLost` if the gateway no longer has the records, and
        :class:`~penstock.aquifer.GatewayUnreachable` if there is no answer in time; then the batch may or may
        not be published. In both cases run the batch again.

        ``follows`` is the batch before this one. If the log does not have it, nothing is published, and
        :class:`~penstock.aquifer.BatchMissing` says so: the gateway has another journal than before, or an
        older copy of it. -1 says that there need not be one before. A producer that gives it commits every
        batch, also the empty ones; without it, an empty batch of a new name leaves no trace.

        ``replay`` names the dead letters that the records are made of: the epoch and the offsets of their own
        stream. A letter is replayed once. If one of these was, nothing is published, and
        :class:`~penstock.aquifer.AlreadyReplayed` says which.

        ``while_waiting`` is called several times a second until the answer is there, on this thread. If it
        raises, the wait is over; the batch may or may not be published.
        """
        a_whole_number(batch_id, "commit(batch_id)", least=0, most=_MOST)
        if follows is not None:
            a_whole_number(follows, "commit(follows)", least=-1, most=batch_id - 1)
        patience = self._commit_timeout if timeout is None else seconds(timeout, "commit()", positive=True)
        committed: list[tuple[int, int, int]] = [
            part for part in sorted(map(_prepared, parts)) if part.pieces
        ]
        letters = UNSET if replay is None else Replay(replay[0], list(replay[1]))
        before = UNSET if follows is None else follows
        commit = Commit(query=self.name, batch=batch_id, parts=committed, replay=letters, follows=before)
        advice = (
            f"batch {batch_id} of {self.name!r} may not be published. A commit waits while the log is full: "
            "does anybody read from it?"
        )
        question = Complete(x=CompleteFields(commit=commit))
        with self._turn, self._busy(_COMMITTING):
            answer = self._connection.ask(
                question, patience=patience, advice=advice, while_waiting=while_waiting
            )
        self._check(answer, OnComplete)
        fields = extension(answer.x) if isinstance(answer, OnComplete) else None
        if fields is not None and fields.replayed:
            raise AlreadyReplayed(fields.replayed)

    def replayed(self, epoch: str, offsets: Sequence[int]) -> list[int]:
        """Those of these dead letters that were replayed before; nothing changes. At most 1024 at a time."""
        # A name that has never published leaves no mark with an empty batch.
        commit = Commit(f"look-{secrets.token_hex(8)}", 0, [], replay=Replay(epoch, list(offsets)))
        with self._turn:
            answer = self._connection.ask(Complete(x=CompleteFields(commit=commit)))
        self._check(answer, OnComplete)
        fields = extension(answer.x) if isinstance(answer, OnComplete) else None
        return list(fields.replayed or ()) if fields is not None else []

    def close(self) -> None:
        """Close the connection. A transaction that is still open is not committed."""
        with self._turn:
            self._connection.close()
            self._closed = True

    @contextmanager
    def _busy(self, doing: int) -> Iterator[None]:
        self._doing = doing
        try:
            yield
        finally:
            self._doing = _IDLE

    # ---------------------------------------------------------------- what a meter looks at, from any thread
    @property
    def meter_peer(self) -> str:
        """What the gateway calls this producer."""
        return f"{self._connection.endpoint}/producer/{self.name}"

    def glimpse(self) -> Glimpse | None:
        """Whether it sends, waits for a commit, or has nothing to do; None if it is closed."""
        return None if self._closed else Glimpse(self._doing)

    def meter_state(self) -> StageState:
        """How many records it has written."""
        return StageState(self.name, 0, self._written, 0, None, "caller", self._closed)

    def waiting_bytes(self) -> tuple[int | None, int | None]:
        """Not known: each transaction has a buffer of its own."""
        return None, None

    def upstreams(self) -> list[Any]:
        """None: a program writes."""
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Producer cannot be pickled, because it has a connection: make one in each process that "
            "writes. What Transaction.prepare() returns can be pickled"
        )

    def _stage(self, batch_id: int, part: int, attempt: int, seq: int, batch: Batch) -> int | None:
        """Leave a piece with the gateway; no reader sees it before the commit.

        Returns the last batch that was published, if that is this one or a later one.
        """
        put = Put(query=self.name, batch=batch_id, part=part, attempt=attempt, seq=seq, fmt=batch.format)
        question = Next(batch.count, x=NextFields(put=put))
        with self._turn, self._busy(_SENDING):
            answer = self._connection.ask(question, batch.payload, batch.metadata)
        self._check(answer, OnNext)
        self._written += batch.count
        fields = extension(answer.x) if isinstance(answer, OnNext) else None
        return fields.published if fields is not None and fields.published is not UNSET else None

    def _check(self, answer: Control, expected: type[Control]) -> None:
        if not isinstance(answer, expected):
            place, kind = self._connection.endpoint, type(answer).__name__
            raise ProtocolViolation(f"the gateway at {place} answered with {kind}, not {expected.__name__}")


class _Phase(Enum):
    OPEN = auto()
    FAILED = auto()
    """A write failed, so records are missing."""
    PREPARED = auto()
    COMMITTED = auto()
    ABORTED = auto()


class Transaction:
    """The records of one batch, or of one part of it, on their way; made by :meth:`Producer.transaction`.

    Nothing is visible to a reader before the commit, and then everything is. An aborted transaction leaves
    nothing in the log. What it has staged, the gateway drops when the batch is committed by another
    transaction, when it needs the memory for one, or after an hour.
    """

    def __init__(self, producer: Producer, batch_id: int, part: int, packer: Packer) -> None:
        """Made by :meth:`Producer.transaction`."""
        self.batch_id = batch_id
        self.published_before: int | None = None
        """The last batch of this producer, if the gateway had published this one, or a later one, when
        records of this transaction arrived. Then they are not published; a commit succeeds all the same."""
        self._producer = producer
        self._part = part
        # A random number: after a restart the gateway may still have what an earlier attempt left.
        self._attempt = secrets.randbits(31)
        self._pieces = 0
        self._packer = packer
        self._buffer: list[Any] = []
        """Elements that were written and not sent yet."""
        self._phase = _Phase.OPEN
        self._lock = threading.RLock()

    def write(self, records: Iterable[Any]) -> None:
        """Write values, or :class:`~penstock.aquifer.Record` objects with keys and times.

        Records are sent about a megabyte at a time, so an iterable of any length may be given, and many small
        writes are cheap. A value that the codec cannot encode raises when its turn comes, perhaps in a later
        call.

        If records could not be encoded or sent, the transaction can only be aborted: it would not be
        complete. An iterable that raises is different. The records before are written, and whether the
        transaction goes on is up to the caller; a ``with`` block that does not catch the exception aborts it.
        """
        if isinstance(records, str | bytes | bytearray | memoryview | Mapping | Record):
            raise TypeError(
                f"write() takes several records, and {describe(records)} is one: write([record]) writes it"
            )
        if isinstance(records, Batch):
            raise TypeError("write() takes records one by one: write_batch() writes a Batch")
        with self._lock:
            self._check_open("write to")
            for record in records:
                self._buffer.append(record)
                if len(self._buffer) >= self._enough():
                    self._flush()

    def write_batch(self, batch: Batch) -> None:
        """Write records that are packed already; the gateway gives them their offsets."""
        with self._lock:
            self._check_open("write to")
            self._flush()
            self._send(batch)

    def prepare(self) -> PreparedPart:
        """Write nothing more, and return what :meth:`Producer.commit` needs, here or in another process."""
        with self._lock:
            self._check_open("prepare")
            self._flush()
            self._phase = _Phase.PREPARED
            return PreparedPart(self._part, self._attempt, self._pieces)

    def commit(self) -> None:
        """Publish the records; see :meth:`Producer.commit`."""
        with self._lock:
            self._check_open("commit")
            self._producer.commit(self.batch_id, [self.prepare()])
            self._phase = _Phase.COMMITTED

    def abort(self) -> None:
        """Publish nothing. A committed transaction cannot be aborted."""
        with self._lock:
            if self._phase is _Phase.COMMITTED:
                self._check_open("abort")
            self._buffer.clear()
            self._phase = _Phase.ABORTED

    def __enter__(self) -> Self:
        self._check_open("enter")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._phase not in (_Phase.OPEN, _Phase.FAILED):
            return  # The block has committed, prepared or aborted it.
        if error is None:
            self.commit()
        else:
            self.abort()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Transaction cannot be pickled, because it has a connection: begin one in each process that "
            "writes, with a part of its own, and pass on what prepare() returns"
        )

    def _check_open(self, what: str) -> None:
        if self._phase is not _Phase.OPEN:
            raise RuntimeError(
                f"cannot {what} the transaction for batch {self.batch_id}: {_STATES[self._phase]}"
            )

    def _enough(self) -> int:
        """How many elements to collect before they are sent: few until their size is known."""
        fit = int(_BUFFERED_BYTES / self._packer.bytes_per_element)
        return self._packer.first_request or max(1, min(fit, _BUFFERED))

    def _flush(self) -> None:
        elements, self._buffer = self._buffer, []
        # Unless all of them are sent, some are missing, and the rest must not be committed without them.
        self._phase = _Phase.FAILED
        packed = self._packer.pack(elements, 0)
        if packed.error is not None:
            raise packed.error
        for batch in packed.batches:
            self._send(batch)
        self._phase = _Phase.OPEN

    def _send(self, batch: Batch) -> None:
        self._phase = _Phase.FAILED
        published = self._producer._stage(self.batch_id, self._part, self._attempt, self._pieces, batch)
        if published is not None:
            self.published_before = published
        self._pieces += 1
        self._phase = _Phase.OPEN


_AGAIN: Final = "begin another with Producer.transaction()"
_STATES: Final = {
    _Phase.FAILED: f"a write failed, so records are missing; abort it and {_AGAIN}",
    _Phase.PREPARED: "it is prepared; pass what prepare() returned to Producer.commit(), "
    f"or to run the batch again {_AGAIN}",
    _Phase.COMMITTED: f"it is committed; {_AGAIN}",
    _Phase.ABORTED: f"it is aborted; {_AGAIN}",
}


def _prepared(part: Any) -> PreparedPart:
    """A prepared part, also if it has become a plain tuple or list on its way here."""
    try:
        numbers = PreparedPart(*part)
    except TypeError:
        raise TypeError(f"commit() needs what prepare() returned, not {describe(part)}") from None
    return PreparedPart(*(a_whole_number(n, "commit(parts)", least=0, most=_MOST) for n in numbers))
