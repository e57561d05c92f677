"""What can go wrong with datagrams alone."""

from __future__ import annotations

from penstock.net.errors import NetError, SendRefused

__all__ = ["DatagramOverflow", "DatagramTooLarge", "MulticastFailed"]


class DatagramOverflow(NetError):
    """More datagrams came than were asked for and may wait, and the overflow policy is ``ERROR``."""


class DatagramTooLarge(SendRefused):
    """A datagram of ``size`` bytes cannot be sent; ``limit`` is what fits, if that is known."""

    def __init__(self, size: int, limit: int | None, where: str, why: str) -> None:
        fits = "" if limit is None else f", and {limit:,} is the most"
        super().__init__(
            f"{where} a datagram of {size:,} bytes is too large{fits}: {why}; cut it into smaller ones, or "
            "drop those with filter() before send()"
        )
        self.size = size
        self.limit = limit


class MulticastFailed(NetError, OSError):
    """A multicast group could not be joined or left, or its settings were not accepted."""
