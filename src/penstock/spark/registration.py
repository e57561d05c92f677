"""How Spark gets to know the format ``aquifer``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["is_remote", "register"]


def register(spark: SparkSession, *, again: bool = False) -> None:
    """Make ``format("aquifer")`` known to a session that was made elsewhere. May be called again.

    Usually it is not needed: Spark finds the format by itself where Penstock is installed, unless some other
    package whose name begins with ``pyspark_`` cannot be imported. A session behind ``sc://…`` can be given,
    too; the package has to be installed there. With ``again`` it is registered even if Spark knows it.
    """
    from penstock.spark.data_source import AquiferDataSource

    if again or not _is_known(spark, AquiferDataSource.name()):
        spark.dataSource.register(AquiferDataSource)


def is_remote(spark: SparkSession) -> bool:
    """Whether the driver is another process, behind Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _is_known(spark: SparkSession, name: str) -> bool:
    """Whether Spark has the format already; to register it twice is harmless, but Spark warns of it."""
    if is_remote(spark):
        return False  # It cannot be asked.
    try:
        manager = spark._jsparkSession.sessionState().dataSourceManager()
        return bool(manager.dataSourceExists(name))
    except Exception:  # It is not a part of Spark's public interface.
        return False
