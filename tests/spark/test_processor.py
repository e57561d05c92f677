"""SparkProcessor: elements in, a query in the middle, elements out, by the rules of the specification."""

from __future__ import annotations

import asyncio
import glob
import os
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark import QueryFailed, SparkProcessor
from penstock.streams import Flux
from tests.spark.collector import PATIENCE, Collector, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

N = "n bigint"


def unchanged(df: DataFrame) -> DataFrame:
    return df


def numbers(count: int) -> Flux[Any]:
    return Flux.range(count).map(lambda n: {"n": n})


def eventually(condition: Any) -> bool:
    """Whether something becomes true; looked at again and again, for as long as a busy machine may need."""
    deadline = time.monotonic() + PATIENCE
    while not (true := condition()) and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    return bool(true)


def left_behind() -> list[str]:
    """Threads and folders of processors."""
    ours = ("penstock-spark", "penstock-gateway", "penstock-aquifer")
    # Tasks run in other processes: a thread for leases in this one is of tests that read without Spark, and
    # waits for a minute for the next of them.
    threads = [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith(ours) and thread.name != "penstock-spark-lease"
    ]
    return threads + [folder for folder in _folders() if folder not in BEFORE]


def _folders() -> list[str]:
    return glob.glob(os.path.join(tempfile.gettempdir(), "penstock-processor-*"))


BEFORE = _folders()
"""What a run that was killed has left, and is none of ours."""


def test_dictionaries_go_through_the_query_in_their_order(spark: SparkSession) -> None:
    doubled = SparkProcessor(
        lambda df: df.selectExpr("n * 2 AS n", "s"), schema="n bigint, s string", spark=spark
    )
    seen = Collector()
    doubled.subscribe(seen)

    Flux.range(5000).map(lambda n: {"n": n, "s": f"é{n}"}).subscribe(doubled)

    assert seen.wait_for_end() == [{"n": 2 * n, "s": f"é{n}"} for n in range(5000)]
    assert seen.error is None
    assert eventually(lambda: not left_behind()), left_behind()


def test_bytes_come_out_as_they_went_in(spark: SparkSession) -> None:
    relay = SparkProcessor(unchanged, spark=spark, capacity=64)
    elements = [bytes([n % 256]) * (n % 7) for n in range(200)]

    Flux.from_iterable(elements).subscribe(relay)

    assert list(Flux.from_publisher(relay)) == elements


def test_a_stream_without_elements_completes(spark: SparkSession) -> None:
    relay, seen = SparkProcessor(unchanged, schema=N, spark=spark), Collector()
    relay.subscribe(seen)

    Flux.empty().subscribe(relay)

    assert (seen.wait_for_end(), seen.error) == ([], None)


def test_all_subscribers_get_the_same_sequence_each_at_its_own_pace(spark: SparkSession) -> None:
    relay = SparkProcessor(unchanged, schema=N, spark=spark, capacity=64)
    quick, slow = Collector(), Collector(demand=0)
    relay.subscribe(quick)
    relay.subscribe(slow)

    numbers(100).subscribe(relay)
    quick.wait_for(1)
    assert slow.subscription is not None
    slow.subscription.request(100)

    expected = [{"n": n} for n in range(100)]
    assert (quick.wait_for_end(), slow.wait_for_end()) == (expected, expected)


def test_a_subscriber_that_does_not_ask_holds_the_source_back(spark: SparkSession) -> None:
    source, seen = Source(), Collector(demand=0)
    relay = SparkProcessor(unchanged, schema=N, spark=spark, capacity=400)
    relay.subscribe(seen)
    source.subscribe(relay)

    assert seen.subscription is not None
    seen.subscription.request(300)
    assert seen.wait_for(300) == [{"n": n} for n in range(300)]
    # It fills what there is room for, and then nothing more is asked for.
    asked = [-1, source.asked]
    while asked[-1] != asked[-2]:
        threading.Event().wait(2.0)
        asked.append(source.asked)

    assert 300 < source.asked <= 300 + 400 + 200  # and what is acknowledged a batch late
    seen.subscription.cancel()
    assert source.cancelled.wait(PATIENCE)


def test_when_the_last_subscriber_leaves_everything_is_let_go_of(spark: SparkSession) -> None:
    source, first, second = Source(), Collector(), Collector()
    relay = SparkProcessor(unchanged, schema=N, spark=spark, capacity=400)
    relay.subscribe(first)
    relay.subscribe(second)
    source.subscribe(relay)
    first.wait_for(1000)

    assert first.subscription is not None
    assert second.subscription is not None
    first.subscription.cancel()
    second.wait_for(len(second.elements) + 1000)
    assert not source.cancelled.is_set()
    second.subscription.cancel()

    assert source.cancelled.wait(PATIENCE)
    assert eventually(lambda: not spark.streams.active)
    assert eventually(lambda: not left_behind()), left_behind()


def test_an_error_of_the_source_arrives_as_itself_after_what_came_before_it(spark: SparkSession) -> None:
    error, seen = OSError("the disk is gone"), Collector()
    relay = SparkProcessor(unchanged, schema=N, spark=spark)
    relay.subscribe(seen)

    numbers(10).concat_with(Flux.error(error)).subscribe(relay)

    assert seen.wait_for_end() == [{"n": n} for n in range(10)]
    assert seen.error is error


def broken_udf(df: DataFrame) -> DataFrame:
    from pyspark.sql.functions import udf

    @udf("bigint")
    def broken(n: int) -> int:
        raise ZeroDivisionError(f"no {n} today")

    return df.select(broken("n").alias("n"))


def raising(df: DataFrame) -> DataFrame:
    raise KeyError("sensor")


@pytest.mark.parametrize(
    ("transform", "schema", "reason"),
    [
        (raising, N, "KeyError: 'sensor'"),
        (broken_udf, N, "ZeroDivisionError: no 0 today"),
        (lambda df: df.select("m"), N, "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column"),
        (unchanged, "n nonsense", "[UNSUPPORTED_DATATYPE]"),
        (unchanged, "n bigint, m array<int>", "UnreadableRecord: record"),
    ],
    ids=["transform", "udf", "column", "type", "record"],
)
def test_a_failing_query_tells_its_reason_in_one_line(
    spark: SparkSession, transform: Any, schema: str, reason: str
) -> None:
    source = Source(lambda number: {"n": number, "m": "x"})
    relay, seen = SparkProcessor(transform, schema=schema, spark=spark, capacity=16), Collector()
    relay.subscribe(seen)
    source.subscribe(relay)

    assert seen.wait_for_end() == []
    assert isinstance(seen.error, QueryFailed)
    assert str(seen.error).startswith(reason)
    assert "\n" not in str(seen.error)
    assert source.cancelled.wait(PATIENCE)
    assert eventually(lambda: not left_behind()), left_behind()


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), asyncio.CancelledError(), GeneratorExit(), KeyboardInterrupt()],
    ids=lambda error: type(error).__name__,
)
def test_a_function_that_exits_ends_the_stream_and_close_returns(
    spark: SparkSession, error: BaseException
) -> None:
    def leave(df: DataFrame) -> DataFrame:
        raise error

    source = Source(lambda number: {"n": number})
    relay, seen = SparkProcessor(leave, schema=N, spark=spark, capacity=16), Collector()
    relay.subscribe(seen)
    source.subscribe(relay)

    assert seen.wait_for_end() == []
    assert isinstance(seen.error, QueryFailed)
    assert str(seen.error).startswith(type(error).__name__)
    relay.close()
    assert source.cancelled.wait(PATIENCE)
    assert eventually(lambda: not left_behind()), left_behind()


def test_an_element_that_does_not_fit_ends_the_stream_with_an_error(spark: SparkSession) -> None:
    relay, seen = SparkProcessor(unchanged, spark=spark), Collector()
    relay.subscribe(seen)

    Flux.just(b"good", 42).subscribe(relay)

    assert seen.wait_for_end() == [b"good"]
    assert "a record is made of bytes, not of int" in str(seen.error)


def test_wrong_arguments_are_refused_before_anything_is_started() -> None:
    assert eventually(lambda: not left_behind()), left_behind()
    relay = SparkProcessor(unchanged)

    for signal in (relay.on_next, relay.on_error, relay.on_subscribe, relay.subscribe):
        with pytest.raises(TypeError):
            signal(None)  # type: ignore[arg-type]
    assert not left_behind()
    with pytest.raises(TypeError, match="needs a function"):
        SparkProcessor("df")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="capacity needs a number of at least 16, not 0"):
        SparkProcessor(unchanged, capacity=0)


def test_a_second_source_is_cancelled_and_late_subscribers_are_told_of_the_end(spark: SparkSession) -> None:
    relay, first, second = SparkProcessor(unchanged, schema=N, spark=spark), Collector(), Source()
    relay.subscribe(first)
    numbers(3).subscribe(relay)

    second.subscribe(relay)
    assert second.cancelled.is_set()
    assert first.wait_for_end() == [{"n": 0}, {"n": 1}, {"n": 2}]

    late = Collector()
    relay.subscribe(late)
    late.wait_for_end()
    assert late.error is None


def test_closing_stops_the_query_and_tells_those_who_have_not_had_the_end(spark: SparkSession) -> None:
    source, quick, standing = Source(), Collector(), Collector(demand=0)
    assert eventually(lambda: not spark.streams.active), "the query of an earlier test stays"
    with SparkProcessor(unchanged, schema=N, spark=spark, capacity=400) as relay:
        relay.subscribe(quick)
        relay.subscribe(standing)
        source.subscribe(relay)
        # The one that asks for nothing holds the query up: a batch waits for room when it is closed.
        seen = quick.wait_for(100)
        assert seen == [{"n": n} for n in range(len(seen))]

    assert source.cancelled.is_set()
    assert not spark.streams.active
    for subscriber in (quick, standing):
        subscriber.wait_for_end()
        assert isinstance(subscriber.error, QueryFailed)
        assert "was closed" in str(subscriber.error)
    assert standing.elements == []
    relay.close()
    assert eventually(lambda: not left_behind()), left_behind()


def test_closing_after_the_end_changes_nothing(spark: SparkSession) -> None:
    seen = Collector()
    with SparkProcessor(unchanged, schema=N, spark=spark) as relay:
        relay.subscribe(seen)
        numbers(3).subscribe(relay)
        seen.wait_for_end()

    assert (seen.elements, seen.error) == ([{"n": 0}, {"n": 1}, {"n": 2}], None)


def test_a_processor_that_was_closed_first_takes_no_source_and_says_so() -> None:
    relay, before, after, source = SparkProcessor(unchanged), Collector(), Collector(), Source()
    relay.subscribe(before)

    relay.close()
    relay.close()
    source.subscribe(relay)
    relay.subscribe(after)

    assert (source.cancelled.is_set(), source.asked) == (True, 0)
    for subscriber in (before, after):
        subscriber.wait_for_end()
        assert "was closed" in str(subscriber.error)


def test_who_leaves_before_the_source_comes_has_it_cancelled(spark: SparkSession) -> None:
    relay, seen, source = SparkProcessor(unchanged, schema=N, spark=spark), Collector(), Source()
    relay.subscribe(seen)
    assert seen.subscription is not None
    seen.subscription.cancel()

    source.subscribe(relay)

    assert source.cancelled.wait(PATIENCE)
    assert source.asked == 0
    assert eventually(lambda: not left_behind()), left_behind()
