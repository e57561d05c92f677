"""The style of every command: colours, tables, JSON and questions, in one place.

A command uses these, and draws nothing by itself::

    from penstock.cli.style import Column, Tone, print_json, show_table, toned

    if options.json:
        print_json(status.to_dict())                       # one object in one line
    else:
        show_table(
            [Column("ID"), Column("BEHIND", right=True), Column("STATE")],
            [[one.id, f"{one.lag:,}", toned("away", Tone.WARNING)] for one in listed],
        )

- **Output** that belongs to the answer goes to standard output. Progress, notes and errors go to standard
  error: :func:`penstock.cli.screen.say`, :class:`penstock.cli.progress.ProgressBar`.
- **Colours** say something twice, never alone: the text without them means the same. A :class:`Tone` names
  a meaning, not a colour. :func:`toned` makes a text of a tone, which is a ``str`` wherever one is expected;
  :func:`paint` finds the words that every command writes in the same way (``BLOCKED``, bars, labels) in lines
  that are laid out already.
- ``NO_COLOR`` switches colours off, ``FORCE_COLOR`` on, and ``TERM=dumb`` also switches off whatever moves
  the cursor: a command then prints lines, as it does in a pipe. :class:`penstock.cli.screen.Screen` knows.
- Names that other people chose pass :func:`penstock.cli.table.printable` first; :func:`show_table` does that.
- Tables are drawn by rich. Without it, and without a terminal, they are the same columns in plain text, so
  nothing here needs an extra.
- ``--json`` is declared with :func:`json_option`: one object, or for a command that goes on one object in
  each line, with the key ``event``.
- What loses something asks first: :func:`confirm`, with ``--yes`` (:func:`yes_option`) for scripts.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from penstock.cli.errors import CommandError, ExitCode
from penstock.cli.screen import Screen
from penstock.cli.table import columns, fit, pad, printable
from penstock.options import option

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "Column",
    "Tone",
    "Toned",
    "clean",
    "confirm",
    "has_rich",
    "json_option",
    "paint",
    "paint_help",
    "print_json",
    "rendered",
    "show_table",
    "table_lines",
    "toned",
    "yes_option",
]

_WIDEST: Final = 40
"""Columns that a column of a table takes at most, but for the last one."""
_NARROWEST: Final = 4
_GAP: Final = 2
_ENDLESS: Final = 10_000
"""Columns, where there is no terminal: nothing is cut or wrapped."""


class Tone(StrEnum):
    """What a text means; the value is its look, in rich's words."""

    GOOD = "green"
    WARNING = "yellow"
    BAD = "bold red"
    LIMIT = "bold yellow"
    """The place that holds the others up."""
    NAME = "cyan"
    STRONG = "bold"
    FAINT = "dim"


class Toned(str):
    """A text with a tone; for everything but colours it is a text like others."""

    tone: Tone

    def __new__(cls, text: str, tone: Tone) -> Toned:
        """Return ``text`` with a tone."""
        made = super().__new__(cls, text)
        made.tone = tone
        return made


def toned(text: object, tone: Tone) -> Toned:
    """Return a text with a tone."""
    return Toned(str(text), tone)


@cache
def has_rich() -> bool:
    """Return whether rich is installed."""
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


# ---------------------------------------------------------------- lines
_WORDS: Final = (
    (re.compile(r"\b(BLOCKED|HELD BACK|SLOW|STALLED)\b"), Tone.LIMIT),
    (re.compile(r"\b(FAILED|NOT THE SAME|OUT OF ORDER)\b"), Tone.BAD),
    (re.compile(r"█+"), Tone.NAME),
    (re.compile(r"(?<=[█\[])·+(?=[·\]])|·+(?=\])"), Tone.FAINT),
    (re.compile(r"^  [A-Za-z]\w*(?=  |\s*\[)"), Tone.STRONG),
    (re.compile(r"^penstock(?: [a-z]+)*:"), Tone.STRONG),
    (re.compile(r"^\s+\d+\.\d s(?=  )"), Tone.FAINT),
)
"""What every command writes in the same way."""

_HELP: Final = (
    (re.compile(r"^usage:", re.MULTILINE), Tone.STRONG),
    (re.compile(r"^[a-z][a-z ]*:$", re.MULTILINE), Tone.STRONG),
    (re.compile(r"(?<![\w-])--?[a-z][\w-]*"), Tone.NAME),
    (re.compile(r"^  penstock [^\n]*?(?=  |$)", re.MULTILINE), Tone.GOOD),
    (re.compile(r"^    [a-z][\w-]*(?=  )", re.MULTILINE), Tone.NAME),
    (re.compile(r"\(default [^)]*\)"), Tone.FAINT),
)


def paint(line: str, screen: Screen) -> str:
    """Return a line with colours, if the screen shows them."""
    if not screen.is_coloured or not has_rich():
        return line
    return _painted(line, _WORDS, line.tone if isinstance(line, Toned) else None)


def paint_help(text: str, screen: Screen) -> str:
    """Return the help of a command with colours, if the screen shows them."""
    return _painted(text, _HELP, None) if screen.is_coloured and has_rich() else text


def _painted(text: str, looks: Iterable[tuple[re.Pattern[str], Tone]], tone: Tone | None) -> str:
    from rich.text import Text

    painted = Text(text, style=tone or "", end="")
    for pattern, look in looks:
        painted.highlight_regex(pattern, look)
    return rendered(painted, _ENDLESS, coloured=True)


def rendered(what: RenderableType, width: int, *, coloured: bool) -> str:
    """Return what rich makes of something; the sixteen colours of the terminal's own palette are used."""
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    console = Console(
        file=out,
        width=width,
        height=100,
        color_system="standard" if coloured else None,
        force_terminal=coloured,
        no_color=not coloured,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    console.print(what, end="", soft_wrap=width >= _ENDLESS)
    return out.getvalue()


# ---------------------------------------------------------------- tables
@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    right: bool = False
    """Whether the cells are figures, which end at the same place."""


def show_table(
    heads: Sequence[Column], rows: Iterable[Sequence[str]], screen: Screen | None = None, *, title: str = ""
) -> None:
    """Print a table to standard output, or to another screen."""
    screen = Screen(sys.stdout, must_be_read=True) if screen is None else screen
    width = screen.width if screen.is_terminal else _ENDLESS
    lines = table_lines(heads, rows, width, coloured=screen.is_coloured)
    if title:
        lines = [paint(toned(title, Tone.STRONG), screen), *lines]
    screen.write("".join(f"{line}\n" for line in lines))


def table_lines(
    heads: Sequence[Column], rows: Iterable[Sequence[str]], width: int, *, coloured: bool = False
) -> list[str]:
    """Return the lines of a table in at most ``width`` columns; a cell that is too wide is cut."""
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = _widths(heads, cells, width)
    if not coloured or not has_rich():
        return _plain(heads, cells, widths)
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style=Tone.STRONG)
    for head, wide in zip(heads, widths, strict=True):
        side: Literal["left", "right"] = "right" if head.right else "left"
        table.add_column(head.title, justify=side, width=wide, no_wrap=True, overflow="ellipsis")
    for row in cells:
        # Cut here: rich leaves a gap before its ellipsis where half of a wide character would not fit.
        table.add_row(
            *(
                Text(fit(cell, wide), style=cell.tone if isinstance(cell, Toned) else "", no_wrap=True)
                for cell, wide in zip(row, widths, strict=True)
            )
        )
    whole = sum(widths) + _GAP * len(widths)
    return [line.rstrip() for line in rendered(table, whole, coloured=True).splitlines()]


def clean(cell: str) -> str:
    """Return a text, with its tone, without control characters."""
    return Toned(printable(cell), cell.tone) if isinstance(cell, Toned) else printable(cell)


def _widths(heads: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Share the screen out: the widest column gives way, but figures are never cut."""
    widths = [
        max(columns(head.title), *(columns(row[number]) for row in rows), 1)
        for number, head in enumerate(heads)
    ]
    # Without a terminal the last column may be as wide as it likes, and a name still leaves a table readable.
    names = [number for number, head in enumerate(heads) if not head.right]
    for number in names[:-1] if names and names[-1] == len(heads) - 1 else names:
        widths[number] = min(widths[number], _WIDEST)
    while names and sum(widths) + _GAP * (len(widths) - 1) > width:
        widest = max(names, key=lambda number: widths[number])
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    return widths


def _plain(heads: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    lines = []
    for row in [[head.title for head in heads], *rows]:
        cells = []
        for cell, head, wide in zip(row, heads, widths, strict=True):
            cut = fit(cell, wide)
            cells.append(" " * (wide - columns(cut)) + cut if head.right else pad(cut, wide))
        lines.append((" " * _GAP).join(cells).rstrip())
    return lines


# ---------------------------------------------------------------- for programs
def json_option(help: str = "print one JSON object") -> Any:
    """Declare the option ``--json`` of a command."""
    return option(False, help=help)


def print_json(facts: Mapping[str, Any]) -> None:
    """Print one JSON object in one line of standard output.

    Control characters are escaped, also those that JSON would allow: somebody may look at it in a terminal.
    So is everything but ASCII if the output has another encoding than UTF-8.
    """
    is_unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(facts, ensure_ascii=not is_unicode, default=str)
    print(text if text.isprintable() else _UNSEEN.sub(_escaped, text), flush=True)


_UNSEEN: Final = re.compile(r"[^ -~]")


def _escaped(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


# ---------------------------------------------------------------- questions
def yes_option() -> Any:
    """Declare the option ``--yes`` of a command that asks."""
    return option(False, help="do not ask for confirmation")


def confirm(question: str, yes: bool) -> None:
    """Ask before something is lost; without a terminal only ``--yes`` confirms."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{question} Confirm with --yes", ExitCode.USAGE)
    screen = Screen()
    screen.write(paint(toned(f"{question} [y/N] ", Tone.WARNING), screen))
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed", ExitCode.FAILED)
