"""How far a file was read, noted beside a journal, and whether a file is still the one that was read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

__all__ = ["CHECKED", "START", "Place", "PlaceFile", "fingerprint", "holds", "renamed", "rotated_since"]

_log = logging.getLogger("penstock.cli")

CHECKED: Final = 1024
"""How many bytes before a place are remembered, to know the file again."""
_PACKED: Final = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file, behind a line."""

    records: int
    """The head of the journal when everything before the place is in it."""
    lines: int = 0
    """Lines before the place, for messages; of all files that were read one after the other."""
    inode: int = 0
    position: int = 0
    """Bytes before the place."""
    checked: int = 0
    digest: str = ""
    """The last bytes before the place: how many, and their SHA-256."""
    ended: bool = True
    """Whether the line before the place has its newline; it was taken without one otherwise."""


START: Final = Place(0)


class PlaceFile:
    """Where a place is noted. It is a hint: what it says is checked against the journal and the file."""

    def __init__(self, path: str, epoch: str) -> None:
        self._path = Path(path)
        self._epoch = epoch

    def load(self) -> Place | None:
        """What was noted for this log, or None if that is nothing of use."""
        try:
            noted = json.loads(self._path.read_bytes())
            if noted.pop("epoch") != self._epoch:
                return None
            place = Place(**noted)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return place if all(isinstance(n, int) and n >= 0 for n in (place.records, place.position)) else None

    def save(self, place: Place) -> None:
        """Put it in the place of the last one, as a whole."""
        text = json.dumps({"epoch": self._epoch, **asdict(place)})
        fresh = self._path.with_name(f"{self._path.name}.new")
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            fresh.replace(self._path)
        except OSError as error:
            # Nothing is lost: a restart begins at the last note, and passes over what the journal has.
            _log.warning("cannot note in %s how far the source was read: %s", self._path, error.strerror)
            with contextlib.suppress(OSError):
                fresh.unlink()


def fingerprint(data: bytes) -> str:
    """Of the bytes before a place."""
    return hashlib.sha256(data).hexdigest()


def holds(path: str, place: Place) -> bool:
    """Whether the file has, before the place, what was read there."""
    if not place.position:
        return True
    try:
        with open(path, "rb") as file:
            file.seek(max(place.position - place.checked, 0))
            return fingerprint(file.read(place.checked)) == place.digest
    except OSError:
        return False


def renamed(path: str, place: Place) -> tuple[str | None, list[str]]:
    """The file with the place under the name that it has now, and those that were begun after it, in order.

    Rotated files lie beside the one that is written, and their names begin with its name. The last one is the
    file itself.
    """
    here = Path(path)
    beside = [(state.st_mtime_ns, state.st_ino, name) for name, state in _beside(here)]
    ours = [found for found in beside if found[1] == place.inode and holds(found[2], place)]
    if not ours:
        return None, []
    written, _, name = ours[0]
    if os.path.samefile(name, path):
        return name, []
    itself = str(here.absolute())
    later = sorted(found for found in beside if found[0] > written and found[2] != itself)
    return name, [other for _, _, other in later if other != name] + ([path] if here.exists() else [])


def rotated_since(moment: float, path: str, newest: os.stat_result) -> list[tuple[str, int]]:
    """The files that were begun after ``newest`` and renamed since ``moment``, in order, with their inodes.

    The one that has the name ``path`` now is not among them.
    """
    itself = str(Path(path).absolute())
    found = [
        (state.st_mtime_ns, name, state.st_ino)
        for name, state in _beside(Path(path))
        # A second less: the clock of a file system is a little behind.
        if state.st_mtime_ns > newest.st_mtime_ns and state.st_ctime > moment - 1 and name != itself
    ]
    return [(name, inode) for _, name, inode in sorted(found)]


def _beside(path: Path) -> list[tuple[str, os.stat_result]]:
    """The file, and those that may once have had its name: rotated ones begin with it."""
    found = []
    with os.scandir(path.absolute().parent) as entries:
        for entry in entries:
            if not entry.name.startswith(path.name) or entry.name.endswith(_PACKED):
                continue
            with contextlib.suppress(FileNotFoundError):  # Renamed or removed just now.
                if entry.is_file():
                    found.append((entry.path, entry.stat()))
    return found
