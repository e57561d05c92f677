"""Pipelines on Spark: gateways as a source and a sink of Structured Streaming.

::

    from penstock.spark import session

    spark = session()                                   # needs no installed Java
    readings = (
        spark.readStream.format("aquifer")
        .schema("sensor string, celsius double, at timestamp")
        .option("endpoint", "tcp://127.0.0.1:5556").option("value", "json")
        .load()
    )

The query sets the pace for the gateway and for everything before it. Every record has its effect exactly
once.
Needs the extra ``spark``: ``pip install 'penstock-streams[spark]'``.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if any(find_spec(needed) is None for needed in ("pyspark", "pyarrow", "zmq", "msgspec")):
    raise ImportError(
        "penstock.spark needs pyspark, pyarrow, pyzmq and msgspec: pip install 'penstock-streams[spark]'"
    )

from penstock.spark.errors import (
    BadCheckpoint,
    BadOption,
    BadSchema,
    DataLoss,
    NoJava,
    QueryFailed,
    QueryStopped,
    SharedSubscription,
    UnreadableRecord,
    UnwritableRow,
    reason_of,
)
from penstock.spark.programs import java_home
from penstock.spark.registration import package_zip, register, ship
from penstock.spark.sessions import session, settings
from penstock.spark.versions import refuse_unsupported

if TYPE_CHECKING:
    from penstock.spark.pipeline import Pipeline, Progress, RunningPipeline
    from penstock.spark.processor import SparkProcessor

__all__ = [
    "BadCheckpoint",
    "BadOption",
    "BadSchema",
    "DataLoss",
    "NoJava",
    "Pipeline",
    "Progress",
    "QueryFailed",
    "QueryStopped",
    "RunningPipeline",
    "SharedSubscription",
    "SparkProcessor",
    "UnreadableRecord",
    "UnwritableRow",
    "java_home",
    "package_zip",
    "reason_of",
    "register",
    "session",
    "settings",
    "ship",
]

refuse_unsupported()


def __getattr__(name: str) -> Any:
    # Imported when used: the processes that Spark starts for a query have no need of feeds and servers, and
    # each of them would spend most of its start on importing them.
    if name in ("Pipeline", "Progress", "RunningPipeline"):
        from penstock.spark import pipeline

        return getattr(pipeline, name)
    if name == "SparkProcessor":
        from penstock.spark.processor import SparkProcessor

        return SparkProcessor
    raise AttributeError(f"module 'penstock.spark' has no attribute {name!r}")
