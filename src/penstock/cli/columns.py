"""Text in columns on a terminal, where a Chinese or Korean character is two columns wide."""

from __future__ import annotations

import re
import unicodedata

# A line may be broken after a space, and on either side of a Chinese character but not before punctuation.
_PIECE = re.compile(r"[^\s\u4e00-\u9fff，。；：、（）“”]*[\u4e00-\u9fff]?[，。；：、）”]*\s*|（|“")


def columns(text: str) -> int:
    """Return how many columns a text takes up."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def pad(text: str, width: int) -> str:
    """Return ``text`` with as many spaces behind it as it needs to take up ``width`` columns."""
    return text + " " * (width - columns(text))


def fit(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` columns; an ellipsis stands for what is left out."""
    if columns(text) <= width:
        return text
    cut = text[:width]
    while columns(cut) > width - 1:
        cut = cut[:-1]
    return f"{cut}…"


def printable(text: str) -> str:
    """Return ``text`` without what a terminal would obey: the names of others are on it, too."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def wrap(text: str, width: int) -> list[str]:
    """Return ``text`` in lines of at most ``width`` columns, if no word is wider than that."""
    lines = [""]
    for piece in _PIECE.findall(text):
        if lines[-1] and columns(lines[-1]) + columns(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]
