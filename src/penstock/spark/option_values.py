"""Parsers for the values of options, which Spark passes as strings; a ValueError is the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from penstock.aquifer import Endpoint
from penstock.options import parse_instant

__all__ = [
    "GivenOffsets",
    "batch_number",
    "count",
    "dead_letter_endpoint",
    "endpoint",
    "endpoints",
    "flag",
    "identity",
    "instant",
    "mode",
    "offsets",
    "partitioning",
    "seconds",
    "separator",
    "value_format",
]

GivenOffsets: TypeAlias = str | int | dict[str, int | str]
"""An end of the log, an offset, or one of these by endpoint."""

_VALUE_FORMATS: Final = ("binary", "string", "json", "msgpack", "arrow", "csv", "avro", "protobuf")
_LOG_ENDS: Final = ("earliest", "latest")
_MODES: Final = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
_LONGEST_ID: Final = 256
"""Characters of a name that a gateway accepts."""


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


def identity(text: str) -> str:
    """The name by which a gateway knows a reader or a writer."""
    if len(text) > _LONGEST_ID:
        raise ValueError(f"it has {len(text)} characters: give {_LONGEST_ID} at most")
    return text


def value_format(text: str) -> str:
    """What a record is."""
    return _one_of(_VALUE_FORMATS, text.lower())


def _one_of(known: Sequence[str], text: str) -> str:
    if text not in known:
        raise ValueError(f"give one of {', '.join(known)}")
    return text


def offsets(text: str) -> GivenOffsets:
    """An end of the log, an offset, or one of these for each endpoint, or each stream of an endpoint.

    Whether the endpoints are those of the source is checked later.
    """
    if text.lower() in _LOG_ENDS:
        return text.lower()
    try:
        given: object = json.loads(text)
        if not isinstance(given, dict):
            return _one_offset(given, ends=False)
        return {endpoint: _one_offset(value) for endpoint, value in _by_stream(given)}
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            "give earliest, latest, a number, or with several endpoints a JSON object with one of these for "
            'each: {"tcp://127.0.0.1:5556": 0, "tcp://127.0.0.1:5557": {"orders": 17, "refunds": "latest"}}'
            + (f" ({error})" if isinstance(error, _BadEndpoint) else "")
        ) from error


class _BadEndpoint(ValueError):
    """An endpoint in the offsets cannot be read."""


def _by_stream(given: dict[str, object]) -> Iterator[tuple[str, object]]:
    """Each endpoint with its stream, as the option ``endpoint`` writes it, and what is given for it."""
    for name, value in given.items():
        try:
            place = Endpoint.parse(name)
            if not isinstance(value, dict):
                yield str(place), value
                continue
            for stream, offset in value.items():
                yield str(Endpoint.parse(f"{place}/{stream}") if stream else place), offset
        except (ValueError, TypeError) as error:
            raise _BadEndpoint(str(error)) from error


def _one_offset(value: object, ends: bool = True) -> int | str:
    """A number, or an end of the log, which Kafka's users write as -2 and -1."""
    if ends and isinstance(value, str) and value.lower() in _LOG_ENDS:
        return value.lower()
    if type(value) is int and value >= (-2 if ends else 0):
        return value if value >= 0 else _LOG_ENDS[value]
    raise ValueError(value)


def instant(text: str) -> int:
    """Microseconds since 1970; a time without a zone is in UTC."""
    try:
        return 1000 * int(text)
    except ValueError:
        pass
    try:
        return parse_instant(text)
    except ValueError:
        raise ValueError(
            "give a time such as 2026-01-31T12:00:00Z, or a number of milliseconds since 1970"
        ) from None


def endpoints(text: str) -> tuple[str, ...]:
    """The addresses of gateways, separated by commas."""
    found = {str(Endpoint.parse(name.strip())) for name in text.split(",") if name.strip()}
    if not found:
        raise ValueError(
            'give the address of a gateway: .option("endpoint", "tcp://127.0.0.1:5556"). Spark does not pass '
            "on the OPTIONS of a table, so name them where you use it: FROM readings WITH (endpoint = '…')"
        )
    # In one order, so that the same gateways always have the same partitions.
    return tuple(sorted(found))


def endpoint(text: str) -> str:
    """The address of one gateway."""
    given = endpoints(text)
    if len(given) > 1:
        raise ValueError("a query writes to one gateway: give one endpoint")
    return given[0]


def dead_letter_endpoint(text: str) -> str:
    """The address of the gateway for dead letters."""
    given = endpoints(text)
    if len(given) > 1:
        raise ValueError("dead letters go to one gateway, or one stream of a gateway: give one endpoint")
    return given[0]


def mode(text: str) -> str:
    """What happens to a record that cannot be read."""
    return _one_of(_MODES, text.upper())


def partitioning(text: str) -> str:
    """What decides in which partition a record is."""
    return _one_of(("key",), text.lower())


def separator(text: str) -> str:
    """One character between the fields of a line."""
    character = {r"\t": "\t"}.get(text, text)
    if len(character) != 1 or character in '"\r\n':
        raise ValueError(r"give one character that is neither a quote nor a line break; \t is a tab")
    return character
