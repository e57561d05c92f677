"""The locks that keep a journal to one owner, and what the owner leaves behind if it is killed.

There are two, both of the operating system, so they go away with the process that holds them. The first is on
a file beside the journal, ``NAME-lock``, because the journal itself may still have to be created. The second
is on the journal itself (on Linux), because a file beside it can be removed, and because the journal may have
a second name. Both hold against another process and against a second opening in the same one.

The file beside the journal also says how many transactions its last owner has committed, and keeps that when
the journal is closed. A journal that has fewer is an old copy of it, or has lost its newest transactions. The
number is not synced with each transaction. So if the machine was restarted since, it may be too low, and does
not show that nothing was lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path
from typing import Final, NamedTuple

from penstock.aquifer.errors import JournalDamaged, JournalError, JournalInUse
from penstock.streams.spi import renew_after_fork

__all__ = ["JournalFiles", "OwnerLock", "Seal", "give_to_owner_of", "sync_directory"]

if sys.platform == "win32":
    import msvcrt

    _FAR_BEHIND_THE_TEXT = 1024

    def _try_lock(descriptor: int) -> None:
        # Windows forbids reading what is locked, and the process id of the owner must stay readable.
        os.lseek(descriptor, _FAR_BEHIND_THE_TEXT, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)

    def _write_at(descriptor: int, text: bytes, at: int) -> None:
        os.lseek(descriptor, at, os.SEEK_SET)
        os.write(descriptor, text)
else:
    import fcntl

    _write_at = os.pwrite

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_HELD_BY_ANOTHER: Final = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}
_UNSUPPORTED: Final = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_NOT_NOW: Final = {errno.EMFILE, errno.ENFILE}
_NOT_THERE: Final = FileNotFoundError, NotADirectoryError
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")

_open_here: set[tuple[int, int]] = set()
"""The journals that are open in this process, by device and number of their file."""


class Seal(NamedTuple):
    """What the last owner of a journal had done."""

    epoch: str
    serial: int
    """How many transactions the journal had at least."""
    exact: bool
    """Whether it had no more: the machine was not restarted since."""


class OwnerLock:
    """Held from its making to :meth:`release`; JournalInUse if another has it."""

    def __init__(self, journal: str) -> None:
        self._journal = journal
        descriptor, self.is_new = _open_and_lock(journal)
        self._descriptor: int | None = descriptor
        self._file: int | None = None
        self._identity: tuple[int, int] | None = None
        self.left_behind = _seal_in(_read(descriptor))
        """The seal of the last owner, if there is one."""
        self._serial_at = 0
        # For the message that the next process gets; it may be missing on a full disk.
        with contextlib.suppress(OSError):
            # The seal stays until there is a new one: this owner may be killed before it has one, too.
            self._write(0, b"%-20d\n" % os.getpid())
        renew_after_fork(self)

    @property
    def held(self) -> bool:
        """Whether this object, in this process, still has the lock."""
        return self._descriptor is not None

    def lock_file(self) -> int:
        """Lock the journal itself, which is there now; returns a descriptor of it that stays open.

        It must stay open for as long as SQLite has the file open: closing any descriptor of a file gives up
        all locks that SQLite has on it.
        """
        status = os.stat(self._journal)
        identity = status.st_dev, status.st_ino
        if identity in _open_here:
            raise JournalInUse(_whose(self._journal, str(os.getpid())))
        self._file = os.open(self._journal, os.O_RDWR | getattr(os, "O_BINARY", 0))
        opened = os.fstat(self._file)
        if (opened.st_dev, opened.st_ino) != identity:
            raise JournalInUse(f"another program has just replaced the journal {self._journal}; try again")
        # Elsewhere such a lock would be in the way of those that SQLite takes.
        if sys.platform == "linux":
            try:
                _try_lock(self._file)
            except OSError as error:
                if error.errno in _HELD_BY_ANOTHER:
                    raise JournalInUse(_whose(self._journal, "")) from error
                raise JournalError(_why_not(self._journal, error)) from error
        _open_here.add(identity)
        self._identity = identity
        return self._file

    def seal(self, epoch: str, serial: int) -> None:
        """Note how many transactions there are. It costs a microsecond or two, and no sync."""
        if self._descriptor is None:
            return
        try:
            if not self._serial_at:
                text = b"%-20d\n%s\n%s\n" % (os.getpid(), _boot().encode(), epoch.encode())
                self._write(0, text + b"%020d\n" % serial)
                self._serial_at = len(text)
            else:
                self._write(self._serial_at, b"%020d" % serial)
        except OSError:
            # A full disk. Without a seal, a journal whose log is missing is refused.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            self._serial_at = 0

    def _write(self, at: int, text: bytes) -> None:
        assert self._descriptor is not None
        _write_at(self._descriptor, text, at)

    def release(self, *, closed: bool = False) -> None:
        """Release the lock; ``closed`` if the journal was closed properly. It can be called again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            if closed:
                with contextlib.suppress(OSError):
                    os.fsync(descriptor)
            self._close_file()
            os.close(descriptor)

    def renew_in_child(self) -> None:
        """Leave the lock to the parent: a child that kept it would hold it even after the parent's death."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._close_file()
            os.close(descriptor)

    def _close_file(self) -> None:
        if self._identity is not None:
            _open_here.discard(self._identity)
            self._identity = None
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _open_and_lock(journal: str) -> tuple[int, bool]:
    """The descriptor of the file beside the journal, which is locked, and whether there was none."""
    name = f"{journal}-lock"
    while True:
        is_new = True
        try:
            try:
                descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o600)
                give_to_owner_of(journal, descriptor)
            except FileExistsError:
                is_new = False
                descriptor = os.open(name, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o600)
        except OSError as error:
            raise JournalError(_why_not(journal, error)) from error
        try:
            _try_lock(descriptor)
            # Somebody may have removed it since it was opened; then others would lock another one.
            if os.path.exists(name) and os.path.samestat(os.fstat(descriptor), os.stat(name)):
                return descriptor, is_new
        except OSError as error:
            owner = _read(descriptor).partition("\n")[0].strip()
            os.close(descriptor)
            if error.errno not in _HELD_BY_ANOTHER:
                raise JournalError(_why_not(journal, error)) from error
            raise JournalInUse(_whose(journal, owner)) from error
        os.close(descriptor)


def give_to_owner_of(journal: str, what: int | str) -> None:
    """If root works on the journal of a service, leave what it makes to the service, which needs it later.

    ``what`` is a descriptor or a path.
    """
    if sys.platform == "win32" or os.geteuid() != 0 or not os.path.exists(journal):
        return
    owner = os.stat(journal)
    os.chown(what, owner.st_uid, owner.st_gid)


def sync_directory(folder: str) -> None:
    """Make sure that a new name in it survives a loss of power."""
    if os.name == "nt":  # where a directory cannot be opened like this, nor has to be
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, 512).decode("ascii", "replace")


def _seal_in(text: str) -> Seal | None:
    """The seal in the file beside the journal, if it is whole."""
    lines = text.split("\n")
    if len(lines) != 5 or len(lines[3]) != 20 or not lines[3].isdecimal():
        return None
    return Seal(lines[2], int(lines[3]), bool(lines[1]) and lines[1] == _boot())


def _boot() -> str:
    """Names this run of the machine; empty where that is not known."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _whose(journal: str, owner: str) -> str:
    if owner == str(os.getpid()):
        return f"the journal {journal} is already open in this process; close it first"
    who = f"the process {owner}" if owner else "another process"
    return f"the journal {journal} is in use by {who}; stop that one, or use another journal"


def _why_not(journal: str, error: OSError) -> str:
    folder = os.path.dirname(journal)
    if not os.path.isdir(folder):
        return f"there is no directory {folder} for the journal {journal}; create it first"
    if error.errno in _UNSUPPORTED:
        return (
            f"the journal {journal} cannot be locked ({error.strerror}): this file system does not support "
            "locks, as some network file systems; put the journal on a local disk"
        )
    if error.errno in _NOT_NOW:
        return (
            f"the journal {journal} cannot be locked ({error.strerror}): this process or the system has too "
            "many files and connections open; raise the limit (ulimit -n), and try again"
        )
    return (
        f"the journal {journal} cannot be locked ({error.strerror}); check the permissions of the directory "
        f"{folder}, whether it can be written to, and whether the disk is full"
    )


class JournalFiles:
    """The journal and what SQLite has beside it, as they were when it was opened."""

    def __init__(self, path: str) -> None:
        self._main, self._wal, self._index = path, f"{path}-wal", f"{path}-shm"
        self._inodes = {name: self._status(name).st_ino for name in (self._main, self._wal, self._index)}

    def check(self) -> int:
        """JournalDamaged if one of them is not there any more, or is another one; OSError if nobody may look.

        Returns how long the write-ahead log is.
        """
        if self._status(self._main).st_ino != self._inodes[self._main]:
            raise JournalDamaged(self._what_happened(self._main))
        log = self._status(self._wal)
        if log.st_ino != self._inodes[self._wal]:
            raise JournalDamaged(self._what_happened(self._wal))
        return log.st_size

    def check_all(self) -> None:
        """The same, and for the index of the log: without it, another program would make one of its own."""
        self.check()
        if self._status(self._index).st_ino != self._inodes[self._index]:
            raise JournalDamaged(self._what_happened(self._index))

    def was_cut(self) -> JournalDamaged:
        """The error for a write-ahead log that somebody has made shorter."""
        return JournalDamaged(
            f"the file {self._wal} was cut while the journal was in use, and nothing can be stored any more: "
            "the newest records were in it. Stop the gateway. If nothing else has them, start it with "
            "accept_loss=True (penstock gateway --accept-loss): what is left is kept and gets a new epoch"
        )

    def _status(self, name: str) -> os.stat_result:
        try:
            return os.stat(name)
        except _NOT_THERE as error:
            raise JournalDamaged(self._what_happened(name)) from error

    def _what_happened(self, name: str) -> str:
        happened = "replaced by another file" if os.path.exists(name) else "removed or moved away"
        return (
            f"the file {name} was {happened} while the journal was in use, and nothing can be stored any "
            f"more. Stop the gateway. If {name} was moved, move it back, and start the gateway again; "
            "otherwise the records in it are lost: move away what is left of the journal, and a new one with "
            "a new epoch is begun"
        )
