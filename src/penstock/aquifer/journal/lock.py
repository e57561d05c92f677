"""The lock that keeps a journal to one owner.

It is a lock of the operating system on a file beside the journal, so it goes away with the process that
holds it, however that ends; the file itself stays and means nothing. It holds against another process and
against a second opening in the same one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from penstock.aquifer.errors import JournalError, JournalInUse
from penstock.streams.schedulers.forking import renew_after_fork

__all__ = ["OwnerLock"]

if sys.platform == "win32":
    import msvcrt

    _FAR_BEHIND_THE_PID = 1024

    def _try_lock(descriptor: int) -> None:
        # Windows forbids reading what is locked, and the number of the owner shall be readable.
        os.lseek(descriptor, _FAR_BEHIND_THE_PID, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_HELD_BY_ANOTHER = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}


class OwnerLock:
    """Held from its making to :meth:`release`; JournalInUse if somebody else has it."""

    def __init__(self, journal: str) -> None:
        self._descriptor: int | None = None
        try:
            descriptor = os.open(f"{journal}-lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise JournalError(_why_not(journal, error)) from error
        try:
            _try_lock(descriptor)
        except OSError as error:
            owner = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            if error.errno not in _HELD_BY_ANOTHER:
                raise JournalError(_why_not(journal, error)) from error
            raise JournalInUse(_whose(journal, owner)) from error
        self._descriptor = descriptor
        # The number is a courtesy to whoever comes next, and may be missing on a full disk.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, b"%d\n" % os.getpid())
        renew_after_fork(self)

    @property
    def held(self) -> bool:
        """Whether this object, in this process, still has the lock."""
        return self._descriptor is not None

    def release(self) -> None:
        """Let somebody else have it. May be called again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def renew_in_child(self) -> None:
        """Leave the lock to the parent: a child that kept it would hold it even after the parent's death."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _whose(journal: str, owner: str) -> str:
    if owner == str(os.getpid()):
        return f"the journal {journal} is already open in this process; close it first, or share the object"
    who = f"the process {owner}" if owner else "another process"
    return (
        f"the journal {journal} is in use by {who}; stop that one, or give this gateway a journal of its own"
    )


def _why_not(journal: str, error: OSError) -> str:
    folder = os.path.dirname(journal)
    if not os.path.isdir(folder):
        return f"there is no directory {folder} for the journal {journal}; create it first"
    return (
        f"the journal {journal} cannot be locked ({error.strerror}); check the permissions of the directory "
        f"{folder}, and whether the disk is full"
    )
