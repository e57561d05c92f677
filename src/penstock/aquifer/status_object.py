"""What every status of a gateway is: a struct here, a JSON object on the wire.

The keys on the wire are older than the names of the attributes, and stay. ``status["floor"]`` reads an
attribute by its key, as a program does that was written when a status was a dict.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["HopTimes", "StatusObject"]


class StatusObject(msgspec.Struct, kw_only=True):
    """Every field has a default, because a gateway of another version may not send it."""

    def __getitem__(self, key: str) -> Any:
        for declared in msgspec.structs.fields(self):
            if declared.encode_name == key:
                return getattr(self, declared.name)
        raise KeyError(key)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object on the wire, as a dict."""
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return shown


class HopTimes(StatusObject):
    """Where the time went, in seconds on a monotonic clock since the gateway, or the session, began."""

    waiting_for_demand: float = 0.0
    """There were records, and nobody below took them."""
    waiting_for_data: float = 0.0
    working: float = 0.0
