"""Text in columns: cut, padded, wrapped, and laid out after a label.

A Chinese or Korean character is two columns wide. Quantities are written in the way that people read them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

__all__ = ["bar", "columns", "counted", "duration", "fit", "pad", "printable", "row", "size", "wrap"]

_NARROW = 40
"""Columns; on a narrower screen labels take too much space."""
# A line may be broken after a space, and on either side of a Chinese character but not before punctuation.
_PIECE = re.compile(r"[^\s\u4e00-\u9fff，。；：、（）“”]*[\u4e00-\u9fff]?[，。；：、）”]*\s*|（|“")


def columns(text: str) -> int:
    """Return how many columns a text takes."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def pad(text: str, width: int) -> str:
    """Return ``text`` with spaces after it, so that it takes ``width`` columns."""
    return text + " " * (width - columns(text))


def fit(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` columns; an ellipsis replaces what is left out."""
    if columns(text) <= width:
        return text
    cut = text[:width]
    while columns(cut) > width - 1:
        cut = cut[:-1]
    return f"{cut}…"


def printable(text: str, keep: str = "") -> str:
    """Return ``text`` without control characters: other people choose some of the names on the screen.

    A terminal obeys control characters, and some characters that cannot be seen turn the order of a line
    around. Those in ``keep`` stay.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


def wrap(text: str, width: int) -> list[str]:
    """Return ``text`` in lines of at most ``width`` columns; a wider word gets a line of its own."""
    lines = [""]
    for piece in _PIECE.findall(text):
        if lines[-1] and columns(lines[-1]) + columns(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def row(label: str, pieces: Sequence[str], width: int, *, indent: int = 14) -> list[str]:
    """Lay out pieces after a label, with spaces between them; what does not fit continues below."""
    indent = indent if width >= _NARROW else 2
    line = pad(f"  {label} " if label else "", indent)
    lines, gap = [], ""
    for piece in pieces:
        if gap and columns(line) + len(gap) + columns(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line, gap = " " * indent, ""
        line += gap + piece
        gap = " " if piece.endswith((",", ";", ":")) else "  "
    return [*lines, line.rstrip()]


def bar(part: float, width: int) -> str:
    """Draw a bar of ``width`` columns that is filled to a part, from 0 to 1."""
    filled = round(width * min(max(part, 0.0), 1.0))
    return f"[{'█' * filled}{'·' * (width - filled)}]"


def counted(count: int, what: str) -> str:
    """Write how many there are of something: ``1 record``, ``2,000 records``."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def size(nbytes: float) -> str:
    """Write a number of bytes in about three digits."""
    for unit in ("B", "K", "M", "G"):
        if nbytes < 1024:
            return f"{nbytes:.0f}{unit}" if unit == "B" or nbytes >= 100 else f"{nbytes:.1f}{unit}"
        nbytes /= 1024
    return f"{nbytes:.1f}T"


def duration(seconds: float) -> str:
    """Write a number of seconds in its two largest units."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 and seconds != whole else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
