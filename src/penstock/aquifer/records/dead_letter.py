"""The form of a dead letter: a JSON object that says what could not be read, where it was, and why."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["LONGEST", "dead_letter"]

LONGEST: Final = 1024 * 1024
"""Bytes of a record that a dead letter keeps, where whole records might be too many."""


def dead_letter(
    value: bytes,
    reason: str,
    *,
    longest: int | None = None,
    size: int | None = None,
    **place: int | str | None,
) -> dict[str, Any]:
    """A dead letter for these bytes; ``place`` says where they were.

    The bytes are the field ``text``, or ``base64`` if they are not UTF-8. With ``longest``, no more than so
    many of them are kept; the field ``bytes`` tells how many there were. ``size`` is that number if ``value``
    does not have all of them.
    """
    letter: dict[str, Any] = {
        # A name of a file may hold what UTF-8 cannot encode, as may the text of an error.
        **{name: _encodable(it) if isinstance(it, str) else it for name, it in place.items()},
        "time": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "reason": _encodable(reason),
        "bytes": len(value) if size is None else size,
    }
    kept = value if longest is None else value[:longest]
    try:
        letter["text"] = kept.decode()
    except UnicodeDecodeError:
        letter["base64"] = b64encode(kept).decode()
    return letter


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
