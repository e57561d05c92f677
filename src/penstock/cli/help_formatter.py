"""How the help of a command is laid out: in the width of the terminal that shows it.

A description and the examples are written as they look in a wide terminal::

    Paragraphs, with an empty line between them.

    examples:
      penstock rules                 every rule, briefly
      penstock rules 3.9 --lang ko   one rule in full,
                                     in Korean

Lines under a heading that ends with a colon are pairs: a command, and what it does. All other indented lines
are code, and stay as they are.
"""

from __future__ import annotations

import argparse
import re
import shutil
from typing import Any

from penstock.cli.table import wrap

__all__ = ["HelpFormatter"]

_WIDEST = 108
"""Columns; longer lines are hard to read."""
_NARROWEST_TEXT = 34
"""Columns for what is said about an example; with less, it gets a line of its own."""
_BELOW = 6
"""Columns before a text on a line of its own."""
_PAIR = re.compile(r" {2,4}(?P<what>\S.*?)(?:(?P<gap> {2,})(?P<text>\S.*))?")


class HelpFormatter(argparse.HelpFormatter):
    """Fits paragraphs and examples into the width of the terminal, and does not break a command."""

    def __init__(self, prog: str, **settings: Any) -> None:
        """Take the settings of argparse."""
        settings.setdefault("width", min(shutil.get_terminal_size().columns - 2, _WIDEST))
        super().__init__(prog, **settings)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(" ".join(text.split()), width)  # argparse would break a word at a hyphen.

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = re.split(r"\n\s*\n", text.strip("\n"))
        return "\n\n".join("\n".join(_laid_out(block.splitlines(), width)) for block in blocks)


def _laid_out(lines: list[str], width: int) -> list[str]:
    if len(lines) > 1 and lines[0].endswith(":") and not lines[0].startswith(" "):
        return [lines[0], *_pairs_laid_out(lines[1:], width)]
    if any(line.startswith(" ") for line in lines):
        return lines
    return wrap(" ".join(lines), width)


def _pairs_laid_out(lines: list[str], width: int) -> list[str]:
    pairs: list[list[str]] = []
    column = 0
    for line in lines:
        pair = _PAIR.fullmatch(line)
        if pair is None:
            pairs[-1][1] += f" {line.strip()}"
            continue
        pairs.append([pair["what"], pair["text"] or ""])
        if pair["text"] and not column:
            column = pair.start("text")
    beside = 0 < column <= width - _NARROWEST_TEXT
    laid_out: list[str] = []
    for what, text in pairs:
        start = column if beside else _BELOW
        told = wrap(text.strip(), width - start) if text else []
        first = f"  {what}"
        if told and beside and len(first) + 2 <= column:
            first = f"{first:{column}}{told.pop(0)}"
        laid_out += [first, *(" " * start + line for line in told)]
    return laid_out
