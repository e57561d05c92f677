"""Records as text: the value alone, or a JSON object with offset, timestamp, key and value.

The object is the same wherever a command prints one: ``tail --json``, ``gateway peek --json``, ``gateway
export``. A key or a value that is not text is in base64, under ``key_base64`` and ``value_base64``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from penstock.aquifer import Record

__all__ = ["as_object", "form_of", "time_text"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def form_of(codec: str, *, as_json: bool) -> Callable[[Sequence[Any]], bytes]:
    """Return the function that makes the output of some records that were decoded with a codec."""
    encode = msgspec.json.Encoder().encode
    if as_json:
        as_text = codec == "bytes"
        return lambda elements: b"".join(encode(as_object(each, as_text)) + b"\n" for each in elements)
    if codec == "bytes":
        return lambda elements: b"\n".join(_values(elements)) + b"\n"
    raw: Callable[[Any], bytes] = str.encode if codec == "text" else encode
    return lambda elements: b"".join(raw(value) + b"\n" for value in _values(elements))


def _values(elements: Sequence[Any]) -> Sequence[Any]:
    # A plain gateway has no offsets: its elements are values.
    return [record.value for record in elements] if isinstance(elements[0], Record) else elements


def as_object(element: Any, is_bytes: bool) -> dict[str, Any]:
    """Return the JSON object of a record."""
    # A plain gateway has no offsets: its elements are values.
    record = element if isinstance(element, Record) else Record(element)
    shown: dict[str, Any] = {"offset": record.offset, "timestamp": time_text(record.timestamp)}
    shown |= {"key": None} if record.key is None else _readable("key", record.key)
    return shown | (_readable("value", record.value) if is_bytes else {"value": record.value})


def _readable(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def time_text(microseconds: int | None) -> str | None:
    """Return a time in the form of ISO 8601."""
    if microseconds is None:
        return None
    try:
        time = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None  # Beyond the year 9999.
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
