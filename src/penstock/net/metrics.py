"""What a server or a client has done so far, counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

__all__ = ["Metrics", "Traffic"]


class Traffic:
    """Bytes of one connection; whoever watches for idleness looks here, too."""

    __slots__ = ("_total", "received", "sent")

    def __init__(self, total: Metrics) -> None:
        self._total = total
        self.received = 0
        self.sent = 0

    def counting_received(self, pass_on: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """``pass_on``, counted."""

        total = self._total

        def count(data: bytes) -> None:
            size = len(data)
            self.received += size
            total.data_received += size
            pass_on(data)

        return count

    def counting_sent(self, pass_on: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """``pass_on``, counted."""

        total = self._total

        def count(data: bytes) -> None:
            size = len(data)
            self.sent += size
            total.data_sent += size
            pass_on(data)

        return count


@dataclass(slots=True)
class Metrics:
    """The figures of one server or client. Bytes are counted with ``metrics()`` alone; the rest is free."""

    connections_total: int = 0
    """Connections that came about."""
    connections_active: int = 0
    """Those that are there now."""
    connections_refused: int = 0
    """Those beyond ``max_connections``, and those that came while the server was being closed."""
    handshakes_failed: int = 0
    """Those that TLS did not come about on."""
    errors: int = 0
    """Handlers that failed, and connections that were lost."""
    data_received: int = 0
    """Bytes that were received."""
    data_sent: int = 0
    """Bytes that were sent, or wait to be."""

    def as_dict(self, prefix: str = "penstock.net") -> dict[str, int]:
        """The figures by name, for whatever collects them."""
        return {f"{prefix}.{name.replace('_', '.', 1)}": value for name, value in asdict(self).items()}
