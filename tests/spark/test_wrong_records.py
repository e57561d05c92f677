"""Wrong records in Spark: every row of the table, beside Spark's own reader, and at a restart."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.aquifer import Gateway, StreamOptions
from penstock.spark import reason_of
from penstock.streams import Flux
from tests.spark.conftest import ANYWHERE, Queries, Serve, failure_of
from tests.spark.outcome_table import MODES, OUTCOMES, PAGE, Outcome, with_outcomes
from tests.spark.sinking import log_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


# ---------------------------------------------------------------- the table
def test_the_table_of_outcomes_is_that_of_the_page() -> None:
    page = PAGE.read_text("utf-8")

    assert with_outcomes(page) == page, "run: python -m tests.spark.outcome_table"
    assert OUTCOMES[0].what in page


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Gateway]:
    """A stream for each row of the table: ``row0``, ``row1``, …"""
    with ExitStack() as closing:
        streams = {
            f"row{number}": StreamOptions(
                Flux.just(outcome.records)
                if isinstance(outcome.records, pa.RecordBatch)
                else Flux.from_iterable(outcome.records),
                codec="arrow" if outcome.value == "arrow" else "bytes",
            )
            for number, outcome in enumerate(OUTCOMES)
        }
        gateway = closing.enter_context(Gateway(None, ANYWHERE, streams=streams))
        assert gateway.join(120), "the records did not get into the logs"
        yield gateway


def frame_of(spark: SparkSession, gateway: Gateway, number: int, mode: str, **more: str) -> DataFrame:
    outcome = OUTCOMES[number]
    reader = spark.read.format("aquifer").schema(outcome.schema + more.pop("and_also", ""))
    reader = reader.options(endpoint=f"{gateway.endpoint}/row{number}", value=outcome.value, mode=mode)
    return reader.option("partitions", "1").options(**more).load()


@pytest.fixture(scope="module")
def read(spark: SparkSession, outcomes: Gateway) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """What is read of each row of the table in each mode that does not fail: one job for all."""
    frame: DataFrame | None = None
    for number, outcome in enumerate(OUTCOMES):
        for mode, result in zip(MODES, outcome.results, strict=True):
            if result.rows is not None:
                each = frame_of(spark, outcomes, number, mode).selectExpr(
                    f"{number} AS number",
                    f"'{mode}' AS mode",
                    "to_json(struct(*), map('ignoreNullFields', 'false')) AS row",
                )
                frame = each if frame is None else frame.union(each)
    assert frame is not None
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in frame.collect():
        found.setdefault((row.number, row.mode), []).append(json.loads(row.row))
    return found


CASES = [
    pytest.param(number, mode, id=f"{outcome.what}, {mode}")
    for number, outcome in enumerate(OUTCOMES)
    for mode in MODES
]


@pytest.mark.parametrize(("number", "mode"), CASES)
def test_a_record_that_differs_from_the_schema_comes_to_what_the_table_says(
    spark: SparkSession,
    outcomes: Gateway,
    read: dict[tuple[int, str], list[dict[str, Any]]],
    number: int,
    mode: str,
) -> None:
    outcome: Outcome = OUTCOMES[number]
    rows = outcome.results[MODES.index(mode)].rows
    if rows is not None:
        assert read.get((number, mode), []) == rows
        return
    with pytest.raises(Exception, match=r"UnreadableRecord|BadSchema") as failed:
        frame_of(spark, outcomes, number, mode).collect()
    assert "\n" not in reason_of(failed.value)


# ---------------------------------------------------------------- beside Spark's own reader
RECORDS = [
    b'{"n": 1, "t": "a", "o": {"x": 1, "y": "p"}, "a": [{"x": 1}], "m": {"k": {"x": 1}}, "d": 1.5}',
    b'{"n": "1", "t": 5, "o": {"x": "no", "y": "p"}, "a": [{"x": "no", "y": "q"}, {"x": 2}]}',
    b'{"n": "1", "d": "-Infinity"}',
    b'{"n": 1, "o": 7, "a": 7, "m": 7, "d": "x"}',
    b'{"n": 1.5, "t": null, "m": {"k": {"x": "no", "y": "q"}}}',
    b'{"n": 99999999999999999999, "t": [1, 2]}',
    b'{"t": true, "new": 1}',
    b"{",
    b"nonsense",
    b'{"n": 1',
    b"5",
    b"{}",
]
COLUMNS = (
    "n bigint, t string, o struct<x: bigint, y: string>, a array<struct<x: bigint, y: string>>, "
    "m map<string, struct<x: bigint, y: string>>, d double, _corrupt_record string"
)


def test_permissive_reads_what_sparks_own_reader_of_json_reads(spark: SparkSession, serve: Serve) -> None:
    gateway = serve(RECORDS)
    reader = spark.read.format("aquifer").option("endpoint", gateway.endpoint).option("partitions", "1")
    texts = reader.option("value", "string").load()
    theirs = texts.orderBy("offset").selectExpr(
        f"from_json(value, '{COLUMNS}', map('mode', 'PERMISSIVE')) AS row"
    )
    ours = reader.schema(COLUMNS).option("value", "json").load()

    for mine, their, record in zip(ours.collect(), theirs.collect(), RECORDS, strict=True):
        assert mine == their.row, record


RANDOM = random.Random(15)


def number() -> str:
    """A number as JSON has it: of any length, with or without a fraction and an exponent."""
    text = RANDOM.choice(["", "-"]) + str(RANDOM.randrange(10 ** RANDOM.randint(1, 45)))
    if RANDOM.random() < 0.6:
        text += "." + "".join(RANDOM.choices("0123456789", k=RANDOM.randint(1, 25)))
    return text + RANDOM.choice(["", "", f"e{RANDOM.randint(-45, 45)}", f"E+{RANDOM.randint(0, 9)}"])


NUMBERS = [
    *("19.999", "19.995", "-19.995", "19.994999", "99999999.994", "99999999.995", "100000000", "1e-400"),
    *("123456789012345678901234567890", "12345678901234567890123456789", "1e25", "1e38", "-1e37", "0e100"),
    *("1e39", "-1e39", "3.4028235e38", "3.4028236e38", "1e-46", "16777217", "1e308", "1e309", "-1e400"),
    *("9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1.5"),
    *("2.0", "-1e3", "20e-1", "127", "128", "255", "256", "-129", "300", "32768", "2147483648", "-0", "-0.0"),
    *('"1.25"', '"1,000"', '" 1"', '"1_0"', '"1e2"', '"19.999"', '"x"', '""', '"NaN"', '"INF"', '"+INF"'),
    *("NaN", "-Infinity", "true", "null", "[1]", "{}", '"0x1f"', '".5"', '"1."', '"+1"'),
    *(number() for _ in range(200)),
]
NUMBER_KINDS = {
    "price": "decimal(10,2)",
    "wide": "decimal(38,18)",
    "long": "decimal(38,0)",
    "part": "decimal(5,5)",
    "single": "float",
    "double": "double",
    "tiny": "tinyint",
    "small": "smallint",
    "normal": "int",
    "big": "bigint",
    "nothing": "void",
}
BITS = {"tiny": 8, "small": 16, "normal": 32, "big": 64}


def as_the_page_says(column: str, text: str, theirs: Any) -> Any:
    """What we read: the same as Spark, but for what the page lists."""
    if column == "tiny" and text.isdigit() and 128 <= int(text) <= 255:
        return None  # Spark reads 128 as -128.
    if column in BITS and text[-1].isdigit() and set(text) & set(".eE"):
        value = float(text)  # Spark has no whole numbers with a fraction or an exponent.
        return int(value) if value.is_integer() and abs(value) < min(2 ** (BITS[column] - 1), 2**53) else None
    return theirs


def test_numbers_are_read_as_sparks_own_reader_of_json_reads_them(spark: SparkSession, serve: Serve) -> None:
    gateway = serve(
        [
            f"{{{', '.join(f'{json.dumps(name)}: {text}' for name in NUMBER_KINDS)}}}".encode()
            for text in NUMBERS
        ]
    )
    schema = ", ".join(f"{name} {kind}" for name, kind in NUMBER_KINDS.items())
    reader = spark.read.format("aquifer").option("endpoint", gateway.endpoint).option("partitions", "1")
    texts = reader.option("value", "string").load().orderBy("offset")
    theirs = texts.selectExpr(f"from_json(value, '{schema}', map('mode', 'PERMISSIVE')) AS row").collect()
    ours = reader.schema(schema).option("value", "json").load().collect()

    differ = [
        f"{text} in {kind}: {mine[name]}, and Spark reads {their.row[name]}"
        for text, mine, their in zip(NUMBERS, ours, theirs, strict=True)
        for name, kind in NUMBER_KINDS.items()
        if repr(mine[name]) != repr(as_the_page_says(name, text, their.row[name]))
    ]
    assert differ == []


def test_the_column_for_wrong_records_has_their_bytes_wherever_it_is_and_whatever_its_name(
    spark: SparkSession, serve: Serve
) -> None:
    gateway = serve([b'{"n": 1}', b"\xff{", b'{"n": "x"}'])
    reader = spark.read.format("aquifer").schema("wrong binary, n bigint")
    reader = reader.options(endpoint=gateway.endpoint, value="json", columnNameOfCorruptRecord="wrong")

    assert [(row.wrong, row.n) for row in reader.load().collect()] == [
        (None, 1),
        (b"\xff{", None),
        (b'{"n": "x"}', None),
    ]


# ---------------------------------------------------------------- a stream
LINES = [b'{"n": %d, "t": "a"}' % n if n % 10 else b'{"n": "no %d"}' % n for n in range(100)]


def test_a_schema_can_change_at_a_restart(queries: Queries, serve: Serve, tmp_path: Path) -> None:
    gateway = serve(LINES)
    common: dict[str, Any] = {"value": "json", "maxRecordsPerTrigger": 50}
    failed = queries.start(gateway, "n bigint", mode="FAILFAST", **common)
    assert "record 0 of" in failure_of(failed)

    # The same checkpoint and the same batch, which Spark has logged: now as texts, and with another column.
    queries.run(gateway, "t string, n string", **common)

    assert len(queries.rows) == 100
    assert [row.n for row in sorted(queries.rows, key=lambda row: str(row.n))][-1] == "no 90"
    assert {row.t for row in queries.rows} == {"a", None}


def test_each_wrong_record_is_a_dead_letter_once_however_often_its_batch_runs(
    queries: Queries, serve: Serve, tmp_path: Path
) -> None:
    gateway, letters = serve(LINES), serve(None, writable=True, codec="json")
    options: dict[str, Any] = {
        "value": "json",
        "maxRecordsPerTrigger": 50,
        "partitions": 3,
        "deadLetter": letters.endpoint,
    }
    failing = [True]

    def fail_after_reading(rows: list[Any]) -> None:
        if failing.pop() if failing else False:
            raise RuntimeError("the sink is broken")

    queries.during = fail_after_reading
    assert "the sink is broken" in failure_of(queries.start(gateway, "n bigint, t string", **options))
    assert len(log_of(letters)) == 5, "a batch that failed later has written its dead letters"
    queries.run(gateway, "n bigint, t string", **options)

    assert sorted(row.n for row in queries.rows) == [n for n in range(100) if n % 10]
    written = sorted(log_of(letters), key=lambda letter: int(letter["offset"]))
    assert [letter["offset"] for letter in written] == list(range(0, 100, 10))
    assert [letter["text"].encode() for letter in written] == LINES[::10]
    assert {letter["endpoint"] for letter in written} == {gateway.endpoint}
    assert all("Expected `int" in letter["reason"] for letter in written)


def test_a_batch_that_is_read_twice_writes_its_dead_letters_once(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    gateway, letters = serve(LINES), serve(None, writable=True, codec="json")
    reader = spark.read.format("aquifer").schema("n bigint, t string")
    frame = reader.options(
        endpoint=gateway.endpoint, value="json", mode="PERMISSIVE", deadLetter=letters.endpoint
    ).load()

    assert frame.count() == frame.count() == 100
    assert sorted(letter["offset"] for letter in log_of(letters)) == list(range(0, 100, 10))


def test_dead_letters_that_cannot_be_written_fail_the_query_and_name_the_option(
    queries: Queries, serve: Serve
) -> None:
    gateway, other = serve(LINES), serve([b"x"])
    query = queries.start(gateway, "n bigint", value="json", deadLetter=other.endpoint)

    assert "accepts no records: start it with writable=True" in failure_of(query)
