"""What becomes of a record that differs from the schema: the table of ``docs/spark.md``, and how to check it.

``python -m tests.spark.outcome_table`` rewrites the table.
"""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
HEAD = "| A record that has | `PERMISSIVE` | `DROPMALFORMED` | `FAILFAST` |\n|---|---|---|---|\n"
MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")


class Result(NamedTuple):
    """What a mode makes of the records."""

    told: str
    """The cell of the table."""
    rows: list[dict[str, Any]] | None = None
    """The rows that are read; None if the query fails."""


class Outcome(NamedTuple):
    """A row of the table."""

    what: str
    schema: str
    records: list[bytes] | pa.RecordBatch
    """A right one, and the one that the row is about."""
    results: tuple[Result, Result, Result]
    """One for each mode."""
    value: str = "json"


GOOD: Final = {"n": 1, "t": "a"}
COLUMNS: Final = "n bigint, t string"
FAILS: Final = Result("the query fails")


def _json(*records: Any) -> list[bytes]:
    return [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]


def _always(told: str, *rows: dict[str, Any]) -> tuple[Result, Result, Result]:
    result = Result(told, list(rows))
    return result, result, result


def _wrong(told: str, good: dict[str, Any], partial: dict[str, Any]) -> tuple[Result, Result, Result]:
    return Result(told, [good, partial]), Result("left out", [good]), FAILS


OUTCOMES: Final = [
    Outcome(
        "a new field, which the schema does not name",
        COLUMNS,
        _json(GOOD, {"n": 2, "t": "b", "new": [1]}),
        _always("the field is ignored", GOOD, {"n": 2, "t": "b"}),
    ),
    Outcome(
        "no value for a column, or null",
        COLUMNS,
        _json({"t": "a"}, {"n": None, "t": "b"}),
        _always("null", {"n": None, "t": "a"}, {"n": None, "t": "b"}),
    ),
    Outcome(
        "no value for a column that is `NOT NULL`",
        "n bigint NOT NULL, t string",
        _json(GOOD, {"t": "b"}),
        (Result("the query fails"), Result("left out", [GOOD]), FAILS),
    ),
    Outcome(
        "a text in a column of numbers, or any other type that does not fit",
        COLUMNS,
        _json(GOOD, {"n": "2", "t": "b"}),
        _wrong("that column is null", GOOD, {"n": None, "t": "b"}),
    ),
    Outcome(
        "a number that is too large for the type of its column",
        "n tinyint, t string",
        _json(GOOD, {"n": 300, "t": "b"}),
        _wrong("that column is null", GOOD, {"n": None, "t": "b"}),
    ),
    Outcome(
        "a field of another type in an inner object",
        "o struct<n: bigint, t: string>",
        _json({"o": GOOD}, {"o": {"n": "2", "t": "b"}}),
        _wrong("that field is null", {"o": GOOD}, {"o": {"n": None, "t": "b"}}),
    ),
    Outcome(
        "an element of another type in an array or a map",
        "a array<bigint>, t string",
        _json({"a": [1], "t": "a"}, {"a": [1, "2"], "t": "b"}),
        _wrong("the array or the map is null", {"a": [1], "t": "a"}, {"a": None, "t": "b"}),
    ),
    Outcome(
        "a number, a boolean or an object in a column of type `string` (`json`)",
        "t string",
        _json({"t": 1.5}, {"t": {"b": [1]}}),
        _always("its text", {"t": "1.5"}, {"t": '{"b":[1]}'}),
    ),
    Outcome(
        "the same (`msgpack`)",
        COLUMNS,
        [msgspec.msgpack.encode(GOOD), msgspec.msgpack.encode({"n": 2, "t": 5})],
        _wrong("that column is null", GOOD, {"n": 2, "t": None}),
        "msgpack",
    ),
    Outcome(
        "`2.0` in a column of whole numbers (`json`)",
        COLUMNS,
        _json(GOOD, {"n": 2.0, "t": "b"}),
        _always("2", GOOD, {"n": 2, "t": "b"}),
    ),
    Outcome(
        "no JSON or MessagePack in it, or something that is not an object",
        COLUMNS,
        _json(GOOD, b'{"n": 2, "t'),
        _wrong("all columns are null", GOOD, {"n": None, "t": None}),
    ),
    Outcome(
        "too few fields (`csv`)",
        COLUMNS,
        [b"1,a", b"2"],
        _wrong("the missing columns are null", GOOD, {"n": 2, "t": None}),
        "csv",
    ),
    Outcome(
        "too many fields (`csv`)",
        COLUMNS,
        [b"1,a", b"2,b,c"],
        _wrong("those that are too many are ignored", GOOD, {"n": 2, "t": "b"}),
        "csv",
    ),
    Outcome(
        "bytes that are not UTF-8 (`string`)",
        "offset bigint, value string",
        [b"a", b"\xff"],
        _wrong("the column `value` is null", {"offset": 0, "value": "a"}, {"offset": 1, "value": None}),
        "string",
    ),
    Outcome(
        "a column of another type that can be converted without loss (`arrow`)",
        COLUMNS,
        pa.record_batch({"n": pa.array([1, 2], pa.int16()), "t": pa.array(["a", "b"], pa.large_string())}),
        _always("it is converted", GOOD, {"n": 2, "t": "b"}),
        "arrow",
    ),
    Outcome(
        "a value that cannot be converted (`arrow`)",
        COLUMNS,
        pa.record_batch({"n": pa.array([1, 2**63], pa.uint64()), "t": ["a", "b"]}),
        _wrong("that column is null", GOOD, {"n": None, "t": "b"}),
        "arrow",
    ),
    Outcome(
        "a time in a column of dates, or a number in one of times or booleans (`arrow`)",
        "n bigint, d date",
        pa.record_batch(
            {
                "n": [1, 2],
                "d": [datetime.datetime(2026, 1, 31), datetime.datetime(2026, 1, 31, 23, 30)],
            }
        ),
        _wrong(
            "that column is null, unless the value is the same: midnight, or 0 and 1 in a column of booleans",
            {"n": 1, "d": "2026-01-31"},
            {"n": 2, "d": None},
        ),
        "arrow",
    ),
    Outcome(
        "no such column (`arrow`)",
        COLUMNS,
        pa.record_batch({"t": ["a", "b"], "new": [1, 2]}),
        (
            Result("null", [{"n": None, "t": "a"}, {"n": None, "t": "b"}]),
            Result("null", [{"n": None, "t": "a"}, {"n": None, "t": "b"}]),
            FAILS,
        ),
        "arrow",
    ),
    Outcome(
        "none of the columns (`arrow`)",
        COLUMNS,
        pa.record_batch({"other": [1, 2]}),
        (Result("all columns are null", [{"n": None, "t": None}] * 2), Result("left out", []), FAILS),
        "arrow",
    ),
]


def table() -> str:
    """The table, with a row for each outcome."""
    return HEAD + "".join(
        f"| {outcome.what} | {' | '.join(result.told for result in outcome.results)} |\n"
        for outcome in OUTCOMES
    )


def with_outcomes(page: str) -> str:
    """The page with the table as it is here."""
    return re.sub(rf"{re.escape(HEAD)}(?:\|.*\n)*", lambda _: table(), page)


if __name__ == "__main__":
    PAGE.write_text(with_outcomes(PAGE.read_text("utf-8")), "utf-8")
