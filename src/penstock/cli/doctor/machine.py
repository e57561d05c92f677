"""Checks of the machine: Python, ports, file descriptors, the disk and the clock."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from typing import Final

from penstock.cli.doctor.health import DoctorCheck, Finding, Health
from penstock.cli.table import size

__all__ = ["clock_check", "descriptor_check", "disk_check", "port_check", "python_check"]

_OLDEST: Final = (3, 11)
_PORT: Final = 5556
"""The port of a gateway, unless told otherwise."""
_ENOUGH_DESCRIPTORS: Final = 1024
"""A gateway needs a few for each connection."""
_SYNCS: Final = 40
_SLOW_SYNC: Final = 0.05
"""Seconds. A journal syncs once for each batch."""
_LITTLE_SPACE: Final = 1024**3
"""Bytes: a journal takes so much, unless told otherwise."""
_DRIFT: Final = 0.05
"""Seconds that the time of day may differ from the clock that never goes back, within a fifth of a second."""


def python_check() -> DoctorCheck:
    """Is Python new enough?"""

    def run(limit: float) -> Finding:
        version = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}"
        if sys.version_info < _OLDEST:
            remedy = "install Python 3.11 or newer, and: python3.11 -m pip install penstock-streams"
            return Finding("python", Health.BAD, f"{version}: 3.11 is the oldest that works", remedy)
        return Finding("python", Health.OK, version)

    return DoctorCheck("python", run)


def port_check() -> DoctorCheck:
    """Can a gateway listen?"""

    def run(limit: float) -> Finding:
        with socket.socket() as anywhere:
            anywhere.bind(("127.0.0.1", 0))
            anywhere.listen()
            with socket.create_connection(anywhere.getsockname(), timeout=limit / 2):
                pass
        try:
            with socket.socket() as usual:
                usual.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                usual.bind(("127.0.0.1", _PORT))
        except OSError:
            text = f"loopback works; {_PORT} is taken, perhaps by a gateway: --control tcp://127.0.0.1:0"
            return Finding("ports", Health.OK, text)
        return Finding("ports", Health.OK, f"loopback works; {_PORT}, the port of a gateway, is free")

    return DoctorCheck("ports", run, remedy="ip link set lo up")


def descriptor_check() -> DoctorCheck:
    """May this process open enough files and sockets?"""

    def run(limit: float) -> Finding:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}"
        if soft != resource.RLIM_INFINITY and soft < _ENOUGH_DESCRIPTORS:
            text = f"{soft:,} open files are allowed, of {most}: enough for a few readers"
            return Finding("descriptors", Health.BAD, text, f"ulimit -n {min(max(hard, soft), 65536)}")
        return Finding("descriptors", Health.OK, f"{soft:,} open files are allowed, up to {most}")

    return DoctorCheck("descriptors", run, remedy="ulimit -n 65536")


def disk_check(folder: str) -> DoctorCheck:
    """Is there space for a journal, and how long does a sync take?"""

    def run(limit: float) -> Finding:
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryDirectory(prefix="penstock-doctor-", dir=folder) as place:
            took = _sync_seconds(os.path.join(place, "sync"), limit / 2)
            with closing(sqlite3.connect(os.path.join(place, "wal.db"))) as database:
                (mode,) = database.execute("pragma journal_mode = wal").fetchone()
        what = f"{folder}: {size(free)} free, a sync takes {took * 1000:.1f} ms"
        elsewhere = "penstock gateway --journal on another disk; penstock doctor --folder DIR measures one"
        if mode != "wal":
            text = f"{folder} cannot have a write-ahead log, as on some network file systems"
            return Finding("disk", Health.BAD, text, elsewhere)
        if took > _SLOW_SYNC:
            text = f"{what}: a journal there stores about {1 / took:.0f} batches a second"
            return Finding("disk", Health.BAD, text, elsewhere)
        if free < _LITTLE_SPACE:
            return Finding(
                "disk", Health.BAD, f"{what}: a journal takes 1 GiB", "penstock gateway --max-bytes 64M"
            )
        return Finding("disk", Health.OK, what)

    return DoctorCheck("disk", run, limit=20.0, remedy="penstock doctor --folder DIR, for another folder")


def _sync_seconds(path: str, limit: float) -> float:
    """Return the median of some syncs of a page each."""
    took: list[float] = []
    end = time.monotonic() + limit
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        while len(took) < _SYNCS and (not took or time.monotonic() < end):
            os.write(descriptor, os.urandom(4096))
            began = time.perf_counter()
            os.fsync(descriptor)
            took.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
    return statistics.median(took)


def clock_check() -> DoctorCheck:
    """Is the time of day plausible, and does it run as fast as it should?"""

    def run(limit: float) -> Finding:
        wall, steady = time.time(), time.monotonic()
        time.sleep(min(0.2, limit / 4))
        drift = (time.time() - wall) - (time.monotonic() - steady)
        now = datetime.now(UTC)
        if not 2025 <= now.year < 2100:
            return Finding("clock", Health.BAD, f"it says {now:%Y-%m-%d}", "timedatectl set-ntp true")
        if abs(drift) > _DRIFT:
            text = f"the time of day jumped by {drift * 1000:.0f} ms while it was watched"
            return Finding("clock", Health.BAD, text, "timedatectl set-ntp true")
        return Finding("clock", Health.OK, f"{now:%Y-%m-%d %H:%M} UTC, and it runs steadily")

    return DoctorCheck("clock", run, remedy="timedatectl set-ntp true")
