"""The lines of all files of a directory, in the order of their names; each is read once, across restarts.

A file that another one follows is finished. The name of the file and the position in it are stored with the
records, in the same transaction. Files that end with ``.gz`` or ``.zst`` are decompressed.
"""

from __future__ import annotations

import fnmatch
import glob
import json
import logging
import os
import re
import stat
import threading
import time
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeAlias

from penstock.delivery import Delivery, FeedState
from penstock.feeds.compressed import COMPRESSED, check_packages, incomplete, open_content
from penstock.feeds.csv_rows import RowSplitter
from penstock.feeds.feed import BadFeed, Feed, FeedOptions, FeedUnavailable
from penstock.feeds.file_position import fingerprint
from penstock.feeds.lines import CHUNK, LinePublisher, LineSplitter, portions
from penstock.feeds.parquet_rows import ParquetRows, check_parquet
from penstock.feeds.registry import FeedUrl, Scheme
from penstock.spec import Publisher

__all__ = ["SCHEMES", "DirectoryFeed"]

_log = logging.getLogger("penstock.feeds")

_POLL: Final = 0.1
"""Seconds between two looks at a directory that has nothing new."""
_SETTLED: Final = 2_000_000_000
"""Nanoseconds since the last change of a directory, after which its time tells whether it changes again."""
_HEAD: Final = 1024
"""How many bytes at the beginning of a file are fingerprinted, to recognise it."""
_MARK: Final = "dir"
_BEING_WRITTEN: Final = (".tmp", ".part")


_Splitter: TypeAlias = LineSplitter | RowSplitter


@dataclass(frozen=True, slots=True)
class _Place:
    """A file, and how many bytes of its content are in the journal."""

    name: str = ""
    position: int = 0
    checked: int = 0
    digest: str = ""
    """The SHA-256 of the first ``checked`` bytes of the file."""
    done: bool = True
    """Whether the file is finished."""


class _Files:
    """The files of a directory, one after the other; the last of them may still grow."""

    def __init__(self, directory: Path, pattern: str) -> None:
        self.woken = threading.Event()
        self._directory = directory
        self._matches = re.compile(fnmatch.translate(pattern)).match
        self._names: list[str] = []
        self._listed: tuple[int, int, int] | None = None
        """The version of the directory that has these names; None if they may have changed meanwhile."""
        self.name = ""
        self.position = 0
        self.head = b""
        self._file: BinaryIO | None = None

    def next_after(self, name: str) -> str | None:
        """The name of the file that comes next; OSError if the directory cannot be read."""
        self._list()
        later = bisect_right(self._names, name)
        return self._names[later] if later < len(self._names) else None

    def _list(self) -> None:
        """List the directory, unless it is as it was: with many files that takes long."""
        found = self._directory.stat()
        version = found.st_dev, found.st_ino, found.st_mtime_ns
        if version == self._listed:
            return
        names, is_certain = [], True
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if self._is_wanted(entry.name):
                    if _is_file(entry):
                        names.append(entry.name)
                    elif entry.is_symlink():
                        is_certain = False  # What it points to may come without a change here.
        self._names = sorted(names)
        # A file that comes within the same tick of the clock does not change the time of the directory.
        is_certain = is_certain and time.time_ns() - found.st_mtime_ns > _SETTLED
        self._listed = version if is_certain else None

    def _is_wanted(self, name: str) -> bool:
        if name.startswith(".") or name.endswith(_BEING_WRITTEN):
            return False
        return self._matches(name) is not None

    def open(self, name: str) -> None:
        """Read this file from its beginning."""
        opened = open_content(self._directory / name)
        self.close()
        self._file = opened
        self.name, self.position, self.head = name, 0, b""

    def read(self, most: int = CHUNK) -> bytes:
        """The next bytes of the content; none at the end."""
        assert self._file is not None
        try:
            chunk = self._file.read(most)
        except (EOFError, OSError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise incomplete(self._directory / self.name, error) from None
        if len(self.head) < _HEAD:
            self.head += chunk[: _HEAD - len(self.head)]
        self.position += len(chunk)
        return chunk

    @property
    def is_truncated(self) -> bool:
        """Whether the file has become shorter than what was read of it."""
        assert self._file is not None
        return not self.name.endswith(COMPRESSED) and os.fstat(self._file.fileno()).st_size < self.position

    @property
    def is_replaced(self) -> bool:
        """Whether its name belongs to another file by now; one that was removed is not replaced."""
        assert self._file is not None
        here = os.fstat(self._file.fileno())
        try:
            there = (self._directory / self.name).stat()
        except OSError:
            return False
        return stat.S_ISREG(there.st_mode) and (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino)

    def wake(self) -> None:
        self.woken.set()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False  # A link that leads to itself, or to where nothing can be seen.


class DirectoryFeed(Feed):
    """A directory. With ``follow``, the feed waits for new files, and for more of the last one."""

    def __init__(self, directory: str, options: FeedOptions, pattern: str = "*") -> None:
        self.name = directory
        self.bad = self._bad = options.bad_lines()
        self._directory = Path(directory)
        self._pattern = pattern
        self._options = options
        self._resumed = _Place()
        if options.format == "parquet":
            check_parquet()
        try:
            os.scandir(self._directory).close()
        except NotADirectoryError:
            raise BadFeed(f"{directory} is not a directory; write file:{directory}") from None
        except OSError as error:
            raise BadFeed(f"cannot read {directory}: {error.strerror}; check dir:{directory}") from None

    @classmethod
    def of_file(cls, path: str, options: FeedOptions) -> Self:
        """One file, compressed or not of lines: a directory of which only this file counts."""
        if options.follow:
            raise BadFeed(
                f"follow=True (--follow) waits for more lines of a file, and {path} is complete when it is "
                f"there; write dir:{os.path.dirname(path) or '.'} to wait for more files"
            )
        try:
            with open(path, "rb"):
                pass
            check_packages(path)
        except OSError as error:
            raise BadFeed(f"cannot read {path}: {error.strerror}; check the path in file:{path}") from None
        feed = cls(os.path.dirname(path) or ".", options, glob.escape(os.path.basename(path)))
        feed.name = path
        return feed

    def resume(self, marks: Mapping[str, str]) -> None:
        """Continue at the place that is in the journal."""
        if _MARK in marks:
            self._resumed = _Place(**json.loads(marks[_MARK]))

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return the lines that are not in the journal yet, in deliveries of some hundred lines at most."""
        read = self._parquet_deliveries if self._options.format == "parquet" else self._deliveries
        return LinePublisher(lambda: _Files(self._directory, self._pattern), read)

    # ---------------------------------------------------------------- reading
    def _deliveries(self, files: _Files) -> Iterator[Delivery]:
        try:
            last = self._resumed
            splitter = None if last.done else self._continued(files, last)
            name = last.name
            while not files.woken.is_set():
                if splitter is not None:
                    yield from self._read(files, splitter)
                try:
                    later = files.next_after(name)
                except OSError as error:
                    self._gone(error)
                    files.woken.wait(_POLL)
                    continue
                self._is_back()
                if splitter is not None:
                    if later is None and self._options.follow:
                        if files.is_truncated:
                            _log.warning("%s was truncated; reading it from its beginning", self._path(name))
                            splitter = self._opened(files, name)
                        elif files.is_replaced:
                            splitter = self._replaced(files, splitter)
                        else:
                            files.woken.wait(_POLL)
                        continue
                    # What was written between the last read and the look at the directory.
                    yield from self._read(files, splitter)
                    yield self._finished(files, splitter)
                    splitter = None
                if later is not None:
                    name = later
                    splitter = self._opened_if_there(files, name)
                elif self._options.follow:
                    files.woken.wait(_POLL)
                else:
                    return
        finally:
            files.close()

    def _opened(self, files: _Files, name: str) -> _Splitter:
        files.open(name)
        options = self._options
        if options.format == "csv":
            return RowSplitter(options, self._bad, label=str(self._path(name)))
        return LineSplitter(options.max_line, options.decoder(), self._bad, label=str(self._path(name)))

    def _opened_if_there(self, files: _Files, name: str) -> _Splitter | None:
        try:
            return self._opened(files, name)
        except FileNotFoundError:
            _log.warning("%s was removed before it was read", self._path(name))
            return None

    def _replaced(self, files: _Files, splitter: _Splitter) -> _Splitter:
        """Continue in the file that has this name now: after what was read, if it begins with the same."""
        position, head = files.position - splitter.pending, files.head
        began = head[:position]
        new = self._opened_if_there(files, files.name)
        if new is None:
            return splitter
        _pass_over(files, new, position)
        if files.position < position or files.head[: len(began)] != began:
            _log.warning("%s was replaced; reading it from its beginning", self._path(files.name))
            return self._opened(files, files.name)
        return new

    def _gone(self, error: OSError) -> None:
        """Without ``follow`` this is an error. With it the directory may come back, as a server does."""
        if not self._options.follow:
            raise FeedUnavailable(f"cannot read {self.name}: {error.strerror}") from None
        if self.state.status != "down":
            self.state = FeedState("down", reason=f"cannot read {self.name}: {error.strerror}")
            _log.warning("%s; waiting until it is there again", self.state.reason)

    def _is_back(self) -> None:
        if self.state.status == "down":
            self.state = FeedState("up")
            _log.warning("%s can be read again", self.name)

    def _continued(self, files: _Files, place: _Place) -> _Splitter | None:
        """Skip what the journal has; None if the file is gone."""
        try:
            splitter = self._opened(files, place.name)
        except FileNotFoundError:
            _log.warning(
                "%s was removed before it was read to its end: continuing with the next file",
                self._path(place.name),
            )
            return None
        _pass_over(files, splitter, place.position)
        same = fingerprint(files.head[: place.checked]) == place.digest
        if files.position < place.position or not same:
            raise ValueError(
                f"{self._path(place.name)} is not the file that is in the journal: its first "
                f"{place.position:,} bytes were changed. Give a new file a new name"
            )
        return splitter

    def _read(self, files: _Files, splitter: _Splitter) -> Iterator[Delivery]:
        """What there is now."""
        while not files.woken.is_set() and (chunk := files.read()):
            start = files.position - len(chunk)
            for portion in portions(chunk):
                start += len(portion)
                records, error = splitter.take(portion)
                if records or error is None:
                    yield self._delivery(files, records, start - splitter.pending, done=False)
                if error is not None:
                    raise error

    def _finished(self, files: _Files, splitter: _Splitter) -> Delivery:
        """The last line, which needs no newline, and that the file is done."""
        return self._delivery(files, list(splitter.finish()), files.position, done=True)

    def _parquet_deliveries(self, files: _Files) -> Iterator[Delivery]:
        """Rows of one complete file after the other; a position is the number of a row."""
        last = self._resumed
        name = last.name
        wanted = None if last.done or not self._path(name).exists() else name
        while not files.woken.is_set():
            try:
                wanted = wanted or files.next_after(name)
            except OSError as error:
                self._gone(error)
                files.woken.wait(_POLL)
                continue
            self._is_back()
            if wanted is not None:
                name, wanted = wanted, None
                yield from self._rows_of(name, last if name == last.name else _Place())
            elif self._options.follow:
                files.woken.wait(_POLL)
            else:
                return

    def _rows_of(self, name: str, place: _Place) -> Iterator[Delivery]:
        rows = ParquetRows(self._path(name), self._options, self._bad)
        try:
            digest = fingerprint(rows.tail)
            if not place.done:
                if place.digest != digest:
                    raise ValueError(
                        f"{self._path(name)} is not the file that is in the journal: it was changed. Give a "
                        "new file a new name"
                    )
                rows.position = place.position
            for records in rows.read():
                reached = _Place(name, rows.position, 0, digest, rows.position == rows.count)
                yield Delivery(records, {_MARK: json.dumps(asdict(reached))})
        finally:
            rows.close()

    def _delivery(self, files: _Files, records: list[Any], position: int, *, done: bool) -> Delivery:
        head = files.head[:position]
        place = _Place(files.name, position, len(head), fingerprint(head), done)
        return Delivery(records, {_MARK: json.dumps(asdict(place))})

    def _path(self, name: str) -> Path:
        return self._directory / name


def _pass_over(files: _Files, splitter: _Splitter, position: int) -> None:
    """Read up to a position, or to the end if that comes first, and make no records of it."""
    while files.position < position and (passed := files.read(min(CHUNK, position - files.position))):
        if isinstance(splitter, RowSplitter):
            splitter.pass_over(passed)


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    options.check_format()
    return DirectoryFeed(url.rest, options, url.parameters.get("pattern", "*"))


SCHEMES = (
    Scheme(
        "dir",
        "dir:PATH",
        "the lines of all files of a directory, in the order of their names, also of .gz and .zst files",
        _open,
        parameters={"pattern": "which files: *.log; without it, all but those that end with .tmp or .part"},
        options=frozenset({"follow", "format"}),
    ),
)
