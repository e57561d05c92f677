"""Texts as times: which of them are times, and which instant they are, whatever is around them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from pyspark.sql.types import DataType, LongType, StructType, TimestampNTZType, TimestampType

from penstock.aquifer import Batch, RecordMetadata, pack_metadata, pack_values
from penstock.spark.source.columns import Columns, WrongRecord
from penstock.spark.source.decoders import Zone
from penstock.spark.spark_interface import TimeType

BERLIN = "Europe/Berlin"


def record(value: str, text: str) -> bytes:
    if value == "csv":
        return f'"{text}",1'.encode()
    encode = msgspec.json.encode if value == "json" else msgspec.msgpack.encode
    return encode({"t": text, "n": 1})


def read(value: str, kind: DataType, texts: Sequence[str]) -> tuple[list[Any], set[int]]:
    """The times in UTC, and the numbers of the wrong records."""
    schema = StructType().add("t", kind).add("n", LongType())
    values = [record(value, text) for text in texts]
    data = Batch(0, len(values), pack_values(values), pack_metadata(RecordMetadata(0)))
    wrong: list[WrongRecord] = []
    batch = Columns(schema, value, Zone(BERLIN), "PERMISSIVE").batch("tcp://127.0.0.1:5556", data, wrong)
    return batch.column(0).to_pylist(), {each.number for each in wrong}


@pytest.mark.parametrize("value", ["json", "msgpack", "csv"])
@pytest.mark.parametrize("year", [1970, 2026, 2037, 2038, 2040, 2262, 9000])
def test_a_time_without_a_zone_is_in_summer_time_also_in_a_distant_year(value: str, year: int) -> None:
    times, wrong = read(value, TimestampType(), [f"{year}-07-01T12:00:00", f"{year}-01-01T12:00:00"])

    summer, winter = (datetime.datetime(year, month, 1, 12, tzinfo=ZoneInfo(BERLIN)) for month in (7, 1))
    assert times == [summer, winter]
    assert not wrong


@pytest.mark.parametrize("value", ["json", "msgpack", "csv"])
@pytest.mark.parametrize("kind", [TimestampType(), TimestampNTZType()], ids=["instant", "local"])
@pytest.mark.parametrize(
    "text",
    ["20260131", "2026-W05-6", "2026-01-31x12:00:00", "2026-01-31+02:00", "2026-01-31T1200", "2026-1-31"],
)
def test_a_time_in_another_form_is_wrong_whatever_is_around_it(value: str, kind: DataType, text: str) -> None:
    good, bad = "2026-01-31T12:00:00", "noon"
    for neighbours in ([], [good], [bad], [good] * 300, [*[good] * 300, bad]):
        times, wrong = read(value, kind, [*neighbours, text])
        assert times[-1] is None
        assert wrong == {number for number, each in enumerate([*neighbours, text]) if each != good}


@pytest.mark.parametrize("value", ["json", "msgpack", "csv"])
@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T12:00:00+02",
        "2026-01-31T12:00:00+0200",
        "2026-01-31T12:00:00+02:00:00",
        "2026-01-31 12:00:00.0000001+02:00",
        "2026-01-31T12:00:00,0+02:00",
        "2026-01-31T12:00+02:00",
        "2026-01-31T12+02:00",
        "2026-01-31T11",
    ],
)
def test_a_time_is_the_same_whatever_is_around_it(value: str, text: str) -> None:
    ten = datetime.datetime(2026, 1, 31, 10, tzinfo=datetime.UTC)
    for neighbours in ([], ["2026-01-31T11:00:00"], ["noon"], [*["2026-01-31T11:00:00"] * 300, "noon"]):
        times, wrong = read(value, TimestampType(), [*neighbours, text])
        assert times[-1] == ten
        assert len(neighbours) not in wrong


@pytest.mark.parametrize("value", ["json", "msgpack"])
def test_a_time_of_day_with_a_zone_is_wrong(value: str) -> None:
    times, wrong = read(value, TimeType(6), ["12:00:00", "12:00:00Z", "12:00:00+02:00"])

    assert times == [datetime.time(12), None, None]
    assert wrong == {1, 2}
