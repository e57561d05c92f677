"""A SparkSession with settings for small batches, also on a machine without Java.

A micro-batch has a fixed cost, and Spark's defaults are made for clusters: 200 shuffle partitions, a
checkpoint manager that starts a dozen processes for each batch if Hadoop's native library is missing, worker
sockets that wait for more to send. On one machine, these make up most of the cost. Each setting below was
measured. Each can be overridden, and all are logged once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from penstock.spark.java_options import JAVA_OPTIONS, driver_java_options
from penstock.spark.programs import java_home, python_for_workers
from penstock.spark.versions import installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session", "settings"]

_log = logging.getLogger("penstock.spark")

_CONNECT: Final = "sc://"
"""The scheme of a Spark Connect server's address."""
_CLIENT_NEEDS: Final = ("grpc", "grpc_status", "pandas")

_CHECKSUMS: Final = "spark.penstock.checksums"
"""Our own setting: whether Hadoop writes checksums of local files."""

_EVERYWHERE: Final[Mapping[str, str]] = {
    # The size of the Arrow batches between Spark and Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # Our source waits for records itself, so Spark need not wait before it asks again.
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.ui.showConsoleProgress": "false",
    # Batch reads leave out what conditions on offset, timestamp, key and endpoint leave out; from 4.1 on.
    "spark.sql.python.filterPushdown.enabled": "true",
    # 15 s by default, too short for a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
}
"""Settings that help with any master."""

_ON_ONE_MACHINE: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # 200 by default, which costs five seconds for each batch with an aggregation.
    "spark.sql.shuffle.partitions": "2",
    # Hadoop writes a file of checksums beside each file, and runs chmod for both.
    _CHECKSUMS: "false",
    # TCP to the Python workers delays small packets by 40 ms.
    "spark.python.unix.domain.socket.enabled": "true",
    # On one machine, a peer that does not answer is waiting for the CPU, not lost.
    "spark.network.timeout": "600s",
    "spark.ui.enabled": "false",
}
"""Settings that help, and are safe, if driver and executors share a machine and its disk.

Unix domain sockets for workers would help on a cluster as well. But there we do not choose the path of the
temporary directory, and one of more than about 60 characters, such as YARN's, is too long for them.
"""


def settings(master: str = "local[*]", **overrides: str) -> dict[str, str]:
    """The settings of :func:`session`, for a SparkSession that you build yourself.

    Pass overrides as a dictionary: ``settings(**{"spark.sql.shuffle.partitions": "8"})``.
    """
    chosen = dict(_EVERYWHERE)
    if master.startswith(_CONNECT):
        # The server has its own settings; a session can set only those of SQL.
        chosen = {key: value for key, value in chosen.items() if key.startswith("spark.sql.")}
    elif master.startswith("local"):
        chosen |= _ON_ONE_MACHINE
        chosen[JAVA_OPTIONS] = driver_java_options(overrides)
        # The default manager runs chmod and readlink, about 19 times for each batch.
        place = "streaming" if installed() < (4, 1) else "streaming.checkpointing"
        chosen["spark.sql.streaming.checkpointFileManagerClass"] = (
            f"org.apache.spark.sql.execution.{place}.FileSystemBasedCheckpointFileManager"
        )
    return chosen | overrides


def session(
    name: str = "penstock",
    master: str = "local[*]",
    config: Mapping[str, object] | None = None,
    *,
    ship: bool = False,
) -> SparkSession:
    """A SparkSession with the format ``aquifer``; the running session, if there is one.

    ``config`` overrides any setting, ours and Spark's. An installed Java 17 or newer is used if there is one,
    and the one from pip otherwise; without either, it raises :class:`~penstock.spark.NoJava`. With ``ship``,
    the executors of a cluster receive this package, see :func:`~penstock.spark.ship`. The master
    ``"sc://host:15002"`` is a Spark Connect server: it needs no Java here, and only settings of the session
    can be set.
    """
    from penstock.spark.registration import importable, register
    from penstock.spark.registration import ship as ship_to_executors

    running = _running()
    if running is None:
        overrides = {key: option_text(value) for key, value in (config or {}).items()}
        chosen = settings(master, **overrides)
        if master.startswith(_CONNECT):
            running = _connected(name, master, chosen)
        else:
            with importable() if ship else nullcontext():
                running = _started(name, master, chosen)
    if ship:
        ship_to_executors(running)
    else:
        register(running)
    return running


def _running() -> SparkSession | None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is None and SparkContext._active_spark_context is not None:
        # There is a session, but not on this thread.
        running = SparkSession.builder.getOrCreate()
    return running


def _started(name: str, master: str, chosen: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    if master.startswith("local"):
        # The workers need the packages of this Python.
        os.environ.setdefault("PYSPARK_PYTHON", python_for_workers())
    _log.info("Java: %s; Spark settings: %s", home, chosen)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    started = builder.getOrCreate()
    if chosen.get(_CHECKSUMS) == "false":
        _leave_out_checksums(started)
    return started


def _leave_out_checksums(spark: SparkSession) -> None:
    """Make Hadoop's local file system, one object for the whole Java process, write no checksums.

    Hadoop's raw file system has none, but RocksDB, which stateful functions need, does not work with it.
    """
    context = spark.sparkContext
    assert context._jvm is not None, "a session that was started here has a JVM"
    files = context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    files.setWriteChecksum(False)


def _connected(name: str, master: str, chosen: Mapping[str, str]) -> SparkSession:
    missing = [name for name in _CLIENT_NEEDS if find_spec(name) is None]
    if missing:
        # Spark would end the process without an error message.
        raise ModuleNotFoundError(
            f"{master} is a Spark Connect server, and a client needs {', '.join(missing)}: "
            "pip install 'penstock-streams[connect]'"
        )
    from pyspark.sql import SparkSession

    _log.info("Spark Connect: %s; settings of the session: %s", master, chosen)
    builder = SparkSession.builder.appName(name).remote(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def option_text(value: object) -> str:
    """A value as a string for Spark, with Spark's spelling of true and false."""
    return str(value).lower() if isinstance(value, bool) else str(value)
