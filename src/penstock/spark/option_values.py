"""Parsers for the values of options, which Spark passes as strings; a ValueError is the remedy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.aquifer import Endpoint

__all__ = [
    "batch_number",
    "count",
    "endpoint",
    "endpoints",
    "flag",
    "instant",
    "mode",
    "offsets",
    "seconds",
    "separator",
    "value_format",
    "written_format",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WRITTEN_FORMATS: Final = ("binary", "string", "json", "msgpack", "arrow")
_VALUE_FORMATS: Final = (*_WRITTEN_FORMATS, "csv")
_MODES: Final = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")


def count(text: str) -> int:
    """A whole number of at least 1."""
    return _whole_number(text, 1, "give a whole number of at least 1")


def batch_number(text: str) -> int:
    """A whole number of at least 0."""
    return _whole_number(text, 0, "give the number of the batch, from 0 on")


def _whole_number(text: str, least: int, remedy: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not least <= number < 2**63:
        raise ValueError(remedy)
    return number


def seconds(text: str) -> float:
    """A number of seconds above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ValueError("give a number of seconds above 0")
    return number


def flag(text: str) -> bool:
    """True or false."""
    if text.lower() not in ("true", "false"):
        raise ValueError("give true or false")
    return text.lower() == "true"


def value_format(text: str) -> str:
    """What a record is, for a source."""
    return _one_of(_VALUE_FORMATS, text.lower())


def written_format(text: str) -> str:
    """What a row becomes, for a sink."""
    return _one_of(_WRITTEN_FORMATS, text.lower())


def _one_of(known: Sequence[str], text: str) -> str:
    if text not in known:
        raise ValueError(f"give one of {', '.join(known)}")
    return text


def offsets(text: str) -> str | int | dict[str, int]:
    """An end of the log, an offset, or an offset for each endpoint.

    Whether the endpoints are those of the source is checked later.
    """
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    try:
        value: int | dict[str, int] | None = json.loads(text)
    except ValueError:
        value = None
    numbers = value.values() if isinstance(value, dict) else [value]
    if value is None or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(
            "give earliest, latest, a number, or with several endpoints a JSON object with an offset for "
            'each: {"tcp://127.0.0.1:5556": 0}'
        )
    return value


def instant(text: str) -> int:
    """Microseconds since 1970; a time without a zone is in UTC."""
    try:
        return 1000 * int(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "give a time such as 2026-01-31T12:00:00Z, or a number of milliseconds since 1970"
        ) from None
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return (at - _EPOCH) // timedelta(microseconds=1)


def endpoints(text: str) -> tuple[str, ...]:
    """The addresses of gateways, separated by commas."""
    found = {str(Endpoint.parse(name.strip())) for name in text.split(",") if name.strip()}
    if not found:
        raise ValueError('give the address of a gateway: .option("endpoint", "tcp://127.0.0.1:5556")')
    # In one order, so that the same gateways always have the same partitions.
    return tuple(sorted(found))


def endpoint(text: str) -> str:
    """The address of one gateway."""
    given = endpoints(text)
    if len(given) > 1:
        raise ValueError("a query writes to one gateway: give one endpoint")
    return given[0]


def mode(text: str) -> str:
    """What happens to a record that cannot be read."""
    return _one_of(_MODES, text.upper())


def separator(text: str) -> str:
    """One character between the fields of a line."""
    character = {r"\t": "\t"}.get(text, text)
    if len(character) != 1 or character in '"\r\n':
        raise ValueError(r"give one character that is neither a quote nor a line break; \t is a tab")
    return character
