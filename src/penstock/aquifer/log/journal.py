"""The interface of a journal, where a gateway keeps its records, and what all journals check."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from penstock.aquifer.errors import JournalError
from penstock.aquifer.log.spool import Spool
from penstock.aquifer.records.batch import Batch
from penstock.arguments import a_count, a_number

__all__ = [
    "Cursor",
    "Held",
    "Journal",
    "a_bound",
    "a_path",
    "an_age",
    "check_codec",
    "lacks_zstd",
    "remaining",
]

_UNLIMITED: Final = 2**62


class Cursor(NamedTuple):
    """How far a durable subscriber has come, so that it can resume, even after a restart of the gateway."""

    acknowledged: int
    """Every record before this offset has been dealt with."""
    lease_ms: int
    """Milliseconds for which the subscriber may be away; then its records need not be kept any more."""
    remaining: float
    """How many seconds of the lease are left. It is not a time of day: the lease does not run while the
    gateway is down, and setting the clock does not change it."""
    owner: str | None = None
    """The public key of the client that owns the id; empty if it came without a key, None if it is unknown
    because an earlier version wrote this."""


class Held(NamedTuple):
    """How many records and bytes a journal holds."""

    records: int
    nbytes: int


class Journal(Protocol):
    """A bounded sequence of batches with consecutive offsets, the cursors of durable subscribers, and marks.

    One thread, the gateway's writer, calls everything but :meth:`find`, which another thread may call at the
    same time; ``first`` and ``head`` may be read from any thread. Offsets are never used twice: ``head`` only
    grows, over the whole life of the journal, and ``epoch`` names that life.
    """

    epoch: str
    """Names this sequence of offsets; a new journal has a new one."""
    first: int
    """The offset of the oldest record that is still there (``head`` if there is none)."""
    head: int
    """The offset that the next record will get."""
    max_records: int | None
    max_bytes: int | None
    """The bounds; None for none. They may be changed at any time, and count from the next ``make_space``. An
    empty journal accepts one batch of any size."""
    durable: bool
    """Whether what was appended survives the process."""

    @property
    def held(self) -> Held:
        """How many records and bytes are in the journal."""
        ...

    def held_from(self, low_watermark: int) -> Held:
        """What is left if everything that can be forgotten before ``low_watermark`` is forgotten."""
        ...

    def use_codec(self, codec: str) -> None:
        """Say what the records are encoded with; JournalError if there are records of another codec."""

    def append(self, batches: Sequence[Batch], marks: Mapping[str, str | None] | None = None) -> None:
        """Store the batches, the first of which starts at ``head``; on return they are as safe as can be.

        All or nothing: if this raises, nothing was stored. :class:`~penstock.aquifer.JournalFull` and
        :class:`~penstock.aquifer.JournalLocked` say that trying again may help. ``marks``, and cursors that
        were saved before, are stored in the same transaction; a mark with the value None is deleted.
        """
        ...

    def find(self, offset: int) -> Batch | None:
        """The batch with this offset in it; None if it is before ``first`` or not before ``head``.

        It may be compressed: :func:`penstock.aquifer.expanded` makes it what it was.
        """
        ...

    def make_space(self, records: int, nbytes: int, low_watermark: int) -> bool:
        """Forget the oldest batches until so much more fits, but none that ends after ``low_watermark``.

        Forgets no more than necessary, so that the oldest record stays available as long as the bounds allow
        (rule 1.12). Returns whether it fits now.
        """
        ...

    def retire(self, low_watermark: int, now: float | None = None, needed: int | None = None) -> None:
        """Forget what the retention settings let go (age, acknowledgement), up to ``low_watermark``.

        ``now`` is the time, in seconds since 1970, if not that of the journal's own clock.

        ``needed`` is the lowest offset that a reader needs, if that is another one: with no reader at all,
        nothing is forgotten to make room, but what is too old goes.
        """
        ...

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """The durable subscribers, by id."""
        ...

    def save_cursor(self, name: str, cursor: Cursor | None) -> None:
        """Remember, or with None forget, a cursor; stored with the next :meth:`append` or :meth:`flush`."""
        ...

    @property
    def marks(self) -> Mapping[str, str]:
        """Small facts that were stored together with records, for instance how far a source was read.

        A view of them as they are now, not a copy; any thread may look into it.
        """
        ...

    def has_space_for_mark(self, name: str) -> bool:
        """Whether a mark of this name can be stored, from any thread: their number may be bounded."""
        return True

    def open_spool(self) -> Spool | None:
        """A new place on its disk for bytes that are not to be stored; None if it has no disk."""
        return None

    def flush(self) -> None:
        """Store the cursors that were saved since the last :meth:`append`."""
        ...

    def close(self) -> None:
        """Store the rest and close the files. It can be called again."""
        ...


def a_bound(value: object, subject: str) -> int | None:
    """A whole number of at least one, or None for no bound."""
    return None if value is None else a_count(value, subject)


def an_age(value: object, subject: str) -> float | None:
    """A number of seconds greater than zero, or None for no limit."""
    return None if value is None else a_number(value, subject, above=0)


def remaining(bound: int | None, used: int) -> int:
    """How much of a bound is left after so much."""
    return _UNLIMITED if bound is None else bound - used


def a_path(value: object, subject: str) -> str:
    """The path of a file with symbolic links resolved, so that two spellings are the same file."""
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str):
        raise TypeError(f"{subject} needs a path as str or pathlib.Path, not {value!r}")
    if not path:
        raise ValueError(f"{subject} needs the path of a file, and it is empty")
    return os.path.realpath(path)


def check_codec(journal: Journal, recorded: str, codec: str) -> None:
    """JournalError if the records of the journal are of another codec than this gateway's."""
    if recorded and codec != recorded and journal.head > journal.first:
        name = getattr(journal, "path", "that was given")
        raise JournalError(
            f"the journal {name} has records of the codec {recorded!r}, and this gateway would add others of "
            f"{codec!r}: no reader could read both. Use the codec {recorded!r}, or another journal"
        )


def lacks_zstd(path: str) -> JournalError:
    """The error for a journal with compressed records where the package for them is missing."""
    return JournalError(
        f"the journal {path} has records that are compressed with zstd, and zstandard is not installed: "
        "pip install 'penstock-streams[zstd]'"
    )
