"""A project of declarative pipelines (Spark 4.1 and later) with gateways at both ends.

``spark-pipelines run`` imports this file and runs what it declares: a table that grows by what the gateway
``READINGS`` has, and a flow from that table into the gateway ``WARM``. Both have checkpoints, so
that the next run continues.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def readings() -> DataFrame:
    """Every record of the gateway, as columns."""
    reader = spark.readStream.format("aquifer").schema("n bigint")
    return reader.options(endpoint=os.environ["READINGS"], value="json").load()


dp.create_sink("warm", "aquifer", {"endpoint": os.environ["WARM"]})


@dp.append_flow(target="warm")
def warm_readings() -> DataFrame:
    """The readings that matter, to a gateway that was started with ``--source writers``."""
    return spark.readStream.table("readings").where("n >= 500")
