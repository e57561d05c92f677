"""``penstock tail``: print the records of a gateway as they arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from penstock.cli.logs import LogOptions
from penstock.cli.parser import Commands, ConnectionOptions, add_command, section
from penstock.cli.style import json_option
from penstock.codec_names import parse_codec
from penstock.options import option, parse_count, parse_duration, parse_instant, parse_rate

__all__ = ["EPOCH", "TailOptions", "add_parser"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_DESCRIPTION = """\
Print the records of a gateway, from the oldest that it still has, until the stream ends.

A slow reader of the output slows this subscriber down. It is a required reader: when the log is full of
records that it still needs, the gateway's source pauses, and nothing is lost. With --optional the source does
not wait for it, and it misses what the log no longer has. With --id the gateway remembers what was printed,
and the next `tail` with that id continues there. Several with the same --group share the records by key: each
prints a part of them, and when one leaves or dies, the others take over its part.
"""

_EXAMPLES = """\
examples:
  penstock tail tcp://127.0.0.1:5556                        everything, then whatever arrives
  penstock tail tcp://127.0.0.1:5556 --from latest          only what arrives from now on
  penstock tail tcp://127.0.0.1:5556 --from 1000 --to 2000  the records 1000 to 1999
  penstock tail tcp://127.0.0.1:5556 --from 2026-01-31T08:00
                                                            what arrived from eight o'clock (UTC) on
  penstock tail tcp://127.0.0.1:5556 --key sensor-7 --key sensor-9
                                                            only the records with one of these keys
  penstock tail tcp://127.0.0.1:5556 --id nightly --count 100
                                                            the next hundred that `nightly` has not seen
  penstock tail tcp://127.0.0.1:5556 --group printers       in several terminals: each prints some of the keys
  penstock tail tcp://127.0.0.1:5556 --rate 10/s            slowly: the gateway sends no faster
  penstock tail tcp://127.0.0.1:5556 --json | jq .value
                                                            with offset, timestamp and key
  penstock tail tcp://HOST:5560 --curve me.key --server-key gateway.pub

exit codes: 0 the stream ended, --count was reached, or the reader of the output left; 1 something failed;
2 wrong command line; 130 Ctrl-C
"""


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not an offset; write 0, 1, 2, …")
    return int(text)


def _start(text: str) -> int | str | datetime:
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return EPOCH + timedelta(microseconds=parse_instant(text))
    except ValueError:
        raise ValueError(
            f"{text!r}: write earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z"
        ) from None


@dataclass(frozen=True, kw_only=True)
class TailOptions(ConnectionOptions):
    """The options of ``penstock tail``."""

    start: int | Literal["earliest", "latest"] | datetime | None = option(
        None,
        flag="--from",
        parse=_start,
        metavar="WHERE",
        shown="earliest, or with --id or --group where it left off",
        help="where to start: earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z (without a "
        "zone it is in UTC)",
    )
    stop: int | None = option(None, flag="--to", parse=_offset, metavar="N", help="stop before this offset")
    keys: tuple[str, ...] = option(
        (),
        flag="--key",
        repeated=True,
        metavar="KEY",
        help="print only the records with this key; can be given several times",
    )
    id: str | None = option(
        None, metavar="NAME", help="a name under which the gateway remembers what was printed"
    )
    group: str | None = option(
        None,
        metavar="NAME",
        help="be a member of this reader group: all with this name share the records by key, and the gateway "
        "remembers what they have printed",
    )
    partitions: int | None = option(
        None,
        parse=parse_count,
        metavar="N",
        shown="what the group has, or 8",
        help="into how many partitions a new group divides the records; as many members can share them",
    )
    lease: float = option(
        60.0,
        parse=parse_duration,
        metavar="TIME",
        shown="60s",
        help="how long the gateway remembers the id or the group without hearing from it",
    )
    count: int | None = option(None, parse=parse_count, metavar="N", help="stop after N records")
    rate: float | None = option(
        None, parse=parse_rate, metavar="N/s", help="request at most N records per second"
    )
    json: bool = json_option(
        "print an object with offset, timestamp, key and value in each line, not the value alone"
    )
    codec: str | None = option(
        None,
        parse=parse_codec,
        metavar="CODEC",
        shown="what the gateway says",
        help="what the values are: bytes, text, json, msgpack, or with a schema jsonschema:FILE, avro:FILE "
        "or protobuf:FILE; all but bytes and text are printed as JSON",
    )
    optional: bool = option(
        False,
        aliases=("--best-effort",),
        help="be an optional reader: miss records rather than hold back the source",
    )
    dialect: Literal["auto", "extended", "plain"] = option(
        "auto",
        choices=("auto", "extended", "plain"),
        help="the dialect of the protocol; plain is that of the Aquifer document and has no offsets",
    )
    patience: float = option(
        30.0,
        parse=parse_duration,
        metavar="TIME",
        shown="30s",
        help="how long to look for a gateway that does not answer",
    )
    log: LogOptions = section(LogOptions, "messages")


def _load() -> tuple[type[TailOptions], Callable[[TailOptions], int]]:
    from penstock.cli.tail.printer import run_tail

    return TailOptions, run_tail


def add_parser(commands: Commands) -> None:
    """Add ``penstock tail`` to the command line."""
    add_command(
        commands,
        "tail",
        _load,
        help="print the records of a gateway as they arrive",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
