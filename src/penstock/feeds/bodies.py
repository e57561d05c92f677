"""What a body holds: JSON, JSON lines, CSV, lines, or bytes; and the records that it becomes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, Final

from penstock.feeds.feed import FeedOptions
from penstock.feeds.lines import BadLines, Decode, LineSplitter, LineTooLong
from penstock.feeds.typed_fields import typed_fields

__all__ = ["csv_records", "kind_of", "record_of_fields", "records_in"]

_KINDS: Final = {
    "application/json": "json",
    "application/x-ndjson": "lines",
    "application/ndjson": "lines",
    "application/jsonl": "lines",
    "application/x-jsonlines": "lines",
    "text/plain": "lines",
    "text/csv": "csv",
}


def kind_of(content_type: str) -> str:
    """``json``, ``lines``, ``csv``, or ``bytes`` for every other type."""
    name = content_type.partition(";")[0].strip().lower()
    return "json" if name.endswith("+json") else _KINDS.get(name, "bytes")


def records_in(body: bytes, kind: str, options: FeedOptions, bad: BadLines) -> Sequence[Any]:
    """The records in a body; ValueError if one of them is wrong, unless it may be left out."""
    try:
        return _records_in(body, kind, options, bad)
    except ValueError as error:
        if not bad.keeps:
            raise
        return bad.refuse(error, body, at="a body")


def _records_in(body: bytes, kind: str, options: FeedOptions, bad: BadLines) -> Sequence[Any]:
    decode = options.decoder()
    if kind == "json":
        try:
            return _of_json(body, options, bad, decode)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None
    if kind == "lines":
        splitter = LineSplitter(options.max_line, decode, bad)
        return [*splitter.feed(body.replace(b"\r\n", b"\n")), *splitter.finish()]
    if kind == "csv":
        return list(csv_records(io.StringIO(body.decode("utf-8-sig"), newline=""), options, bad))
    return _decoded([body], decode, options, bad) if body else []


def _of_json(body: bytes, options: FeedOptions, bad: BadLines, decode: Decode | None) -> list[Any]:
    """An array is a record for each of its elements; everything else is one record."""
    import msgspec

    try:
        if body.lstrip()[:1] == b"[":
            each = [bytes(raw) for raw in msgspec.json.decode(body, type=list[msgspec.Raw])]
        else:
            msgspec.json.decode(body)
            each = [body]
    except msgspec.DecodeError as error:
        raise ValueError(f"the body is not JSON: {error}") from None
    return _decoded(each, decode, options, bad)


def _decoded(each: list[bytes], decode: Decode | None, options: FeedOptions, bad: BadLines) -> list[Any]:
    made: list[Any] = []
    for number, value in enumerate(each, 1):
        try:
            if len(value) > options.max_line:
                raise LineTooLong(
                    f"has {len(value)} bytes, and at most {options.max_line} are allowed (--max-line)"
                )
            made.append(value if decode is None else decode(value))
        except (ValueError, RecursionError, OverflowError) as error:
            made += bad.refuse(error, value, at=f"record {number}")
    return made


def _csv_line(row: list[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(row)
    return line.getvalue().encode()


def record_of_fields(fields: dict[str, str], options: FeedOptions) -> Any:
    """Names and texts as one record: as JSON, unless the codec is one of objects, or has a schema.

    With a schema, ValueError if the texts do not fit it.
    """
    import msgspec

    if options.has_schema:
        from penstock.aquifer import EncodedRecord, open_schema

        codec = open_schema(options.codec)
        values = typed_fields(fields, codec.arrow_schema())
        encoded = codec.encode(values)
        return values if options.columns or codec.name == "json" else EncodedRecord(encoded)
    if options.codec not in ("bytes", "text"):
        return fields
    line = msgspec.json.encode(fields)
    return line if options.codec == "bytes" else line.decode()


def csv_records(text: Iterator[str], options: FeedOptions, bad: BadLines) -> Iterator[Any]:
    """Rows as objects, with the names of the first row; as JSON, unless the codec is one of objects."""
    if csv.field_size_limit() < options.max_line:
        csv.field_size_limit(options.max_line)  # It has one for the whole process, which is smaller.
    rows = csv.reader(text, strict=True)
    try:
        names = next(rows, None)
        if names is None:
            return
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"line 1: the header has {twice!r} twice, so one of the fields would be lost")
        for row in rows:
            if not row:
                continue
            if len(row) != len(names):
                count = ValueError(f"it has {len(row)} fields, and the header has {len(names)}")
                yield from bad.refuse(count, _csv_line(row), at=f"line {rows.line_num}")
                continue
            try:
                record = record_of_fields(dict(zip(names, row, strict=True)), options)
            except ValueError as error:
                yield from bad.refuse(error, _csv_line(row), at=f"line {rows.line_num}")
            else:
                yield record
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num}: {error}") from None
