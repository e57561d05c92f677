"""How Spark gets to know the format ``aquifer``."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.spark.source.demand import report_batch_times

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["importable", "is_remote", "package_zip", "register", "ship"]

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


_PACKAGES: Final = ("penstock", "pyspark_penstock")
_LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)
"""The time of each file in the archive, so that the same files make the same archive."""


def package_zip(folder: str | Path) -> Path:
    """Write this package into a folder, as a file for ``spark-submit --py-files``; its name has the version.

    ::

        python -c "from penstock.spark import package_zip; print(package_zip('.'))"
    """
    contents = {name: data for package in _PACKAGES for name, data in _modules(files(package), package)}
    mark = 0
    for name, data in sorted(contents.items()):
        mark = zlib.crc32(data, zlib.crc32(name.encode(), mark))
    # Spark remembers files by name, and refuses another one of the same name.
    target = Path(folder) / f"penstock-{__version__}-{mark:08x}.zip"
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), data, zipfile.ZIP_DEFLATED)
    return target


def ship(spark: SparkSession) -> Path:
    """Give the package to the executors of this session, now and later, and make ``format("aquifer")`` known.

    Call it before the first query. On the driver's machine the package has to be there for the Python that
    ``PYSPARK_PYTHON`` names, since streams are planned by it; ``session(…, ship=True)`` sees to that as well.
    The file that is returned is there until this process ends.
    """
    if is_remote(spark):
        raise ValueError(
            "ship() is for the driver of a cluster, which this process is not: it is behind sc://…. Install "
            "the package where the Spark Connect server runs, and on its executors"
        )
    archive = _archive_of_this_process()
    spark.sparkContext.addPyFile(str(archive))
    # Once more, even if the format is known: the one that Spark has found by itself comes without files.
    register(spark, again=True)
    return archive


@contextmanager
def importable() -> Iterator[None]:
    """While it lasts, a driver can be started whose Python processes find the package, whatever they are.

    A stream is planned by a process beside the driver, and this is the one that Spark tells nothing of files.
    """
    before = os.environ.get("PYTHONPATH")
    places = [str(_archive_of_this_process())] + ([before] if before else [])
    os.environ["PYTHONPATH"] = os.pathsep.join(places)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@functools.cache
def _archive_of_this_process() -> Path:
    folder = tempfile.mkdtemp(prefix="penstock-package-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return package_zip(folder)


def _modules(place: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    yield f"{name}/", b""  # A directory without __init__.py is a package only if it is mentioned.
    for entry in place.iterdir():
        inside = f"{name}/{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _modules(entry, inside)
        else:
            yield inside, entry.read_bytes()
