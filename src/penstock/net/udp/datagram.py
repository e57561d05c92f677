"""What travels over UDP: a few bytes, and where they come from or go to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.net.addresses import address_text

__all__ = ["Address", "Datagram"]

Address = tuple[Any, ...]
"""``(host, port)``, and for IPv6 ``(host, port, flow, scope)``; the host is an address, not a name."""


@dataclass(frozen=True, slots=True)
class Datagram:
    """One datagram: who sent it if it was received, who is to get it if it is sent."""

    data: bytes
    address: Address

    def reply(self, data: bytes) -> Datagram:
        """A datagram with ``data`` for whoever sent this one."""
        return Datagram(data, self.address)

    def __str__(self) -> str:
        return f"{len(self.data)} bytes, {address_text(self.address)}"
