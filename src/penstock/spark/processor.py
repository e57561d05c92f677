"""A Processor whose inside is a Spark query: elements in, a DataFrame in the middle, elements out."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.aquifer import AquiferPublisher, AquiferSubscription, Gateway, MemoryJournal, SourceFailed
from penstock.arguments import a_count, a_function
from penstock.spark.errors import QueryFailed, reason_of
from penstock.spark.queries import activate, listen_address, process_everything
from penstock.spark.sessions import session
from penstock.spec import (
    UNBOUNDED,
    Processor,
    Subscriber,
    Subscription,
    check_subscription,
    none_element,
    none_error,
)
from penstock.streams import Flux, processor
from penstock.streams.spi import drop_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["SparkProcessor"]

_log = logging.getLogger("penstock.spark")

_LEAST_CAPACITY: Final = 16
_LOOK: Final = 0.1
"""Seconds between checks whether the query is still running."""
_GOODBYE: Final = 10.0
"""Seconds for which a subscriber may hold its last element before we stop waiting for it."""
_A_YEAR: Final = str(365 * 24 * 3600)


class SparkProcessor(Processor[Any, Any]):
    """Passes the elements that it receives through a query, and signals the results.

    ::

        doubled = SparkProcessor(lambda df: df.selectExpr("n * 2 AS n"), schema="n bigint")
        Flux.range(10).map(lambda n: {"n": n}).subscribe(doubled)
        for row in Flux.from_publisher(doubled):
            ...

    With a ``schema``, elements are dictionaries, and the DataFrame has their columns. Without one, elements
    are bytes in the column ``value``, and the result of the query needs such a column, too. There is one
    partition, so results keep the order of the elements if the query does.

    Subscribers are served as by a :func:`~penstock.streams.processor`: results wait for the first subscriber;
    from then on all subscribers receive the same results, and one that subscribes later receives the later
    ones. About ``capacity`` elements are in flight, half of them before the query and half behind it. When
    so many are in flight, the source sees no more demand. A query that makes many rows of one element holds
    more, a batch at a time.

    If the query fails, subscribers receive :class:`~penstock.spark.QueryFailed` with Spark's reason in one
    line. If the source fails, they receive its error, after the results of the elements before it. When the
    last subscriber cancels, the query is stopped and the source cancelled. :meth:`close`, or the end of a
    ``with`` block, does the same at any time.

    For a session on a cluster, ``host`` is an address of this machine that the workers can reach.
    """

    def __init__(
        self,
        transform: Callable[[DataFrame], DataFrame],
        *,
        schema: str | None = None,
        spark: SparkSession | None = None,
        capacity: int = 100_000,
        max_records_per_trigger: int | None = None,
        host: str | None = None,
    ) -> None:
        capacity = a_count(capacity, "capacity", _LEAST_CAPACITY)
        if max_records_per_trigger is not None:
            max_records_per_trigger = a_count(max_records_per_trigger, "max_records_per_trigger")
        self._transform: Callable[[DataFrame], DataFrame] = a_function(transform, "SparkProcessor()")
        self._schema = schema
        self._spark = spark
        self._host = host
        self._codec = "json" if schema is not None else "bytes"
        # The elements of a batch stay in the first log while the batch runs. A batch takes half of that log,
        # so that elements can arrive meanwhile.
        self._max_records = min(max_records_per_trigger or capacity, capacity // 4)
        self._capacity = capacity
        self._mutex = threading.Lock()
        self._started = False
        self._stopping = False
        self._finished = threading.Event()
        """Set when nothing is running any more."""
        self._bridge: _Bridge | None = None
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        """The error with which the subscribers' streams end; None if they complete."""
        self._drained = threading.Event()
        """Set when nothing more is read from the second gateway."""
        self._inlet = _Inlet()
        self._outlet = processor(capacity=capacity // 4)

    # ---------------------------------------------------------------- the Subscriber
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Start the gateways, and the query on a thread of its own."""
        check_subscription(subscription)
        self._start()
        self._inlet.on_subscribe(subscription)

    def on_next(self, element: Any, /) -> None:
        """Pass an element to the query."""
        if element is None:
            raise none_element("on_next")
        self._inlet.on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        """Pass the earlier elements through the query, and then signal the error."""
        if error is None:
            raise none_error()
        self._inlet.on_error(error)

    def on_complete(self) -> None:
        """End the query when it has processed every element."""
        self._inlet.on_complete()

    # ---------------------------------------------------------------- the Publisher
    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Add a subscriber."""
        self._outlet.subscribe(subscriber)

    # ---------------------------------------------------------------- life
    def close(self) -> None:
        """Cancel the source, stop the query, and wait until both have ended; idempotent.

        Subscribers whose streams have not ended receive an error. Do not call this from one of their signals:
        it waits until these have returned.
        """
        with self._mutex:
            never_started, self._started = not self._started, True
            bridge = self._bridge
        if never_started:
            self._inlet.cancel()
            Flux.error(_closed()).subscribe(self._outlet)
            self._finished.set()
        elif bridge is not None and not self._finished.is_set():
            bridge.disconnect()
        self._finished.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        with self._mutex:
            if self._started:
                return
            half = self._capacity // 2
            before = MemoryJournal(max_records=half)
            after = MemoryJournal(max_records=half // 2)
            address = listen_address(self._spark, self._host)
            self._before = Gateway(
                self._inlet,
                codec=self._codec,
                journal=before,
                prefetch=half,
                control=address.control,
                allow_remote=address.allow_remote,
            ).start()
            self._after = Gateway(
                None, writable=True, journal=after, control=address.control, allow_remote=address.allow_remote
            ).start()
            self._bridge = bridge = _Bridge(self, self._outlet)
            self._started = True
        window = half // 2
        publisher = AquiferPublisher(
            self._after.endpoint, codec=self._codec, window=window, max_window=window
        )
        publisher.subscribe(bridge)
        name = "penstock-spark-processor"
        threading.Thread(target=self._run, args=[bridge], name=name, daemon=True).start()

    def _run(self, bridge: _Bridge) -> None:
        """Run the query until the source ends or the last subscriber cancels; then clean up."""
        prefix = "penstock-processor-"
        try:
            with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
                self._process(folder)
                self._before.close()
                self._after.complete(self._failure)
                if self._stopping:
                    bridge.leave()
                self._drained.wait()
                self._after.close()
            bridge.fail_waiting()
        finally:
            self._finished.set()

    def _process(self, folder: str) -> None:
        try:
            if not self._stopping:
                self._run_query(folder)
            self._failure = self._inlet.error
            if self._failure is None and self._before.failure is not None:
                self._failure = SourceFailed(self._before.failure)
        except BaseException as error:  # Also an exit of the user's function: subscribers wait for an end.
            self._fail(error)

    def _run_query(self, folder: str) -> None:
        spark = self._spark or session()
        activate(spark)
        query = self._start_query(spark, folder)
        with self._mutex:
            self._query = query
        try:
            while query.isActive and not self._stopping and not self._before.join(_LOOK):
                pass
            if query.isActive and not self._stopping:
                process_everything(query)
        finally:
            # Also after a failure: `processAllAvailable` raises before the query has ended.
            query.stop()
        failure = query.exception()
        if failure is not None:
            raise failure

    def _start_query(self, spark: SparkSession, folder: str) -> StreamingQuery:
        reader = spark.readStream.format("aquifer").option("endpoint", self._before.endpoint)
        reader = reader.option("partitions", "1").option("waitSeconds", "0.2").option("mode", "FAILFAST")
        reader = reader.option("maxRecordsPerTrigger", str(self._max_records))
        if self._schema is not None:
            elements = reader.schema(self._schema).option("value", "json").load()
        else:
            elements = reader.load().select("value")
        results = self._transform(elements).coalesce(1)
        writer = results.writeStream.format("aquifer").option("endpoint", self._after.endpoint)
        # A slow subscriber must not fail the query.
        writer = writer.option("timeoutSeconds", _A_YEAR)
        writer = writer.option("value", "json" if self._schema is not None else "binary")
        return writer.option("checkpointLocation", str(Path(folder) / "checkpoint")).start()

    def _fail(self, error: BaseException) -> None:
        if self._stopping:
            drop_error(error, "a SparkProcessor without subscribers")
            return
        failure = QueryFailed(reason_of(error))
        failure.__cause__ = error
        _log.debug("the query of a SparkProcessor failed: %s", failure)
        self._failure = failure
        self._inlet.cancel()

    def _stop_early(self) -> None:
        """The last subscriber has cancelled: cancel the source at once, and stop the query."""
        self._stopping = True
        self._inlet.cancel()
        with self._mutex:
            query = self._query
        if query is not None:
            # Stopping takes a while, and a subscriber may have called this.
            threading.Thread(target=query.stop, name="penstock-spark-processor-stop", daemon=True).start()


class _Inlet:
    """The source of the first gateway: a Publisher of the elements that the Processor receives."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        """The error of the source."""
        self._mutex = threading.Lock()
        self._source: Subscription | None = None
        self._target: Subscriber[Any] | None = None
        self._cancelled = False

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Called by the gateway, before the source subscribes."""
        self._target = subscriber

    def on_subscribe(self, subscription: Subscription, /) -> None:
        with self._mutex:
            refused = self._source is not None or self._cancelled
            if not refused:
                self._source = subscription
        if refused:
            subscription.cancel()  # §2.5, or the processor has ended.
        elif self._target is not None:
            self._target.on_subscribe(subscription)

    def on_next(self, element: Any, /) -> None:
        if self._target is not None and not self._cancelled:
            self._target.on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        if self._cancelled or self._target is None:
            drop_error(error, "the source of a SparkProcessor that has ended")
            return
        self.error = error
        self._target.on_error(error)

    def on_complete(self) -> None:
        if self._target is not None:
            self._target.on_complete()

    def cancel(self) -> None:
        with self._mutex:
            self._cancelled = True
            source = self._source
        if source is not None:
            source.cancel()


class _Bridge:
    """Between the second gateway and the subscribers: elements go one way, demand the other.

    It replaces an error that came through a gateway by the original. When the last subscriber has cancelled,
    it drops the results that still arrive: the query cannot be stopped while a batch waits for space.
    """

    def __init__(self, owner: SparkProcessor, target: Subscriber[Any]) -> None:
        self._owner = owner
        self._mutex = threading.Lock()
        self._target: Subscriber[Any] | None = target
        """The receiver of the elements, until its stream has ended."""
        self._waiting: Subscriber[Any] | None = None
        """A receiver whose stream has to end with an error because the processor was closed."""
        self._subscription: AquiferSubscription | None = None
        self._subscribed = threading.Event()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        assert isinstance(subscription, AquiferSubscription)
        self._subscription = subscription
        self._subscribed.set()
        if self._target is not None:
            self._target.on_subscribe(self)

    def on_next(self, element: Any, /) -> None:
        target = self._target
        if target is not None:
            target.on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        own, target = self._owner._failure, self._take_target()
        self._owner._drained.set()
        if target is not None:
            target.on_error(own if own is not None and isinstance(error, SourceFailed) else error)

    def on_complete(self) -> None:
        target = self._take_target()
        self._owner._drained.set()
        if target is not None:
            target.on_complete()

    def request(self, n: int, /) -> None:
        assert self._subscription is not None
        self._subscription.request(n)

    def cancel(self) -> None:
        self._take_target()  # §3.13
        self._drop_the_rest()

    def disconnect(self) -> None:
        """Drop the rest because the processor is closed; :meth:`fail_waiting` then ends the streams."""
        self._subscribed.wait()
        with self._mutex:
            self._waiting, self._target = self._target or self._waiting, None
        self._drop_the_rest()

    def leave(self) -> None:
        """Cancel the subscription, after the query has ended."""
        assert self._subscription is not None
        self._subscription.cancel()
        self._subscription.join(_GOODBYE)
        self._owner._drained.set()

    def fail_waiting(self) -> None:
        """Signal the error, now that no element can arrive any more."""
        with self._mutex:
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.on_error(_closed())

    def _drop_the_rest(self) -> None:
        assert self._subscription is not None
        self._owner._stop_early()
        self._subscription.request(UNBOUNDED)

    def _take_target(self) -> Subscriber[Any] | None:
        """The target, for the first caller only: a stream ends once."""
        with self._mutex:
            target, self._target = self._target, None
            return target


def _closed() -> QueryFailed:
    return QueryFailed("the SparkProcessor was closed before everything had been delivered")
