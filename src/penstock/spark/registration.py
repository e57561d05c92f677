"""How Spark gets to know the format ``aquifer``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make ``format("aquifer")`` known to a session that was made elsewhere. May be called again.

    Usually it is not needed: Spark finds the format by itself where Penstock is installed, unless some other
    package whose name begins with ``pyspark_`` cannot be imported.
    """
    from penstock.spark.data_source import AquiferDataSource

    if not _is_known(spark, AquiferDataSource.name()):
        spark.dataSource.register(AquiferDataSource)


def _is_known(spark: SparkSession, name: str) -> bool:
    """Whether Spark has the format already; to register it twice is harmless, but Spark warns of it."""
    try:
        manager = spark._jsparkSession.sessionState().dataSourceManager()
        return bool(manager.dataSourceExists(name))
    except Exception:  # It is not a part of Spark's public interface, and a Connect session has none of it.
        return False
