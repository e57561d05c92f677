"""How Spark gets to know the format ``aquifer``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from penstock.spark.batch_times import report_batch_times

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["is_remote", "register"]

_log = logging.getLogger("penstock.spark")

_TIME_ZONE: Final = "spark.sql.session.timeZone"

_SET_BY_EACH_QUERY: Final = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)
"""The variables that Spark sets for the process that plans a query, at its start."""


def register(spark: SparkSession, *, again: bool = False) -> None:
    """Make ``format("aquifer")`` known to a session that was made elsewhere. May be called again.

    Usually it is not needed: Spark finds the format by itself where Penstock is installed, unless some other
    package whose name begins with ``pyspark_`` cannot be imported. A session behind ``sc://…`` can be given,
    too; the package has to be installed there. With ``again`` it is registered even if Spark knows it.
    """
    from penstock.spark.data_source import AquiferDataSource

    if again or not _is_known(spark, AquiferDataSource.name()):
        spark.dataSource.register(AquiferDataSource)
    # Spark tells tasks what was set, not what it takes for itself: the zone of the driver's machine.
    spark.conf.set(_TIME_ZONE, spark.conf.get(_TIME_ZONE) or "UTC")
    if not is_remote(spark):
        _prepare_environment(spark, AquiferDataSource.name())
        report_batch_times(spark)


def is_remote(spark: SparkSession) -> bool:
    """Whether the driver is another process, behind Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _prepare_environment(spark: SparkSession, name: str) -> None:
    """Let queries start side by side.

    The start of a query puts the same four variables into a map that belongs to the format, and so to all
    queries, without a lock. Two that start at the same time may break it for good: from then on no query
    runs, with "Illegal size of collection" or "Task not serializable". If the variables are there already,
    only their values change.
    """
    try:
        manager = spark._jsparkSession.sessionState().dataSourceManager()
        environment = manager.lookupDataSource(name).dataSourceCls().envVars()
        for variable in _SET_BY_EACH_QUERY:
            environment.putIfAbsent(variable, "")
    except Exception as error:  # It is not a part of Spark's public interface.
        _log.info("the environment of Spark's Python processes could not be prepared: %s", error)


def _is_known(spark: SparkSession, name: str) -> bool:
    """Whether Spark has the format already; to register it twice is harmless, but Spark warns of it."""
    if is_remote(spark):
        return False  # It cannot be asked.
    try:
        manager = spark._jsparkSession.sessionState().dataSourceManager()
        return bool(manager.dataSourceExists(name))
    except Exception:  # It is not a part of Spark's public interface.
        return False
