"""What the pipeline and the processor need around a query: its session, its gateways, its last record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.aquifer import Endpoint
from penstock.spark.registration import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ListenAddress", "activate", "listen_address", "process_everything", "reported_offsets"]

_LOOPBACK: Final = "127.0.0.1"


class ListenAddress(NamedTuple):
    """Where a gateway in this process listens."""

    control: str
    allow_remote: bool


def activate(spark: SparkSession) -> None:
    """Make this the session of the calling thread.

    Spark looks up Python data sources in the session of the thread that starts a query. A thread has no
    session unless it made one, so ``format("aquifer")`` would be unknown on every thread but the first.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:  # A session of Spark Connect has no JVM here, and belongs to no thread.
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def reported_offsets(progress: StreamingQueryProgress) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What each source reported as ``latestOffset`` and as ``endOffset``; empty where a source is not ours.

    The JSON of the report has them. In PySpark 4.0 its attributes have them as Python writes dictionaries.
    """
    sources = json.loads(progress.json)["sources"]
    return [(_object(source.get("latestOffset")), _object(source.get("endOffset"))) for source in sources]


def _object(offset: object) -> dict[str, Any]:
    return offset if isinstance(offset, dict) else {}


def process_everything(query: StreamingQuery) -> None:
    """Wait until the query has processed every record that its source has at this moment.

    One wait is not enough: a trigger that asked the source just before the last record arrived can end it.
    The next trigger asks later.
    """
    query.processAllAvailable()
    query.processAllAvailable()


def listen_address(spark: SparkSession | None, host: str | None) -> ListenAddress:
    """Where a gateway in this process has to listen so that the session's tasks can reach it.

    None as the session stands for one with a ``local`` master.
    """
    if host is not None:
        return ListenAddress(str(Endpoint(host, 0)), allow_remote=True)
    if spark is not None and not _runs_here(spark):
        raise ValueError(
            "the tasks of this session run on other machines and cannot reach a source or a sink in this "
            "process. Pass host=… with an address of this machine that they can reach; everybody in that "
            "network can then read the records. Or start a gateway with CURVE keys and pass its endpoint"
        )
    return ListenAddress(str(Endpoint(_LOOPBACK, 0)), allow_remote=False)


def _runs_here(spark: SparkSession) -> bool:
    """Whether the tasks of a session run on this machine, as far as we can tell."""
    if is_remote(spark):
        server = Endpoint(spark.client.host.strip("[]"), 0)
        return server.is_loopback and str(spark.conf.get("spark.master", "")).startswith("local")
    return str(spark.sparkContext.master).startswith("local")
