"""The options of ``format("aquifer")``, each declared once, as a field of a dataclass.

Spark passes options as strings, with names in any case. :meth:`SourceOptions.of` and :meth:`SinkOptions.of`
turn them into typed values before anything starts. An unknown option is an error, because Spark itself
ignores it silently.

To add an option, add a field and a test. The parser, the error messages and the tables of ``docs/spark.md``
follow from the field; ``python -m tests.spark.option_tables`` rewrites the tables.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from penstock.aquifer import CurveClient, Endpoint, GatewayUnreachable, Refused, load_keys, load_public
from penstock.options import Option, option, options_of
from penstock.spark.errors import BadOption

__all__ = ["Offsets", "SinkOptions", "SourceOptions", "spark_options"]

Offsets: TypeAlias = Literal["earliest", "latest"] | dict[str, int]
"""An end of the log, or an offset for each endpoint."""

_OF_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname", "paths"})
"""Options that Spark itself adds or reads, in lower case."""
_STREAM_LEASE: Final = 3600.0
"""Seconds for which a gateway keeps the cursor of a stopped query by default."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VALUE_FORMATS: Final = ("binary", "string", "json", "msgpack", "arrow")


# ---------------------------------------------------------------- parsers: a ValueError is the remedy
def _count(text: str) -> int:
    return _whole_number(text, 1, "give a whole number of at least 1")


def _batch_number(text: str) -> int:
    return _whole_number(text, 0, "give the number of the batch, from 0 on")


def _whole_number(text: str, least: int, remedy: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not least <= number < 2**63:
        raise ValueError(remedy)
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError("give a number of seconds above 0")
    return seconds


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("give true or false")
    return text.lower() == "true"


def _value_format(text: str) -> str:
    if text.lower() not in _VALUE_FORMATS:
        raise ValueError(f"give one of {', '.join(_VALUE_FORMATS)}")
    return text.lower()


def _failfast(text: str) -> str:
    if text.upper() != "FAILFAST":
        raise ValueError(
            "give FAILFAST: a record that cannot be read fails the query. To handle bad records, read them "
            'with option("value", "string") and use from_json, which has the modes PERMISSIVE and '
            "DROPMALFORMED"
        )
    return text.upper()


def _offsets(text: str) -> str | int | dict[str, int]:
    """Whether the endpoints are those of the source is checked later."""
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


def _instant(text: str) -> int:
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


def _endpoints(text: str) -> tuple[str, ...]:
    endpoints = {str(Endpoint.parse(name.strip())) for name in text.split(",") if name.strip()}
    if not endpoints:
        raise ValueError('give the address of a gateway: .option("endpoint", "tcp://127.0.0.1:5556")')
    # In one order, so that the same gateways always have the same partitions.
    return tuple(sorted(endpoints))


def _endpoint(text: str) -> str:
    endpoints = _endpoints(text)
    if len(endpoints) > 1:
        raise ValueError("a query writes to one gateway: give one endpoint")
    return endpoints[0]


# ---------------------------------------------------------------- the options
@dataclass(frozen=True, slots=True, kw_only=True)
class _ConnectionOptions:
    """How to reach a gateway; these the source and the sink have in common."""

    patience: float = option(
        30.0,
        flag="patienceSeconds",
        metavar="seconds",
        parse=_seconds,
        shown="30",
        help="how long to try to reach a gateway",
    )
    curve_key: str | None = option(
        None, flag="curveKey", metavar="path", help="the file with the CURVE keys of this client"
    )
    curve_server: str | None = option(
        None, flag="curveServer", metavar="key", help="the public key of the gateway, or a file with it"
    )

    def curve_client(self) -> CurveClient | None:
        """The keys that the options name; None if they name none."""
        key, server = self.curve_key, self.curve_server
        if key is None and server is None:
            return None
        if key is None or server is None:
            missing = "curveKey" if key is None else "curveServer"
            raise BadOption(
                missing, None, "set both curveKey (a key file) and curveServer (the gateway's key)"
            )
        try:
            keys = load_keys(key)
        except (OSError, ValueError) as error:
            raise BadOption("curveKey", key, str(error)) from error
        try:
            return CurveClient(keys, load_public(server))
        except (OSError, ValueError) as error:
            raise BadOption("curveServer", server, str(error)) from error

    @contextmanager
    def connection_hints(self) -> Iterator[None]:
        """Add to a connection error which options to look at."""
        try:
            yield
        except Refused as error:
            raise Refused(
                f'{error}. The option "curveKey" is {self.curve_key!r}: put the public half of that key '
                "where the gateway looks (penstock gateway --allow), or name a key that is there"
            ) from error
        except GatewayUnreachable as error:
            hint = (
                'if the gateway needs keys, set the options "curveKey" and "curveServer"'
                if self.curve_key is None
                else "the gateway accepts keys only at its --curve-control, and only if the option "
                '"curveServer" is its own public key'
            )
            raise GatewayUnreachable(f'{error} Check the option "endpoint"; {hint}.') from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(_ConnectionOptions):
    """The options of ``spark.read`` and ``spark.readStream``."""

    endpoints: tuple[str, ...] = option(
        flag="endpoint",
        metavar="endpoints",
        parse=_endpoints,
        help="where the gateway listens; several, separated by commas, are shards",
    )
    value: str = option(
        "binary",
        flag="value",
        metavar="format",
        parse=_value_format,
        help="what a record is: `binary` or `string`; or with a schema `json`, `msgpack` or `arrow`",
    )
    starting: Offsets | None = option(
        None,
        flag="startingOffsets",
        metavar="offsets",
        parse=_offsets,
        shown="earliest",
        help="where to start: `earliest`, `latest`, a number, or JSON with a number for each endpoint",
    )
    """None if the option is not set: a subscription that the gateway knows then goes on where it was."""
    ending: Offsets = option(
        "latest",
        flag="endingOffsets",
        metavar="offsets",
        parse=_offsets,
        help="where to end, in the same forms; only for `spark.read`",
    )
    starting_at: int | None = option(
        None,
        flag="startingTimestamp",
        metavar="time",
        parse=_instant,
        help="start with the first record of this time or later: `2026-01-31T12:00:00Z`, or milliseconds "
        "since 1970; instead of `startingOffsets`",
    )
    """Microseconds since 1970."""
    ending_at: int | None = option(
        None,
        flag="endingTimestamp",
        metavar="time",
        parse=_instant,
        help="end before the first record of this time or later; instead of `endingOffsets`",
    )
    partitions: int | None = option(
        None,
        flag="partitions",
        metavar="number",
        parse=_count,
        shown="the number of cores",
        help="tasks for each endpoint and batch",
    )
    min_partitions: int | None = option(
        None,
        flag="minPartitions",
        metavar="number",
        parse=_count,
        help="the fewest tasks of a batch, over all endpoints, however small it is",
    )
    max_records: int | None = option(
        None, flag="maxRecordsPerTrigger", metavar="number", parse=_count, help="the most records in a batch"
    )
    max_bytes: int | None = option(
        None,
        flag="maxBytesPerTrigger",
        metavar="number",
        parse=_count,
        help="the most bytes in a batch; a record that is larger is a batch of its own",
    )
    target_seconds: float | None = option(
        None,
        flag="targetBatchSeconds",
        metavar="seconds",
        parse=_seconds,
        help="how long a batch should take; the source learns how many records fit",
    )
    subscription: str | None = option(
        None,
        flag="subscription",
        metavar="id",
        shown="an id in the checkpoint",
        help="the durable id under which the gateway keeps the cursor; for one query at a time",
    )
    lease: float | None = option(
        None,
        flag="leaseSeconds",
        metavar="seconds",
        parse=_seconds,
        shown=f"{_STREAM_LEASE:.0f}",
        help="how long the gateway keeps records for a query that is not running; more than its `max_lease` "
        "is an error",
    )
    """None if the option is not set."""
    wait: float = option(
        1.0,
        flag="waitSeconds",
        metavar="seconds",
        parse=_seconds,
        shown="1",
        help="how long a trigger waits for records before it reports that there are none",
    )
    fail_on_data_loss: bool = option(
        True,
        flag="failOnDataLoss",
        metavar="true or false",
        parse=_flag,
        shown="true",
        help="whether the query fails if records that it needs are gone",
    )
    mode: str = option(
        "FAILFAST",
        flag="mode",
        metavar="mode",
        parse=_failfast,
        help="`FAILFAST`: a record that cannot be read fails the query. Other modes are errors; to handle "
        "bad records, read `string` and use `from_json`",
    )

    @property
    def stream_lease(self) -> float:
        """Seconds for which the gateways keep the cursor of a stream that they do not hear from."""
        return self.lease or _STREAM_LEASE

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SourceOptions:
        """Parse the options of a DataFrame reader."""
        values = _parsed(cls, given)
        for time, name in (("starting_at", "startingTimestamp"), ("ending_at", "endingTimestamp")):
            offsets = name.replace("Timestamp", "Offsets")
            if values[time] is not None and any(each.lower() == offsets.lower() for each in given):
                raise BadOption(name, given.get(name), f"set either {name} or {offsets}, not both")
        for field, name in (("starting", "startingOffsets"), ("ending", "endingOffsets")):
            values[field] = _for_each_endpoint(name, values[field], values["endpoints"])
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(_ConnectionOptions):
    """The options of ``df.write`` and ``df.writeStream``."""

    endpoint: str = option(
        flag="endpoint", metavar="endpoint", parse=_endpoint, help="where the gateway listens"
    )
    value: str = option(
        "json",
        flag="value",
        metavar="format",
        parse=_value_format,
        help="what a row becomes: `json` or `msgpack`, an object; `string` or `binary`, its column `value` "
        "(and `key`); `arrow`, a row of a batch",
    )
    timeout: float = option(
        600.0,
        flag="timeoutSeconds",
        metavar="seconds",
        parse=_seconds,
        shown="600",
        help="how long a batch may wait for space in the gateway's log",
    )
    writer_id: str | None = option(
        None,
        flag="writerId",
        metavar="id",
        help="names the writer; set with `batchId`, it makes `df.write` inside `foreachBatch` exactly once",
    )
    batch_id: int | None = option(
        None,
        flag="batchId",
        metavar="number",
        parse=_batch_number,
        help="the number of the batch, from 0 on; set with `writerId`",
    )

    @property
    def transaction(self) -> tuple[str, int] | None:
        """The writer and the number of its batch, if the options name them."""
        if self.writer_id is None or self.batch_id is None:
            return None
        return self.writer_id, self.batch_id

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SinkOptions:
        """Parse the options of a DataFrame writer."""
        options = cls(**_parsed(cls, given))
        if (options.writer_id is None) != (options.batch_id is None):
            name = "writerId" if options.batch_id is None else "batchId"
            remedy = "set both writerId (the name of the writer) and batchId (the number of its batch)"
            raise BadOption(name, options.writer_id or options.batch_id, remedy)
        return options


def spark_options(cls: type[SourceOptions] | type[SinkOptions]) -> list[Option]:
    """The options of a class, those of the connection last; ``flag`` is the name that Spark's users write."""
    shared = {field.name for field in fields(_ConnectionOptions)}
    return sorted(options_of(cls), key=lambda each: each.name in shared)


def _parsed(cls: type[SourceOptions] | type[SinkOptions], given: Mapping[str, str]) -> dict[str, Any]:
    """The value of each field."""
    options = {str(each.flag): each for each in spark_options(cls)}
    known = {name.lower(): name for name in options}
    for name, text in given.items():
        if name.lower() not in known and name.lower() not in _OF_SPARK and "." not in name:
            near = difflib.get_close_matches(name.lower(), known, 1)
            hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(options)}"
            raise BadOption(name, text, f"there is no such option; {hint}")
    texts = {name.lower(): text for name, text in given.items()}
    return {each.name: _value(name, each, texts.get(name.lower())) for name, each in options.items()}


def _value(name: str, declared: Option, text: str | None) -> object:
    """The typed value of an option; an empty text counts as not set."""
    if not text and declared.default is not MISSING:
        return declared.default
    parse: Callable[[str], object] = declared.parse or str
    try:
        return parse(text or "")
    except ValueError as error:
        raise BadOption(name, text, str(error)) from error


def _for_each_endpoint(
    name: str, value: str | int | dict[str, int] | None, endpoints: tuple[str, ...]
) -> str | dict[str, int] | None:
    if isinstance(value, int) and len(endpoints) == 1:
        return {endpoints[0]: value}
    if isinstance(value, int) or (isinstance(value, dict) and set(value) != set(endpoints)):
        remedy = f"give a JSON object with an offset for each endpoint: {', '.join(endpoints)}"
        raise BadOption(name, value, remedy)
    return value
