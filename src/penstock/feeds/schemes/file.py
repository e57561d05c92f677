"""The lines of a file, to its end or for as long as it is written; each is read once, across restarts.

A line without a newline may be incomplete: it becomes a record when its newline is there. The position in the
file is stored with the records, in the same transaction.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Final

from penstock.delivery import Delivery
from penstock.feeds.compressed import COMPRESSED
from penstock.feeds.feed import BadFeed, Feed, FeedOptions
from penstock.feeds.file_position import (
    CHECKED,
    START,
    FilePosition,
    beginning_of,
    begins_with,
    fingerprint,
    holds,
    others_beside,
    renamed,
    rotated_since,
)
from penstock.feeds.lines import CHUNK, BadLines, LinePublisher, LineSplitter, portions
from penstock.feeds.registry import FeedUrl, Scheme
from penstock.feeds.schemes.directory import DirectoryFeed
from penstock.spec import Publisher

__all__ = ["SCHEMES", "FileFeed"]

_log = logging.getLogger("penstock.feeds")

_POLL: Final = 0.1
"""Seconds between two looks at a file that has nothing new."""
_QUIET: Final = 2.0
"""Seconds without a new byte, after which a renamed file counts as finished: its writer may still have it
open."""
_MARK: Final = "file"
"""The name of the mark that has the position."""


class Cut(Enum):
    """Why the next bytes do not continue the last ones."""

    ROTATED = auto()
    TRUNCATED = auto()


class _OpenFile:
    """A file, read from a position to the end that it has now."""

    def __init__(self, path: str, position: int = 0) -> None:
        self.position = position
        self.path = path
        self._start = position
        self._known = b""
        """The last bytes before the position, as they were read."""
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """The open file; it is opened at the first use, so that a missing file is an error of the stream."""
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
            os.lseek(self._descriptor, self._start, os.SEEK_SET)
        return self._descriptor

    @property
    def inode(self) -> int:
        """Identifies the file, also after it was renamed."""
        return os.fstat(self.descriptor).st_ino

    def read(self) -> bytes | Cut | None:
        """Return the next bytes; none at the end."""
        chunk = os.read(self.descriptor, CHUNK)
        self.position += len(chunk)
        return chunk

    def read_checked(self) -> bytes | Cut:
        """The same for a file that somebody may truncate meanwhile: then go back to its first byte.

        By now it may be longer again than it was. So the lines before the position are read once more.
        """
        descriptor = self.descriptor
        os.lseek(descriptor, self.position - len(self._known), os.SEEK_SET)
        found = os.read(descriptor, len(self._known) + CHUNK)
        # What follows the last newline is not a line yet, and its writer may change it.
        lines = self._known[: self._known.rfind(b"\n") + 1]
        if not found.startswith(lines) or os.fstat(descriptor).st_size < self.position:
            self.position, self._known = 0, b""
            return Cut.TRUNCATED
        chunk = found[len(self._known) :]
        self.position += len(chunk)
        self._known = found[-CHECKED:]
        return chunk

    def knows(self, position: FilePosition) -> bool:
        """Tell whether the bytes before this position, at which reading begins, are those that were read.

        Until more is read, :meth:`read_checked` recognises the file by them.
        """
        if not position.position:
            return True
        os.lseek(self.descriptor, max(position.position - position.checked, 0), os.SEEK_SET)
        self._known = os.read(self.descriptor, position.checked)
        return fingerprint(self._known) == position.digest

    def go_back(self, count: int) -> None:
        """Read the last ``count`` bytes again."""
        self.position -= count
        self._known = self._known[: max(len(self._known) - count, 0)]
        os.lseek(self.descriptor, self.position, os.SEEK_SET)

    def wake(self) -> None:
        """Do nothing: reading a file never waits."""

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _Followed:
    """A file that is being written, and the files that replace it when it is rotated."""

    def __init__(self, path: str, first: _OpenFile, *later: _OpenFile) -> None:
        self._path = path
        self._file = first
        self._later = deque(later)
        self._quiet_since: float | None = None
        self._looked = time.time(), time.monotonic()
        """When the newest of these files was last seen under the name that is followed."""
        self._finished = others_beside(path, (file.path for file in (first, *later)))
        """The beginnings, by inode, of the files that were read to their end or were there before.

        An inode alone does not identify a file: when it is removed, the next one may get it.
        """
        self._woken = threading.Event()
        self.has_end = False
        """Whether to stop at the end of what is there now."""

    @property
    def position(self) -> int:
        return self._file.position

    @property
    def inode(self) -> int:
        return self._file.inode

    def read(self) -> bytes | Cut | None:
        """Wait for the next bytes; None after :meth:`wake`."""
        while not self._woken.is_set():
            chunk = self._file.read_checked()
            if chunk:
                self._quiet_since = None
                return chunk
            self._look_for_another()
            if self.has_end and not self._later:
                return b""
            if self._later and self._is_finished():
                self._finished[self._file.inode] = beginning_of(self._file.descriptor)
                self._file.close()
                self._file = self._later.popleft()
                self._quiet_since = None
                return Cut.ROTATED
            self._woken.wait(_POLL)
        return None

    def read_what_is_there(self) -> bytes | Cut | None:
        """The same without waiting: none at the end."""
        self.has_end = True
        try:
            return self.read()
        finally:
            self.has_end = False

    def go_back(self, count: int) -> None:
        """Read the last ``count`` bytes again."""
        self._file.go_back(count)

    def _look_for_another(self) -> None:
        descriptor = (self._later[-1] if self._later else self._file).descriptor
        newest = os.fstat(descriptor)
        now = time.time(), time.monotonic()
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return  # Renamed, and the new one is not there yet.
        if (found.st_dev, found.st_ino) == (newest.st_dev, newest.st_ino):
            self._looked = now
            return
        if not stat.S_ISREG(found.st_mode):
            return  # Do not open it: opening a FIFO waits for a writer.
        # Without demand nobody looks, so there may have been several rotations. All files are opened now,
        # because by the time they are read they may have other names.
        ours = {file.inode for file in (self._file, *self._later)}
        between = [
            (name, inode)
            for name, inode in rotated_since(self._last_look(*now), self._path, descriptor)
            if inode not in ours and not self._has_finished(name, inode)
        ]
        opened: list[_OpenFile] = []
        for name, inode in (*between, (self._path, found.st_ino)):
            opened.append(_OpenFile(name))
            with contextlib.suppress(FileNotFoundError):
                if opened[-1].inode == inode:
                    continue
            # Renamed just now: the next look finds them under their new names.
            _close(opened)
            return
        self._later.extend(opened)
        self._looked = now

    def _last_look(self, now: float, monotonic: float) -> float:
        """When the last look was, by the clock as it is now, or as it was then: it may have been set."""
        looked, looked_monotonic = self._looked
        return min(looked, now - (monotonic - looked_monotonic))

    def _has_finished(self, name: str, inode: int) -> bool:
        beginning = self._finished.get(inode)
        return beginning is not None and begins_with(name, beginning)

    def _is_finished(self) -> bool:
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        return now - self._quiet_since >= _QUIET

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        _close((self._file, *self._later))


def _close(files: Iterable[_OpenFile]) -> None:
    for file in files:
        file.close()


class FileFeed(Feed):
    """A file. A restart continues after the lines that are in the journal."""

    def __init__(self, path: str, options: FeedOptions) -> None:
        if options.follow and options.take_last_line:
            raise BadFeed(
                "follow=True (--follow) waits for the newline of the last line and take_last_line=True "
                "(--take-last-line) does not: give one of them"
            )
        self._options = options
        self._path = path
        self._resumed: FilePosition | None = None
        """The position that the journal has."""
        self._bad = self.bad = options.bad_lines()
        self.name = path
        try:
            if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
                # Do not open it: opening a FIFO waits for a writer, and no signal ends that.
                raise BadFeed(f"{path} is not a regular file; read it with --source stdin < {path}")
            with open(path, "rb"):
                pass
        except OSError as error:
            if os.path.isdir(path):
                raise BadFeed(f"{path} is a directory; name a file in it, or write dir:{path}") from None
            raise BadFeed(f"cannot read {path}: {error.strerror}; check the path in file:{path}") from None

    # ---------------------------------------------------------------- opening
    def resume(self, marks: Mapping[str, str]) -> None:
        """Continue at the position that is in the journal."""
        if _MARK in marks:
            self._resumed = FilePosition.of(marks[_MARK])

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return the lines that are not in the journal yet, in deliveries of some hundred lines at most."""
        if journalled:
            self.note = f"continuing after the {journalled:,} lines that are in the journal"
        start = self._resumed or START
        # A journal without a position is that of an earlier version: its records are the first of the file.
        missing = journalled if self._resumed is None else 0
        return LinePublisher(
            lambda: self._open(start), lambda reader: self._deliveries(reader, start, missing)
        )

    def _open(self, start: FilePosition) -> _OpenFile | _Followed:
        if not self._options.follow:
            if not holds(self._path, start):
                raise ValueError(
                    f"the first {start.position:,} bytes of {self._path} are not those that are in the "
                    "journal: it is another file, or it was changed. Give another file another journal"
                )
            return _OpenFile(self._path, start.position)
        name, later = renamed(self._path, start)
        while name is not None:
            # All of them now: by the time that the later ones are read, they may have other names.
            found = [_OpenFile(name, start.position), *(_OpenFile(other) for other, _ in later)]
            try:
                inodes = [start.inode, *(inode for _, inode in later)]
                if [file.inode for file in found] == inodes and found[0].knows(start):
                    return _Followed(self._path, *found)
            except FileNotFoundError:
                pass  # Renamed just now, as if another is there by now.
            except OSError:
                _close(found)
                raise
            _close(found)
            name, later = renamed(self._path, start)
        copy = _OpenFile(self._path, start.position)
        with contextlib.suppress(OSError):
            if copy.knows(start):  # Or nothing was read yet.
                return _Followed(self._path, copy)
        copy.close()
        _log.warning(
            "%s was read up to byte %d and was then removed or truncated: what was written after that is "
            "lost. The file that is there now is read from its beginning",
            self._path,
            start.position,
        )
        return _Followed(self._path, _OpenFile(self._path))

    # ---------------------------------------------------------------- reading
    def _deliveries(
        self, reader: _OpenFile | _Followed, start: FilePosition, missing: int
    ) -> Iterator[Delivery]:
        options = self._options
        splitter = LineSplitter(options.max_line, options.decoder(), self._bad, number=start.lines)
        # A generator's finally runs when the stream is over, however it ends.
        try:
            if start is START:
                # From now on the file can be found under any name.
                yield Delivery([], {_MARK: replace(START, inode=reader.inode).text()})
            ended, last = start.ended, b""  # The last bytes that were read, to recognise the file.
            if missing:
                last = self._pass_over(missing, reader, splitter)
                yield self._delivery([], reader, splitter, last)
            while chunk := reader.read():
                if isinstance(chunk, Cut):
                    self._report(chunk, splitter.forget())
                    last = b""
                    continue
                if not ended:
                    chunk = self._after_last_line(chunk)
                    ended = True
                behind = len(chunk)  # Bytes that were read and are not split yet.
                for piece in portions(chunk):
                    start_at = reader.position - behind
                    behind -= len(piece)
                    number, (made, error) = splitter.number, splitter.take(piece)
                    whole = piece.rfind(b"\n") + 1
                    if error is not None:
                        yield from self._before_bad_line(made, piece, last, reader, number, start_at)
                        raise error
                    if whole:
                        last = (last + piece[:whole])[-CHECKED:]
                        yield self._delivery(made, reader, splitter, last, behind=behind)
                    last = (last + piece[whole:])[-CHECKED:]
            if chunk is None or not splitter.pending:
                return
            if options.take_last_line:
                yield self._delivery(list(splitter.finish()), reader, splitter, last, ended=False)
                return
            _log.warning(
                "the last line of %s has no newline, so it may be incomplete: its %d bytes are left out. "
                "Take it with take_last_line (--take-last-line), or wait for its end with follow (--follow)",
                self._path,
                splitter.forget(),
            )
        finally:
            reader.close()

    def _delivery(
        self,
        records: list[Any],
        reader: _OpenFile | _Followed,
        splitter: LineSplitter,
        before: bytes,
        *,
        behind: int = 0,
        ended: bool = True,
    ) -> Delivery:
        """Return the records of the lines up to here, with the position after them."""
        at = reader.position - behind - splitter.pending
        seen = len(before), fingerprint(before)
        position = FilePosition(splitter.number, reader.inode, at, *seen, ended=ended)
        return Delivery(records, {_MARK: position.text()})

    def _before_bad_line(
        self,
        good: list[Any],
        chunk: bytes,
        last: bytes,
        reader: _OpenFile | _Followed,
        number: int,
        start_at: int,
    ) -> Iterator[Delivery]:
        """Yield the records before a bad line, with the position before it."""
        # None was skipped before it, so there is a record for each line.
        end = 0
        for _ in good:
            end = chunk.index(b"\n", end) + 1
        if good:
            seen = (last + chunk[:end])[-CHECKED:]
            at = start_at + end
            position = FilePosition(number + len(good), reader.inode, at, len(seen), fingerprint(seen))
            yield Delivery(good, {_MARK: position.text()})

    def _pass_over(self, missing: int, reader: _OpenFile | _Followed, splitter: LineSplitter) -> bytes:
        """Read the lines of so many records, which are in the journal; return the last bytes before there."""
        # Bad lines that an earlier run has skipped were reported then, and are not a reason to fail now.
        silent = LineSplitter(self._options.max_line, self._options.decoder(), BadLines("skip", silent=True))
        rest = b""
        last = b""
        while silent.records < missing:
            chunk = reader.read() if not isinstance(reader, _Followed) else reader.read_what_is_there()
            if isinstance(chunk, Cut):
                silent.forget()
                last = b""
                continue
            if not chunk:
                raise ValueError(
                    f"it has {silent.records} lines, but the journal has {missing} already: is it another "
                    "file? Give another file another journal"
                )
            end = 0
            while silent.records < missing and end < len(chunk):
                newline = chunk.find(b"\n", end) + 1 or len(chunk)
                for _ in silent.feed(chunk[end:newline]):
                    pass
                end = newline
            last = (last + chunk[:end])[-CHECKED:]
            rest = chunk[end:]
        splitter.number = silent.number
        reader.go_back(len(rest))
        return last

    def _after_last_line(self, chunk: bytes) -> bytes:
        """Return what follows a line that was taken without its newline; that line must not have grown."""
        if not chunk.startswith(b"\n"):
            raise ValueError(
                f"the last line of {self._path} was taken before it was complete (--take-last-line), and it "
                "has grown since. Give the file a new journal"
            )
        return chunk[1:]

    def _report(self, cut: Cut, lost: int) -> None:
        what = "was truncated" if cut is Cut.TRUNCATED else "was renamed"
        on = "reading it from its beginning" if cut is Cut.TRUNCATED else "continuing with the next file"
        half = f"; its last line had no newline, and its {lost} bytes are left out" if lost else ""
        level = logging.WARNING if lost or cut is Cut.TRUNCATED else logging.INFO
        _log.log(level, "%s %s%s; %s", self._path, what, half, on)


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    path = url.text.removeprefix("file:")
    if not path:
        raise BadFeed("file: does not name a file; write file:PATH")
    if path.startswith("//") and not path.startswith("///") and not os.path.exists(path):
        raise BadFeed(
            f"{url.text} means /{path.lstrip('/')}, which is not there; a relative path is file:PATH"
        )
    options.check_format()
    if options.format in ("csv", "parquet") or path.endswith(COMPRESSED):
        return DirectoryFeed.of_file(path, options)
    return FileFeed(path, options)


SCHEMES = (
    Scheme(
        "file",
        "file:PATH",
        "the lines of a file, also of a .gz or .zst file; after a restart, those that are not in the journal",
        _open,
        options=frozenset({"follow", "take_last_line", "format"}),
    ),
)
