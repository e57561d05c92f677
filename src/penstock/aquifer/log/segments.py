"""The segment files of a journal: large groups of batches, appended once and never changed.

SQLite writes what it stores twice, first to its write-ahead log. That is dear for megabytes of records. So
the records of a large group go to the end of a file in the directory ``NAME-segments``, and SQLite gets a row
for each batch that says where they are. A segment file is synced before the transaction with these rows is
committed. What is in a file beyond the rows is a torn end: nobody reads it, and it is overwritten.

Each file begins with a header that names its first offset and a random token. The table ``segments`` has the
token and the number of bytes that belong to the journal. So a file that is missing, too short, or of another
journal is noticed when the journal is opened. The rows of the batches have the checksums of their records.

Files are named by their first offset and their token, and are removed when everything in them is forgotten.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.aquifer.errors import JournalDamaged
from penstock.aquifer.log.ownership import give_to_owner_of, sync_directory
from penstock.aquifer.log.sqlite_rows import damaged
from penstock.aquifer.records.batch import Batch

__all__ = [
    "INLINE_BYTES",
    "SEGMENT_BYTES",
    "SegmentFile",
    "SegmentFileReader",
    "SegmentFileWriter",
    "folder_of",
    "missing_in",
    "newer_in",
    "place_in",
    "problems_of",
    "size_of",
]

INLINE_BYTES: Final = 128 * 1024
"""Groups that are smaller stay in the SQLite file: one sync for them is worth more than writing them once."""
SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""A file that has so many bytes gets no more; its space is given back as a whole."""
_SHORTEST: Final = 1024 * 1024
"""A journal for a few megabytes only has files of this size."""

_MAGIC: Final = b"Penstock segment 1\n"
_HEADER_BYTES: Final = 64
_NAME: Final = re.compile(r"\d{20}-[0-9a-f]{16}")
_PIECES: Final = 1000
"""How many buffers a system takes in one call: 1024 on Linux, and that is the usual number."""
_MOST_OPEN: Final = 8
"""Files that a reader has open at a time."""
_BINARY: Final = getattr(os, "O_BINARY", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)

_sync = getattr(os, "fdatasync", os.fsync)


class SegmentFile(NamedTuple):
    """What the index says of a segment file: a row of the table ``segments``."""

    name: str
    """The offset of its first record, and a token."""
    end: int
    """The offset after its last record."""
    size: int
    """How many of its bytes belong to the journal."""

    @property
    def header(self) -> bytes:
        """What the file begins with."""
        return _MAGIC + self.name.encode("ascii").ljust(_HEADER_BYTES - len(_MAGIC), b"\n")


def folder_of(journal: str) -> str:
    """Where the segment files of a journal are. It is made with the first of them."""
    return f"{journal}-segments"


def size_of(journal: str) -> int:
    """How many bytes its segment files have on the disk."""
    try:
        with os.scandir(folder_of(journal)) as entries:
            return sum(entry.stat().st_size for entry in entries)
    except FileNotFoundError:
        return 0


def missing_in(journal: str, files: Iterable[SegmentFile]) -> list[SegmentFile]:
    """Those of them that are not there."""
    folder = folder_of(journal)
    return [file for file in files if _status(os.path.join(folder, file.name), follow_symlinks=False) is None]


def _status(path: str, *, follow_symlinks: bool = True) -> os.stat_result | None:
    """The status of a file; None if it is not there, and OSError if nobody may look."""
    try:
        return os.stat(path, follow_symlinks=follow_symlinks)
    except (FileNotFoundError, NotADirectoryError):
        return None


def newer_in(journal: str, known: Iterable[str], head: int) -> list[str]:
    """The files with records that were stored after a journal was closed at ``head``.

    A killed process may leave one without records. One that closes its journal leaves no other.
    """
    folder, names = folder_of(journal), set(known)
    try:
        there = sorted(name for name in os.listdir(folder) if _NAME.fullmatch(name) and name not in names)
    except FileNotFoundError:
        return []
    paths = [os.path.join(folder, name) for name in there if int(name.partition("-")[0]) >= head]
    return [path for path in paths if os.path.getsize(path) > _HEADER_BYTES]


def problems_of(journal: str, files: Iterable[SegmentFile]) -> Iterator[JournalDamaged]:
    """What is wrong with these files, as far as it can be seen without reading them."""
    folder = folder_of(journal)
    for file in files:
        path = os.path.join(folder, file.name)
        try:
            descriptor = os.open(path, os.O_RDONLY | _BINARY)
        except FileNotFoundError:
            yield damaged(journal, f"the file {path}, which has records of it, is missing: put it back")
            continue
        try:
            if os.read(descriptor, _HEADER_BYTES) != file.header:
                yield damaged(journal, f"the file {path} does not belong to it, or was overwritten")
            elif (size := os.fstat(descriptor).st_size) < file.size:
                yield damaged(journal, f"the file {path} has {size} bytes and should have {file.size}")
        finally:
            os.close(descriptor)


class SegmentFileWriter:
    """Appends to the newest segment file of a journal. One thread uses it.

    The caller's transaction decides: :meth:`write` what :meth:`next_file` said inside it, and then call
    :meth:`committed` or :meth:`undo`.
    """

    def __init__(self, journal: str, files: Iterable[SegmentFile], max_bytes: int | None) -> None:
        self._journal = journal
        self._folder = folder_of(journal)
        self._files = {file.name: file for file in sorted(files)}
        self._full = (
            SEGMENT_BYTES if max_bytes is None else min(SEGMENT_BYTES, max(max_bytes // 8, _SHORTEST))
        )
        self._descriptor: int | None = None
        """Of the newest file, once something was appended to it."""
        self._written: SegmentFile | None = None
        """What the transaction that goes on has begun to write."""
        self._closed: SegmentFile | None = None
        """A file that gets no more, though it is not full."""
        self._listed = 0
        """The last change of the directory after which all files were there."""

    @property
    def files(self) -> list[SegmentFile]:
        """All that belong to the journal, the oldest first."""
        return list(self._files.values())

    def remove_strangers(self) -> None:
        """Remove what a killed process left behind: files that it had begun, or had forgotten."""
        with suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                if _NAME.fullmatch(name) and name not in self._files:
                    os.unlink(os.path.join(self._folder, name))

    def next_file(self, batches: Sequence[Batch]) -> SegmentFile:
        """The file for these batches, as it will be with them in it."""
        first, end, nbytes = batches[0].first, batches[-1].end, sum(batch.nbytes for batch in batches)
        newest = self._newest()
        if newest is None or newest.size >= self._full or newest is self._closed:
            return SegmentFile(f"{first:020d}-{secrets.token_hex(8)}", end, _HEADER_BYTES + nbytes)
        return newest._replace(end=end, size=newest.size + nbytes)

    def write(self, file: SegmentFile, batches: Sequence[Batch]) -> None:
        """Append the batches to the file, which ends with them, and sync it."""
        self._written = file
        begins = file.name not in self._files
        descriptor = self._begin(file) if begins else self._open(file)
        os.lseek(descriptor, place_in(file, batches), os.SEEK_SET)
        _write_all(descriptor, [piece for batch in batches for piece in (batch.metadata, batch.payload)])
        _sync(descriptor)
        if begins:
            sync_directory(self._folder)

    def committed(self, file: SegmentFile | None, forgotten: Iterable[SegmentFile]) -> None:
        """The transaction has succeeded: the file is as it says, and the forgotten ones can go."""
        self._written = None
        if file is not None:
            self._files[file.name] = file
        for gone in forgotten:
            if self._files.get(gone.name) is self._newest():
                self.close()
            del self._files[gone.name]
            # What cannot be removed now is removed when the journal is opened again.
            with suppress(OSError):
                os.unlink(self._path(gone))

    def undo(self, *, certain: bool) -> None:
        """The transaction has failed; it is ``certain`` that it does not come back after a crash.

        If it is, the space is given back. If it is not, what was written stays as it is, and the next group
        begins another file.
        """
        file, self._written = self._written, None
        if file is None:
            return
        known = self._files.get(file.name)
        if not certain:
            self._closed = known
        else:
            with suppress(OSError):
                if known is None:
                    os.unlink(self._path(file))
                else:
                    os.truncate(self._path(known), known.size)
        self.close()

    def forgotten_before(self, offset: int, written: SegmentFile | None) -> list[SegmentFile]:
        """The files with nothing in them that is needed if the log begins at ``offset``.

        One that is ``written`` to, or was in this run and is not full, stays.
        """
        newest = self._newest() if self._descriptor is not None else None
        return [
            file
            for file in self._files.values()
            if file.end <= offset
            and (file is not newest or file.size >= self._full)
            and (written is None or file.name != written.name)
        ]

    def check(self) -> None:
        """JournalDamaged if the newest file is not there any more, or is another one."""
        newest = self._newest()
        if newest is None or self._descriptor is None:
            return
        there = _status(self._path(newest))
        if there is None or not os.path.samestat(there, os.fstat(self._descriptor)):
            raise self._gone(newest)

    def check_length(self) -> None:
        """JournalDamaged if the newest file was cut: the next group would leave a hole, and hide that."""
        newest = self._newest()
        if newest is None or self._descriptor is None:
            return
        if (size := os.fstat(self._descriptor).st_size) < newest.size:
            what = f"the file {self._path(newest)} has {size} bytes and should have {newest.size}"
            raise damaged(self._journal, what)

    def check_all(self) -> None:
        """The same for all files. They are looked at only if the directory has changed."""
        self.check()
        if not self._files:
            return
        folder = _status(self._folder)
        if folder is None:
            raise self._gone(self.files[0])
        if folder.st_mtime_ns != self._listed:
            for file in missing_in(self._journal, self.files):
                raise self._gone(file)
            self._listed = folder.st_mtime_ns

    def close(self) -> None:
        """Close the newest file. It is opened again if there is more to write."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _newest(self) -> SegmentFile | None:
        return self._files[next(reversed(self._files))] if self._files else None

    def _path(self, file: SegmentFile) -> str:
        return os.path.join(self._folder, file.name)

    def _begin(self, file: SegmentFile) -> int:
        self.close()
        if not os.path.isdir(self._folder):
            if self._files:
                raise self._gone(self.files[0])
            os.mkdir(self._folder, 0o700)
            give_to_owner_of(self._journal, self._folder)
            sync_directory(os.path.dirname(self._folder))
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK | _BINARY
        self._descriptor = os.open(self._path(file), flags, 0o600)
        give_to_owner_of(self._journal, self._descriptor)
        _write_all(self._descriptor, [file.header])
        return self._descriptor

    def _open(self, file: SegmentFile) -> int:
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path(file), os.O_RDWR | _NO_LINK | _BINARY)
            except FileNotFoundError:
                raise self._gone(file) from None
            self.check_length()
        return self._descriptor

    def _gone(self, file: SegmentFile) -> JournalDamaged:
        path = self._path(file)
        happened = "replaced by another file" if os.path.exists(path) else "removed or moved away"
        return JournalDamaged(
            f"the file {path} was {happened} while the journal {self._journal} was in use, and nothing can "
            f"be stored any more. Stop the gateway. If {path} was moved, move it back, and start the gateway "
            "again; otherwise the records in it are lost: move away what is left of the journal, and a new "
            "one with a new epoch is begun"
        )


class SegmentFileReader:
    """Reads from segment files. The caller keeps other threads away."""

    def __init__(self, journal: str) -> None:
        self._journal = journal
        self._folder = folder_of(journal)
        self._open: dict[str, int] = {}
        """The most recently used is the last."""

    def read(self, name: str, place: int, sizes: Sequence[int]) -> list[bytes]:
        """Pieces of these sizes, one after the other; JournalDamaged if the file has not got them."""
        if not _NAME.fullmatch(name):
            raise damaged(self._journal, f"{name!r} is not the name of a segment file")
        try:
            descriptor = self._descriptor(name)
            if min(sizes) < 0 or place < 0 or place + sum(sizes) > os.fstat(descriptor).st_size:
                raise damaged(self._journal, f"the file {self._path(name)} is too short")
            pieces = []
            for size in sizes:
                pieces.append(_read_at(descriptor, place, size))
                place += size
        except FileNotFoundError:
            raise damaged(self._journal, f"the file {self._path(name)} is missing: put it back") from None
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise damaged(self._journal, f"the file {self._path(name)} cannot be read ({error})") from error
        return pieces

    def forget(self, files: Iterable[SegmentFile]) -> None:
        """Close files that are removed, so that their space is free."""
        for file in files:
            if (descriptor := self._open.pop(file.name, None)) is not None:
                os.close(descriptor)

    def close(self) -> None:
        """Close all files. They are opened again if there is more to read."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _descriptor(self, name: str) -> int:
        descriptor = self._open.pop(name, None)
        if descriptor is None:
            descriptor = os.open(self._path(name), os.O_RDONLY | _BINARY)
        self._open[name] = descriptor
        if len(self._open) > _MOST_OPEN:
            os.close(self._open.pop(next(iter(self._open))))
        return descriptor


def place_in(file: SegmentFile, batches: Sequence[Batch]) -> int:
    """Where in the file the first of its last batches is."""
    return file.size - sum(batch.nbytes for batch in batches)


def _write_all(descriptor: int, pieces: Sequence[bytes | memoryview]) -> None:
    """Write these bytes one after the other, however many calls it takes."""
    for start in range(0, len(pieces), _PIECES):
        left: list[bytes | memoryview] = [piece for piece in pieces[start : start + _PIECES] if len(piece)]
        while left:
            written = _write_some(descriptor, left)
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = memoryview(left[0])[written:]


if sys.platform == "win32":

    def _write_some(descriptor: int, pieces: Sequence[bytes | memoryview]) -> int:
        return os.write(descriptor, pieces[0])

    def _read_at(descriptor: int, place: int, size: int) -> bytes:
        os.lseek(descriptor, place, os.SEEK_SET)
        return os.read(descriptor, size)
else:
    _write_some = os.writev

    def _read_at(descriptor: int, place: int, size: int) -> bytes:
        return os.pread(descriptor, size, place)
