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

_LEAST: Final = 16
_LOOK: Final = 0.1
"""Seconds between looks at whether the query is still running."""
_GOODBYE: Final = 10.0
"""Seconds that a subscriber may spend on the element that it has, before it is left behind."""
_FOR_EVER: Final = str(365 * 24 * 3600)


class SparkProcessor(Processor[Any, Any]):
    """Signals its subscribers what a query makes of the elements that it is given.

    ::

        doubled = SparkProcessor(lambda df: df.selectExpr("n * 2 AS n"), schema="n bigint")
        Flux.range(10).map(lambda n: {"n": n}).subscribe(doubled)
        for row in Flux.from_publisher(doubled):
            ...

    With a ``schema`` elements are dictionaries, and the DataFrame has their columns. Without one they are
    bytes, in the column ``value``, and the query has to end with such a column. Elements come out in the
    order in which they went in, as far as the query keeps it: there is one partition.

    It is a :func:`~penstock.streams.processor` with a query before it: what comes out before the first
    subscriber waits for it, and from then on all get the same; who comes later gets what comes later. About
    ``capacity`` elements are on their way: half of them before the query, half behind it. When they are, the
    source is asked for no more. A query that makes many rows of one keeps more, a batch at a time.

    An error of the query arrives as :class:`~penstock.spark.QueryFailed`, with Spark's reason in one line;
    one of the source as itself, after what the query made of the elements before it. When the last subscriber
    has left, the query is stopped and the source cancelled. :meth:`close`, or the end of a ``with`` block,
    does so at any time.

    With a session on a cluster, ``host`` is an address of this machine that its workers can reach.
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
        if not callable(transform):
            raise TypeError(f"SparkProcessor() needs a function of a DataFrame, not {transform!r}")
        for name, count, least in (
            ("capacity", capacity, _LEAST),
            ("max_records_per_trigger", max_records_per_trigger, 1),
        ):
            if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < least):
                raise ValueError(f"{name}={count!r}: give a whole number of at least {least}")
        self._transform = transform
        self._schema = schema
        self._spark = spark
        self._host = host
        self._codec = "json" if schema is not None else "bytes"
        # The elements of a batch are kept while it runs. Were it all that there is room for, nothing could
        # come in meanwhile: so it is half of that.
        self._limit = min(max_records_per_trigger or capacity, capacity // 4)
        self._capacity = capacity
        self._mutex = threading.Lock()
        self._started = False
        self._stopping = False
        self._finished = threading.Event()
        """Nothing is running any more."""
        self._bridge: _Bridge | None = None
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        """What the subscribers are told in the end, if not that all is complete."""
        self._all_told = threading.Event()
        """Nothing more will be taken from the second gateway."""
        self._inlet = _Inlet()
        self._outlet = processor(capacity=capacity // 4)

    # ---------------------------------------------------------------- the Subscriber
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Start the gateways and, beside them, the query."""
        check_subscription(subscription)
        self._start()
        self._inlet.on_subscribe(subscription)

    def on_next(self, element: Any, /) -> None:
        """An element for the query."""
        if element is None:
            raise none_element("on_next")
        self._inlet.on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        """The source failed: what it gave goes through the query, then the error follows."""
        if error is None:
            raise none_error()
        self._inlet.on_error(error)

    def on_complete(self) -> None:
        """The source has ended: so will the query, when it has dealt with everything."""
        self._inlet.on_complete()

    # ---------------------------------------------------------------- the Publisher
    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Serve another subscriber."""
        self._outlet.subscribe(subscriber)

    # ---------------------------------------------------------------- life
    def close(self) -> None:
        """Cancel the source, stop the query, and wait until nothing of it is left; idempotent.

        Subscribers that have not had the end are told, as an error, that there is nothing more to come. Not
        to be called from one of their signals: it waits until they have returned.
        """
        with self._mutex:
            never_started, self._started = not self._started, True
            bridge = self._bridge
        if never_started:
            self._inlet.cancel()
            Flux.error(_closed()).subscribe(self._outlet)
            self._finished.set()
        elif bridge is not None and not self._finished.is_set():
            bridge.hang_up()
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
            most = self._capacity // 2
            before = MemoryJournal(max_records=most)
            after = MemoryJournal(max_records=most // 2)
            address = listen_address(self._spark, self._host)
            self._before = Gateway(
                self._inlet, codec=self._codec, journal=before, prefetch=most, **address._asdict()
            ).start()
            self._after = Gateway(None, writable=True, journal=after, **address._asdict()).start()
            self._bridge = bridge = _Bridge(self, self._outlet)
            self._started = True
        window = most // 2
        publisher = AquiferPublisher(
            self._after.endpoint, codec=self._codec, window=window, max_window=window
        )
        publisher.subscribe(bridge)
        name = "penstock-spark-processor"
        threading.Thread(target=self._run, args=[bridge], name=name, daemon=True).start()

    def _run(self, bridge: _Bridge) -> None:
        """Run the query until the source has ended, or nobody reads any more; then tidy up."""
        with tempfile.TemporaryDirectory(prefix="penstock-processor-", ignore_cleanup_errors=True) as folder:
            try:
                if not self._stopping:
                    self._run_query(folder)
                self._failure = self._inlet.error
                if self._failure is None and self._before.failure is not None:
                    self._failure = SourceFailed(self._before.failure)
            except Exception as error:
                self._fail(error)
            self._before.close()
            self._after.complete(self._failure)
            if self._stopping:
                bridge.leave()
            self._all_told.wait()
            self._after.close()
        bridge.tell_the_waiting()
        self._finished.set()

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
            # Also after a failure, which `processAllAvailable` tells before the query has ended.
            query.stop()
        failure = query.exception()
        if failure is not None:
            raise failure

    def _start_query(self, spark: SparkSession, folder: str) -> StreamingQuery:
        reader = spark.readStream.format("aquifer").option("endpoint", self._before.endpoint)
        reader = reader.option("partitions", "1").option("waitSeconds", "0.2")
        reader = reader.option("maxRecordsPerTrigger", str(self._limit))
        if self._schema is not None:
            taken = reader.schema(self._schema).option("value", "json").load()
        else:
            taken = reader.load().select("value")
        given = self._transform(taken).coalesce(1)
        writer = given.writeStream.format("aquifer").option("endpoint", self._after.endpoint)
        # Subscribers may take as long as they like.
        writer = writer.option("timeoutSeconds", _FOR_EVER)
        writer = writer.option("value", "json" if self._schema is not None else "binary")
        return writer.option("checkpointLocation", str(Path(folder) / "checkpoint")).start()

    def _fail(self, error: Exception) -> None:
        if self._stopping:
            drop_error(error, "a SparkProcessor that nobody reads any more")
            return
        failure = QueryFailed(reason_of(error))
        failure.__cause__ = error
        _log.debug("the query of a SparkProcessor failed: %s", failure)
        self._failure = failure
        self._inlet.cancel()

    def _deserted(self) -> None:
        """The last subscriber has left: let go of the source at once, and of the query."""
        self._stopping = True
        self._inlet.cancel()
        with self._mutex:
            query = self._query
        if query is not None:
            # Stopping takes a while, and this may be the thread of a subscriber.
            threading.Thread(target=query.stop, name="penstock-spark-processor-stop", daemon=True).start()


class _Inlet:
    """Stands between the source and the first gateway: a Publisher of what the Processor is given."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        """What the source failed with."""
        self._mutex = threading.Lock()
        self._source: Subscription | None = None
        self._target: Subscriber[Any] | None = None
        self._cancelled = False

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """The gateway, which comes before the source."""
        self._target = subscriber

    def on_subscribe(self, subscription: Subscription, /) -> None:
        with self._mutex:
            refused = self._source is not None or self._cancelled
            if not refused:
                self._source = subscription
        if refused:
            subscription.cancel()  # §2.5, or nobody wants it any more.
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
    """From the second gateway to the subscribers, and the other way round.

    In the place of an error that has travelled comes the original. When the last subscriber has left, what
    the query still gives is taken and dropped: a batch that waits for room cannot be stopped without it.
    """

    def __init__(self, owner: SparkProcessor, target: Subscriber[Any]) -> None:
        self._owner = owner
        self._mutex = threading.Lock()
        self._target: Subscriber[Any] | None = target
        """Who gets the elements, and has not had the end."""
        self._waiting: Subscriber[Any] | None = None
        """Who has to be told that the processor was closed."""
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
        own, target = self._owner._failure, self._let_go_of_target()
        self._owner._all_told.set()
        if target is not None:
            target.on_error(own if own is not None and isinstance(error, SourceFailed) else error)

    def on_complete(self) -> None:
        target = self._let_go_of_target()
        self._owner._all_told.set()
        if target is not None:
            target.on_complete()

    def request(self, n: int, /) -> None:
        assert self._subscription is not None
        self._subscription.request(n)

    def cancel(self) -> None:
        self._let_go_of_target()  # §3.13
        self._drop_the_rest()

    def hang_up(self) -> None:
        """The same, but not because the subscribers wanted it: they are told when no element can come."""
        self._subscribed.wait()
        with self._mutex:
            self._waiting, self._target = self._target or self._waiting, None
        self._drop_the_rest()

    def leave(self) -> None:
        """Now that the query has ended."""
        assert self._subscription is not None
        self._subscription.cancel()
        self._subscription.join(_GOODBYE)
        self._owner._all_told.set()

    def tell_the_waiting(self) -> None:
        """Nothing is on its way to them any more."""
        with self._mutex:
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.on_error(_closed())

    def _drop_the_rest(self) -> None:
        assert self._subscription is not None
        self._owner._deserted()
        self._subscription.request(UNBOUNDED)

    def _let_go_of_target(self) -> Subscriber[Any] | None:
        """To whoever asks first: there is one end."""
        with self._mutex:
            target, self._target = self._target, None
            return target


def _closed() -> QueryFailed:
    return QueryFailed("the SparkProcessor was closed before everything had been delivered")
