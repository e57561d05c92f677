"""``penstock gateway peek`` and ``export``: records of a running gateway, on the screen and in a file.

An export is resumed after a crash: beside FILE there is FILE-progress until it is complete, which says up to
which offset, and up to which byte, the file is right.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from penstock.cli.errors import CommandError, ExitCode
from penstock.cli.parser import Commands, ConnectionOptions, add_command
from penstock.cli.progress import ProgressBar
from penstock.cli.style import Column, json_option, print_json, show_table
from penstock.cli.table import printable, size
from penstock.options import option, parse_count

if TYPE_CHECKING:
    from penstock.aquifer import GatewayStatus, Record

__all__ = ["ExportOptions", "PeekOptions", "add_parsers"]

_TIMEOUT: Final = 5.0
_SHOWN: Final = 60
"""Characters of a value in a table."""
_AT_ONCE: Final = 1000
"""Records between two looks at the progress."""
_SAFE_EVERY: Final = 16 * 1024 * 1024
"""Bytes after which what was written is made safe, and an export can be resumed."""

_PEEK = """\
Show a record of a running gateway with its offset, time, key, size and the beginning of its value, or with
--json in full. Nobody's cursor moves.
"""
_EXPORT = """\
Write the records of a running gateway to a file: a JSON object in each line, or with --raw the values alone.
It begins at the oldest record, ends at the newest of this moment, and moves nobody's cursor.

If it is interrupted, the same command resumes where it was. FILE-progress says where that is, and is removed
at the end. The gateway does not wait for an export: if records go before it comes to them, it fails.
"""
_EXAMPLES = """\
examples:
  penstock gateway peek tcp://127.0.0.1:5556 1000             the record 1000
  penstock gateway peek tcp://127.0.0.1:5556 1000 --count 5 --json
                                                              and the four after it, in full
  penstock gateway export tcp://127.0.0.1:5556 all.jsonl      everything that the log has now
  penstock gateway export tcp://127.0.0.1:5556 part.txt --from 1000 --to 2000 --raw

exit codes: 0 done; 1 something failed; 2 wrong command line; 130 Ctrl-C, and the next export resumes
"""


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not an offset; write 0, 1, 2, …")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class PeekOptions(ConnectionOptions):
    """The options of ``penstock gateway peek``."""

    offset: int = option(positional=True, parse=_offset, metavar="OFFSET", help="the first record to show")
    count: int = option(1, parse=parse_count, metavar="N", help="how many records to show")
    json: bool = json_option("print one JSON object in a line for each record, in full")


@dataclass(frozen=True, kw_only=True)
class ExportOptions(ConnectionOptions):
    """The options of ``penstock gateway export``."""

    file: str = option(positional=True, metavar="FILE", help="the file to write")
    start: int | None = option(
        None, flag="--from", parse=_offset, metavar="N", shown="the oldest", help="the first offset"
    )
    stop: int | None = option(
        None,
        flag="--to",
        parse=_offset,
        metavar="N",
        shown="the end",
        help="stop before this offset",
    )
    raw: bool = option(False, help="write each value and a newline, without offset, time and key")
    json: bool = json_option("print one JSON object about what was done")
    quiet: bool = option(False, help="show no progress")


def add_parsers(commands: Commands) -> None:
    """Add the commands to those of ``penstock gateway``."""
    add_command(
        commands,
        "peek",
        lambda: (PeekOptions, _peek),
        help="show a record by its offset, with its time, key and size",
        description=_PEEK,
        examples=_EXAMPLES,
    )
    add_command(
        commands,
        "export",
        lambda: (ExportOptions, _export),
        help="write records to a file, and resume if interrupted",
        description=_EXPORT,
        examples=_EXAMPLES,
    )


# ---------------------------------------------------------------- peeking
def _peek(options: PeekOptions) -> int:
    from penstock.cli.record_text import as_object, time_text

    status = _status(options)
    if not status.first <= options.offset < status.head:
        some = status.head > status.first
        has = f"the offsets {status.first} to {status.head - 1}" if some else "no records"
        raise CommandError(f"there is no record {options.offset}: the log has {has}", ExitCode.FAILED)
    stop = min(options.offset + options.count, status.head)
    codec = status.codec
    found = _records(options, options.offset, stop)
    if options.json:
        for record in found:
            value = _decoded(record, codec)
            print_json(as_object(value, value is record) | {"size": len(record.value)})
        return ExitCode.OK
    show_table(
        [
            Column("OFFSET", right=True),
            Column("TIME"),
            Column("KEY"),
            Column("SIZE", right=True),
            Column("VALUE"),
        ],
        [
            [
                f"{record.offset}",
                time_text(record.timestamp) or "-",
                _text(record.key) if record.key is not None else "-",
                size(len(record.value)),
                _text(record.value),
            ]
            for record in found
        ],
    )
    return ExitCode.OK


def _text(data: bytes) -> str:
    text = printable(data[: 4 * _SHOWN].decode(errors="replace"))
    return text if len(text) <= _SHOWN and len(data) <= 4 * _SHOWN else f"{text[:_SHOWN]}…"


def _decoded(record: Record, codec: str) -> Record:
    """Return the record with its value decoded; as it is if that is not possible."""
    import msgspec

    read: dict[str, Callable[[bytes], Any]] = {"json": msgspec.json.decode, "msgpack": msgspec.msgpack.decode}
    if codec not in read:
        return record
    try:
        return msgspec.structs.replace(record, value=read[codec](record.value))
    except msgspec.DecodeError:
        return record


# ---------------------------------------------------------------- exporting
class _Resume(NamedTuple):
    """How far a file is right; the contents of FILE-progress."""

    epoch: str
    start: int
    next: int
    bytes: int
    raw: bool


def _export(options: ExportOptions) -> int:
    status = _status(options)
    stop = status.head if options.stop is None else min(options.stop, status.head)
    before = _resumed(options, status)
    start = before.next if before else status.first if options.start is None else options.start
    first = before.start if before else start
    if before is None and os.path.exists(options.file):
        raise CommandError(f"{options.file} exists, and is not the beginning of an export; name another file")
    written = before.bytes if before else 0
    with ProgressBar("export", total=max(stop - first, 1), hidden=options.quiet or options.json) as progress:
        progress.update(start - first)
        try:
            with open(options.file, "r+b" if before else "xb") as out:
                out.truncate(written)
                out.seek(written)
                begun = _Resume(status.epoch, first, start, written, options.raw)
                for state in _write(options, status.codec, begun, stop, out):
                    progress.update(state.next - first)
                    written = state.bytes
        except OSError as error:
            text = f"cannot write {options.file}: {error.strerror}; the same command resumes"
            raise CommandError(text, ExitCode.FAILED) from None
    _progress_file(options).unlink(missing_ok=True)
    count = max(stop - first, 0)
    if options.json:
        facts = {"file": options.file, "first": first, "next": first + count, "records": count}
        print_json({"exported": facts | {"bytes": written}, "resumed": before is not None})
    else:
        print(f"{count:,} records, {size(written)}, in {options.file}; offsets from {first:,} up to {stop:,}")
    return ExitCode.OK


def _write(options: ExportOptions, codec: str, state: _Resume, stop: int, out: BinaryIO) -> Iterator[_Resume]:
    """Write records, and now and then what makes it possible to resume."""
    if state.next >= stop:
        return
    safe = state.bytes
    _save(options, state, out)
    try:
        for number, record in enumerate(_records(options, state.next, stop, state.epoch), 1):
            line = (record.value if options.raw else _json_line(record, codec)) + b"\n"
            out.write(line)
            state = state._replace(next=state.next + 1, bytes=state.bytes + len(line))
            if number % _AT_ONCE == 0:
                yield state
            if state.bytes - safe >= _SAFE_EVERY:
                safe = state.bytes
                _save(options, state, out)
        yield state
    finally:
        _save(options, state, out)


def _json_line(record: Record, codec: str) -> bytes:
    import msgspec

    from penstock.cli.record_text import as_object

    shown = _decoded(record, codec)
    return msgspec.json.encode(as_object(shown, shown is record))


def _save(options: ExportOptions, state: _Resume, out: BinaryIO) -> None:
    """Make what was written safe, and only then say so."""
    out.flush()
    os.fsync(out.fileno())
    file = _progress_file(options)
    draft = file.with_name(f"{file.name}.new")
    draft.write_text(json.dumps(state._asdict()))
    os.replace(draft, file)


def _progress_file(options: ExportOptions) -> Path:
    return Path(f"{options.file}-progress")


def _resumed(options: ExportOptions, status: GatewayStatus) -> _Resume | None:
    """Read how far an export of before had come; None if there was none."""
    file = _progress_file(options)
    if not file.exists() or not os.path.exists(options.file):
        return None
    again = f"remove {options.file} and {file} to begin again"
    try:
        before = _Resume(**json.loads(file.read_text()))
    except (ValueError, TypeError):
        raise CommandError(f"{file} does not say how far the export had come; {again}") from None
    if before.epoch != status.epoch:
        text = f"the gateway has another log by now, and offsets of the two differ; {again}"
        raise CommandError(text, ExitCode.FAILED)
    if before.raw != options.raw or (options.start is not None and options.start != before.start):
        raise CommandError(f"{options.file} is the beginning of another export; {again}")
    if os.path.getsize(options.file) < before.bytes:
        raise CommandError(f"{options.file} is shorter than the export was; {again}", ExitCode.FAILED)
    return before


# ---------------------------------------------------------------- both
def _status(options: ConnectionOptions) -> GatewayStatus:
    from penstock.aquifer import AquiferError, probe

    try:
        return probe(options.endpoint, _TIMEOUT, options.curve_client())
    except AquiferError as error:
        raise CommandError(str(error), ExitCode.FAILED) from None
    except ValueError as error:
        raise CommandError(str(error)) from None


def _records(options: ConnectionOptions, start: int, stop: int, epoch: str | None = None) -> Iterator[Record]:
    """Read a range, as a reader that nobody waits for."""
    from penstock.aquifer import AquiferError, AquiferPublisher

    publisher = AquiferPublisher(
        options.endpoint,
        start=start,
        stop=stop,
        epoch=epoch,
        keep=False,
        codec="bytes",  # What cannot be decoded is shown as it is.
        records=True,
        patience=_TIMEOUT,
        curve=options.curve_client(),
    )
    try:
        yield from publisher.flux()
    except AquiferError as error:
        raise CommandError(str(error), ExitCode.FAILED) from None
