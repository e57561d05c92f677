"""Where a query starts and ends if it is told by time, and what becomes of endpoints that come and go."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from penstock.aquifer import Gateway, Record
from penstock.spark import BadOption
from penstock.spark.options import SourceOptions
from penstock.spark.source.batch_reader import AquiferBatchReader
from penstock.spark.source.readers import AquiferStreamReader
from penstock.spark.spark_interface import ReadAllAvailable
from penstock.streams import Flux

SCHEMA = StructType([StructField("offset", LongType())])
ALL = ReadAllAvailable()
NOON = 1_769_860_800
"""2026-01-31T12:00:00Z, in seconds."""
Serving = Callable[..., Gateway]


@pytest.fixture
def serve() -> Iterator[Serving]:
    """Gateways with a record for each second from noon on, or for each time that is given."""
    with ExitStack() as closing:

        def start(count: int = 100, seconds: list[float] | None = None) -> Gateway:
            times = seconds if seconds is not None else [float(second) for second in range(count)]
            records = [Record(b"x", timestamp=int((NOON + second) * 1e6)) for second in times]
            gateway = closing.enter_context(Gateway(Flux.from_iterable(records), "tcp://127.0.0.1:0"))
            assert gateway.join(60)
            return gateway

        yield start


def options(*gateways: Gateway, **given: object) -> SourceOptions:
    endpoint = ",".join(gateway.endpoint for gateway in gateways)
    texts = {name: str(value) for name, value in given.items()}
    return SourceOptions.of({"endpoint": endpoint, "waitSeconds": "0.1", "leaseSeconds": "60"} | texts)


def read(*gateways: Gateway, **given: object) -> list[int]:
    """The offsets of a batch read."""
    reader = AquiferBatchReader(SCHEMA, options(*gateways, **given))
    batches = [batch for piece in reader.partitions() for batch in reader.read(piece)]
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def offsets_of(reader: AquiferStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    fresh = AquiferStreamReader(SCHEMA, reader._options)
    copy = pickle.loads(pickle.dumps(fresh))
    batches = [batch for piece in reader.partitions(start, end) for batch in copy.read(piece)]
    return sorted(offset for batch in batches for offset in batch.column("offset").to_pylist())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingTimestamp": "2026-01-31T12:00:40Z"}, range(40, 100)),
        ({"startingTimestamp": "2026-01-31T13:00:40.000+01:00"}, range(40, 100)),
        ({"startingTimestamp": "2026-01-31T12:00:40"}, range(40, 100)),
        ({"startingTimestamp": (NOON + 40) * 1000}, range(40, 100)),
        ({"startingTimestamp": "2026-01-31T12:00:39.000001Z"}, range(40, 100)),
        ({"startingTimestamp": "2000-01-01"}, range(100)),
        ({"startingTimestamp": "2030-01-01"}, range(0)),
        ({"endingTimestamp": "2026-01-31T12:00:40Z"}, range(40)),
        ({"startingTimestamp": (NOON + 10) * 1000, "endingTimestamp": (NOON + 20) * 1000}, range(10, 20)),
        ({"startingTimestamp": (NOON + 10) * 1000, "endingOffsets": 12}, range(10, 12)),
    ],
)
def test_a_read_starts_and_ends_at_a_time(serve: Serving, given: dict[str, object], expected: range) -> None:
    assert sorted(read(serve(), **given)) == list(expected)


def test_of_records_of_one_time_the_first_is_the_start(serve: Serving) -> None:
    gateway = serve(seconds=[0, 1, 1, 1, 1, 2])
    assert sorted(read(gateway, startingTimestamp=(NOON + 1) * 1000)) == [1, 2, 3, 4, 5]


def test_each_endpoint_starts_at_its_own_offset_of_a_time(serve: Serving) -> None:
    one, other = serve(seconds=[0, 10, 20]), serve(seconds=[15, 16, 30])
    assert sorted(read(one, other, startingTimestamp=(NOON + 16) * 1000)) == [1, 2, 2]


def test_a_stream_starts_at_a_time_and_a_later_run_does_not_start_again(serve: Serving) -> None:
    gateway = serve()
    given = options(gateway, startingTimestamp=(NOON + 90) * 1000)
    reader = AquiferStreamReader(SCHEMA, given)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert offsets_of(reader, start, end) == list(range(90, 100))
    reader.stop()
    again = AquiferStreamReader(SCHEMA, given)
    assert again.latestOffset(end, ALL) == end
    again.stop()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingTimestamp": "noon"}, "give a time such as 2026-01-31T12:00:00Z"),
        ({"startingTimestamp": "0", "startingOffsets": "latest"}, "either startingTimestamp or startingOff"),
        ({"endingTimestamp": "0", "endingoffsets": "5"}, "either endingTimestamp or endingOffsets"),
    ],
)
def test_a_time_that_cannot_be_meant_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        SourceOptions.of({"endpoint": "tcp://127.0.0.1:5556"} | given)


@pytest.mark.parametrize(("least", "tasks"), [(1, 1), (4, 4), (7, 7)])
def test_a_small_batch_has_the_tasks_that_were_asked_for(serve: Serving, least: int, tasks: int) -> None:
    reader = AquiferBatchReader(SCHEMA, options(serve(), minPartitions=least))
    assert len(reader.partitions()) == tasks


def test_the_fewest_tasks_are_counted_over_all_endpoints(serve: Serving) -> None:
    reader = AquiferBatchReader(SCHEMA, options(serve(), serve(), minPartitions=4))
    assert len(reader.partitions()) == 4


@pytest.mark.parametrize(("waiting", "least"), [((9,), 4), ((100, 0), 4), ((100, 1), 10), ((2, 1), 8)])
def test_a_batch_has_the_fewest_tasks_though_its_records_are_few_or_in_one_log(
    serve: Serving, waiting: tuple[int, ...], least: int
) -> None:
    given = options(*(serve(records) for records in waiting), minPartitions=least)
    fewest = min(least, sum(waiting))
    assert len(AquiferBatchReader(SCHEMA, given).partitions()) >= fewest
    reader = AquiferStreamReader(SCHEMA, given)
    start = reader.initialOffset()
    assert len(reader.partitions(start, reader.latestOffset(start, ALL))) >= fewest
    reader.stop()


# ---------------------------------------------------------------- endpoints that come and go
def test_an_endpoint_that_was_added_is_read_from_its_start_beside_the_others(serve: Serving) -> None:
    one, other = serve(50), serve(20)
    reader = AquiferStreamReader(SCHEMA, options(one))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert offsets_of(reader, start, end) == list(range(50))
    reader.stop()

    both = AquiferStreamReader(SCHEMA, options(one, other))
    later = both.latestOffset(end, ALL)
    assert later["offsets"] == {one.endpoint: 50, other.endpoint: 20}
    assert offsets_of(both, end, later) == list(range(20))
    both.commit(later)
    assert both.latestOffset(later, ALL) == later
    both.stop()

    replayed = AquiferStreamReader(SCHEMA, options(one, other))
    assert offsets_of(replayed, end, later) == list(range(20)), "another run of the batch reads the same"
    assert replayed.latestOffset(later, ALL) == later
    replayed.stop()


def test_an_endpoint_is_left_out_only_on_purpose(serve: Serving) -> None:
    one, other = serve(50), serve(20)
    reader = AquiferStreamReader(SCHEMA, options(one, other))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert offsets_of(reader, start, end) == sorted([*range(50), *range(20)])
    reader.stop()

    alone = AquiferStreamReader(SCHEMA, options(one))
    with pytest.raises(BadOption, match=f"from {other.endpoint} would be left out.*failOnDataLoss"):
        alone.latestOffset(end, ALL)
    alone.stop()

    willing = AquiferStreamReader(SCHEMA, options(one, failOnDataLoss="false"))
    assert willing.latestOffset(end, ALL) == end, "there is nothing new"
    willing.stop()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"startingTimestamp": (NOON + 20) * 1000, "endingTimestamp": (NOON + 10) * 1000},
            rf'option "startingTimestamp" is {(NOON + 20) * 1000}: that is after the end, endingTimestamp: ',
        ),
        (
            {"startingOffsets": 20, "endingTimestamp": (NOON + 10) * 1000},
            r'option "startingOffsets" is 20: that is after the end, endingTimestamp: ',
        ),
        (
            {"startingTimestamp": (NOON + 20) * 1000, "endingOffsets": 10},
            r"after the end, endingOffsets: .* from offset 20 to 10",
        ),
    ],
)
def test_an_end_before_the_start_names_the_options_that_were_set(
    serve: Serving, given: dict[str, object], told: str
) -> None:
    with pytest.raises(BadOption, match=told):
        read(serve(), **given)
