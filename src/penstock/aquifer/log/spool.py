"""A spool: bytes that are too many for memory, and are not to be stored, on the disk of a journal.

They are in files without a name. So whatever happens to the process, the system gives their space back, and
a crash leaves nothing to clean up. Each file is mapped once, and :meth:`Spool.put` returns views of the
mapping. The file is gone with the last of these views: nobody has to say that its bytes are not needed.

Bytes are written with a system call, never through the mapping. On a full disk that is an OSError; a store to
a mapped page would kill the process.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from mmap import ACCESS_READ, mmap
from typing import Final
from weakref import finalize, ref

from msgspec.structs import replace

from penstock.aquifer.records.batch import Batch

__all__ = ["Spool", "in_memory", "is_spooled"]

_FILE_BYTES: Final = 64 * 1024 * 1024
"""A file ends here, unless a piece is larger. Each takes a descriptor, so smaller ones would be too many. The
space of a file is given back as a whole, so larger ones would stay too long for the sake of one piece."""


class Spool:
    """Keeps bytes in files without a name, in the directory of a journal. One thread uses it.

    The views that it returns may be used, and dropped, by any thread.
    """

    def __init__(self, journal: str, file_bytes: int = _FILE_BYTES) -> None:
        self._journal = journal
        self._file_bytes = file_bytes
        self._current: _SpoolFile | None = None
        """The one that is written to. It may be gone."""
        self._files: list[_SpoolFile] = []
        """All that may be there."""
        self._process = os.getpid()

    @property
    def nbytes(self) -> int:
        """How much of the disk it uses, with what was dropped from files that are still needed."""
        self._files = [file for file in self._files if file.mapping() is not None]
        return sum(file.used for file in self._files)

    def free_bytes(self) -> int:
        """How much space its disk has left; OSError if that cannot be found out."""
        disk = os.statvfs(os.path.dirname(self._journal))
        return disk.f_bavail * disk.f_frsize

    def put(self, *pieces: bytes | memoryview) -> list[memoryview]:
        """Write these bytes, and return views of them; if this raises an OSError, nothing is kept."""
        file, mapping = self._file_for(sum(map(len, pieces)))
        view, place = memoryview(mapping), file.used
        views = []
        for piece in pieces:
            _write_at(file.descriptor, piece, place)
            views.append(view[place : place + len(piece)])
            place += len(piece)
        file.used = place
        return views

    def keep(self, batch: Batch) -> Batch:
        """The batch with its payload and its metadata on the disk; OSError if that is not possible."""
        payload, metadata = self.put(batch.payload, batch.metadata)
        return replace(batch, payload=payload, metadata=metadata)

    def _file_for(self, nbytes: int) -> tuple[_SpoolFile, mmap]:
        """A file with so much space, and its mapping, which keeps it."""
        if self._process != os.getpid():
            # After a fork, parent and child would write to the same place of the same file.
            self._current, self._files, self._process = None, [], os.getpid()
        file = self._current
        if file is not None:
            mapping = file.mapping()
            if mapping is not None and file.used + nbytes <= len(mapping):
                return file, mapping
            # Forgotten first: if the next one cannot be made, the number of this descriptor is another's.
            self._current = None
            file.close()
        mapping, descriptor = _mapped_file(self._journal, max(self._file_bytes, nbytes))
        file = self._current = _SpoolFile(mapping, descriptor)
        self._files.append(file)
        return file, mapping


class _SpoolFile:
    """A file that is there for as long as somebody has a view of its mapping."""

    def __init__(self, mapping: mmap, descriptor: int) -> None:
        self.mapping = ref(mapping)
        self.descriptor = descriptor
        self.used = 0
        self.close = finalize(mapping, os.close, descriptor)
        """Let go of the descriptor: nothing more is written to it. It happens once."""
        self.close.atexit = False  # Threads may still use it then, and the system closes it anyway.


def _mapped_file(journal: str, nbytes: int) -> tuple[mmap, int]:
    descriptor = _nameless_file(journal)
    try:
        os.ftruncate(descriptor, nbytes)  # A hole, which takes no space.
        return mmap(descriptor, nbytes, access=ACCESS_READ), descriptor
    except BaseException:
        os.close(descriptor)
        raise


def _nameless_file(journal: str) -> int:
    if hasattr(os, "O_TMPFILE"):
        with suppress(OSError):  # Not every file system has it. If it is something else, we are told below.
            return os.open(os.path.dirname(journal), os.O_RDWR | os.O_TMPFILE, 0o600)
    path = f"{journal}-spool-{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        os.unlink(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _write_at(descriptor: int, data: bytes | memoryview, place: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, place)
        left, place = left[written:], place + written


def is_spooled(batch: Batch) -> bool:
    """Whether its payload is in a spool."""
    return isinstance(batch.payload, memoryview) and isinstance(batch.payload.obj, mmap)


def in_memory(batches: Sequence[Batch], nbytes: int) -> Sequence[Batch]:
    """The batches, with those that are the last ``nbytes`` of them in memory, and not in a spool any more."""
    if not any(map(is_spooled, batches)):
        return batches
    moved = list(batches)
    for index in reversed(range(len(moved))):
        nbytes -= moved[index].nbytes
        if nbytes < 0:
            break
        if is_spooled(moved[index]):
            batch = moved[index]
            moved[index] = replace(batch, payload=bytes(batch.payload), metadata=bytes(batch.metadata))
    return moved
