"""How far a file was read: saved beside a journal, and checked against the file at a restart."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "CHECKED",
    "START",
    "FilePosition",
    "PositionFile",
    "fingerprint",
    "holds",
    "renamed",
    "rotated_since",
]

_log = logging.getLogger("penstock.feeds")

CHECKED: Final = 1024
"""How many bytes before a position are fingerprinted, to recognise the file."""
_PACKED: Final = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A position in a file, after a line."""

    records: int
    """The head of the journal once everything before the position is in it."""
    lines: int = 0
    """How many lines came before the position, over all rotated files; for messages."""
    inode: int = 0
    position: int = 0
    """How many bytes of the file come before it."""
    checked: int = 0
    digest: str = ""
    """The SHA-256 of the last ``checked`` bytes before the position."""
    ended: bool = True
    """Whether the line before the position ends with a newline; otherwise it was taken without one."""


START: Final = FilePosition(0)


class PositionFile:
    """Saves a position. It is a hint: it is checked against the journal and the file before it is used."""

    def __init__(self, path: str, epoch: str) -> None:
        self._path = Path(path)
        self._epoch = epoch

    def load(self) -> FilePosition | None:
        """Return the position that was saved for this journal, or None if there is no usable one."""
        try:
            noted = json.loads(self._path.read_bytes())
            if noted.pop("epoch") != self._epoch:
                return None
            position = FilePosition(**noted)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        numbers = position.records, position.position
        return position if all(isinstance(n, int) and n >= 0 for n in numbers) else None

    def save(self, position: FilePosition) -> None:
        """Replace the saved position atomically; a file that cannot be written is only a warning."""
        text = json.dumps({"epoch": self._epoch, **asdict(position)})
        fresh = self._path.with_name(f"{self._path.name}.new")
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            fresh.replace(self._path)
        except OSError as error:
            # Nothing is lost: a restart begins at the last saved position and skips what the journal has.
            _log.warning("cannot save in %s how far the file was read: %s", self._path, error.strerror)
            with contextlib.suppress(OSError):
                fresh.unlink()


def fingerprint(data: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def holds(path: str, position: FilePosition) -> bool:
    """Tell whether the file still has, before the position, the bytes that were read there."""
    if not position.position:
        return True
    try:
        with open(path, "rb") as file:
            file.seek(max(position.position - position.checked, 0))
            return fingerprint(file.read(position.checked)) == position.digest
    except OSError:
        return False


def renamed(path: str, position: FilePosition) -> tuple[str | None, list[str]]:
    """Find the file of a position under its current name, and the files that were started after it, in order.

    Rotated files are in the same directory, and their names begin with the name of the file that is written,
    which comes last.
    """
    here = Path(path)
    beside = [(state.st_mtime_ns, state.st_ino, name) for name, state in _beside(here)]
    ours = [found for found in beside if found[1] == position.inode and holds(found[2], position)]
    if not ours:
        return None, []
    written, _, name = ours[0]
    if os.path.samefile(name, path):
        return name, []
    itself = str(here.absolute())
    later = sorted(found for found in beside if found[0] > written and found[2] != itself)
    return name, [other for _, _, other in later if other != name] + ([path] if here.exists() else [])


def rotated_since(moment: float, path: str, newest: os.stat_result) -> list[tuple[str, int]]:
    """Find the files that were started after ``newest`` and renamed since ``moment``, with their inodes.

    They are in order, without the file that is at ``path`` now.
    """
    itself = str(Path(path).absolute())
    found = [
        (state.st_mtime_ns, name, state.st_ino)
        for name, state in _beside(Path(path))
        # A second of tolerance: the clock of a file system lags a little.
        if state.st_mtime_ns > newest.st_mtime_ns and state.st_ctime > moment - 1 and name != itself
    ]
    return [(name, inode) for _, name, inode in sorted(found)]


def _beside(path: Path) -> list[tuple[str, os.stat_result]]:
    """List the file, and those that may have had its name: the names of rotated files begin with it."""
    found = []
    with os.scandir(path.absolute().parent) as entries:
        for entry in entries:
            if not entry.name.startswith(path.name) or entry.name.endswith(_PACKED):
                continue
            with contextlib.suppress(FileNotFoundError):  # Renamed or removed just now.
                if entry.is_file():
                    found.append((entry.path, entry.stat()))
    return found
