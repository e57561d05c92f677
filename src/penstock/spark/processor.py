"""A Processor whose inside is a Spark query: elements in, a DataFrame in the middle, elements out."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal
from penstock.aquifer.errors import AquiferError
from penstock.spark.running import QueryFailed, reason_of
from penstock.spark.sessions import session
from penstock.spec import Processor, Subscriber, Subscription, check_subscriber
from penstock.streams.dropped import drop_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["SparkProcessor"]

_log = logging.getLogger("penstock.spark")


class SparkProcessor(Processor[Any, Any]):
    """Signals its subscribers what a query makes of the elements that it is given.

    ::

        doubled = SparkProcessor(lambda df: df.selectExpr("n * 2 AS n"), schema="n bigint")
        Flux.range(10).map(lambda n: {"n": n}).subscribe(doubled)
        Flux.from_publisher(doubled)...

    With a ``schema`` elements are dictionaries, and the DataFrame has their columns. Without one they are
    bytes, in the column ``value``, and the query has to end with such a column. Elements come out in the
    order in which they went in, as far as the query keeps it: there is one partition.

    The source is asked for as much as there is room for; the query takes a batch at a time, and its result
    waits for the subscribers. An error of the query arrives as :class:`~penstock.spark.QueryFailed`, with
    Spark's reason in one line. When the last subscriber has left, the query is stopped and the source
    cancelled.
    """

    def __init__(
        self,
        transform: Callable[[DataFrame], DataFrame],
        *,
        schema: str | None = None,
        spark: SparkSession | None = None,
        capacity: int = 100_000,
        max_records_per_trigger: int | None = None,
    ) -> None:
        if not callable(transform):
            raise TypeError(f"SparkProcessor() needs a function of a DataFrame, not {transform!r}")
        self._transform = transform
        self._schema = schema
        self._spark = spark
        self._codec = "json" if schema is not None else "bytes"
        self._limit = max_records_per_trigger
        self._inlet = _Inlet()
        here = "tcp://127.0.0.1:0"
        journals = MemoryJournal(max_records=capacity), MemoryJournal(max_records=capacity)
        self._before = Gateway(self._inlet, here, codec=self._codec, journal=journals[0], prefetch=capacity)
        self._after = Gateway(None, here, writable=True, journal=journals[1])
        self._mutex = threading.Lock()
        self._query: StreamingQuery | None = None
        self._started = False
        self._stopping = False
        self._readers = 0
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-processor-")

    # ---------------------------------------------------------------- the Subscriber
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Start the gateways and, beside them, the query."""
        self._start()
        self._inlet.on_subscribe(subscription)

    def on_next(self, element: Any, /) -> None:
        """An element for the query."""
        self._inlet.on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        """The source failed: what it gave goes through the query, then the error follows."""
        self._inlet.on_error(error)

    def on_complete(self) -> None:
        """The source has ended: so will the query, when it has dealt with everything."""
        self._inlet.on_complete()

    # ---------------------------------------------------------------- the Publisher
    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Read what comes out, from the oldest element that is still there."""
        check_subscriber(subscriber)
        self._start()
        with self._mutex:
            self._readers += 1
        publisher = AquiferPublisher(self._after.endpoint, codec=self._codec)
        publisher.subscribe(_Reader(subscriber, self))

    # ---------------------------------------------------------------- life
    def _start(self) -> None:
        with self._mutex:
            if self._started:
                return
            self._started = True
        self._before.start()
        self._after.start()
        threading.Thread(target=self._run, name="penstock-spark-processor", daemon=True).start()

    def _run(self) -> None:
        """Run the query until the source has ended, or nobody reads any more."""
        try:
            spark = self._spark or session()
            self._query = query = self._start_query(spark)
            while not self._before.join(0.2) and query.isActive and not self._stopping:
                pass
            if query.isActive and not self._stopping:
                query.processAllAvailable()
            query.stop()
            failure = query.exception()
            if failure is not None and not self._stopping:
                raise QueryFailed(reason_of(failure))
            self._after.complete(self._inlet.error)
        except Exception as error:
            self._end_with(error)
        finally:
            self._before.close()

    def _end_with(self, error: Exception) -> None:
        if self._stopping:
            drop_error(error, "a SparkProcessor that nobody reads any more")
            return
        failure = error if isinstance(error, QueryFailed) else QueryFailed(reason_of(error))
        _log.error("the query of a SparkProcessor failed: %s", failure)
        self._inlet.cancel()
        self._after.complete(failure)

    def _start_query(self, spark: SparkSession) -> StreamingQuery:
        reader = spark.readStream.format("aquifer").option("endpoint", self._before.endpoint)
        reader = reader.option("partitions", "1").option("waitSeconds", "0.2")
        if self._limit is not None:
            reader = reader.option("maxRecordsPerTrigger", str(self._limit))
        if self._schema is not None:
            taken = reader.schema(self._schema).option("value", "json").load()
        else:
            taken = reader.load().select("value")
        given = self._transform(taken).coalesce(1)
        writer = given.writeStream.format("aquifer").option("endpoint", self._after.endpoint)
        writer = writer.option("value", "json" if self._schema is not None else "binary")
        return writer.option("checkpointLocation", str(Path(self._folder.name) / "checkpoint")).start()

    def _left(self) -> None:
        """A reader has left; the last one turns off the light."""
        with self._mutex:
            self._readers -= 1
            if self._readers or self._stopping:
                return
            self._stopping = True
        threading.Thread(target=self._shut_down, name="penstock-spark-processor-end", daemon=True).start()

    def _shut_down(self) -> None:
        self._inlet.cancel()
        if self._query is not None:
            self._query.stop()
        self._after.close()
        self._folder.cleanup()


class _Inlet:
    """Stands between the source and the first gateway: a Publisher of what the Processor is given."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._mutex = threading.Lock()
        self._source: Subscription | None = None
        self._target: Subscriber[Any] | None = None
        self._cancelled = False

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """The gateway comes; it is introduced to the source as soon as both are here."""
        self._target = subscriber
        self._introduce()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        with self._mutex:
            second = self._source is not None
            if not second:
                self._source = subscription
        if second:
            subscription.cancel()  # §2.5
        else:
            self._introduce()

    def _introduce(self) -> None:
        if self._source is not None and self._target is not None:
            if self._cancelled:
                self._source.cancel()
            else:
                self._target.on_subscribe(self._source)

    def on_next(self, element: Any, /) -> None:
        assert self._target is not None
        self._target.on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        self.error = error
        if self._target is not None:
            self._target.on_error(error)

    def on_complete(self) -> None:
        if self._target is not None:
            self._target.on_complete()

    def cancel(self) -> None:
        self._cancelled = True
        if self._source is not None:
            self._source.cancel()


class _Reader:
    """Passes signals on, and tells the Processor when its subscriber is gone."""

    def __init__(self, subscriber: Subscriber[Any], processor: SparkProcessor) -> None:
        self._subscriber = subscriber
        self._processor = processor
        self._subscription: Subscription | None = None
        self._gone = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscription = subscription
        self._subscriber.on_subscribe(self)

    def on_next(self, element: Any, /) -> None:
        self._subscriber.on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        own = self._processor._inlet.error
        self._subscriber.on_error(own if own is not None and isinstance(error, AquiferError) else error)
        self._leave()

    def on_complete(self) -> None:
        self._subscriber.on_complete()
        self._leave()

    def request(self, n: int, /) -> None:
        assert self._subscription is not None
        self._subscription.request(n)

    def cancel(self) -> None:
        assert self._subscription is not None
        self._subscription.cancel()
        self._leave()

    def _leave(self) -> None:
        if not self._gone:
            self._gone = True
            self._processor._left()
