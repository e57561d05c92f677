"""The source and the sink of a pipeline.

If Spark cannot read a source or write to a sink by itself, a gateway in this process stands in between. Its
journal is beside the checkpoint, so a restarted pipeline resumes where it was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock import feeds
from penstock.aquifer import (
    AquiferError,
    AquiferPublisher,
    AquiferSubscription,
    Gateway,
    GatewayStatus,
    LogReader,
    SourceFailed,
    SqliteJournal,
    probe,
)
from penstock.spark.options import SinkOptions, SourceOptions
from penstock.spark.queries import ListenAddress, listen_address, reported_offsets
from penstock.spark.record_formats import RecordFormat, format_of
from penstock.spec import Publisher, Subscriber, Subscription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["PipelineSink", "PipelineSource"]

_A_WEEK: Final = 7 * 24 * 3600.0
"""Seconds for which the journals keep records for a stopped pipeline."""
_ASK_EVERY: Final = 1.0
"""Seconds between two questions to a gateway whether its stream has ended."""
_GOODBYE: Final = 10.0
"""Seconds for which a Subscriber may hold its last element before we stop waiting for it."""


class PipelineSource:
    """Where the records come from: a Publisher, the endpoint of a gateway, or a feed."""

    def __init__(
        self,
        source: Publisher[Any] | Callable[[int], Publisher[Any]] | str,
        *,
        schema: str | None,
        codec: str | None,
        options: dict[str, str],
        feed: feeds.FeedOptions | None = None,
        host: str | None = None,
    ) -> None:
        self._schema = schema
        self._host = host
        self._options = options
        self._endpoint: str | None = None
        self._url: str | None = None
        self._source: Publisher[Any] | Callable[[int], Publisher[Any]] | None = None
        self._gateway: Gateway | None = None
        self._logs: dict[str, LogReader] = {}
        """The gateways of others, by endpoint."""
        self._ended: dict[str, str | None] = {}
        """Those of them whose streams have ended, and why, if their source failed."""
        self._asked = 0.0
        if isinstance(source, str):
            self._name_source(source, feed)
        elif isinstance(source, Publisher) or callable(source):
            self._source = source
        else:
            raise TypeError(
                f"Pipeline() needs a Publisher, a function that returns one, or a string, not {source!r}"
            )
        self._feed_options = self._options_of_feed(codec, feed)
        self._codec = codec or ("bytes" if schema is None else "json")
        self._format = self._record_format()

    def _name_source(self, source: str, feed: feeds.FeedOptions | None) -> None:
        if source.startswith("tcp://") and feed is None:
            self._endpoint = source
        elif source.partition(":")[0] in feeds.known_schemes():
            self._url = source
        else:
            raise ValueError(
                f"the source {source!r} is not known: give a Publisher, the endpoint of a gateway "
                "(tcp://127.0.0.1:5556) or a feed such as file:readings.txt (see penstock.feeds)"
            )

    def _options_of_feed(self, codec: str | None, feed: feeds.FeedOptions | None) -> feeds.FeedOptions | None:
        """How the feed is read, or was opened; None if the source is not a feed, or one without options."""
        if feed is not None and not isinstance(feed, feeds.FeedOptions):
            raise TypeError(f"Pipeline(feed=…) needs FeedOptions(…), not {feed!r}")
        if self._url is not None:
            if feed is not None and codec is not None:
                raise ValueError("give the codec of a feed once: Pipeline(…, feed=FeedOptions(codec=…))")
            return (feed or feeds.FeedOptions(codec=codec or "text")).with_dead_letters()
        if feed is not None:
            if isinstance(self._source, feeds.Feed):
                raise ValueError("Pipeline(feed=…): this feed is open; give the options to feeds.open()")
            raise ValueError(
                "Pipeline(feed=…) is for the URL of a feed, and the source is not one; write "
                'Pipeline("file:app.log", feed=FeedOptions(follow=True))'
            )
        opened = self._source.opened_with if isinstance(self._source, feeds.Feed) else None
        if opened is not None and codec not in (None, opened.codec):
            raise ValueError(
                f"Pipeline(codec={codec!r}): the feed was opened with the codec {opened.codec!r}; leave the "
                "codec out"
            )
        return opened

    def _record_format(self) -> RecordFormat:
        given = {name.lower() for name in self._options}
        if "endpoint" in given:
            raise ValueError("Pipeline(options=…) has an endpoint: give it as the source of the pipeline")
        if "value" in given:
            return RecordFormat()  # The options say how Spark reads the records.
        has_schema, feed = self._schema is not None, self._feed_options
        if feed is None:
            return format_of(self._codec, has_schema=has_schema)
        return format_of(feed.codec, has_schema=has_schema, columns=feed.columns)

    @property
    def is_endpoint(self) -> bool:
        """Whether the records come from a gateway that this pipeline has not started."""
        return self._endpoint is not None

    def open(self, spark: SparkSession, folder: Path, closing: ExitStack) -> DataFrame:
        """Start a gateway if the source needs one, and return the DataFrame of the records."""
        reader = spark.readStream.format("aquifer")
        if self._endpoint is None:
            self._gateway = self._own_gateway(listen_address(spark, self._host), folder, closing)
            endpoint = closing.enter_context(self._gateway).endpoint
            reader = reader.option("leaseSeconds", f"{_A_WEEK:.0f}").option("waitSeconds", "0.2")
        else:
            endpoint = self._endpoint
            self._logs = self._connected(endpoint, closing)
        if self._source is not None and not isinstance(self._source, feeds.Feed):
            reader = reader.option("mode", "FAILFAST")  # Its elements come from this program, not from afar.
        reader = reader.options(**self._format.options).options(**self._options).option("endpoint", endpoint)
        columns = self._schema or self._format.schema()
        return reader.load() if columns is None else reader.schema(columns).load()

    def _own_gateway(self, address: ListenAddress, folder: Path, closing: ExitStack) -> Gateway:
        source = self._source
        if self._url is not None and self._feed_options is not None:
            source = _opened(self._url, self._feed_options, closing)
        return Gateway(
            source,
            journal=SqliteJournal(folder / "source.db"),
            codec=self._codec if self._feed_options is None else self._feed_options.stored_codec,
            on_bad_record=source.on_bad_record if isinstance(source, feeds.Feed) else "fail",
            writable=self._lets_replay and not address.allow_remote,
            control=address.control,
            allow_remote=address.allow_remote,
        )

    @property
    def _lets_replay(self) -> bool:
        """Whether dead letters were asked for: then they can be replayed, and that is writing."""
        return self._feed_options is not None and self._feed_options.on_bad_line == "dead-letter"

    @property
    def dead_letters(self) -> str | None:
        """The endpoint of the stream with the records that the codec of the feed could not read."""
        if self._gateway is None or not self._gateway.dead_letters:
            return None
        return f"{self._gateway.endpoint}/{self._gateway.dead_letters[0]}"

    def _connected(self, endpoint: str, closing: ExitStack) -> dict[str, LogReader]:
        options = SourceOptions.of({**self._options, "endpoint": endpoint})
        logs = {}
        for each in options.endpoints:
            logs[each] = LogReader(each, patience=_ASK_EVERY, curve=options.curve_client())
            closing.callback(logs[each].close)
        return logs

    def has_ended(self, query: StreamingQuery) -> bool:
        """Whether no more records will come; for an endpoint, this is known about a second later."""
        if self._gateway is not None:
            return self._gateway.join(0)
        if time.monotonic() < self._asked + _ASK_EVERY:
            return False
        waiting = [endpoint for endpoint in self._logs if endpoint not in self._ended]
        for endpoint in waiting:
            try:
                state = self._logs[endpoint].state()
            except AquiferError:
                # It may have shut down since the last question. If it had ended, the query knows.
                if endpoint in _ended_for(query):
                    self._ended[endpoint] = None
            else:
                if state.end is not None:
                    self._ended[endpoint] = state.failure
        self._asked = time.monotonic()
        return len(self._ended) == len(self._logs)

    def looks(self) -> dict[str, Callable[[], GatewayStatus]]:
        """How to ask each gateway that the query reads from for its status, by endpoint."""
        if self._gateway is not None:
            return self._gateway.looks()
        options = SourceOptions.of({**self._options, "endpoint": self._endpoint or ""})
        curve = options.curve_client()
        return {each: partial(probe, each, curve=curve) for each in options.endpoints}

    @property
    def failure(self) -> SourceFailed | None:
        """Why the source ended, if it did not complete."""
        failures = [self._gateway.failure] if self._gateway is not None else self._ended.values()
        text = next((failure for failure in failures if failure is not None), None)
        return None if text is None else SourceFailed(f"the source failed: {text}")


class PipelineSink:
    """Where the results go: a Subscriber, the endpoint of a gateway, a Spark format, or a function."""

    def __init__(
        self,
        sink: Subscriber[Any] | str | Callable[[DataFrame, int], None],
        options: dict[str, str],
        host: str | None = None,
    ) -> None:
        if not isinstance(sink, str | Subscriber) and not callable(sink):
            raise TypeError(f"into() needs a Subscriber, a string or a function, not {sink!r}")
        if isinstance(sink, str) and "://" in sink and not sink.startswith("tcp://"):
            raise ValueError(
                f"the sink {sink!r} is not known: give the endpoint of a gateway (tcp://127.0.0.1:5556) or a "
                "format of Spark (parquet, with path=…)"
            )
        self._sink = sink
        self._options = options
        self._host = host
        self._gateway: Gateway | None = None
        self._relay: _SubscriberRelay | None = None

    def open(self, results: DataFrame, folder: Path, closing: ExitStack) -> DataStreamWriter:
        """Start a gateway if the sink needs one, and return the writer of the results."""
        writer, sink = results.writeStream, self._sink
        if isinstance(sink, str) and sink.startswith("tcp://"):
            return writer.format("aquifer").option("endpoint", sink).options(**self._options)
        if isinstance(sink, str):
            return writer.format(sink).options(**self._options)
        if not isinstance(sink, Subscriber):
            return writer.foreachBatch(sink)
        address = listen_address(results.sparkSession, self._host)
        journal = SqliteJournal(folder / "sink.db")
        self._gateway = Gateway(
            None, journal=journal, writable=True, control=address.control, allow_remote=address.allow_remote
        )
        endpoint = closing.enter_context(self._gateway).endpoint
        self._relay = _SubscriberRelay(sink)
        closing.callback(self._relay.close)
        # With a durable id, the Subscriber receives after a restart what it had not acknowledged.
        AquiferPublisher(endpoint, id="pipeline", codec="json", lease=_A_WEEK).subscribe(self._relay)
        # A slow Subscriber must not fail the query.
        writer = writer.format("aquifer").option("timeoutSeconds", "31536000").options(**self._options)
        return writer.option("endpoint", endpoint)

    def looks(self) -> dict[str, Callable[[], GatewayStatus]]:
        """How to ask the gateway that the query writes to for its status, by endpoint; empty without one."""
        if self._gateway is not None:
            return self._gateway.looks()
        if not isinstance(self._sink, str) or not self._sink.startswith("tcp://"):
            return {}
        options = SinkOptions.of({"endpoint": self._sink, **self._options})
        return {options.endpoint: partial(probe, options.endpoint, curve=options.curve_client())}

    @property
    def has_ended(self) -> bool:
        """Whether the Subscriber's stream has ended, or the Subscriber has cancelled."""
        return self._relay is not None and self._relay.ended.is_set()

    @property
    def failure(self) -> BaseException | None:
        """The error that the Subscriber raised, if any."""
        return self._relay.raised if self._relay is not None else None

    def lift_bounds(self) -> None:
        """Let the log grow beyond its bounds, so that the query can be stopped.

        A batch that waits for space in the log cannot be interrupted: Spark would wait until the Subscriber
        signals demand.
        """
        if self._gateway is not None:
            self._gateway.lift_bounds()

    def finish(self, failure: BaseException | None) -> None:
        """End the Subscriber's stream after everything that was published."""
        if self._gateway is not None and self._relay is not None:
            self._relay.failure = failure
            self._gateway.complete(failure)

    def wait(self, seconds: float) -> bool:
        """Wait until the Subscriber's stream has ended; True at once for any other sink."""
        return self._relay is None or self._relay.ended.wait(seconds)


class _SubscriberRelay:
    """Passes signals between a gateway and the Subscriber, and notes when the Subscriber's stream ends."""

    def __init__(self, subscriber: Subscriber[Any]) -> None:
        self.failure: BaseException | None = None
        """Replaces an error that came through the gateway."""
        self.raised: BaseException | None = None
        """The error that the Subscriber raised, which ends the pipeline."""
        self.ended = threading.Event()
        """Set when the stream has ended, or the Subscriber has cancelled or raised."""
        self._subscriber = subscriber
        self._subscription: AquiferSubscription | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        assert isinstance(subscription, AquiferSubscription)
        self._subscription = subscription
        with self._noting_errors():
            self._subscriber.on_subscribe(self)

    def on_next(self, element: Any, /) -> None:
        with self._noting_errors():
            self._subscriber.on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        if isinstance(error, SourceFailed) and self.failure is not None:
            error = self.failure
        try:
            with self._noting_errors():
                self._subscriber.on_error(error)
        finally:
            self.ended.set()

    def on_complete(self) -> None:
        try:
            with self._noting_errors():
                self._subscriber.on_complete()
        finally:
            self.ended.set()

    @contextmanager
    def _noting_errors(self) -> Iterator[None]:
        """§2.13: the subscription counts as cancelled; the element is not acknowledged and can come again."""
        try:
            yield
        except BaseException as error:
            self.raised = self.raised or error
            self.ended.set()
            raise

    def request(self, n: int, /) -> None:
        assert self._subscription is not None
        self._subscription.request(n)

    def cancel(self) -> None:
        assert self._subscription is not None
        self._subscription.cancel()
        self.ended.set()

    def close(self) -> None:
        """Cancel before the gateway closes, so that delivered elements are acknowledged."""
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription.join(_GOODBYE)


def _opened(url: str, options: feeds.FeedOptions, closing: ExitStack) -> feeds.Feed:
    path = Path(url.removeprefix("file:"))
    if url.startswith("file:") and not path.exists():
        raise FileNotFoundError(f"the source file:{path} is not there: check the path")
    return closing.enter_context(feeds.open(url, options))


def _ended_for(query: StreamingQuery) -> list[str]:
    """The gateways whose streams have ended, as the query reports it."""
    last = query.lastProgress
    reports = reported_offsets(last) if last is not None else []
    return [endpoint for latest, _ in reports for endpoint in latest.get("ended", [])]
