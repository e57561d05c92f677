"""The driver as a part of a storm: killed, started again, and there for the next storm as well.

Most of what a storm on a cluster costs is the start of a driver, of its executors and of the first batch of
each query. A driver that has seen one storm through takes the next one: it was killed and started in the one
before, and will be in this one.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec

from penstock.spark import settings
from tests.spark.chaos.driver_process import QuerySettings, SessionSettings
from tests.spark.chaos.processes import Part
from tests.spark.cluster import CLUSTER_SETTINGS, Cluster
from tests.spark.conftest import SPARK_SETTINGS
from tests.spark.lakes import formats

__all__ = ["Driver"]

_TO_LEAVE = 120.0
"""Seconds for Spark to end in good order, on a busy machine."""
_ONE_MACHINE = settings("local") | {"spark.python.unix.domain.socket.enabled": "false"}
"""The whole cluster is on this machine, but the paths of its folders are too long for a socket."""


class Driver(Part):
    """A session of Spark, and the queries of one storm after the other."""

    def __init__(self, folder: Path, warehouse: Path, cluster: Cluster | None, *, lakes: bool) -> None:
        """``lakes`` is whether there are tables of Delta and Iceberg; the latter are in the warehouse."""
        # Not the test's own folder: the path of a socket has to be short.
        self._scratch = tempfile.mkdtemp(prefix="chaos-")
        environment = {"TMPDIR": self._scratch}
        if cluster is not None:
            # What Spark starts beside the driver is the Python of the cluster, too.
            environment["PYSPARK_PYTHON"] = str(cluster.python)
        java = f"{SPARK_SETTINGS['spark.driver.extraJavaOptions']} -Djava.io.tmpdir={self._scratch}"
        config = {
            **({} if cluster is None else _ONE_MACHINE | CLUSTER_SETTINGS),
            **SPARK_SETTINGS,
            **(formats.settings(warehouse) if lakes else {}),
            "spark.local.dir": self._scratch,
            "spark.driver.extraJavaOptions": java,
        }
        # With retries of tasks, which a master of a cluster has by itself.
        session = SessionSettings("local[2,4]" if cluster is None else cluster.master, config)
        super().__init__("driver", "driver_process", session, folder, **environment)
        self._queries: QuerySettings | None = None
        self._known = 0
        """What it had said before this storm, in bytes."""

    def begin(self, queries: QuerySettings) -> None:
        """Run the queries of a storm; one that is killed and started goes on with them."""
        self._queries = queries
        self._known = self.log.stat().st_size if self.log.exists() else 0
        if self._process is None:
            self.start()
        else:
            self._tell(queries)

    def start(self) -> None:
        """Start it, for the first time or again, with what it has to do."""
        super().start()
        if self._queries is not None:
            self._tell(self._queries)

    def _tell(self, queries: QuerySettings) -> None:
        assert self._process is not None, "it has been started"
        assert self._process.stdin is not None, "it was given one"
        self._process.stdin.write(msgspec.json.encode(queries) + b"\n")
        self._process.stdin.flush()

    def is_done(self) -> bool:
        """Whether every query of this storm has everything, and the tables are read back."""
        return self._queries is not None and self._queries.done.exists()

    def said(self) -> str:
        """What all its processes have said in this storm."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(self._known)
            return log.read().decode(errors="replace")

    def leave(self) -> int | None:
        """Let it end in good order, and return its status; None if it was not there."""
        if self._process is None:
            return None
        if self._process.stdin is not None:
            self._process.stdin.close()
        status = self._process.wait(_TO_LEAVE)
        self.kill()  # It has gone, but the Java that it has started may still be about to.
        return status

    def close(self) -> None:
        """Nothing of it is left, however it ended."""
        self.kill()
        shutil.rmtree(self._scratch)
