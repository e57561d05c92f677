"""The Aquifer Subscription Protocol over ØMQ: a gateway, and subscribers at their own pace.

A :class:`Gateway` subscribes to any Publisher, keeps what it gets in a bounded log, and serves it to any
number of subscribers, each of which says how much it can take::

    from penstock.aquifer import Gateway, SqliteJournal

    async with Gateway(flux, control="tcp://127.0.0.1:5556", journal=SqliteJournal("readings.db")):
        ...

An :class:`AquiferPublisher` is the other end, in any process::

    from penstock.aquifer import AquiferPublisher

    for reading in AquiferPublisher("tcp://127.0.0.1:5556", id="dashboard").flux():
        ...

Needs the extra ``aquifer``: ``pip install 'penstock-streams[aquifer]'``.
"""

from importlib.util import find_spec

if any(find_spec(needed) is None for needed in ("zmq", "msgspec")):
    raise ImportError("penstock.aquifer needs pyzmq and msgspec: pip install 'penstock-streams[aquifer]'")

from penstock.aquifer.client import (
    Administrator,
    AquiferPublisher,
    AquiferSubscription,
    Deficit,
    GroupSubscription,
    LogReader,
    LogState,
    Metrics,
    PreparedPart,
    Producer,
    Redelivery,
    Transaction,
    probe,
)
from penstock.aquifer.errors import (
    AlreadyReplayed,
    AquiferError,
    BatchMissing,
    BatchTooLarge,
    EpochChanged,
    ErrorCode,
    Evicted,
    GatewayUnreachable,
    JournalDamaged,
    JournalError,
    JournalFull,
    JournalInUse,
    JournalLocked,
    JournalTooNew,
    JournalUnavailable,
    LeaseEnded,
    OffsetGone,
    OutcomeUnknown,
    Overtaken,
    ProtocolViolation,
    Refused,
    RefusedTooOften,
    SourceFailed,
    TakenOver,
    TransactionLost,
    UnknownStream,
    Unreadable,
)
from penstock.aquifer.gateway import Gateway, ReplayableSource, StreamOptions
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import (
    Cursor,
    Held,
    Journal,
    JournalCompaction,
    JournalVerification,
    KafkaJournal,
    MemoryJournal,
    Spool,
    SqliteJournal,
    compact_journal,
    verify_journal,
)
from penstock.aquifer.options import GatewayOptions, JournalOptions, OnBadRecord
from penstock.aquifer.protocol.frames import Flag, Frame
from penstock.aquifer.records import (
    ARROW,
    MSGPACK,
    Batch,
    Codec,
    Record,
    RecordMetadata,
    offsets_of,
    pack_metadata,
    pack_values,
    partition_of,
    unpack_metadata,
    unpack_values,
    values_of,
)
from penstock.aquifer.records.arrow import from_arrow_stream, to_arrow_stream
from penstock.aquifer.records.compression import expanded
from penstock.aquifer.records.dead_letter import dead_letter
from penstock.aquifer.records.schemas import EncodedRecord, SchemaCodec, SchemaReference, open_schema
from penstock.aquifer.records.schemas.columns import ColumnCodec
from penstock.aquifer.security import (
    AccessList,
    Authenticator,
    Client,
    CurveClient,
    CurveKeys,
    CurveServer,
    Right,
    check_bind,
    generate_keys,
    load_keys,
    load_public,
    save_keys,
)
from penstock.aquifer.source_status import (
    BadElements,
    ConnectionFigures,
    SenderStatus,
    SourceStatus,
    StageStatus,
)
from penstock.aquifer.status import (
    CursorMove,
    CursorStatus,
    DepartedStatus,
    GatewayStatus,
    GroupStatus,
    Handover,
    IdList,
    IdStatus,
    LeftOut,
    LogFigures,
    MemberStatus,
    PartitionStatus,
    ProducerStatus,
    QueryReport,
    SessionStatus,
    StreamStatus,
)
from penstock.aquifer.status_object import HopTimes
from penstock.delivery import Delivery, FeedState
from penstock.endpoint import Endpoint

__all__ = [
    "ARROW",
    "MSGPACK",
    "AccessList",
    "Administrator",
    "AlreadyReplayed",
    "AquiferError",
    "AquiferPublisher",
    "AquiferSubscription",
    "Authenticator",
    "BadElements",
    "Batch",
    "BatchMissing",
    "BatchTooLarge",
    "Client",
    "Codec",
    "ColumnCodec",
    "ConnectionFigures",
    "Cursor",
    "CursorMove",
    "CursorStatus",
    "CurveClient",
    "CurveKeys",
    "CurveServer",
    "Deficit",
    "Delivery",
    "DepartedStatus",
    "EncodedRecord",
    "Endpoint",
    "EpochChanged",
    "ErrorCode",
    "Evicted",
    "FeedState",
    "Flag",
    "Frame",
    "Gateway",
    "GatewayOptions",
    "GatewayStatus",
    "GatewayUnreachable",
    "GroupStatus",
    "GroupSubscription",
    "Handover",
    "Held",
    "HopTimes",
    "IdList",
    "IdStatus",
    "Journal",
    "JournalCompaction",
    "JournalDamaged",
    "JournalError",
    "JournalFull",
    "JournalInUse",
    "JournalLocked",
    "JournalOptions",
    "JournalTooNew",
    "JournalUnavailable",
    "JournalVerification",
    "KafkaJournal",
    "LeaseEnded",
    "LeftOut",
    "Limits",
    "LogFigures",
    "LogReader",
    "LogState",
    "MemberStatus",
    "MemoryJournal",
    "Metrics",
    "OffsetGone",
    "OnBadRecord",
    "OutcomeUnknown",
    "Overtaken",
    "PartitionStatus",
    "PreparedPart",
    "Producer",
    "ProducerStatus",
    "ProtocolViolation",
    "QueryReport",
    "Record",
    "RecordMetadata",
    "Redelivery",
    "Refused",
    "RefusedTooOften",
    "ReplayableSource",
    "Right",
    "SchemaCodec",
    "SchemaReference",
    "SenderStatus",
    "SessionStatus",
    "SourceFailed",
    "SourceStatus",
    "Spool",
    "SqliteJournal",
    "StageStatus",
    "StreamOptions",
    "StreamStatus",
    "TakenOver",
    "Transaction",
    "TransactionLost",
    "UnknownStream",
    "Unreadable",
    "check_bind",
    "compact_journal",
    "dead_letter",
    "expanded",
    "from_arrow_stream",
    "generate_keys",
    "load_keys",
    "load_public",
    "offsets_of",
    "open_schema",
    "pack_metadata",
    "pack_values",
    "partition_of",
    "probe",
    "save_keys",
    "to_arrow_stream",
    "unpack_metadata",
    "unpack_values",
    "values_of",
    "verify_journal",
]
