"""How far a file was read: stored with its records, and checked against the file at a restart."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

__all__ = [
    "CHECKED",
    "START",
    "Beginning",
    "FilePosition",
    "beginning_of",
    "begins_with",
    "fingerprint",
    "holds",
    "others_beside",
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
        """The position in a mark; ValueError if the mark does not hold one."""
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


def renamed(path: str, position: FilePosition) -> tuple[str | None, list[tuple[str, int]]]:
    """Find the file of a position under its current name, and the files that were started after it, in order.

    Those have their inodes with them, because their names may change at any time. Rotated files are in the
    same directory, and their names begin with the name of the file that is written, which comes last.
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
    later = sorted(found for found in beside if found[0] > written and found[2] not in (name, itself))
    later += [found for found in beside if found[2] == itself]
    return name, [(other, inode) for _, inode, other in later]


def rotated_since(moment: float, path: str, newest: int) -> list[tuple[str, int]]:
    """Find the files that were written and renamed since ``moment``, with their inodes.

    They are in order, without the file that is at ``path`` now, and without copies of the open file
    ``newest`` that it has outgrown: somebody may have made a backup.
    """
    itself, written = str(Path(path).absolute()), os.fstat(newest).st_mtime_ns
    found = [
        (state.st_mtime_ns, name, state.st_ino)
        for name, state in _beside(Path(path))
        # A second of tolerance: the clock of a file system lags a little.
        if min(state.st_mtime, state.st_ctime) > moment - 1
        and name != itself
        # The times alone do not tell: if a clock is set, a file that was started later can have earlier ones.
        and not (state.st_mtime_ns <= written and _begins_like(name, newest))
    ]
    return [(name, inode) for _, name, inode in sorted(found)]


class Beginning(NamedTuple):
    """The first bytes of a file: they stay when a log grows, and when another file gets its inode they go."""

    nbytes: int
    digest: str


def beginning_of(descriptor: int) -> Beginning:
    """The beginning of an open file; moves its position."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    data = os.read(descriptor, CHECKED)
    return Beginning(len(data), fingerprint(data))


def begins_with(path: str, beginning: Beginning) -> bool:
    """Tell whether a file begins with these bytes; an empty beginning tells nothing, so it does not."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        return bool(beginning.nbytes) and fingerprint(file.read(beginning.nbytes)) == beginning.digest
    return False


def _begins_like(path: str, descriptor: int) -> bool:
    """Tell whether a file begins with the same bytes as an open one; moves the position of that one."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        beginning = file.read(CHECKED)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return bool(beginning) and os.read(descriptor, len(beginning)) == beginning
    return False


def others_beside(path: str, ours: Iterable[str]) -> dict[int, Beginning]:
    """The beginnings, by inode, of rotated files that are there already and are none of ours."""
    found = {}
    excluded = {str(Path(name).absolute()) for name in (path, *ours)}
    for name, state in _beside(Path(path)):
        if name not in excluded:
            # Those that we may not read are not ours to read later, either.
            with contextlib.suppress(OSError), open(name, "rb") as file:
                found[state.st_ino] = beginning_of(file.fileno())
    return found


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
