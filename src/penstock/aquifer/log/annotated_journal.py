"""What our journals keep beside their records, and keep alike: the codec, the cursors and the marks."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping

from penstock.aquifer.log.journal import Cursor, Journal, check_codec
from penstock.aquifer.log.marks import Marks

__all__ = ["AnnotatedJournal"]


class AnnotatedJournal(Journal):
    """A journal with these in memory; where they are stored, and when, is for each journal to say."""

    _codec: str
    """What the records are encoded with; empty while it is unknown."""
    _cursors: dict[str, Cursor]
    _marks: Marks
    _clock: float
    """The time of day at which the monotonic clock was zero."""

    def use_codec(self, codec: str) -> None:
        """Say what the records are encoded with; JournalError if there are records of another codec."""
        self._check_open()
        check_codec(self, self._codec, codec)
        self._codec = codec

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """The durable subscribers, by id, as they are now."""
        return dict(self._cursors)

    def save_cursor(self, name: str, cursor: Cursor | None) -> None:
        """Remember, or with None forget, a cursor."""
        self._check_open()
        if cursor is None:
            self._cursors.pop(name, None)
        else:
            self._cursors[name] = cursor

    @property
    def marks(self) -> Mapping[str, str]:
        """The marks, as they are now: a view, not a copy."""
        return self._marks.values

    def has_space_for_mark(self, name: str) -> bool:
        """Whether a mark of this name can be stored."""
        return self._marks.have_space_for(name, self._now())

    def _start_clock(self, newest: float = 0.0) -> None:
        """Take over the time of day, once; ``newest`` is when the newest batch was stored."""
        self._clock = max(time.time(), newest) - time.monotonic()

    def _now(self) -> float:
        """The time of day when the journal was opened, and the seconds since then.

        If the clock is set meanwhile, that makes no record older or younger.
        """
        return self._clock + time.monotonic()

    @abstractmethod
    def _check_open(self) -> None:
        """JournalError if the journal is closed."""
