"""Two endpoints that are names of one log: each of its records would be read twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql.types import LongType, StructType

from penstock.aquifer import Gateway
from penstock.spark import BadOption
from penstock.spark.options import SourceOptions
from penstock.spark.source.batch_reader import AquiferBatchReader
from penstock.spark.source.readers import AquiferStreamReader
from penstock.spark.spark_interface import ReadAllAvailable
from tests.aquifer.faults.rigs import Numbers

SCHEMA = StructType().add("offset", LongType())


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway(Numbers(5), "tcp://127.0.0.1:0") as gateway:
        gateway.join(60)
        yield gateway


def second_name(gateway: Gateway) -> str:
    return gateway.endpoint.replace("127.0.0.1", "localhost")


def both(gateway: Gateway) -> SourceOptions:
    return SourceOptions.of({"endpoint": f"{gateway.endpoint},{second_name(gateway)}"})


def told(gateway: Gateway) -> str:
    return f"{gateway.endpoint} and {second_name(gateway)} are the same log, .*: leave one of them out"


def test_a_read_of_one_log_by_two_names_is_refused(gateway: Gateway) -> None:
    with pytest.raises(BadOption, match=told(gateway)):
        AquiferBatchReader(SCHEMA, both(gateway)).partitions()


def test_a_stream_of_one_log_by_two_names_is_refused_before_it_keeps_anything(gateway: Gateway) -> None:
    reader = AquiferStreamReader(SCHEMA, both(gateway))
    try:
        with pytest.raises(BadOption, match=told(gateway)):
            reader.initialOffset()
    finally:
        reader.stop()
    assert not gateway.status()["absent"]


def test_a_second_name_of_a_log_is_not_added_to_a_checkpoint(gateway: Gateway) -> None:
    before = AquiferStreamReader(SCHEMA, SourceOptions.of({"endpoint": gateway.endpoint}))
    after = AquiferStreamReader(SCHEMA, both(gateway))
    try:
        start = before.initialOffset()
        with pytest.raises(BadOption, match=told(gateway)):
            after.latestOffset(start, ReadAllAvailable())
    finally:
        before.stop()
        after.stop()
