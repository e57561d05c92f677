"""Logs what goes over a connection: as a hex dump, as text, or as sizes only."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["Wiretap", "WiretapFormat"]

_log = logging.getLogger("penstock.net.wire")

_ROW: Final = 16


class WiretapFormat(enum.Enum):
    """How to show bytes."""

    HEX = "hex"
    TEXT = "text"
    SIZES = "sizes"


@dataclass(frozen=True, slots=True)
class Wiretap:
    """How to log each read and write. The logger is ``penstock.net.wire``, at ``level``.

    ``redact`` takes the bytes and returns those that may be shown. At most ``most`` bytes are shown.
    """

    format: WiretapFormat = WiretapFormat.HEX
    level: int = logging.DEBUG
    encoding: str = "utf-8"
    most: int = 4096
    redact: Callable[[bytes], bytes] | None = None

    def tapped(
        self, label: Callable[[], str], event: str, pass_on: Callable[[bytes], None]
    ) -> Callable[[bytes], None]:
        """``pass_on``, which logs what it passes on."""

        def tap(data: bytes) -> None:
            self.tell(label(), event, data)
            pass_on(data)

        return tap

    def tell(self, label: str, event: str, data: bytes | None = None) -> None:
        """Log an event, and its bytes if it has any."""
        if not _log.isEnabledFor(self.level):
            return
        if data is None:
            _log.log(self.level, "%s %s", label, event)
            return
        shown = data if self.redact is None else self.redact(data)
        _log.log(self.level, "%s %s: %dB%s", label, event, len(data), self._show(shown))

    def _show(self, data: bytes) -> str:
        if self.format is WiretapFormat.SIZES:
            return ""
        more = f"\n… and {len(data) - self.most:,} more bytes" if len(data) > self.most else ""
        data = data[: self.most]
        if self.format is WiretapFormat.TEXT:
            return f" {data.decode(self.encoding, 'backslashreplace')!r}{more}"
        return f"\n{hex_dump(data)}{more}"


def hex_dump(data: bytes) -> str:
    """Sixteen bytes to a line, with the offset and the printable characters."""
    rows = []
    for offset in range(0, len(data), _ROW):
        row = data[offset : offset + _ROW]
        looks = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"|{offset:08x}| {row.hex(' '):<{_ROW * 3 - 1}} |{looks:<{_ROW}}|")
    return "\n".join(rows)
