"""How Spark gets to know the format ``aquifer``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make ``format("aquifer")`` known to a session that was made elsewhere. May be called again.

    Usually it is not needed: Spark finds the format by itself where Penstock is installed.
    """
    from penstock.spark.data_source import AquiferDataSource

    spark.dataSource.register(AquiferDataSource)
