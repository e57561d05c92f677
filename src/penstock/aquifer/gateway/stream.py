"""One stream of a gateway: a source, the log that it is written to, and the sessions that read it.

Each stream has an intake and a writer, with a thread each. The server, its thread and the sockets belong to
all streams together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakValueDictionary

from penstock.aquifer.errors import JournalInUse
from penstock.aquifer.gateway.dead_letters import BadRecords, DeadLetters
from penstock.aquifer.gateway.intake import BoundedSource, Intake, ReplayableSource
from penstock.aquifer.gateway.writer import FEED_MARK, LogWriter
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Journal, KafkaJournal, Log, MemoryJournal, SqliteJournal
from penstock.aquifer.options import GatewayOptions, OnBadRecord, check_stream_options
from penstock.aquifer.protocol.session import DataPorts
from penstock.aquifer.protocol.session_table import SessionTable
from penstock.aquifer.records import Codec, codec_named
from penstock.aquifer.records.compression import compressor_named
from penstock.aquifer.records.packer import Packer
from penstock.aquifer.security import Access
from penstock.spec import Publisher
from penstock.streams import Flux

__all__ = ["GatewayStream", "StreamOptions"]

_DEFAULT: Final = GatewayOptions()
_DEAD_LETTERS: Final = "dead-letters"
_MOST_LETTERS: Final = 100_000
_MOST_BYTES: Final = 64 * 1024 * 1024
"""The bounds of a journal of dead letters; the oldest ones make space."""


@dataclass(frozen=True)
class StreamOptions:
    """A stream for :class:`~penstock.aquifer.Gateway`, which serves it by its name.

    ::

        Gateway(streams={
            "orders": StreamOptions(orders, journal=SqliteJournal("orders.db"), codec="json"),
            "clicks": StreamOptions(clicks),
        })

    The options mean what they mean for a gateway with one source.
    """

    source: Publisher[Any] | Callable[[int], Publisher[Any]] | None = None
    """A Publisher, or a function that makes one, or None for a stream that others write to."""
    journal: Journal | None = field(default=None, kw_only=True)
    """By default a :class:`~penstock.aquifer.MemoryJournal`."""
    codec: str | Codec = field(default=_DEFAULT.codec, kw_only=True)
    batched: bool = field(default=_DEFAULT.batched, kw_only=True)
    prefetch: int = field(default=_DEFAULT.prefetch, kw_only=True)
    prefetch_bytes: int = field(default=_DEFAULT.prefetch_bytes, kw_only=True)
    keep_plain: bool = field(default=_DEFAULT.keep_plain, kw_only=True)
    writable: bool = field(default=_DEFAULT.writable, kw_only=True)
    on_bad_record: OnBadRecord = field(default=_DEFAULT.on_bad_record, kw_only=True)
    """An element that cannot become a record fails the stream (``"fail"``), is left out and counted
    (``"skip"``), or goes to the stream ``NAME.dead-letters`` (``"dead-letter"``)."""
    compress: str | None = field(default=_DEFAULT.compress, kw_only=True)
    """Compress batches with ``"zstd"``, or ``"zstd:LEVEL"``, where that makes them clearly smaller."""
    dead_letters: Journal | None = field(default=None, kw_only=True)
    """The journal of the dead letters; by default one in memory, or beside the file of the stream's own."""

    def __post_init__(self) -> None:
        check_stream_options(self, "StreamOptions")
        check_source(self.source, "StreamOptions", writable=self.writable)


def _beside(journal: Journal) -> Journal:
    """A journal for the dead letters of a stream: in a file if that of the stream is in one."""
    if isinstance(journal, SqliteJournal):
        return SqliteJournal(
            f"{journal.path}.{_DEAD_LETTERS}", max_records=_MOST_LETTERS, max_bytes=_MOST_BYTES
        )
    if isinstance(journal, KafkaJournal):
        return journal.beside("-dead-letters", max_records=_MOST_LETTERS, max_bytes=_MOST_BYTES)
    return MemoryJournal(max_records=_MOST_LETTERS, max_bytes=_MOST_BYTES)


def check_source(source: object, caller: str, *, writable: bool) -> None:
    """Raise a TypeError unless this can be the source of a stream."""
    if source is None and not writable:
        raise TypeError(f"{caller}(None) has no source: give it a Publisher, or writable=True")
    if source is not None and not isinstance(source, Publisher) and not callable(source):
        raise TypeError(f"{caller}() needs a Publisher, or a function that makes one, not {source!r}")


_owners: Final[WeakValueDictionary[int, GatewayStream]] = WeakValueDictionary()
"""By the id of a journal, the stream of a running gateway that it belongs to."""
_claiming: Final = threading.Lock()


class GatewayStream:
    """A stream while its gateway exists."""

    def __init__(
        self, name: str, options: StreamOptions, limits: Limits, *, for_dead_letters: bool = False
    ) -> None:
        self.for_dead_letters = for_dead_letters
        """Whether its records are the dead letters of another stream."""
        self.name = name
        self.options = options
        self._limits = limits
        self._codec = codec_named(options.codec)
        self._journal = options.journal if options.journal is not None else MemoryJournal()
        self.log = Log(self._journal, drops_oldest=for_dead_letters)
        if options.compress is not None:
            self.log.compressor = compressor_named(options.compress, "StreamOptions")
        self.intake = Intake(self.log, options.prefetch_bytes)
        self._writer: LogWriter | None = None
        self._letters: DeadLetters | None = None
        self._table: SessionTable | None = None

    def with_dead_letters(self) -> list[GatewayStream]:
        """This stream, and that of its dead letters if it has one."""
        if self.options.on_bad_record != "dead-letter":
            return [self]
        journal = self.options.dead_letters or _beside(self._journal)
        options = StreamOptions(
            Flux.never(), journal=journal, codec="json", keep_plain=False, compress=self.options.compress
        )
        name = f"{self.name}.{_DEAD_LETTERS}" if self.name else _DEAD_LETTERS
        letters = GatewayStream(name, options, self._limits, for_dead_letters=True)
        self._letters = DeadLetters(letters.log, letters.intake)
        return [self, letters]

    def claim_journal(self) -> None:
        """JournalInUse if it belongs to another stream: each would delete what readers of the other need."""
        with _claiming:
            owner = _owners.setdefault(id(self._journal), self)
        if owner is not self:
            raise JournalInUse(
                f"the journal of the stream {self.name!r} belongs to the stream {owner.name!r} of a gateway "
                "that is running: close that one, or give each stream a journal of its own"
            )

    def check_codec(self) -> None:
        """JournalError if the journal has records of another codec."""
        self.log.use_codec(self._codec.name)

    def open_table(self, ports: DataPorts, access: Access | None, names: Sequence[str]) -> SessionTable:
        """The table for the sessions of this stream."""
        self._table = SessionTable(
            self.log,
            self._limits,
            ports,
            source=self.intake,
            keep_plain=self.options.keep_plain,
            writable=self.options.writable,
            access=access,
            name=self.name,
            names=names,
        )
        return self._table

    def start(self) -> None:
        """Begin to write what arrives."""
        self._writer = LogWriter(
            self.log,
            self.intake,
            Packer(self._codec, self._batch_limits(), batched=self.options.batched),
            prefetch=self.options.prefetch,
            prefetch_bytes=self.options.prefetch_bytes,
            bad=BadRecords(self.options.on_bad_record, self._letters, self.name),
            stream=self.name,
        )
        self._writer.start()

    def subscribe(self) -> None:
        """Begin to read the source; dead letters come from the writer of another stream."""
        if self.for_dead_letters:
            return
        publisher = self._made_publisher()
        if publisher is not None:
            self.intake.subscribe_to(publisher)

    def _made_publisher(self) -> Publisher[Any] | None:
        source = self.options.source
        if source is None or isinstance(source, Publisher):
            return source
        if isinstance(source, ReplayableSource):
            self.intake.feed = source
            if isinstance(source, BoundedSource):
                source.bounded(self.log.max_records, self.log.max_bytes)
            marks = self.log.marks.items()
            source.resume(
                {name.removeprefix(FEED_MARK): it for name, it in marks if name.startswith(FEED_MARK)}
            )
        return source(self.log.head)

    def complete(self, error: BaseException | None) -> None:
        """End a stream that others write to."""
        if self.options.source is not None:
            raise RuntimeError(
                "this stream has a source and ends when that does; complete() is for one without a source"
            )
        if error is None:
            self.intake.on_complete()
        else:
            self.intake.on_error(error)

    def stop(self) -> None:
        """Cancel the source, and store what has arrived."""
        if self._writer is not None:
            self._writer.stop()

    def close(self) -> None:
        """Store the cursors and close the journal; JournalError if that is not possible."""
        if _owners.get(id(self._journal), self) is not self:
            return
        try:
            if self._table is not None:
                self._table.registry.note_all()
                self._table.transactions.drop_all()
            self.log.close()
        finally:
            _owners.pop(id(self._journal), None)
            self.intake.note_stored(self.log.head)

    def _batch_limits(self) -> Limits:
        """Batches are forgotten as a whole, so a small log is made of small ones."""
        return replace(
            self._limits,
            max_frame=min(self._limits.max_frame, self.log.ack_every_bytes),
            max_frame_records=min(self._limits.max_frame_records, self.log.ack_every_records),
        )
