"""How far a file was read: stored with its records, and checked against the file at a restart."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "CHECKED",
    "START",
    "FilePosition",
    "fingerprint",
    "holds",
    "renamed",
    "rotated_since",
]

CHECKED: Final = 1024
"""How many bytes before a position are fingerprinted, to recognise the file."""
_PACKED: Final = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A position in a file, after a line; it is stored as a mark, with the records before it."""

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

    def text(self) -> str:
        """The position as the text of a mark."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> FilePosition:
        """The position in a mark; ValueError if it is none."""
        try:
            position = cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise ValueError(f"the mark {text!r} is not a position in a file: {error}") from None
        return position


START: Final = FilePosition()


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
