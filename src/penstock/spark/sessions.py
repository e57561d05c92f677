"""A SparkSession that works at once, on a machine with no Java as well, and does not waste a trigger's time.

A micro-batch has a fixed cost, and Spark's defaults are made for clusters: 200 shuffle partitions, a
checkpoint manager that starts a dozen processes for each batch where Hadoop's native library is missing,
worker sockets that wait for more to send. On one machine these make up most of the cost. Each setting below
was measured; each can be overridden, and all are logged once.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.spark.programs import java_home, python_for_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["refuse_unsupported", "session", "settings", "unsupported"]

_log = logging.getLogger("penstock.spark")

_CONNECT: Final = "sc://"
"""How the address of a Spark Connect server begins."""
_CLIENT_NEEDS: Final = ("grpc", "grpc_status", "pandas")

_CHECKSUMS: Final = "spark.penstock.checksums"
"""Our own setting: whether local files get checksums."""

_EVERYWHERE: Final[Mapping[str, str]] = {
    # Arrow batches of this size pass between Spark and Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # A source that has nothing new answers after a wait of its own: no need for another one.
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.ui.showConsoleProgress": "false",
    # On a busy machine it takes a while until the other side of a connection gets its turn: 15 s by default.
    "spark.python.authenticate.socketTimeout": "120s",
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
    # Hadoop writes a file of checksums beside each file, and forks chmod for both of them.
    _CHECKSUMS: "false",
    # And what still forks, forks quickly.
    "spark.driver.extraJavaOptions": "-Djdk.lang.Process.launchMechanism=VFORK",
    # TCP to the Python workers waits 40 ms for more to send.
    "spark.python.unix.domain.socket.enabled": "true",
    # Nothing is lost on the way here. Whoever does not answer is waiting for the processor.
    "spark.network.timeout": "600s",
    "spark.ui.enabled": "false",
}
"""What helps, and is safe, where driver and executors share a machine and its disk.

(Worker sockets in the file system help on a cluster as well. But there the path of the temporary directory is
not ours, and one of more than about 60 characters, as YARN's, is too long for them.)
"""


def settings(master: str = "local[*]", **overrides: str) -> dict[str, str]:
    """The settings of :func:`session`, for those who build their own SparkSession.

    Names with dots go in a dictionary: ``settings(**{"spark.sql.shuffle.partitions": "8"})``.
    """
    chosen = dict(_EVERYWHERE)
    if master.startswith(_CONNECT):
        # The server was started with settings of its own; those of SQL can be set for a session.
        chosen = {key: value for key, value in chosen.items() if key.startswith("spark.sql.")}
    elif master.startswith("local"):
        chosen |= _ON_ONE_MACHINE
    return chosen | overrides


def session(
    name: str = "penstock",
    master: str = "local[*]",
    config: Mapping[str, object] | None = None,
    *,
    ship: bool = False,
) -> SparkSession:
    """A SparkSession with the format ``aquifer``; the one that is running already, if there is one.

    ``config`` overrides any setting, ours and Spark's. A Java of version 17 or newer is used if there is one,
    and the one from pip otherwise. With ``ship`` the executors of a cluster are given this package, see
    :func:`~penstock.spark.ship`. A master ``"sc://host:15002"`` is a Spark Connect server: then no Java is
    needed here, and what is set is for the session, since the server has its settings already.
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
        # There is one, but not on this thread. It is given back as it is.
        running = SparkSession.builder.getOrCreate()
    return running


def _started(name: str, master: str, chosen: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    if master.startswith("local"):
        # The workers are Pythons too, and have to find what this one finds.
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
    """As Hadoop's raw file system would; but RocksDB, which functions with state need, insists on this one.

    There is one of it in a Java process, for all who ask for it.
    """
    context = spark.sparkContext
    assert context._jvm is not None, "a session that was started here has a Java process"
    files = context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    files.setWriteChecksum(False)


def _connected(name: str, master: str, chosen: Mapping[str, str]) -> SparkSession:
    missing = [name for name in _CLIENT_NEEDS if find_spec(name) is None]
    if missing:
        # Spark would end the process, without a word of an error.
        raise ModuleNotFoundError(
            f"{master} is a Spark Connect server, and its clients need {', '.join(missing)}: "
            "pip install 'penstock-streams[connect]'"
        )
    from pyspark.sql import SparkSession

    _log.info("Spark Connect: %s; settings of the session: %s", master, chosen)
    builder = SparkSession.builder.appName(name).remote(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def option_text(value: object) -> str:
    """A value as Spark takes it: texts only, and its own spelling of true and false."""
    return str(value).lower() if isinstance(value, bool) else str(value)


_SUPPORTED: Final = (4, 3)
"""The minor version. Others lack parts of the streaming interface, or have other names for them."""
_VERSION: Final = re.compile(r'^__version__\b[^=]*=\s*"((\d+)\.(\d+)[^"]*)"', re.MULTILINE)


def unsupported() -> str | None:
    """What is wrong with the PySpark that is installed; None if nothing is, or if there is none."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    try:
        # Not imported: that takes a good part of a second, and a PySpark of another age may even fail at it.
        version = _VERSION.search(Path(found.origin).with_name("version.py").read_text(encoding="utf-8"))
    except OSError:
        return None  # In a zip file, as on some executors: the driver has looked.
    if version is None or (int(version[2]), int(version[3])) == _SUPPORTED:
        return None
    major, minor = _SUPPORTED
    return (
        f"penstock.spark works with PySpark {major}.{minor}, and PySpark {version[1]} is installed: "
        f"pip install 'penstock-streams[spark]' brings {major}.{minor}"
    )


def refuse_unsupported() -> None:
    """Raise an ImportError of one sentence if the PySpark that is installed is not supported."""
    problem = unsupported()
    if problem is not None:
        raise ImportError(problem)
