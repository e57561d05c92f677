"""A SparkSession that works at once, on a machine with no Java as well, and does not waste a trigger's time.

A micro-batch has a fixed cost, and Spark's defaults are made for clusters: 200 shuffle partitions, a
checkpoint manager that starts a dozen processes for each batch where Hadoop's native library is missing,
worker sockets that wait for more to send. On one machine these make up most of the cost. Each setting below
was measured; each can be overridden, and all are logged once.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session", "settings"]

_log = logging.getLogger("penstock.spark")

_EVERYWHERE: Final[Mapping[str, str]] = {
    # Arrow batches of this size pass between Spark and Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # A source that has nothing new answers after a wait of its own: no need for another one.
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.ui.showConsoleProgress": "false",
}
"""What helps with any master."""

_ON_ONE_MACHINE: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # 200 by default: five seconds for each batch that counts something.
    "spark.sql.shuffle.partitions": "2",
    # The default manager forks chmod and readlink, about 19 times for each batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # And what still forks, forks quickly.
    "spark.driver.extraJavaOptions": "-Djdk.lang.Process.launchMechanism=VFORK",
    # TCP to the Python workers waits 40 ms for more to send.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
}
"""What helps, and is safe, where driver and executors share a machine and its disk."""


def settings(master: str = "local[*]", **overrides: str) -> dict[str, str]:
    """The settings of :func:`session`, for those who build their own SparkSession.

    Names with dots go in a dictionary: ``settings(**{"spark.sql.shuffle.partitions": "8"})``.
    """
    chosen = dict(_EVERYWHERE)
    if master.startswith("local"):
        chosen |= _ON_ONE_MACHINE
    return chosen | overrides


def session(
    name: str = "penstock", master: str = "local[*]", config: Mapping[str, object] | None = None
) -> SparkSession:
    """A SparkSession with the format ``aquifer``; the one that is running already, if there is one.

    ``config`` overrides any setting, ours and Spark's. A Java of version 17 or newer is used if there is one,
    and the one from pip otherwise.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from penstock.spark.registration import register

    running = SparkSession.getActiveSession()
    if running is None and SparkContext._active_spark_context is not None:
        # There is one, but not on this thread. It is given back as it is.
        running = SparkSession.builder.getOrCreate()
    if running is None:
        home = java_home()
        os.environ["JAVA_HOME"] = str(home)
        if master.startswith("local"):
            # The workers are Pythons too, and have to find what this one finds.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        overrides = {key: option_text(value) for key, value in (config or {}).items()}
        chosen = settings(master, **overrides)
        _log.info("Java: %s; Spark settings: %s", home, chosen)
        builder = SparkSession.builder.appName(name).master(master)
        for key, value in chosen.items():
            builder = builder.config(key, value)
        running = builder.getOrCreate()
    register(running)
    return running


def option_text(value: object) -> str:
    """A value as Spark takes it: texts only, and its own spelling of true and false."""
    return str(value).lower() if isinstance(value, bool) else str(value)
