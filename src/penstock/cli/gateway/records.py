"""``penstock gateway peek`` and ``export``: records of a running gateway, on the screen and in a file.

An export is resumed after a crash: beside FILE there is FILE-progress until it is complete, which says up to
which offset, and up to which byte, the file is right.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from penstock.cli.errors import CommandError, ExitCode
from penstock.cli.parser import Commands, ConnectionOptions, add_command
from penstock.cli.progress import ProgressBar
from penstock.cli.style import Column, json_option, print_json, show_table
from penstock.cli.table import counted, printable, size
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
It begins at the oldest record, ends at what is the newest record at that moment, and moves no cursor.

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
    if options.start is not None and options.stop is not None and options.start > options.stop:
        raise CommandError(f"--from {options.start} is beyond --to {options.stop}; the other way round?")
    status = _status(options)
    stop = status.head if options.stop is None else min(options.stop, status.head)
    before = _resumed(options, status)
    start = before.next if before else status.first if options.start is None else options.start
    first = before.start if before else start
    _check_start(options, status, start)
    stop = max(stop, start)
    if before is None and not _is_free(options.file):
        raise _taken(options.file)
    written = before.bytes if before else 0
    with ProgressBar("export", total=max(stop - first, 1), hidden=options.quiet or options.json) as progress:
        progress.update(start - first)
        with _opened(options.file) as out:
            if before is None and os.fstat(out.fileno()).st_size:  # Another export was quicker.
                raise _taken(options.file)
            try:
                out.truncate(written)
                out.seek(written)
                begun = _Resume(status.epoch, first, start, written, options.raw)
                for state in _write(options, status.codec, begun, stop, out):
                    progress.update(state.next - first)
                    written = state.bytes
                _progress_file(options).unlink(missing_ok=True)
            except OSError as error:
                text = f"cannot write {options.file}: {error.strerror}; the same command resumes"
                raise CommandError(text, ExitCode.FAILED) from None
    count = stop - first
    if options.json:
        facts = {"file": options.file, "first": first, "next": stop, "records": count}
        print_json({"exported": facts | {"bytes": written}, "resumed": before is not None})
    else:
        records = counted(count, "record")
        print(f"{records}, {size(written)}, in {options.file}; offsets from {first:,} up to {stop:,}")
    return ExitCode.OK


def _check_start(options: ExportOptions, status: GatewayStatus, start: int) -> None:
    """Refuse what the log does not have, before anything is written."""
    if status.first <= start <= status.head:
        return
    has = f"the log has the offsets {status.first} to {status.head - 1}"
    if status.head == status.first:
        has = f"the log has no records, and the next one gets the offset {status.head}"
    if start == options.start:
        raise CommandError(f"there is no record {start}: {has}", ExitCode.FAILED)
    raise CommandError(
        f"the export cannot be resumed at {start}, for {has}; {_to_begin_again(options)}", ExitCode.FAILED
    )


def _is_free(file: str) -> bool:
    """Whether nothing is lost if this file is written; an export that was killed at once leaves it empty."""
    return not os.path.lexists(file) or (os.path.isfile(file) and not os.path.getsize(file))


def _taken(file: str) -> CommandError:
    return CommandError(f"{file} exists, and is not the beginning of an export; name another file")


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """Open the file for this export alone."""
    try:
        # Not truncated: somebody else may have it open.
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}", ExitCode.FAILED) from None
    out = os.fdopen(descriptor, "r+b")
    try:
        if sys.platform != "win32":
            import fcntl

            # A file system without locks says something else, and is used without one.
            with suppress(OSError):
                try:
                    fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    text = f"another export writes {file}; wait for it, or name another file"
                    raise CommandError(text, ExitCode.FAILED) from None
        yield out
    finally:
        # What could not be written was told already.
        with suppress(OSError):
            out.close()


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
            assert record.offset is not None  # A gateway gives one to each.
            state = state._replace(next=record.offset + 1, bytes=state.bytes + len(line))
            if number % _AT_ONCE == 0:
                yield state
            if state.bytes - safe >= _SAFE_EVERY:
                safe = state.bytes
                _save(options, state, out)
        yield state
    finally:
        _save(options, state, out)
    if state.next < stop:
        text = f"the stream ended at {state.next}, before {stop}; the same command resumes"
        raise CommandError(text, ExitCode.FAILED)


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
    import msgspec

    file = _progress_file(options)
    if not file.exists() or not os.path.exists(options.file):
        return None
    again = _to_begin_again(options)
    try:
        said = json.loads(file.read_bytes())
        before = msgspec.convert([said[name] for name in _Resume._fields], _Resume)
    except (OSError, ValueError, TypeError, KeyError):
        raise CommandError(f"{file} does not say how far the export had come; {again}") from None
    if before.epoch != status.epoch:
        text = f"the gateway has another log by now, and offsets of the two differ; {again}"
        raise CommandError(text, ExitCode.FAILED)
    if before.raw != options.raw or (options.start is not None and options.start != before.start):
        raise CommandError(f"{options.file} is the beginning of another export; {again}")
    if options.stop is not None and options.stop < before.next:
        has = f"{options.file} has the records up to {before.next} already, beyond --to {options.stop}"
        raise CommandError(f"{has}; {again}")
    if os.path.getsize(options.file) < before.bytes:
        raise CommandError(f"{options.file} is shorter than the export was; {again}", ExitCode.FAILED)
    return before


def _to_begin_again(options: ExportOptions) -> str:
    return f"remove {options.file} and {_progress_file(options)} to begin again"


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
