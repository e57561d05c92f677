"""The keys of the records that a reader wants, as its user gives them."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["key_list"]


def key_list(keys: Iterable[bytes | str], caller: str) -> list[bytes]:
    """The keys as bytes, each once; a TypeError or a ValueError if that is not what they are."""
    if isinstance(keys, bytes | bytearray | str):
        raise TypeError(f"{caller}(keys={keys!r}): give a list of keys, as in keys=[{keys!r}]")
    found: dict[bytes, None] = {}
    for key in keys:
        if isinstance(key, str):
            found[key.encode()] = None
        elif isinstance(key, bytes):
            found[key] = None
        else:
            raise TypeError(f"{caller}(keys=…): a key is bytes or str, not {key!r}")
    if not found:
        raise ValueError(f"{caller}(keys=[]) would get nothing: give at least one key, or leave keys out")
    return list(found)
