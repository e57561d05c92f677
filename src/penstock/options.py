"""Options that are declared once, as dataclass fields that carry their own help.

::

    @dataclass(frozen=True, kw_only=True)
    class TailOptions:
        count: int | None = option(None, help="stop after N records", metavar="N", parse=parse_count)
        quiet: bool = option(False, help="print nothing but records")

The command line adds a flag for each field, and :func:`markdown_table` writes the table of a manual page.
The parsers read a quantity as people write it: ``64M``, ``15m``, ``100/s``. A text that they cannot read is a
ValueError whose message shows one that they can.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

__all__ = [
    "Option",
    "markdown_table",
    "option",
    "options_of",
    "parse_count",
    "parse_duration",
    "parse_instant",
    "parse_port",
    "parse_rate",
    "parse_size",
]

_DERIVED: Final = "derived from the field's name"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a dataclass, as :func:`options_of` describes it."""

    name: str
    """The field's name, which is also the name of the parameter in Python."""
    help: str
    """One sentence or less, without a capital letter and a full stop."""
    flag: str | None
    """``--max-line``; None if the command line has no flag for it."""
    default: object
    """``dataclasses.MISSING`` if the option has to be given."""
    metavar: str | None
    parse: Callable[[str], object] | None
    """Makes a value of a text; None if the value is the text."""
    choices: tuple[str, ...]
    shown: str | None
    """The default as people write it, or None if there is nothing to show."""
    positional: bool
    """Whether the command line takes it by its position, and not by a flag."""
    repeated: bool
    """Whether it may be given several times, and the value is a tuple."""
    bare: str | None
    """The value of a flag that is given without one; None if it needs one."""
    aliases: tuple[str, ...]
    """Older flags that mean the same."""

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value: it is given, or not."""
        return self.default is False


def option(
    default: object = MISSING,
    *,
    help: str,
    flag: str | None = _DERIVED,
    metavar: str | None = None,
    parse: Callable[[str], object] | None = None,
    choices: Sequence[str] = (),
    shown: str | None = None,
    positional: bool = False,
    repeated: bool = False,
    bare: str | None = None,
    aliases: Sequence[str] = (),
) -> Any:
    """Declare a dataclass field with its help; the parameters are the attributes of :class:`Option`.

    Without ``flag`` the flag is ``--`` and the field's name. Without ``shown`` a default that is a text or a
    number is shown as it is.
    """
    metadata = {
        "help": help,
        "flag": flag,
        "metavar": metavar,
        "parse": parse,
        "choices": tuple(choices),
        "shown": shown,
        "positional": positional,
        "repeated": repeated,
        "bare": bare,
        "aliases": tuple(aliases),
    }
    if default is MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def options_of(declared: type) -> tuple[Option, ...]:
    """The options that a dataclass declares, in order; its other fields are left out."""
    return tuple(_described(field) for field in dataclasses.fields(declared) if "help" in field.metadata)


def _described(field: dataclasses.Field[Any]) -> Option:
    said = field.metadata
    flag = said.get("flag")
    shown = said.get("shown")
    if shown is None and isinstance(field.default, str | int | float) and field.default is not False:
        shown = str(field.default)
    return Option(
        name=field.name,
        help=said["help"],
        flag=f"--{field.name.replace('_', '-')}" if flag == _DERIVED else flag,
        default=field.default,
        metavar=said.get("metavar"),
        parse=said.get("parse"),
        choices=tuple(said.get("choices") or ()),
        shown=shown,
        positional=bool(said.get("positional")),
        repeated=bool(said.get("repeated")),
        bare=said.get("bare"),
        aliases=tuple(said.get("aliases") or ()),
    )


def markdown_table(*declared: type) -> str:
    """The options of some dataclasses as a table for a manual page: flag, name in Python, default, help."""
    rows = ["| flag | in Python | default | meaning |", "|---|---|---|---|"]
    for each in (one for owner in declared for one in options_of(owner)):
        flag = f"`{each.flag}`" if each.flag is not None and not each.positional else ""
        shown = f"`{each.shown}`" if each.shown else ""
        rows.append(f"| {flag} | `{each.name}` | {shown} | {each.help.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


def parse_count(text: str) -> int:
    """Read a whole number of at least 1, with K or M for thousands or millions."""
    match = re.fullmatch(r"(\d+)([KM]?)", text.replace("_", "").replace(",", ""), re.IGNORECASE)
    value = int(match[1]) * {"": 1, "K": 1000, "M": 1_000_000}[match[2].upper()] if match else 0
    if value < 1:
        raise ValueError(f"{text!r} is not a whole number of at least 1; write 500, 10K or 5M")
    return value


def parse_size(text: str) -> int:
    """Read a number of bytes, with K, M, G or T for the powers of 1024."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    value = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if value < 1:
        raise ValueError(f"{text!r} is not a size; write 500000, 512K, 64M or 2G")
    return value


def parse_duration(text: str) -> float:
    """Read a number of seconds, or with m, h or d of minutes, hours or days."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    value = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not value > 0:
        raise ValueError(f"{text!r} is not a time; write 90s, 15m, 1h or 7d")
    return value


def parse_instant(text: str) -> int:
    """Read a time as in ISO 8601, and return microseconds since 1970; without a zone it is in UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write 2026-01-31T12:00:00Z") from None
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return (at - _EPOCH) // timedelta(microseconds=1)


def parse_port(text: str) -> int:
    """Read a port, a number from 0 to 65535."""
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise ValueError(f"{text!r} is not a port; write a whole number from 0 to 65535")
    return int(text)


def parse_rate(text: str) -> float:
    """Read a number of records per second: 100, 100/s or 0.5/s."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/s)?", text)
    value = float(match[1]) if match else 0.0
    if not value > 0:
        raise ValueError(f"{text!r} is not a rate; write 100/s or 0.5/s")
    return value
