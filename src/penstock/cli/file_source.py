"""The lines of a file, to its end or for as long as it is written, each of them once whoever is restarted.

A line without a newline may not be complete: it becomes a record when its newline is there. How far the file
was read is noted beside the journal. The note may be older than the journal, which then has more records: so
many are passed over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Final

from penstock.cli.complaints import Complaint
from penstock.cli.file_place import (
    CHECKED,
    START,
    Place,
    PlaceFile,
    fingerprint,
    holds,
    renamed,
    rotated_since,
)
from penstock.cli.gateway_sources import CHUNK, Lines, Origin, SourceOptions
from penstock.cli.line_splitter import BadLines, LineSplitter
from penstock.spec import Publisher

__all__ = ["FileLines"]

_log = logging.getLogger("penstock.cli")

_POLL: Final = 0.1
"""Seconds between looks at a file that has nothing new."""
_QUIET: Final = 2.0
"""Seconds without a new byte, after which a file that was renamed counts as finished: its writer may not have
heard yet that it should go on in the new one."""
_NOTE_EVERY: Final = 1.0
"""Seconds between notes of how far the file was read."""


class Cut(Enum):
    """What comes next does not go on where the last bytes ended."""

    ROTATED = auto()
    TRUNCATED = auto()


class _OpenFile:
    """A file, read from its place on; it has an end even if it is being written."""

    def __init__(self, path: str, position: int = 0) -> None:
        self.position = position
        self._path = path
        self._start = position
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """Opened when it is needed: a file that is gone by now is an error of the stream like any other."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
            os.lseek(self._descriptor, self._start, os.SEEK_SET)
        return self._descriptor

    @property
    def inode(self) -> int:
        """Which file it is, whatever its name is now."""
        return os.fstat(self.descriptor).st_ino

    def read(self) -> bytes | Cut | None:
        """The next bytes; none at the end."""
        chunk = os.read(self.descriptor, CHUNK)
        self.position += len(chunk)
        return chunk

    def rewind(self) -> None:
        """Begin again."""
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        self.position = 0

    def wake(self) -> None:
        """A file is always ready: nobody has to be woken."""

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _Followed:
    """A file that is being written, and those that come in its place when it is renamed."""

    def __init__(self, path: str, first: _OpenFile, next: list[str]) -> None:
        self._path = path
        self._file = first
        self._later: deque[_OpenFile] = deque(_OpenFile(name) for name in next)
        self._quiet_since: float | None = None
        self._looked = time.time()
        """When the newest of these files was last seen under the name that is followed."""
        self._finished: set[int] = set()
        """The inodes of those before."""
        self._woken = threading.Event()
        self.has_end = False
        """Whether what is there now is all that is wanted."""

    @property
    def position(self) -> int:
        return self._file.position

    @property
    def inode(self) -> int:
        return self._file.inode

    def read(self) -> bytes | Cut | None:
        """The next bytes, as soon as there are some; None after :meth:`wake`."""
        while not self._woken.is_set():
            chunk = self._file.read()
            if chunk:
                self._quiet_since = None
                return chunk
            if os.fstat(self._file.descriptor).st_size < self._file.position:
                self._file.rewind()
                return Cut.TRUNCATED
            self._look_for_another()
            if self.has_end and not self._later:
                return b""
            if self._later and self._is_finished():
                self._finished.add(self._file.inode)
                self._file.close()
                self._file = self._later.popleft()
                self._quiet_since = None
                return Cut.ROTATED
            self._woken.wait(_POLL)
        return None

    def _look_for_another(self) -> None:
        newest = os.fstat((self._later[-1] if self._later else self._file).descriptor)
        now = time.time()
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return  # Renamed, and the new one is not there yet.
        if (found.st_dev, found.st_ino) == (newest.st_dev, newest.st_ino):
            self._looked = now
            return
        if not stat.S_ISREG(found.st_mode):
            return  # Not even opened: that of a FIFO waits for who writes to it.
        # While nobody asked for lines, nobody looked: there may have been others in between. All are opened
        # now, because by the time they are read they may have other names.
        known = self._finished | {file.inode for file in (self._file, *self._later)}
        rotated = rotated_since(self._looked, self._path, newest)
        between = [(name, inode) for name, inode in rotated if inode not in known]
        opened: list[_OpenFile] = []
        for name, inode in (*between, (self._path, found.st_ino)):
            opened.append(_OpenFile(name))
            with contextlib.suppress(FileNotFoundError):
                if opened[-1].inode == inode:
                    continue
            # Renamed just now. The next look finds them under their new names.
            for file in opened:
                file.close()
            return
        self._later.extend(opened)
        self._looked = now

    def _is_finished(self) -> bool:
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        return now - self._quiet_since >= _QUIET

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        for file in (self._file, *self._later):
            file.close()


class FileLines(Origin):
    """A file; a restart goes on behind the lines that are in the journal."""

    def __init__(self, path: str, options: SourceOptions) -> None:
        if options.follow and options.take_last_line:
            raise Complaint(
                "--follow waits for the newline of the last line and --take-last-line does not: "
                "give one of them"
            )
        self._options = options
        self._path = path
        self._memory: PlaceFile | None = None
        self._passed: deque[Place] = deque()
        """Where the reading was after each piece, as far as it is not known to be in the journal."""
        self._reached: Place | None = None
        """The last of those that are in the journal, if it is not noted yet."""
        self._noted = float("-inf")
        self._cancelled = False
        self._is_anew = False
        """Whether the file is read from its beginning though the journal has records of one before it."""
        self._bad = self.bad = options.bad_lines()
        self.name = path
        try:
            if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
                # Not even opened: that of a FIFO waits for who writes to it, and no signal ends it.
                raise Complaint(f"{path} is not a regular file; read it with --source stdin < {path}")
            with open(path, "rb"):
                pass
        except OSError as error:
            if os.path.isdir(path):
                raise Complaint(f"{path} is a directory; name a file in it") from None
            raise Complaint(f"cannot read {path}: {error.strerror}; check the path in --source") from None

    # ---------------------------------------------------------------- beginning
    def __call__(self, journalled: int) -> Publisher[Any]:
        """The lines after those that became the first ``journalled`` records."""
        if journalled:
            self.note = f"going on after the {journalled:,} lines that the journal has already"
        place = self._memory.load() if self._memory is not None else None
        if place is None or place.records > journalled:
            place = START  # Nothing of use was noted: the records of the journal are the first of the file.
        start = place
        return Lines(lambda: self._open(start), lambda reader: self._elements(reader, start, journalled))

    def _open(self, place: Place) -> _OpenFile | _Followed:
        if not self._options.follow:
            if not holds(self._path, place):
                raise ValueError(
                    f"{self._path} is not the file whose first {place.position:,} bytes are in the journal, "
                    "or it was changed there. Give a new source a new journal"
                )
            return _OpenFile(self._path, place.position)
        name, later = renamed(self._path, place)
        while name is not None:
            found = _OpenFile(name, place.position)
            with contextlib.suppress(FileNotFoundError):  # Renamed just now, as if another is there by now.
                if found.inode == place.inode:
                    return _Followed(self._path, found, later)
            found.close()
            name, later = renamed(self._path, place)
        if holds(self._path, place):
            # A copy; or nothing was read yet.
            return _Followed(self._path, _OpenFile(self._path, place.position), [])
        _log.warning(
            "%s was read up to byte %d, and has been removed or cut off since: what was written after that "
            "is lost. The file that is there now is read from its beginning",
            self._path,
            place.position,
        )
        self._is_anew = True
        return _Followed(self._path, _OpenFile(self._path), [])

    # ---------------------------------------------------------------- reading
    def _elements(self, reader: _OpenFile | _Followed, place: Place, journalled: int) -> Iterator[Any]:
        settings = self._options.longest, self._options.decode
        splitter = LineSplitter(*settings, self._bad, number=place.lines)
        splitter.records = journalled if self._is_anew else place.records
        records = self._records(reader, splitter, place)
        missing = journalled - splitter.records
        return self._without(missing, records, reader, splitter) if missing else records

    def _without(
        self, missing: int, records: Iterator[Any], reader: _OpenFile | _Followed, splitter: LineSplitter
    ) -> Iterator[Any]:
        """All but the first: they are in the journal, and the note of the place is older."""
        before = splitter.records
        # What an earlier run has skipped was told then, and is not a reason to fail now.
        splitter.bad = BadLines("skip", silent=True)
        if isinstance(reader, _Followed):
            reader.has_end = True
        for passed in range(missing):
            if next(records, None) is None:
                if self._cancelled:
                    return
                raise ValueError(
                    f"it has {before + passed} lines, but the journal has {before + missing} already: is it "
                    "another file? Give a new source a new journal"
                )
        splitter.bad = self._bad
        if isinstance(reader, _Followed):
            reader.has_end = False
        yield from records

    def _records(self, reader: _OpenFile | _Followed, splitter: LineSplitter, place: Place) -> Iterator[Any]:
        # A generator's finally runs when the stream is over, however it ends.
        try:
            if self._memory is not None and place is START:
                # From now on the file is known under any name.
                self._memory.save(replace(START, inode=reader.inode))
            ended, last = place.ended, b""  # The last bytes that were read, to know the file again.
            while chunk := reader.read():
                if isinstance(chunk, Cut):
                    self._tell_of(chunk, splitter.forget())
                    last = b""
                    continue
                if not ended:
                    chunk = self._behind_last_line(chunk)
                    ended = True
                yield from splitter.feed(chunk)
                whole = chunk.rfind(b"\n") + 1
                if whole:
                    last = (last + chunk[:whole])[-CHECKED:]
                    self._pass(reader, splitter, last)
                last = (last + chunk[whole:])[-CHECKED:]
            self._cancelled = chunk is None
            if self._cancelled or not splitter.pending:
                return
            if self._options.take_last_line:
                yield from splitter.finish()
                self._pass(reader, splitter, last, ended=False)
                return
            _log.warning(
                "the last line of %s has no newline, so it may not be complete: its %d bytes are left out. "
                "Take it with --take-last-line, or wait for its end with --follow",
                self._path,
                splitter.forget(),
            )
        finally:
            reader.close()

    def _behind_last_line(self, chunk: bytes) -> bytes:
        """What comes after a line that was taken without its newline; it must not have grown."""
        if not chunk.startswith(b"\n"):
            raise ValueError(
                f"the last line of {self._path} was taken by --take-last-line before it was complete, and "
                "has grown since. Give the file a new journal"
            )
        return chunk[1:]

    def _tell_of(self, cut: Cut, lost: int) -> None:
        what = "was cut off" if cut is Cut.TRUNCATED else "was renamed"
        on = "reading it from its beginning" if cut is Cut.TRUNCATED else "going on with the next one"
        half = f"; its last line had no newline, and its {lost} bytes are left out" if lost else ""
        level = logging.WARNING if lost or cut is Cut.TRUNCATED else logging.INFO
        _log.log(level, "%s %s%s; %s", self._path, what, half, on)

    # ---------------------------------------------------------------- noting the place
    def remember_at(self, path: str, epoch: str) -> None:
        """Note beside the journal how far the file was read."""
        self._memory = PlaceFile(path, epoch)

    def _pass(
        self, reader: _OpenFile | _Followed, splitter: LineSplitter, before: bytes, *, ended: bool = True
    ) -> None:
        if self._memory is not None:
            at = reader.position - splitter.pending
            seen = len(before), fingerprint(before)
            place = Place(splitter.records, splitter.number, reader.inode, at, *seen, ended=ended)
            self._passed.append(place)

    def journalled(self, head: int) -> None:
        """So many records are safe: the place behind them is noted now and then."""
        while self._passed and self._passed[0].records <= head:
            self._reached = self._passed.popleft()
        if self._reached is not None and time.monotonic() - self._noted >= _NOTE_EVERY:
            self._note()

    def _note(self) -> None:
        if self._memory is not None and self._reached is not None:
            self._memory.save(self._reached)
            self._reached, self._noted = None, time.monotonic()

    def close(self) -> None:
        """Note the last place; the file is closed with its lines."""
        self._note()
