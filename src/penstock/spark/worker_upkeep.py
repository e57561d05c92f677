"""What PySpark does in its Python processes for each request, and need not do each time.

The processes that run tasks, and those that make the readers and writers of a query, serve one request after
the other. The writer of a streaming query is made again for each batch. Three things took longer than the
work itself, if a batch is small.

**Garbage.** They collect garbage after each request. What Spark, Arrow and this package have imported never
becomes garbage, but there is a lot of it: to look at it takes 20 to 30 ms of processor time. Arrow imports
pandas, if it is installed, with the first array that it makes of Python objects. So the first request has to
be done before everything is there.

**Archives.** Before each request, Spark 4.0 and 4.1 have Python forget which modules there are, in case that
files were added. Python then reads the contents of each zip archive in its path again, once for each package
in it: 100 ms of processor time for PySpark's own archive. An archive that has not changed need not be read.

**Acknowledgements.** Over TCP, they wait for acknowledgements: see ``worker_connections.py``.
"""

from __future__ import annotations

import gc
import os
from functools import cache
from weakref import WeakKeyDictionary
from zipimport import zipimporter

from penstock.spark.versions import installed
from penstock.spark.worker_connections import acknowledge_at_once

__all__ = ["read_archives_once", "spare_upkeep"]


@cache
def spare_upkeep() -> None:
    """Spare this process what it need not do for each request; once, after its first work."""
    if installed() < (4, 2):
        read_archives_once()
    if os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() != "true":
        acknowledge_at_once()
    gc.collect()
    gc.freeze()


def read_archives_once() -> None:
    """Let Python read the contents of a zip archive again only if the archive has changed."""
    read_again = zipimporter.invalidate_caches
    versions: WeakKeyDictionary[zipimporter, tuple[int, int, int]] = WeakKeyDictionary()
    """What was read by each importer."""

    def invalidate_caches(self: zipimporter) -> None:
        try:
            found = os.stat(self.archive)
        except OSError:  # It is gone.
            versions.pop(self, None)
            read_again(self)
            return
        version = found.st_ino, found.st_size, found.st_mtime_ns
        if versions.get(self) != version:
            read_again(self)
            versions[self] = version

    zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]
