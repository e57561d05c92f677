"""How the executors of a cluster get the package, if nobody has installed it there.

Spark hands Python files to its executors, and has them imported by the functions that were made after they
were added. So the order matters, and :func:`ship` keeps it: first the files, then the format. What the
package needs itself, ``pyzmq``, ``msgspec`` and ``pyarrow``, is compiled for each machine, and has to be
there.
"""

from __future__ import annotations

import atexit
import functools
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
from penstock.spark.registration import is_remote, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["importable", "package_zip", "ship"]

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
