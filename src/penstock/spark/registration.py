"""How Spark learns about the format ``aquifer``, and how executors get the package.

Spark sends Python files to its executors. Only functions that were created after a file was added import it.
So the order matters, and :func:`ship` keeps it: first the files, then the format. The dependencies ``pyzmq``,
``msgspec`` and ``pyarrow`` are compiled for each machine, and have to be installed there.
"""

from __future__ import annotations

import atexit
import functools
import logging
import marshal
import os
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from penstock import __version__
from penstock.spark.query_listener import listen_to_queries
from penstock.spark.versions import has_admission_control

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

__all__ = ["importable", "is_remote", "package_zip", "register", "ship"]

_log = logging.getLogger("penstock.spark")

_TIME_ZONE: Final = "spark.sql.session.timeZone"

_SET_BY_EACH_QUERY: Final = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)
"""The environment variables that Spark sets when it starts the process that plans a query."""


def register(spark: SparkSession, *, again: bool = False) -> None:
    """Make ``format("aquifer")`` known to a session that :func:`session` did not create; idempotent.

    Spark finds the format by itself where Penstock is installed, unless another package whose name begins
    with ``pyspark_`` fails to import. For a session of Spark Connect (``sc://…``), the package has to be
    installed on the server. With ``again``, the format is registered even if Spark knows it.
    """
    from penstock.spark.data_source import AquiferDataSource
    from penstock.spark.source.self_paced import TRIGGER_VARIABLE

    if again or not _is_known(spark, AquiferDataSource.name()):
        _register(spark, AquiferDataSource, again)
    # Tasks see only settings that were set, and the default is the time zone of the driver's machine.
    spark.conf.set(_TIME_ZONE, spark.conf.get(_TIME_ZONE) or "UTC")
    if not is_remote(spark):
        environment = _prepared_environment(spark, AquiferDataSource.name())
        if environment is None or has_admission_control():
            listen_to_queries(spark)
        else:
            environment.putIfAbsent(TRIGGER_VARIABLE, "")
            listen_to_queries(spark, lambda trigger: environment.put(TRIGGER_VARIABLE, trigger))


def _register(spark: SparkSession, source: type[DataSource], again: bool) -> None:
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        # Spark 4.0 does not replace a format that it has found by itself; later versions do.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
        if again:
            raise RuntimeError(
                "Spark 4.0 cannot send a format to its executors that is installed beside the driver: "
                "install penstock-streams on the executors as well, or use Spark 4.1 or newer"
            ) from error


def is_remote(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect: the driver is another process."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _prepared_environment(spark: SparkSession, name: str) -> Any:
    """The environment of the processes that plan queries, in which queries can start at the same time.

    When a query starts, Spark puts four variables into a map that all queries of the format share, without a
    lock. Two concurrent starts can corrupt the map for good: every later query then fails with "Illegal size
    of collection" or "Task not serializable". If the keys exist already, only their values change.
    """
    try:
        manager = spark._jsparkSession.sessionState().dataSourceManager()
        environment = manager.lookupDataSource(name).dataSourceCls().envVars()
        for variable in _SET_BY_EACH_QUERY:
            environment.putIfAbsent(variable, "")
        return environment
    except Exception as error:  # This is not part of Spark's public interface.
        _log.info("could not prepare the environment of Spark's Python processes: %s", error)
        return None


def _is_known(spark: SparkSession, name: str) -> bool:
    """Whether Spark has the format already; it logs a warning if a format is registered twice."""
    if is_remote(spark):
        return False  # The server cannot be asked.
    try:
        manager = spark._jsparkSession.sessionState().dataSourceManager()
        return bool(manager.dataSourceExists(name))
    except Exception:  # This is not part of Spark's public interface.
        return False


_PACKAGES: Final = ("penstock", "pyspark_penstock")
_LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)
"""The time of each file in the archive, so that the same files always make the same archive."""
_NOT_CHECKED: Final = (1).to_bytes(4, "little")
"""Says of bytecode that nobody need compare it with its source."""
_WITHOUT_REFERENCES: Final = 2
"""The version of a marshalled code object that does not depend on which objects others have, too."""


def package_zip(folder: str | Path) -> Path:
    """Write this package as a zip file for ``spark-submit --py-files``, and return its path.

    ::

        python -c "from penstock.spark import package_zip; print(package_zip('.'))"

    Beside each module is its bytecode for this version of Python: every Python process of an executor imports
    the package, and would have to compile it first. Another version of Python uses the sources.
    """
    contents = {name: data for package in _PACKAGES for name, data in _modules(files(package), package)}
    checksum = 0
    for name, data in sorted(contents.items()):
        checksum = zlib.crc32(data, zlib.crc32(name.encode(), checksum))
    # Spark refuses another file of the same name, so the name depends on the contents.
    target = Path(folder) / f"penstock-{__version__}-{checksum:08x}.zip"
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), data, zipfile.ZIP_DEFLATED)
    return target


def ship(spark: SparkSession) -> Path:
    """Send the package to all executors of this session, also to later ones, and register the format.

    Call it before the first query. On the driver's machine, the Python that ``PYSPARK_PYTHON`` names has to
    find the package, too, because it plans the streams; ``session(…, ship=True)`` takes care of that as well.
    The returned file exists until this process ends.
    """
    if is_remote(spark):
        raise ValueError(
            "ship() has to run in the driver, and the driver of this session is a Spark Connect server. "
            "Install the package on the server and on its executors"
        )
    archive = _archive_of_this_process()
    spark.sparkContext.addPyFile(str(archive))
    # Register again: the format that Spark found by itself does not bring the file along.
    register(spark, again=True)
    return archive


@contextmanager
def importable() -> Iterator[None]:
    """Within this context, a driver that is started has Python processes that find the package.

    The process that plans a stream runs beside the driver, and does not see the files of ``addPyFile``.
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


def _modules(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    yield f"{name}/", b""  # A zip file needs an entry for a directory without __init__.py.
    for entry in folder.iterdir():
        inside = f"{name}/{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _modules(entry, inside)
        else:
            yield inside, (data := entry.read_bytes())
            # A driver that leaves out assertions does not do so for its executors.
            if isinstance(entry, Path) and entry.suffix == ".py" and not sys.flags.optimize:
                yield f"{inside}c", _bytecode(entry, inside, data)


def _bytecode(path: Path, inside: str, source: bytes) -> bytes:
    """A module in the form for which an import from a zip file looks first; Python's cache may have it."""
    code = SourceFileLoader(inside, str(path)).get_code(inside)
    assert isinstance(code, CodeType), "a file has code"
    return (
        MAGIC_NUMBER
        + _NOT_CHECKED
        + source_hash(source)
        + marshal.dumps(_moved(code, inside), _WITHOUT_REFERENCES)
    )


def _moved(code: CodeType, filename: str) -> CodeType:
    """The code with another file name, for tracebacks: a path on this machine says nothing on another one."""
    constants = tuple(
        _moved(value, filename) if isinstance(value, CodeType) else value for value in code.co_consts
    )
    return code.replace(co_filename=filename, co_consts=constants)
