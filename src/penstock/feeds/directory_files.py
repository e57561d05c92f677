"""The files of a directory, in the order of their names: which one comes next, and which came too late."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import threading
import time
import zlib
from bisect import bisect_right
from pathlib import Path
from typing import BinaryIO, Final

from penstock.feeds.compressed import COMPRESSED, incomplete, open_content
from penstock.feeds.lines import CHUNK

__all__ = ["DirectoryFiles"]

_SETTLED: Final = 2_000_000_000
"""Nanoseconds since the last change of a directory, after which its time tells whether it changes again."""
_HEAD: Final = 1024
"""How many bytes at the beginning of a file are fingerprinted, to recognise it."""
_BEING_WRITTEN: Final = (".tmp", ".part")


class DirectoryFiles:
    """The files of a directory, one after the other; the last of them may still grow."""

    def __init__(self, directory: Path, pattern: str) -> None:
        self.woken = threading.Event()
        self._directory = directory
        self._matches = re.compile(fnmatch.translate(pattern)).match
        self._names: list[str] = []
        self._known: list[str] = []
        self._new: set[str] | None = None
        """The names that were not there at an earlier look; None before the first one."""
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

    def late(self, name: str) -> list[str]:
        """The files that have come since the last call, and have earlier names than this one."""
        found, self._new = self._new or set(), set()
        return sorted(each for each in found if each < name)

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
        # A directory that is empty may be one that is not mounted: what comes back is not new.
        self._new = set() if self._new is None else self._new | set(names).difference(self._known)
        self._known = names or self._known
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
        """Whether the file has become shorter than what was read of it; by now it may be longer again."""
        assert self._file is not None
        if self.name.endswith(COMPRESSED):
            return False
        if os.fstat(self._file.fileno()).st_size < self.position:
            return True
        # What follows the last newline is not a line yet, and its writer may change it.
        lines = self.head[: self.head.rfind(b"\n") + 1]
        self._file.seek(0)
        begins_as_before = self._file.read(len(lines)) == lines
        self._file.seek(self.position)
        return not begins_as_before

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
        """End every wait for files."""
        self.woken.set()

    def close(self) -> None:
        """Close the file that is open."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False  # A link that leads to itself, or to where nothing can be seen.
