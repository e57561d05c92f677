"""The options of a gateway and of its journal, declared once: for Python, the command line and the manual."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from penstock.aquifer.records import codec_named
from penstock.aquifer.records.codecs import Codec
from penstock.aquifer.records.compression import compressor_named, parse_compression
from penstock.aquifer.security import check_bind
from penstock.arguments import a_count, a_flag
from penstock.endpoint import Endpoint
from penstock.options import option, parse_count, parse_duration, parse_size

__all__ = ["GatewayOptions", "JournalOptions", "OnBadRecord", "check_stream_options"]


OnBadRecord: TypeAlias = Literal["fail", "skip", "dead-letter"]
"""What happens to an element that cannot become a record."""


def _endpoint_or_none(text: str) -> str | None:
    return None if text == "none" else text


def _file_or_memory(text: str) -> str | None:
    return None if text == "memory" else os.path.expanduser(text)


def _compression(text: str) -> str:
    parse_compression(text)
    return text


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """The options of :class:`penstock.aquifer.Gateway` that a command line can say."""

    control: str | None = option(
        "tcp://127.0.0.1:5556",
        help="where subscribers connect; port 0 is any free port. With none, only --curve-control listens",
        metavar="ENDPOINT",
        parse=_endpoint_or_none,
    )
    data: str | None = option(
        None,
        help="where extended subscribers receive records",
        metavar="ENDPOINT",
        shown="any free port",
    )
    curve_control: str | None = option(
        None,
        help="where subscribers with keys connect, encrypted",
        metavar="ENDPOINT",
    )
    codec: str | Codec = option(
        "bytes",
        help="how an element becomes a record: bytes, text, json, msgpack, arrow, or with a schema "
        "jsonschema:FILE, avro:FILE or protobuf:FILE",
        metavar="CODEC",
    )
    batched: bool = option(False, help="each element of the source is a list of records", flag=None)
    prefetch: int = option(
        65_536,
        help="the most records to request ahead of the log",
        metavar="N",
        parse=parse_count,
        flag=None,
    )
    prefetch_bytes: int = option(
        32 * 1024 * 1024,
        help="the same in bytes, as far as the size of records is known",
        metavar="SIZE",
        parse=parse_size,
        shown="32M",
        flag=None,
    )
    keep_plain: bool = option(
        True, help="whether plain subscribers are required, so that the source waits for them", flag=None
    )
    allow_remote: bool = option(
        False,
        help="let other machines in without keys: readers, and senders to a source that listens",
        flag="--insecure",
    )
    writable: bool = option(False, help="let others write to the gateway", flag=None)
    on_bad_record: OnBadRecord = option(
        "fail",
        choices=("fail", "skip", "dead-letter"),
        help="what happens to an element that cannot become a record: the stream fails, the element is left "
        "out and counted, or it goes to the stream dead-letters",
        flag=None,
    )
    compress: str | None = option(
        None,
        help="compress records in the log, and on the way to readers that know zstd, where that makes them "
        "clearly smaller: zstd, or zstd:LEVEL with a level from 1 to 19",
        metavar="zstd[:LEVEL]",
        parse=_compression,
    )

    def __post_init__(self) -> None:
        check_stream_options(self, "Gateway")
        a_flag(self.allow_remote, "Gateway(allow_remote=…)")
        if self.control is None and self.curve_control is None:
            raise ValueError("Gateway() needs an endpoint: control=… or curve_control=…")
        for endpoint in (self.control, self.data):
            if endpoint is not None:
                check_bind(endpoint, secure=False, allow_remote=self.allow_remote)
        if self.curve_control is not None:
            Endpoint.parse_address(self.curve_control)


class _OfAStream(Protocol):
    """The options that each stream of a gateway has of its own."""

    @property
    def codec(self) -> str | Codec: ...
    @property
    def batched(self) -> bool: ...
    @property
    def prefetch(self) -> int: ...
    @property
    def prefetch_bytes(self) -> int: ...
    @property
    def keep_plain(self) -> bool: ...
    @property
    def writable(self) -> bool: ...
    @property
    def on_bad_record(self) -> OnBadRecord: ...
    @property
    def compress(self) -> str | None: ...


def check_stream_options(options: _OfAStream, caller: str) -> None:
    """Raise a TypeError or a ValueError that says which option is wrong."""
    a_count(options.prefetch, f"{caller}(prefetch=…)")
    a_count(options.prefetch_bytes, f"{caller}(prefetch_bytes=…)")
    for name in ("batched", "keep_plain", "writable"):
        a_flag(getattr(options, name), f"{caller}({name}=…)")
    if options.on_bad_record not in ("fail", "skip", "dead-letter"):
        raise ValueError(
            f"{caller}(on_bad_record={options.on_bad_record!r}): give 'fail', 'skip' or 'dead-letter'"
        )
    if options.on_bad_record != "fail" and options.batched:
        raise ValueError(
            f"{caller}(batched=True, on_bad_record={options.on_bad_record!r}): a list is taken as a whole; "
            "emit the records one by one"
        )
    if options.compress is not None:
        compressor_named(options.compress, caller)
    if codec_named(options.codec).name == "arrow" and options.batched:
        raise ValueError(f"{caller}(batched=True, codec='arrow'): an Arrow batch is a batch already")


@dataclass(frozen=True, kw_only=True)
class JournalOptions:
    """The options of a journal that a command line can say; a path makes it a file."""

    path: str | None = option(
        None,
        help="memory, a file such as readings.db that survives the process, or a topic that survives the "
        "machine: kafka://HOST:PORT/TOPIC",
        metavar="WHERE",
        parse=_file_or_memory,
        shown="memory",
        flag="--journal",
    )
    max_records: int | None = option(
        None,
        help="the most records in the log",
        metavar="N",
        parse=parse_count,
        shown="1M, file 10M",
    )
    max_bytes: int | None = option(
        None,
        help="the most bytes in the log",
        metavar="SIZE",
        parse=parse_size,
        shown="64M, file 1G",
    )
    max_age: float | None = option(
        None,
        help="delete older records, as in 1h; not with a journal in memory",
        metavar="TIME",
        parse=parse_duration,
    )
    accept_loss: bool = option(
        False,
        help="open a journal whose newest records were lost with its -wal file; it gets a new epoch",
    )
