"""The pieces that producers have staged: where they are, how much they may be, and when they are dropped.

Pieces are in memory first. If the journal has a disk, those that do not fit into a quarter of
``staged_bytes`` go to its :class:`~penstock.aquifer.log.spool.Spool`, up to ``staged_disk_bytes``. A piece on
the disk still counts as ``_WEIGHT`` bytes of memory, which its entries here take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Spool
from penstock.aquifer.log.spool import is_spooled
from penstock.aquifer.records.batch import Batch

__all__ = ["AttemptKey", "StagedPieces"]

_FORGOTTEN_AFTER: Final = 3600.0
"""Seconds after which staged records that nobody came back for are dropped."""
_WEIGHT: Final = 512
"""What a piece counts for in memory beside its bytes: otherwise empty ones would be free."""
_SHARE_IN_MEMORY: Final = 4
"""If there is a disk, a quarter of ``staged_bytes`` is for pieces in memory: small batches never wait for the
disk. The rest is for what pieces on the disk need of the memory."""
_SMALLER: Final = "write smaller batches (maxRecordsPerTrigger in Spark)"


class AttemptKey(NamedTuple):
    """Whose pieces these are. What others stage under the same name is not seen."""

    owner: str
    query: str
    batch: int
    part: int
    attempt: int


@dataclass
class _Attempt:
    """What one attempt of a task has left here."""

    began: float
    touched: float
    pieces: dict[int, Batch] = field(default_factory=dict)


class StagedPieces:
    """The pieces of all producers of one stream."""

    def __init__(self, limits: Limits, spool: Spool | None) -> None:
        self._limits = limits
        self._spool = spool
        self._attempts: dict[AttemptKey, _Attempt] = {}
        self._in_memory = 0
        """What the pieces count for in memory."""
        self._on_disk = 0
        """The bytes of those on the disk."""

    @property
    def nbytes(self) -> int:
        """How much is staged."""
        return self._in_memory + self._on_disk

    def of(self, key: AttemptKey) -> Mapping[int, Batch]:
        """The pieces of an attempt by their numbers."""
        attempt = self._attempts.get(key)
        return attempt.pieces if attempt is not None else {}

    def owners(self) -> set[str]:
        """The keys of the clients that have staged something."""
        return {key.owner for key in self._attempts}

    def put(self, key: AttemptKey, seq: int, piece: Batch, now: float) -> str | None:
        """Keep a piece; if that is not possible, why not."""
        attempt = self._attempts.get(key) or _Attempt(began=now, touched=now)
        before = attempt.pieces.get(seq)  # If the answer was lost, it comes again.
        kept = self._kept(piece, before)
        if isinstance(kept, str):
            self._drop_dead(key, attempt, now)
            kept = self._kept(piece, before)
        if isinstance(kept, str):
            return kept
        self._attempts[key] = attempt
        attempt.touched = now
        attempt.pieces[seq] = kept
        self._count(kept, 1)
        if before is not None:
            self._count(before, -1)
        return None

    def _kept(self, piece: Batch, before: Batch | None) -> Batch | str:
        """A piece that takes the place of another one, if there was one; or why there is no space for it."""
        memory, disk = self._limits.staged_bytes, self._limits.staged_disk_bytes
        taken = self._in_memory - (_memory_of(before) if before is not None else 0) + _WEIGHT
        spool = self._spool
        if spool is None:
            if taken + piece.nbytes <= memory:
                return piece
            return (
                f"no more than {memory} bytes can be staged, because the journal of the gateway is not in a "
                f"file: {_SMALLER}, or start the gateway with a journal in a file, or with "
                "Limits(staged_bytes=…)"
            )
        if taken + piece.nbytes <= memory // _SHARE_IN_MEMORY:
            return piece
        if taken > memory:
            return (
                f"too many pieces are staged for {memory} bytes of memory: {_SMALLER}, write larger pieces, "
                "or start the gateway with Limits(staged_bytes=…)"
            )
        if spool.nbytes + piece.nbytes > disk:
            return (
                f"no more than {disk} bytes can be staged on the disk of the journal: {_SMALLER}, or start "
                "the gateway with Limits(staged_disk_bytes=…)"
            )
        try:
            # The journal needs the same space once more, when all of it is published.
            if spool.free_bytes() < self.nbytes + 2 * piece.nbytes:
                return (
                    "the disk of the journal does not have space to stage more and to publish it: free some "
                    f"space there, or {_SMALLER}"
                )
            return spool.keep(piece)
        except OSError as error:
            return (
                f"no more can be staged on the disk of the journal ({error}): free some space there, or "
                f"{_SMALLER}"
            )

    def _count(self, piece: Batch, times: int) -> None:
        self._in_memory += times * _memory_of(piece)
        if is_spooled(piece):
            self._on_disk += times * piece.nbytes

    # ---------------------------------------------------------------- making room
    def drop_published(self, owner: str, query: str, batch: int) -> None:
        """What was published, and what came to nothing before it."""
        self.drop(lambda key: key[:2] == (owner, query) and key.batch <= batch)

    def drop(self, of: Callable[[AttemptKey], bool]) -> None:
        """Drop the pieces of some attempts."""
        self._forget(filter(of, self._attempts))

    def _drop_dead(self, key: AttemptKey, attempt: _Attempt, now: float) -> None:
        """Space is needed: drop what nobody came back for, and attempts that this one replaces.

        A task that was killed leaves its pieces here, and so does the next, when the batch is run again. An
        attempt that has staged something since this one began may be its rival, and stays.
        """
        self._forget(
            other
            for other, staged in self._attempts.items()
            if now - staged.touched > _FORGOTTEN_AFTER
            or (other[:4] == key[:4] and other != key and staged.touched < attempt.began)
        )

    def _forget(self, keys: Iterable[AttemptKey]) -> None:
        for key in list(keys):
            for piece in self._attempts.pop(key).pieces.values():
                self._count(piece, -1)


def _memory_of(piece: Batch) -> int:
    return _WEIGHT + (0 if is_spooled(piece) else piece.nbytes)
