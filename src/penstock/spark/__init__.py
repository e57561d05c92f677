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

from importlib.util import find_spec

if any(find_spec(needed) is None for needed in ("pyspark", "pyarrow", "zmq", "msgspec")):
    raise ImportError(
        "penstock.spark needs pyspark, pyarrow, pyzmq and msgspec: pip install 'penstock-streams[spark]'"
    )

from penstock.spark.errors import (
    BadOption,
    BadSchema,
    DataLoss,
    NoJava,
    QueryFailed,
    SharedSubscription,
    UnreadableRecord,
    UnwritableRow,
    reason_of,
)
from penstock.spark.pipeline import Pipeline, Progress, RunningPipeline
from penstock.spark.processor import SparkProcessor
from penstock.spark.programs import java_home
from penstock.spark.registration import package_zip, register, ship
from penstock.spark.sessions import session, settings
from penstock.spark.versions import refuse_unsupported

__all__ = [
    "BadOption",
    "BadSchema",
    "DataLoss",
    "NoJava",
    "Pipeline",
    "Progress",
    "QueryFailed",
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
