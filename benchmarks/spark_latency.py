"""How long is a record under way from its source through Spark, at 10 000 records per second?

A record carries the time at which it was made. It goes through a gateway into a Spark query, and ends either
in a function that the query calls with the rows of each batch, or, through Spark's commit and a second
gateway, at a subscriber. What is measured is the median of the records' times; the 99th percentile stands
beside it. A record waits for the batch before its own to end, and then for its own: about one and a half
triggers.

Java compiles what runs often. After three seconds, a query still shares the processors with Java's compilers;
a live query, which runs for days, does not. So both are measured: a query that is three seconds old, and one
that is a minute old.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import spark_gateways as gateways
from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.processes import beside
from benchmarks.spark_queries import PATIENCE, Spark, running, spark_when_needed
from penstock.aquifer import AquiferPublisher
from penstock.spec import Subscription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["RATE", "Arrivals", "arrived", "question", "read_latest", "to_a_subscriber"]

RATE = 10_000
"""Records per second."""
WARM_UP = 3.0
"""Seconds after the first arrival until records count."""
MINUTE = 60.0
"""The same, for a query that has been running for a while."""


@contextmanager
def question() -> Iterator[Question]:
    """Each record has the same way to go."""
    with spark_when_needed() as spark:
        yield Question(
            name="spark_latency",
            title="how long a record is under way through Spark, at 10 000 per second",
            elements=4 * RATE,
            base="into a function of the query",
            expected=lambda n: n,
            unit="record (half of them)",
            clock=Clock.BETWEEN_PROCESSES,
            fewest_rounds=2,
            most_processes=2,
            alternatives=(
                Alternative("into a function of the query", partial(_into_a_function, spark)),
                Alternative("through the aquifer sink to a subscriber", partial(to_a_subscriber, spark)),
                Alternative(
                    "into a function of the query, after a minute",
                    partial(_into_a_function, spark, warm_up=MINUTE),
                ),
                Alternative(
                    "through the aquifer sink to a subscriber, after a minute",
                    partial(to_a_subscriber, spark, warm_up=MINUTE),
                ),
            ),
        )


class Arrivals:
    """When records were made and came, in milliseconds; enough is enough."""

    def __init__(self, wanted: int, warm_up: float = WARM_UP) -> None:
        self._warm_up = warm_up
        self.complete = threading.Event()
        self.failure: BaseException | None = None
        self._wanted = wanted
        self._since: float | None = None
        self._taken: list[float] = []

    def came(self, stamps: list[int]) -> None:
        """Records with these stamps came just now."""
        if self.complete.is_set() or not stamps:
            return
        now = time.time_ns() // 1000
        if self._since is None:
            self._since = now + self._warm_up * 1e6
        # What was made before the warm-up was over has waited for it.
        self._taken += [(now - stamp) / 1000 for stamp in stamps if stamp >= self._since]
        if len(self._taken) >= self._wanted:
            self.complete.set()

    def failed(self, error: BaseException) -> None:
        """Nothing more will come."""
        self.failure = error
        self.complete.set()

    def timed(self) -> Timed:
        """The median, as what each record took, and the percentiles."""
        if self.failure is not None:
            raise self.failure
        taken = sorted(self._taken[: self._wanted])
        half, most = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
        facts = {"p50, ms": half, "p99, ms": most, "most, ms": taken[-1]}
        return Timed(len(taken), round(half * 1e6 * len(taken)), facts)


class _Taking:
    """A Subscriber of lists of stamped records."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.subscription = subscription
        subscription.request(2**63 - 1)

    def on_next(self, element: Any, /) -> None:
        self._arrivals.came([gateways.STAMP.unpack_from(value)[0] for value in element])

    def on_error(self, error: BaseException, /) -> None:
        self._arrivals.failed(error)

    def on_complete(self) -> None:
        self._arrivals.failed(RuntimeError("the gateway's stream has ended"))


def _into_a_function(spark: Spark, records: int, warm_up: float = WARM_UP) -> Timed:
    arrivals = Arrivals(records, warm_up)

    def take(rows: DataFrame, batch: int) -> None:
        stamps = rows.selectExpr("unix_micros(timestamp) as stamp").toArrow()
        arrivals.came(stamps.column("stamp").to_pylist())

    with beside(gateways.serve_live, RATE) as line, running(read_latest(spark, line.hear()), take) as query:
        return arrived(arrivals, query)


def to_a_subscriber(spark: Spark, records: int, warm_up: float = WARM_UP) -> Timed:
    """From one gateway through a query to another one, and to its subscriber."""
    arrivals = Arrivals(records, warm_up)
    with beside(gateways.serve_live, RATE) as source, beside(gateways.take_in) as sink:
        endpoint = sink.hear()
        taking = _Taking(arrivals)
        AquiferPublisher(endpoint, batches=True).subscribe(taking)
        try:
            values = read_latest(spark, source.hear()).select("value")
            with running(values, "aquifer", endpoint=endpoint, value="binary") as query:
                return arrived(arrivals, query)
        finally:
            taking.subscription.cancel()


def read_latest(spark: Spark, endpoint: str) -> DataFrame:
    """What comes into a gateway from now on."""
    source = spark.session.readStream.format("aquifer").option("endpoint", endpoint)
    return source.option("startingOffsets", "latest").load()


def arrived(arrivals: Arrivals, query: Any) -> Timed:
    """What came; why not, if the query failed before."""
    deadline = time.monotonic() + PATIENCE
    while not arrivals.complete.wait(0.1):
        if not query.isActive:
            raise query.exception() or RuntimeError("the query has stopped")
        if time.monotonic() > deadline:
            raise TimeoutError(f"too few records have come within {PATIENCE:g} s")
    return arrivals.timed()
