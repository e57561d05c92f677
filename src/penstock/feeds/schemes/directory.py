"""The lines of all files of a directory, in the order of their names; each is read once, across restarts.

A file that another one follows is finished. The name of the file and the position in it are stored with the
records, in the same transaction. Files that end with ``.gz`` are decompressed.
"""

from __future__ import annotations

import fnmatch
import gzip
import json
import logging
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from penstock.delivery import Delivery
from penstock.feeds.feed import BadFeed, Feed, FeedOptions
from penstock.feeds.file_position import fingerprint
from penstock.feeds.lines import CHUNK, LinePublisher, LineSplitter, portions
from penstock.feeds.registry import FeedUrl, Scheme
from penstock.spec import Publisher

__all__ = ["SCHEMES", "DirectoryFeed"]

_log = logging.getLogger("penstock.feeds")

_POLL: Final = 0.1
"""Seconds between two looks at a directory that has nothing new."""
_HEAD: Final = 1024
"""How many bytes at the beginning of a file are fingerprinted, to recognise it."""
_MARK: Final = "dir"
_BEING_WRITTEN: Final = (".tmp", ".part")


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
        self._pattern = pattern
        self.name = ""
        self.position = 0
        self.head = b""
        self._file: BinaryIO | None = None

    def names_after(self, name: str) -> list[str]:
        """The names of the files that come later, in order."""
        with os.scandir(self._directory) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.name > name
                and not entry.name.startswith(".")
                and not entry.name.endswith(_BEING_WRITTEN)
                and fnmatch.fnmatchcase(entry.name, self._pattern)
                and entry.is_file()
            )

    def open(self, name: str) -> None:
        """Read this file from its beginning."""
        self.close()
        path = self._directory / name
        opened = gzip.GzipFile(path) if name.endswith(".gz") else path.open("rb", 0)
        self._file = cast("BinaryIO", opened)
        self.name, self.position, self.head = name, 0, b""

    def read(self, most: int = CHUNK) -> bytes:
        """The next bytes of the content; none at the end."""
        assert self._file is not None
        try:
            chunk = self._file.read(most)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{self._directory / self.name} is not a complete gzip file ({error}); give a file its name "
                "when it is complete"
            ) from None
        if len(self.head) < _HEAD:
            self.head += chunk[: _HEAD - len(self.head)]
        self.position += len(chunk)
        return chunk

    @property
    def is_truncated(self) -> bool:
        """Whether the file has become shorter than what was read of it."""
        assert self._file is not None
        return not self.name.endswith(".gz") and os.fstat(self._file.fileno()).st_size < self.position

    def wake(self) -> None:
        self.woken.set()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class DirectoryFeed(Feed):
    """A directory. With ``follow``, the feed waits for new files, and for more of the last one."""

    def __init__(self, directory: str, options: FeedOptions, pattern: str = "*") -> None:
        self.name = directory
        self.bad = self._bad = options.bad_lines()
        self._directory = Path(directory)
        self._pattern = pattern
        self._options = options
        self._resumed = _Place()
        try:
            os.scandir(self._directory).close()
        except NotADirectoryError:
            raise BadFeed(f"{directory} is not a directory; write file:{directory}") from None
        except OSError as error:
            raise BadFeed(f"cannot read {directory}: {error.strerror}; check dir:{directory}") from None

    def resume(self, marks: Mapping[str, str]) -> None:
        """Continue at the place that is in the journal."""
        if _MARK in marks:
            self._resumed = _Place(**json.loads(marks[_MARK]))

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return the lines that are not in the journal yet, in deliveries of some hundred lines at most."""
        return LinePublisher(lambda: _Files(self._directory, self._pattern), self._deliveries)

    # ---------------------------------------------------------------- reading
    def _deliveries(self, files: _Files) -> Iterator[Delivery]:
        try:
            last = self._resumed
            splitter = None if last.done else self._continued(files, last)
            name = last.name
            while not files.woken.is_set():
                if splitter is not None:
                    yield from self._read(files, splitter)
                later = files.names_after(name)
                if splitter is not None:
                    if not later and self._options.follow:
                        if files.is_truncated:
                            _log.warning("%s was truncated; reading it from its beginning", self._path(name))
                            splitter = self._opened(files, name)
                        else:
                            files.woken.wait(_POLL)
                        continue
                    # What was written between the last read and the look at the directory.
                    yield from self._read(files, splitter)
                    yield self._finished(files, splitter)
                    splitter = None
                if later:
                    name = later[0]
                    splitter = self._opened(files, name)
                elif self._options.follow:
                    files.woken.wait(_POLL)
                else:
                    return
        finally:
            files.close()

    def _opened(self, files: _Files, name: str) -> LineSplitter:
        files.open(name)
        options = self._options
        return LineSplitter(options.max_line, options.decoder(), self._bad, label=str(self._path(name)))

    def _continued(self, files: _Files, place: _Place) -> LineSplitter | None:
        """Skip what the journal has; None if the file is gone."""
        try:
            splitter = self._opened(files, place.name)
        except FileNotFoundError:
            _log.warning(
                "%s was removed before it was read to its end: continuing with the next file",
                self._path(place.name),
            )
            return None
        while files.position < place.position:
            if not files.read(min(CHUNK, place.position - files.position)):
                break
        same = fingerprint(files.head[: place.checked]) == place.digest
        if files.position < place.position or not same:
            raise ValueError(
                f"{self._path(place.name)} is not the file that is in the journal: its first "
                f"{place.position:,} bytes were changed. Give a new file a new name"
            )
        return splitter

    def _read(self, files: _Files, splitter: LineSplitter) -> Iterator[Delivery]:
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

    def _finished(self, files: _Files, splitter: LineSplitter) -> Delivery:
        """The last line, which needs no newline, and that the file is done."""
        return self._delivery(files, list(splitter.finish()), files.position, done=True)

    def _delivery(self, files: _Files, records: list[Any], position: int, *, done: bool) -> Delivery:
        head = files.head[:position]
        place = _Place(files.name, position, len(head), fingerprint(head), done)
        return Delivery(records, {_MARK: json.dumps(asdict(place))})

    def _path(self, name: str) -> Path:
        return self._directory / name


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    return DirectoryFeed(url.rest, options, url.parameters.get("pattern", "*"))


SCHEMES = (
    Scheme(
        "dir",
        "dir:PATH",
        "the lines of all files of a directory, in the order of their names, also of .gz files",
        _open,
        parameters={"pattern": "which files: *.log; without it, all but those that end with .tmp or .part"},
        options=frozenset({"follow"}),
    ),
)
