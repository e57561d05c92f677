"""One Spark session for all tests of this directory, and gateways that are closed when a test is over."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.aquifer import Gateway
from penstock.spark.versions import has_admission_control, installed
from penstock.spec import Publisher
from penstock.streams import Flux
from tests.aquifer.chaos.children import port_that_stays_free
from tests.quick_java import OPTIONS
from tests.spark import connect_server
from tests.spark.connect_server import ClientRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_HERE = Path(__file__).parent
ANYWHERE = "tcp://127.0.0.1:0"
LIMITS = {"maxRecordsPerTrigger", "maxBytesPerTrigger", "targetBatchSeconds"}

# Time limits in this directory are for a machine with twenty other processes on two cores, where the first
# query of a session takes minutes. They have to be long for another reason, too: one that strikes in the
# middle of a call to Java leaves half an answer in the connection, and all tests after it fail.

Serve = Callable[..., Gateway]
"""``serve(records, codec=…)``: a gateway with these records, or with this Publisher, on any free port."""

SPARK_SETTINGS = {
    "spark.driver.extraJavaOptions": f"-Djdk.lang.Process.launchMechanism=VFORK {OPTIONS}",
    "spark.sql.session.timeZone": "UTC",
}
"""What makes short queries short: no second compiler, no collector threads."""


def pytest_configure(config: pytest.Config) -> None:
    """PySpark 4.0 and 4.1 leave sockets to the garbage collector."""
    if installed() < (4, 2):
        config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On the oldest Spark ``make test`` has some of the tests of each file, which all run on the newest.

    The table of what works with which version is tried as a whole.
    """
    if installed() >= (4, 1):
        return
    for item in items:
        whole = item.path.name == "test_every_version.py"
        if item.path.is_relative_to(_HERE) and not whole and item.get_closest_marker("rare") is None:
            item.add_marker(pytest.mark.rare(4, kind=item.path.name))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session with two cores; starting it takes seconds, so everybody shares it."""
    from penstock.spark import session

    running = session(name="tests", master="local[2]", config=SPARK_SETTINGS)
    running.sparkContext.setLogLevel("ERROR")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def run_of_client(tmp_path_factory: pytest.TempPathFactory) -> ClientRun:
    """What a client of a Spark Connect server has done; with its server it takes most of a minute."""
    pytest.importorskip("grpc")
    return connect_server.run_of_client(tmp_path_factory.mktemp("connect"))


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Makes gateways in this process; one of a list of records has all of them when it is handed out."""
    with ExitStack() as closing:

        def start(source: Any, control: str = ANYWHERE, **wishes: Any) -> Gateway:
            publisher = (
                source if source is None or isinstance(source, Publisher) or callable(source) else None
            )
            given = publisher is not None or source is None
            gateway = Gateway(publisher if given else Flux.from_iterable(source), control, **wishes)
            closing.enter_context(gateway)
            if not given and not gateway.join(120):
                raise AssertionError("the records did not get into the log within 120 s")
            return gateway

        yield start


@pytest.fixture
def nobody() -> str:
    """An endpoint where nobody listens, and nobody else comes to: a gateway may come later, or come back."""
    return f"tcp://127.0.0.1:{port_that_stays_free(random.Random())}"


class Queries:
    """Starts streaming queries, writes down what their batches had, and stops them when a test is over."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.batches: list[list[Any]] = []
        """The rows of each batch, in the order in which they ran; of all queries of this test."""
        self.ids: list[int] = []
        self.during: Callable[[list[Any]], object] = len
        """Called with the rows of a batch, while it runs."""
        self._started: list[StreamingQuery] = []

    def frame(self, gateway: Gateway | str, schema: str | None = None, **options: object) -> DataFrame:
        """The records of a gateway as a stream; of several, if their endpoints are given as a text."""
        endpoint = gateway if isinstance(gateway, str) else gateway.endpoint
        reader = self.spark.readStream.format("aquifer").option("endpoint", endpoint)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return (reader.schema(schema) if schema is not None else reader).load()

    def start(
        self,
        gateway: Gateway | str,
        schema: str | None = None,
        checkpoint: str = "checkpoint",
        trigger: dict[str, Any] | None = None,
        **options: object,
    ) -> StreamingQuery:
        """Start a query that collects; with the trigger of the test's choice, or Spark's default."""

        def take(rows: DataFrame, batch: int) -> None:
            collected = rows.collect()
            self.during(collected)
            # In this order: a test that has waited for the rows may look at the numbers at once.
            self.ids.append(batch)
            self.batches.append(collected)

        writer = self.frame(gateway, schema, **options).writeStream.foreachBatch(take)
        if trigger is not None:
            writer = writer.trigger(**trigger)
        query = writer.option("checkpointLocation", str(self.folder / checkpoint)).start()
        self._started.append(query)
        return query

    def run(self, gateway: Gateway | str, schema: str | None = None, **options: Any) -> list[list[Any]]:
        """Read everything that is there now; the rows of each batch of this run."""
        before = len(self.batches)
        if LIMITS & options.keys() and not has_admission_control():
            # The trigger AvailableNow has one batch there, whatever the limits are.
            query = self.start(gateway, schema, **options)
            query.processAllAvailable()
            query.stop()
        else:
            query = self.start(gateway, schema, trigger={"availableNow": True}, **options)
            assert query.awaitTermination(400), "the query did not end"
        return self.batches[before:]

    @property
    def rows(self) -> list[Any]:
        """All rows of all batches."""
        return [row for batch in self.batches for row in batch]

    @property
    def offsets(self) -> list[int]:
        """Their offsets."""
        return [row.offset for row in self.rows]

    def durations(self) -> list[tuple[int, float]]:
        """The rows of each batch of the last query, and its seconds without the wait for records."""
        return [
            (each["numInputRows"], (spent["triggerExecution"] - spent.get("latestOffset", 0)) / 1000)
            for each in self._started[-1].recentProgress
            if each["numInputRows"] and (spent := each["durationMs"])
        ]

    def stop(self) -> None:
        """Stop what is still running."""
        for query in self._started:
            query.stop()


@pytest.fixture
def queries(spark: SparkSession, tmp_path: Path) -> Iterator[Queries]:
    """For the queries of a test."""
    started = Queries(spark, tmp_path)
    yield started
    started.stop()


def failure_of(query: StreamingQuery, seconds: float = 400) -> str:
    """What a query that has to fail says, in one line."""
    from pyspark.errors import StreamingQueryException

    from penstock.spark import reason_of

    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination(seconds)
    return reason_of(failed.value)
