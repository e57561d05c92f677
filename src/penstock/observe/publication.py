"""A process shows its streams to ``penstock why PID``: over a Unix socket that only its owner can reach.

Nothing is measured and nothing listens before :func:`publish` is called, or Penstock is imported with
``PENSTOCK_OBSERVE=1`` in the environment. From then on a thread looks at the streams twenty times a second,
and answers whoever connects with one snapshot as JSON.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.observe.model import Hop, Snapshot
from penstock.streams import StageFigures, StageMeter
from penstock.streams.spi import meter_everything

_log = logging.getLogger("penstock.observe")

__all__ = ["NotPublished", "Publication", "look_at_process", "publish", "published_processes"]

_EVERY: Final = 0.05
"""Seconds between two looks at the streams."""
_PATIENCE: Final = 2.5
_LARGEST: Final = 64 * 1024 * 1024
"""Bytes of a snapshot that another process may send."""
_LONGEST_PATH: Final = 100
"""Characters of a socket's path; the system allows a few more."""


class NotPublished(Exception):
    """A process does not show its streams, or is not there."""


def _folder(*, make: bool = False) -> Path:
    """A folder that only this user can use.

    FileNotFoundError if it is not there, PermissionError if it is not ours: in a directory that all users
    share, anybody can give that name to something else.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) if runtime and len(runtime) < _LONGEST_PATH - 40 else Path(tempfile.gettempdir())
    folder = base / f"penstock-{os.getuid()}-observe"
    if make:
        with contextlib.suppress(FileExistsError):  # Whatever it is, it is looked at below.
            folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(
            f"{folder} belongs to another user, or others can use it: remove it, or set XDG_RUNTIME_DIR to "
            "a directory of your own"
        )
    return folder


class Publication:
    """The thread that looks and answers; :meth:`close` ends it."""

    def __init__(self) -> None:
        self._meter = StageMeter()
        self._pid = os.getpid()
        self.path = _folder(make=True) / f"{self._pid}.sock"
        self.path.unlink(missing_ok=True)  # Of a process that had this number before.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(str(self.path))
            self.path.chmod(0o600)
            self._socket.listen(8)
        except BaseException:
            self._socket.close()
            raise
        self._socket.settimeout(_EVERY)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-observe", daemon=True)
        meter_everything(self._meter)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._meter.sample()
            try:
                asker, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:
                if self._closed.is_set():
                    return
                raise
            with asker:
                asker.settimeout(_PATIENCE)
                try:
                    asker.sendall(self.snapshot().to_json().encode())
                except OSError:
                    continue  # It has left, or does not read.

    def snapshot(self) -> Snapshot:
        """The streams of this process at this moment."""
        hops = tuple(_hop(f"pid:{self._pid}", figures) for figures in self._meter.figures())
        return Snapshot(at=time.time(), clock=time.monotonic(), hops=hops)

    def close(self) -> None:
        """Stop; it can be called again."""
        if self._closed.is_set() or os.getpid() != self._pid:
            return  # After a fork, the socket is the parent's.
        self._closed.set()
        meter_everything(self._meter, follow=False)
        self._thread.join()
        self._socket.close()
        self.path.unlink(missing_ok=True)


def _hop(where: str, figures: StageFigures) -> Hop:
    return Hop(
        id=f"{where}/stage/{figures.number}",
        kind=figures.kind,
        name=figures.name,
        upstream=tuple(f"{where}/stage/{number}" for number in figures.upstreams),
        where=where,
        peer=figures.peer,
        records_out=figures.emitted,
        waiting=figures.queued,
        capacity=figures.capacity,
        waiting_bytes=figures.queued_bytes,
        capacity_bytes=figures.capacity_bytes,
        demand=max(figures.requested - figures.emitted, 0),
        waiting_for_demand=round(figures.waiting_for_demand, 3),
        waiting_for_data=round(figures.waiting_for_data, 3),
        working=round(figures.working, 3),
        details=figures.by_operator,
    )


_told = False
"""Whether it was logged that the folder cannot be used."""
_publication: Publication | None = None
_mutex = threading.Lock()


def publish() -> Publication:
    """Show the streams of this process, those subscribed to from now on, to other processes of this user.

    Returns what ``close()`` ends; a second call returns the same. It is closed when the process ends.
    """
    global _publication
    with _mutex:
        if _publication is None or _publication._closed.is_set() or _publication._pid != os.getpid():
            _publication = Publication()
            atexit.register(_publication.close)
        return _publication


def published_processes(most: int, besides: Iterable[int] = ()) -> list[int]:
    """The processes of this user that show their streams, or have done so: the newest, ``most`` of them.

    What killed processes have left behind is removed. A folder that is not ours shows nothing, which is
    logged once.
    """
    global _told
    try:
        paths = list(_folder().glob("*.sock"))
    except FileNotFoundError:
        return []
    except OSError as error:
        if not _told:
            _told = True
            _log.warning("programs that show their streams are left out: %s", error)
        return []
    left_out = {os.getpid(), *besides}
    found: list[tuple[float, int]] = []
    for path in paths:
        if not path.stem.isdecimal():
            continue
        pid = int(path.stem)
        with contextlib.suppress(OSError):  # It has just ended, or another observer has removed it.
            if not _is_alive(pid):
                path.unlink()
            elif pid not in left_out:
                found.append((path.stat().st_mtime, pid))
    return [pid for _, pid in sorted(found, reverse=True)[:most]]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # It belongs to somebody else.
    except (OSError, OverflowError):
        return False
    return True


def look_at_process(pid: int, patience: float = _PATIENCE) -> Snapshot:
    """The snapshot of a process of this user; NotPublished if it does not show its streams.

    The process has ``patience`` seconds to answer.
    """
    try:
        path = _folder() / f"{pid}.sock"
    except FileNotFoundError:
        raise NotPublished(_not_shown(pid)) from None
    except OSError as error:
        raise NotPublished(f"process {pid} cannot be looked at: {error}") from None
    answer = bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.settimeout(patience)
        try:
            asker.connect(str(path))
            while len(answer) < _LARGEST and (more := asker.recv(1 << 16)):
                answer += more
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotPublished(_not_shown(pid)) from None
        except OSError as error:
            raise NotPublished(f"process {pid} does not answer: {error}") from None
    try:
        return Snapshot.from_json(bytes(answer))
    except ValueError as error:
        raise NotPublished(f"process {pid} has ended while it answered, or is broken: {error}") from None


def _not_shown(pid: int) -> str:
    """Why a process has no socket of its own."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return f"process {pid} belongs to another user, and shows its streams to that user alone"
    except (OSError, OverflowError):
        return f"there is no process {pid}; check the number"
    return (
        f"process {pid} does not show its streams: start it with PENSTOCK_OBSERVE=1, or call "
        "penstock.observe.publish() in it"
    )
