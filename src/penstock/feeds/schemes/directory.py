"""The lines of all files of a directory, in the order of their names; each is read once, across restarts.

A file that another one follows is finished. The name of the file and the position in it are stored with the
records, in the same transaction. Files that end with ``.gz`` or ``.zst`` are decompressed.
"""

from __future__ import annotations

import glob
import json
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from penstock.delivery import Delivery, FeedState
from penstock.feeds.compressed import COMPRESSED, check_packages
from penstock.feeds.csv_rows import RowSplitter
from penstock.feeds.directory_files import DirectoryFiles
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
_BETWEEN_WARNINGS: Final = 1.0
"""Seconds. A directory of nothing but wrong names must not fill a log file."""
_MARK: Final = "dir"


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


class DirectoryFeed(Feed):
    """A directory. With ``follow``, the feed waits for new files, and for more of the last one."""

    def __init__(self, directory: str, options: FeedOptions, pattern: str = "*") -> None:
        self.name = directory
        self.bad = self._bad = options.bad_lines()
        self._directory = Path(directory)
        self._pattern = pattern
        self._options = options
        self._resumed = _Place()
        self.late_files = 0
        """How many files came with names before that of the last one that was read; they are not read."""
        self._told = -math.inf
        self._grows = False
        """Whether a file that was read to its end can have more rows later."""
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
        grows = options.format == "csv" and not path.endswith(COMPRESSED)
        if options.follow and not grows:
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
        feed._grows = grows
        return feed

    def resume(self, marks: Mapping[str, str]) -> None:
        """Continue at the place that is in the journal."""
        if _MARK in marks:
            self._resumed = _Place(**json.loads(marks[_MARK]))

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return the lines that are not in the journal yet, in deliveries of some hundred lines at most."""
        read = self._parquet_deliveries if self._options.format == "parquet" else self._deliveries
        return LinePublisher(lambda: DirectoryFiles(self._directory, self._pattern), read)

    # ---------------------------------------------------------------- reading
    def _deliveries(self, files: DirectoryFiles) -> Iterator[Delivery]:
        try:
            last = self._resumed
            if self._grows and last.done and last.name:
                self._check_last_row(last)
                last = replace(last, done=False)
            splitter = None if last.done else self._continued(files, last)
            name = last.name
            while not files.woken.is_set():
                if splitter is not None:
                    yield from self._read(files, splitter)
                try:
                    later = self._next_after(files, name)
                except OSError as error:
                    self._gone(error)
                    files.woken.wait(_POLL)
                    continue
                self._is_back()
                if splitter is not None:
                    if self._options.follow and files.is_truncated:
                        _log.warning("%s was truncated; reading it from its beginning", self._path(name))
                        splitter = self._opened_if_there(files, name)
                        continue
                    if later is None and self._options.follow:
                        if files.is_replaced:
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

    def _opened(self, files: DirectoryFiles, name: str) -> _Splitter:
        files.open(name)
        options = self._options
        if options.format == "csv":
            return RowSplitter(options, self._bad, label=str(self._path(name)))
        return LineSplitter(options.max_line, options.decoder(), self._bad, label=str(self._path(name)))

    def _opened_if_there(self, files: DirectoryFiles, name: str) -> _Splitter | None:
        try:
            return self._opened(files, name)
        except FileNotFoundError:
            _log.warning("%s was removed before it was read", self._path(name))
            return None

    def _replaced(self, files: DirectoryFiles, splitter: _Splitter) -> _Splitter:
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

    def _next_after(self, files: DirectoryFiles, name: str) -> str | None:
        """The name of the file that comes next; a file that has come too late is counted, with a warning."""
        later = files.next_after(name)
        late, now = files.late(name), time.monotonic()
        self.late_files += len(late)
        if late and now - self._told >= _BETWEEN_WARNINGS:
            self._told = now
            _log.warning(
                "%s came when %s had been read, and its name comes before that, so it is not read (%d such "
                "files so far); give a new file a later name",
                self._path(late[0]),
                name,
                self.late_files,
            )
        return later

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

    def _continued(self, files: DirectoryFiles, place: _Place) -> _Splitter | None:
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

    def _check_last_row(self, place: _Place) -> None:
        """ValueError if a row that was taken without its line break can be the beginning of a longer one."""
        if not place.position or not self._path(place.name).exists():
            return
        with self._path(place.name).open("rb") as file:
            file.seek(place.position - 1)
            last, following = file.read(1), file.read(1)
        is_complete = last == b"\n" or following in (b"\r", b"\n")
        if not is_complete and (following or self._options.follow):
            raise ValueError(
                f"the last row of {self._path(place.name)} was taken without a line break, and it may grow. "
                "Give the file a new journal"
            )

    def _read(self, files: DirectoryFiles, splitter: _Splitter) -> Iterator[Delivery]:
        """What there is now."""
        follow = self._options.follow
        while not files.woken.is_set() and not (follow and files.is_truncated) and (chunk := files.read()):
            start = files.position - len(chunk)
            for portion in portions(chunk):
                start += len(portion)
                records, error = splitter.take(portion)
                if records or error is None:
                    yield self._delivery(files, records, start - splitter.pending, done=False)
                if error is not None:
                    raise error

    def _finished(self, files: DirectoryFiles, splitter: _Splitter) -> Delivery:
        """The last line, which needs no newline, and that the file is done."""
        return self._delivery(files, list(splitter.finish()), files.position, done=True)

    def _parquet_deliveries(self, files: DirectoryFiles) -> Iterator[Delivery]:
        """Rows of one complete file after the other; a position is the number of a row."""
        last = self._resumed
        name = last.name
        wanted = None if last.done else name
        while not files.woken.is_set():
            try:
                wanted = wanted or self._next_after(files, name)
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
        try:
            rows = ParquetRows(self._path(name), self._options, self._bad)
        except FileNotFoundError:
            how = "" if place.done else " to its end: continuing with the next file"
            _log.warning("%s was removed before it was read%s", self._path(name), how)
            return
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

    def _delivery(self, files: DirectoryFiles, records: list[Any], position: int, *, done: bool) -> Delivery:
        head = files.head[:position]
        place = _Place(files.name, position, len(head), fingerprint(head), done)
        return Delivery(records, {_MARK: json.dumps(asdict(place))})

    def _path(self, name: str) -> Path:
        return self._directory / name


def _pass_over(files: DirectoryFiles, splitter: _Splitter, position: int) -> None:
    """Read up to a position, or to the end if that comes first, and make no records of it."""
    while files.position < position and (passed := files.read(min(CHUNK, position - files.position))):
        if isinstance(splitter, RowSplitter):
            splitter.pass_over(passed)


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    if not url.rest:
        # Not the current directory: a shell makes this of dir:$LOGS if the variable is not set.
        raise BadFeed(f"{url.text} does not name a directory; write dir:PATH, or dir:. for the current one")
    options.check_format()
    return DirectoryFeed(url.rest, options, url.parameters.get("pattern", "*"))


SCHEMES = (
    Scheme(
        "dir",
        "dir:PATH",
        "the lines of all files of a directory, in the order of their names, also of .gz and .zst files",
        _open,
        parameters={
            "pattern": "which files, as in *.log; without it, all but those that end with .tmp or .part"
        },
        options=frozenset({"follow", "format"}),
    ),
)
