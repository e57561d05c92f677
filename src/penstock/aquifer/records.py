"""One record of a gateway's log, as a subscriber sees it."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Record"]


class Record(msgspec.Struct, frozen=True):
    """A value with what the log knows about it.

    On the way into a gateway only ``value`` has to be given; ``Record(value, key=b"sensor-7")`` gives a
    record a key, and ``timestamp`` a time other than that of its arrival. The offset is the gateway's to
    give, whatever is set here.
    """

    value: Any
    key: bytes | None = None
    timestamp: int | None = None
    """Microseconds since 1970 (UTC)."""
    offset: int | None = None
    """The record's place in the log."""
