"""Which records are wrong, and what becomes of them, without a Spark: verdicts, and dead letters, once."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from penstock.aquifer import (
    Batch,
    Gateway,
    Producer,
    ProtocolViolation,
    Record,
    RecordMetadata,
    SqliteJournal,
    open_schema,
    pack_metadata,
    pack_values,
)
from penstock.spark import BadOption, BadSchema, UnreadableRecord
from penstock.spark.options import SourceOptions
from penstock.spark.source import records
from penstock.spark.source.batch_reader import AquiferBatchReader
from penstock.spark.source.columns import Columns, WrongRecord
from penstock.spark.source.ranges import RangePartition
from penstock.spark.source.readers import AquiferStreamReader
from penstock.spark.spark_interface import ReadAllAvailable, ReadMaxRows
from penstock.streams import Flux
from tests.spark.conftest import ANYWHERE
from tests.spark.sinking import log_of

ALL = ReadAllAvailable()
SCHEMA = (
    StructType()
    .add("n", ByteType())
    .add("t", StringType())
    .add("o", StructType().add("n", LongType()).add("d", DateType()))
    .add("a", ArrayType(StructType().add("n", IntegerType())))
    .add("m", MapType(StringType(), DoubleType()))
    .add("b", BinaryType())
)
FLAT = StructType(SCHEMA.fields[:4])

# ---------------------------------------------------------------- verdicts
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-400, 400)
    | st.sampled_from([2.0, 1.5, "2026-01-31", "AP8Q", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ndx"), inner, max_size=2),
    max_leaves=3,
)
OBJECTS = st.dictionaries(st.sampled_from("ntoambz"), VALUES, max_size=5)


def batch_of(values: list[bytes]) -> Batch:
    return Batch(7, len(values), pack_values(values), pack_metadata(RecordMetadata(0)))


@st.composite
def batches(draw: st.DrawFn, form: str) -> list[bytes]:
    encode = msgspec.json.encode if form == "json" else msgspec.msgpack.encode
    noise = st.sampled_from([b"", b"{", b"null", b"[]", b"\xff", b'{"n": NaN}', b"{} {}"])
    return draw(st.lists(OBJECTS.map(encode) | noise, max_size=6))


@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize("schema", [SCHEMA, FLAT], ids=["maps", "by columns"])
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_record_is_wrong_or_right_whatever_is_around_it(
    form: str, schema: StructType, data: st.DataObject
) -> None:
    values = data.draw(batches(form))
    alone, right = Columns(schema, form), []
    for number, value in enumerate(values):
        with suppress(UnreadableRecord):
            right.append((number, alone.batch("e", batch_of([value])).to_pylist()[0]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(records, "_PIECE", 2)
        wrong: list[WrongRecord] = []
        every = Columns(schema, form, mode="PERMISSIVE").batch("e", batch_of(values), wrong)
        kept = Columns(schema, form, mode="DROPMALFORMED").batch("e", batch_of(values))

    every.validate(full=True)
    assert [each.number for each in wrong] == sorted(set(range(len(values))) - {n for n, _ in right})
    assert [each.value for each in wrong] == [values[each.number] for each in wrong]
    assert all(each.reason and "\n" not in each.reason for each in wrong)
    rows = every.to_pylist()
    assert len(rows) == len(values)
    assert [(n, row) for n, row in enumerate(rows) if n in dict(right)] == right
    assert kept.to_pylist() == [row for _, row in right]


def test_a_value_of_any_depth_is_read_or_wrong_and_takes_nothing_along() -> None:
    deep = b'{"n": 5, "t": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    wrong: list[WrongRecord] = []
    batch = Columns(FLAT, "json", mode="PERMISSIVE").batch("e", batch_of([b'{"n": 1}', deep]), wrong)

    assert batch.column("n").to_pylist()[0] == 1
    assert [each.number for each in wrong] == [1]


@pytest.mark.parametrize(
    "column",
    [
        StructField("wrong", LongType()),
        StructField("wrong", StringType(), nullable=False),
        StructField("wrong", StructType().add("a", StringType())),
    ],
    ids=["a number", "not null", "a struct"],
)
def test_the_column_for_wrong_records_has_to_be_able_to_hold_them(column: StructField) -> None:
    with pytest.raises(BadSchema, match="make it a nullable string or binary"):
        Columns(StructType([column]), "json", corrupt_record="wrong")


ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]})
ORDERS = [open_schema(f"avro:{ORDER}").encode({"n": 1}), b"\xff", b"", b"nonsense"]


@pytest.mark.parametrize("count", [1, 300], ids=["few", "many"])
@pytest.mark.parametrize(
    "schema",
    [
        StructType().add("wrong", BinaryType()),
        StructType().add("offset", LongType()).add("wrong", BinaryType()),
    ],
    ids=["alone", "with metadata"],
)
@pytest.mark.parametrize(
    ("form", "values", "bad"),
    [
        ("json", [b'{"n": 1}', b"nonsense", b"{", b"5", b"{}", b'{"n": 1} {}'], [1, 2, 3, 5]),
        ("msgpack", [msgspec.msgpack.encode({"n": 1}), b"\xc1", b"", b"\x05"], [1, 2, 3]),
        ("csv", [b"1,a", b'a"', b'"', b"\xff"], [2, 3]),
        ("avro", ORDERS, [1, 2, 3]),
        ("string", [b"a", b"\xff", b""], [1]),
        ("binary", [b"a", b"\xff"], []),
    ],
)
def test_wrong_records_are_noticed_without_a_column_for_the_values(
    form: str, values: list[bytes], bad: list[int], schema: StructType, count: int
) -> None:
    values = values * count
    bad = [number for number in range(len(values)) if number % (len(values) // count) in bad]
    metadata = "offset" in schema.names

    def columns(mode: str) -> Columns:
        value_schema = ORDER if form == "avro" else None
        return Columns(
            schema, form, None, mode, "wrong", include_metadata=metadata, value_schema=value_schema
        )

    found: list[WrongRecord] = []
    rows = columns("PERMISSIVE").batch("e", batch_of(values), found).to_pylist()
    assert [each.number for each in found] == bad
    assert [row["wrong"] for row in rows] == [
        value if number in set(bad) else None for number, value in enumerate(values)
    ]
    if metadata:
        assert [row["offset"] for row in rows] == [7 + number for number in range(len(values))]
    kept = columns("DROPMALFORMED").batch("e", batch_of(values))
    assert kept.num_rows == len(values) - len(bad)
    if bad:
        with pytest.raises(UnreadableRecord, match=rf"record {7 + bad[0]} of e cannot be read as {form}"):
            columns("FAILFAST").batch("e", batch_of(values))


# ---------------------------------------------------------------- once
LINES = [b'{"n": %d}' % n if n % 3 else b"wrong %d" % n for n in range(30)]
WRONG = [n for n in range(30) if n % 3 == 0]


class Rig:
    """A gateway with records, one for dead letters, and readers that stand for runs of a query."""

    def __init__(self, closing: ExitStack) -> None:
        self._closing = closing
        self.letters = closing.enter_context(Gateway(None, ANYWHERE, writable=True, codec="json"))
        self.gateway = self.serve(LINES)

    def serve(self, elements: list[Any]) -> Gateway:
        gateway = self._closing.enter_context(Gateway(Flux.from_iterable(elements), ANYWHERE))
        assert gateway.join(120)
        return gateway

    def reader(self, kind: DataType | None = None, **options: str) -> AquiferStreamReader:
        given = {
            "endpoint": self.gateway.endpoint,
            "value": "json",
            "waitSeconds": "0.2",
            "partitions": "2",
            "deadLetter": self.letters.endpoint,
        }
        parsed = SourceOptions.of(given | options)
        reader = AquiferStreamReader(StructType().add("n", kind or LongType()), parsed)
        self._closing.callback(reader.stop)
        return reader

    @property
    def offsets(self) -> list[int]:
        return sorted(letter["offset"] for letter in log_of(self.letters))


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ExitStack() as closing:
        yield Rig(closing)


def tasks(reader: AquiferStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
    parts = reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    return [part for part in pickle.loads(pickle.dumps(parts)) if isinstance(part, RangePartition)]


def test_tasks_that_run_twice_at_the_same_time_write_once(rig: Rig) -> None:
    reader = rig.reader()
    start = reader.initialOffset()
    parts = tasks(reader, start, reader.latestOffset(start, ALL))
    assert len(parts) == 2
    rows: list[int] = []
    together = threading.Barrier(6)

    def run(part: RangePartition) -> None:
        together.wait(60)
        rows.extend(batch.num_rows for batch in rig.reader().read(part))

    threads = [threading.Thread(target=run, args=(part,)) for part in parts * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert sum(rows) == 3 * (len(LINES) - len(WRONG))
    assert rig.offsets == WRONG


def test_a_task_that_is_given_up_leaves_nothing_and_its_repetition_writes_all(rig: Rig) -> None:
    reader = rig.reader(partitions="1")
    start = reader.initialOffset()
    (part,) = tasks(reader, start, reader.latestOffset(start, ALL))
    begun = iter(reader.read(part))
    next(begun)
    begun.close()  # type: ignore[attr-defined]
    assert rig.offsets == []

    assert len(list(reader.read(part))) == 1
    assert rig.offsets == WRONG


def test_batches_follow_each_other_and_a_task_of_an_earlier_one_comes_too_late(rig: Rig) -> None:
    reader = rig.reader(partitions="1")
    position, late = reader.initialOffset(), []
    while (end := reader.latestOffset(position, ReadMaxRows(8))) != position:
        for part in tasks(reader, position, end):
            late.append(part)
            list(reader.read(part))
        reader.commit(end)
        position = end
    assert len(late) == 4

    list(rig.reader().read(late[0]))
    assert rig.offsets == WRONG


def test_after_a_restart_of_everything_a_repeated_batch_writes_nothing_new(tmp_path: Path) -> None:
    logged = ""
    for run in range(2):
        with ExitStack() as closing:
            rig = Rig(closing)
            journal = SqliteJournal(tmp_path / "letters.db")
            rig.letters = closing.enter_context(
                Gateway(None, ANYWHERE, journal=journal, writable=True, codec="json")
            )
            source = SqliteJournal(tmp_path / "source.db")
            made = Flux.from_iterable(LINES) if run == 0 else Flux.empty()
            rig.gateway = closing.enter_context(Gateway(made, ANYWHERE, journal=source))
            assert rig.gateway.join(120)
            reader = rig.reader()
            start = reader.initialOffset()
            if run == 0:
                logged = json.dumps(reader.latestOffset(start, ALL))
            # The first run was killed before Spark noted that the batch was done.
            for part in tasks(reader, start, json.loads(logged)):
                list(reader.read(part))
            assert rig.offsets == WRONG


def test_with_another_schema_nothing_is_taken_for_written(rig: Rig) -> None:
    rig.gateway = rig.serve([b'{"n": "a"}', b'{"n": 2}', b'{"n": 3.5}'])
    reader = rig.reader(DoubleType())
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    for kind in (DoubleType(), StringType(), DateType()):
        for part in tasks(reader, start, end):
            list(rig.reader(kind).read(part))

    assert rig.offsets == [0, 0, 1, 2]


def test_a_query_with_a_new_checkpoint_writes_dead_letters_of_its_own(rig: Rig) -> None:
    for _ in range(2):
        reader = rig.reader(subscription="readings", startingOffsets="earliest")
        start = reader.initialOffset()
        for part in tasks(reader, start, reader.latestOffset(start, ALL)):
            list(reader.read(part))
    assert rig.offsets == sorted(WRONG * 2)


def test_a_read_that_is_planned_anew_for_the_same_records_writes_nothing_twice(rig: Rig) -> None:
    given = {"endpoint": rig.gateway.endpoint, "value": "json", "deadLetter": rig.letters.endpoint}
    for _ in range(2):
        reader = AquiferBatchReader(StructType().add("n", LongType()), SourceOptions.of(given))
        for part in reader.partitions():
            list(reader.read(part))
    assert rig.offsets == WRONG


def test_a_dead_letter_has_all_bytes_and_the_key_of_its_record(rig: Rig) -> None:
    large = b"\xff" * 1_500_000
    rig.gateway = rig.serve([Record(large, key=b"k"), b'{"n": 1}', b"text"])
    reader = rig.reader(partitions="1", mode="PERMISSIVE")
    start = reader.initialOffset()
    for part in tasks(reader, start, reader.latestOffset(start, ALL)):
        assert sum(batch.num_rows for batch in reader.read(part)) == 3

    first, second = log_of(rig.letters, records=True)
    assert (first.key, second.key) == (b"k", None)
    assert msgspec.json.decode(msgspec.json.encode(first.value["base64"]), type=bytes) == large
    assert (first.value["bytes"], first.value["offset"], first.value["endpoint"]) == (
        len(large),
        0,
        rig.gateway.endpoint,
    )
    assert (second.value["text"], second.value["epoch"]) == ("text", rig.gateway.status()["epoch"])


def test_dead_letters_in_the_log_of_the_source_are_refused_whatever_it_is_called() -> None:
    """Or the query would read them, and those in csv would be wrong again."""
    with Gateway(None, ANYWHERE, writable=True) as gateway:
        endpoint = gateway.endpoint
        with Producer(endpoint) as producer, producer.transaction(0) as transaction:
            transaction.write([b"1,2,3"])
        other = endpoint.replace("127.0.0.1", "localhost")
        given = {"endpoint": endpoint, "deadLetter": other, "value": "csv"}
        reader = AquiferBatchReader(StructType().add("n", LongType()), SourceOptions.of(given))
        with pytest.raises(BadOption, match=r'"deadLetter" is .*localhost.*would read its own dead letters'):
            [*reader.read(reader.partitions()[0])]
        assert gateway.status().head == 1


def test_letters_for_a_gateway_that_accepts_none_name_the_option(rig: Rig) -> None:
    reader = rig.reader(deadLetter=rig.serve([b"x"]).endpoint)
    start = reader.initialOffset()
    (part, *_) = tasks(reader, start, reader.latestOffset(start, ALL))
    with pytest.raises(ProtocolViolation, match=r'accepts no records.* gateway of the option "deadLetter"'):
        [*reader.read(part)]
