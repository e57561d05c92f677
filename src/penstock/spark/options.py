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
from typing import Any, Final, Literal, TypeAlias

from penstock.aquifer import (
    CurveClient,
    GatewayUnreachable,
    ProtocolViolation,
    Refused,
    UnknownStream,
    load_keys,
    load_public,
)
from penstock.options import Option, option, options_of
from penstock.spark import option_values
from penstock.spark.errors import BadOption

__all__ = ["LogEnd", "Offsets", "SinkOptions", "SourceOptions", "spark_options"]

LogEnd: TypeAlias = Literal["earliest", "latest"]
"""An end of the log."""
Offsets: TypeAlias = LogEnd | dict[str, int | LogEnd]
"""An end of the log, or an offset or an end for each endpoint."""

_OF_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname", "paths"})
"""Options that Spark itself adds or reads, in lower case."""
_OF_TABLE: Final = "option."
"""What Spark puts before the options of a table, among the other properties that it has."""
_STREAM_LEASE: Final = 3600.0
"""Seconds for which a gateway keeps the cursor of a stopped query by default."""


# ---------------------------------------------------------------- the options
@dataclass(frozen=True, slots=True, kw_only=True)
class _ConnectionOptions:
    """How to reach a gateway; these the source and the sink have in common."""

    patience: float = option(
        30.0,
        flag="patienceSeconds",
        metavar="seconds",
        parse=option_values.seconds,
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
    def connection_hints(self, name: str = "endpoint") -> Iterator[None]:
        """Add to a connection error which options to look at; ``name`` is the one with the address."""
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
            raise GatewayUnreachable(f'{error} Check the option "{name}"; {hint}.') from error
        except UnknownStream as error:
            raise UnknownStream(f'{error}. Check the option "{name}"') from error
        except ProtocolViolation as error:
            raise ProtocolViolation(f'{error}. This is the gateway of the option "{name}"') from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(_ConnectionOptions):
    """The options of ``spark.read`` and ``spark.readStream``."""

    endpoints: tuple[str, ...] = option(
        flag="endpoint",
        metavar="endpoints",
        parse=option_values.endpoints,
        help="where the gateway listens; several, separated by commas, are shards",
    )
    value: str = option(
        "binary",
        flag="value",
        metavar="format",
        parse=option_values.value_format,
        help="what a record is: `binary` or `string`; with a schema `json`, `msgpack`, `arrow` or `csv`; or "
        "`avro` or `protobuf`, with `valueSchema`",
    )
    value_schema: str | None = option(
        None,
        flag="valueSchema",
        metavar="schema",
        help="the schema of `avro`: its JSON, or the path of its file; or of `protobuf`: the path of a "
        "descriptor set, `shop.desc?message=shop.Order`. A path has to exist on every worker",
    )
    separator: str = option(
        ",",
        flag="sep",
        metavar="character",
        parse=option_values.separator,
        help="what is between the fields of a record of `csv`",
    )
    infer_schema: bool = option(
        False,
        flag="inferSchema",
        metavar="true or false",
        parse=option_values.flag,
        shown="false",
        help="whether to infer the schema of `json`, `msgpack` or `arrow` from the first 1000 records of "
        "each endpoint; only for `spark.read`",
    )
    include_metadata: bool = option(
        False,
        flag="includeMetadata",
        metavar="true or false",
        parse=option_values.flag,
        shown="false",
        help="whether the columns `endpoint`, `offset`, `timestamp` and `key` are what the gateway knows "
        "about a record, not fields of its value; with `binary` and `string` they always are",
    )
    starting: Offsets | None = option(
        None,
        flag="startingOffsets",
        metavar="offsets",
        parse=option_values.offsets,
        shown="earliest",
        help="where to start: `earliest`, `latest`, a number, or JSON with one of these for each endpoint "
        "or stream",
    )
    """None if the option is not set: a subscription that the gateway knows then goes on where it was."""
    ending: Offsets = option(
        "latest",
        flag="endingOffsets",
        metavar="offsets",
        parse=option_values.offsets,
        help="where to end, in the same forms; only for `spark.read`",
    )
    starting_at: int | None = option(
        None,
        flag="startingTimestamp",
        metavar="time",
        parse=option_values.instant,
        help="start with the first record of this time or later: `2026-01-31T12:00:00Z`, or milliseconds "
        "since 1970; instead of `startingOffsets`",
    )
    """Microseconds since 1970."""
    ending_at: int | None = option(
        None,
        flag="endingTimestamp",
        metavar="time",
        parse=option_values.instant,
        help="end before the first record of this time or later; instead of `endingOffsets`",
    )
    partitions: int | None = option(
        None,
        flag="partitions",
        metavar="number",
        parse=option_values.count,
        shown="the number of cores",
        help="tasks for each endpoint and batch",
    )
    min_partitions: int | None = option(
        None,
        flag="minPartitions",
        metavar="number",
        parse=option_values.count,
        help="the fewest tasks of a batch, over all endpoints, however small it is",
    )
    partition_by: str | None = option(
        None,
        flag="partitionBy",
        metavar="what",
        parse=option_values.partitioning,
        help="`key`: the records of a key are in one partition, in the order of the log",
    )
    max_records: int | None = option(
        None,
        flag="maxRecordsPerTrigger",
        metavar="number",
        parse=option_values.count,
        help="the most records in a batch",
    )
    max_bytes: int | None = option(
        None,
        flag="maxBytesPerTrigger",
        metavar="number",
        parse=option_values.count,
        help="the most bytes in a batch; a record that is larger is a batch of its own",
    )
    target_seconds: float | None = option(
        None,
        flag="targetBatchSeconds",
        metavar="seconds",
        parse=option_values.seconds,
        help="how long a batch should take; the source learns how many records fit",
    )
    target_latency: float | None = option(
        None,
        flag="targetLatencySeconds",
        metavar="seconds",
        parse=option_values.seconds,
        help="how old a record may be when its batch is done; the source chooses how many records a batch "
        "has, how long it waits for them, and its tasks; instead of `targetBatchSeconds`",
    )
    subscription: str | None = option(
        None,
        flag="subscription",
        metavar="id",
        parse=option_values.identity,
        shown="an id in the checkpoint",
        help="the durable id under which the gateway keeps the cursor; for one query at a time",
    )
    lease: float | None = option(
        None,
        flag="leaseSeconds",
        metavar="seconds",
        parse=option_values.seconds,
        shown=f"{_STREAM_LEASE:.0f}",
        help="how long the gateway keeps records for a query that is not running; more than its `max_lease` "
        "is an error",
    )
    """None if the option is not set."""
    wait: float = option(
        1.0,
        flag="waitSeconds",
        metavar="seconds",
        parse=option_values.seconds,
        shown="1",
        help="how long a trigger waits for records before it reports that there are none",
    )
    fail_on_data_loss: bool = option(
        True,
        flag="failOnDataLoss",
        metavar="true or false",
        parse=option_values.flag,
        shown="true",
        help="whether the query fails if records that it needs are gone",
    )
    mode: str = option(
        None,
        flag="mode",
        metavar="mode",
        parse=option_values.mode,
        shown="`PERMISSIVE`; with `deadLetter` `DROPMALFORMED`",
        help="what happens to a wrong record: with `PERMISSIVE`, columns that cannot be read are null; with "
        "`DROPMALFORMED`, it is left out; with `FAILFAST`, it fails the query",
    )
    corrupt_record: str = option(
        "_corrupt_record",
        flag="columnNameOfCorruptRecord",
        metavar="name",
        help="the column of type `string` or `binary` for the bytes of a wrong record, if the schema has it",
    )
    dead_letter: str | None = option(
        None,
        flag="deadLetter",
        metavar="endpoint",
        parse=option_values.dead_letter_endpoint,
        help="where to write wrong records, each exactly once: a gateway, or a stream of one, that accepts "
        "records",
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
        if values["target_latency"] is not None and values["target_seconds"] is not None:
            remedy = "set either targetLatencySeconds or targetBatchSeconds, not both"
            raise BadOption("targetLatencySeconds", f"{values['target_latency']:g}", remedy)
        _check_formats(cls, values)
        for field, name in (("starting", "startingOffsets"), ("ending", "endingOffsets")):
            values[field] = _for_each_endpoint(name, values[field], values["endpoints"])
        values["mode"] = _mode(values["mode"], values["dead_letter"], values["endpoints"])
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(_ConnectionOptions):
    """The options of ``df.write`` and ``df.writeStream``."""

    endpoint: str = option(
        flag="endpoint", metavar="endpoint", parse=option_values.endpoint, help="where the gateway listens"
    )
    value: str = option(
        "json",
        flag="value",
        metavar="format",
        parse=option_values.value_format,
        help="what a row becomes: `json` or `msgpack`, an object; `string` or `binary`, its column `value` "
        "(and `key`); `arrow`, a row of a batch; `csv`, a line; `avro` or `protobuf`, with `valueSchema`, a "
        "record of that schema",
    )
    value_schema: str | None = option(
        None,
        flag="valueSchema",
        metavar="schema",
        help="the schema of `avro` or `protobuf`, as for reading, without an `id`",
    )
    separator: str = option(
        ",",
        flag="sep",
        metavar="character",
        parse=option_values.separator,
        help="what is between the fields of a line of `csv`",
    )
    timeout: float = option(
        600.0,
        flag="timeoutSeconds",
        metavar="seconds",
        parse=option_values.seconds,
        shown="600",
        help="how long a batch may wait for space in the gateway's log",
    )
    fail_on_data_loss: bool = option(
        True,
        flag="failOnDataLoss",
        metavar="true or false",
        parse=option_values.flag,
        shown="true",
        help="whether a stream fails if the gateway no longer knows its last batch: the journal is another "
        "one, or an older copy",
    )
    writer_id: str | None = option(
        None,
        flag="writerId",
        metavar="id",
        parse=option_values.identity,
        help="names the writer; set with `batchId`, it makes `df.write` inside `foreachBatch` exactly once",
    )
    batch_id: int | None = option(
        None,
        flag="batchId",
        metavar="number",
        parse=option_values.batch_number,
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
        values = _parsed(cls, given)
        _check_formats(cls, values)
        options = cls(**values)
        if (options.writer_id is None) != (options.batch_id is None):
            name = "writerId" if options.batch_id is None else "batchId"
            remedy = "set both writerId (the name of the writer) and batchId (the number of its batch)"
            raise BadOption(name, options.writer_id or options.batch_id, remedy)
        return options


def spark_options(cls: type[SourceOptions] | type[SinkOptions]) -> list[Option]:
    """The options of a class, those of the connection last; ``flag`` is the name that Spark's users write."""
    shared = {field.name for field in fields(_ConnectionOptions)}
    return sorted(options_of(cls), key=lambda each: each.name in shared)


_NOT_AN_OPTION: Final = {
    "includeheaders": "records have no headers; with includeMetadata, their endpoint, offset, timestamp and "
    "key are columns",
}
"""Options of other sources, in lower case, and what to do without them."""


def _parsed(cls: type[SourceOptions] | type[SinkOptions], given: Mapping[str, str]) -> dict[str, Any]:
    """The value of each field."""
    if given.get("provider", "").lower() == "aquifer":  # CREATE TABLE without columns: a table's properties.
        given = {
            name.removeprefix(_OF_TABLE): text for name, text in given.items() if name.startswith(_OF_TABLE)
        }
    options = {str(each.flag): each for each in spark_options(cls)}
    known = {name.lower(): name for name in options}
    for name, text in given.items():
        if name.lower() not in known and name.lower() not in _OF_SPARK:
            if name.lower() in _NOT_AN_OPTION:
                raise BadOption(name, text, _NOT_AN_OPTION[name.lower()])
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


_OF_FORMATS: Final = {
    "separator": ("sep", ("csv",), "only records of csv have a separator"),
    "value_schema": (
        "valueSchema",
        ("avro", "protobuf"),
        "only avro and protobuf have a schema of their own",
    ),
    "infer_schema": (
        "inferSchema",
        ("json", "msgpack", "arrow", "csv"),
        "its columns are known without that",
    ),
}
"""Options that only some formats have, by field: the name, the formats, and why others do not."""


def _check_formats(cls: type[SourceOptions] | type[SinkOptions], values: Mapping[str, Any]) -> None:
    """Raise BadOption for an option that would have no effect with this format."""
    value, defaults = values["value"], {each.name: each.default for each in spark_options(cls)}
    for field, (name, formats, why) in _OF_FORMATS.items():
        given = values.get(field)
        if given != defaults.get(field) and value not in formats:
            text = str(given).lower() if isinstance(given, bool) else str(given)
            remedy = f"leave {name} out, or choose another format"
            raise BadOption(name, text, f'option "value" is {value!r}, and {why}: {remedy}')


def _mode(mode: str | None, dead_letter: str | None, endpoints: tuple[str, ...]) -> str:
    if dead_letter is None:
        return mode or "PERMISSIVE"
    if mode == "FAILFAST":
        remedy = "such a query fails at the first wrong record, and writes none: leave one of the two out"
        raise BadOption("deadLetter", dead_letter, f"option \"mode\" is 'FAILFAST', and {remedy}")
    if dead_letter in endpoints:
        remedy = "the query would read its own dead letters: give another gateway, or a stream of its own"
        raise BadOption("deadLetter", dead_letter, remedy)
    return mode or "DROPMALFORMED"


def _for_each_endpoint(
    name: str, value: option_values.GivenOffsets | None, endpoints: tuple[str, ...]
) -> str | dict[str, int | str] | None:
    """The value with an offset for each endpoint; an object of streams belongs to the endpoint above it."""
    if isinstance(value, int) and len(endpoints) == 1:
        return {endpoints[0]: value}
    if not isinstance(value, int | dict):
        return value
    given = {} if isinstance(value, int) else value
    missing = [endpoint for endpoint in endpoints if endpoint not in given]
    unknown = [endpoint for endpoint in given if endpoint not in endpoints]
    if missing or unknown:
        problem = f"{', '.join(unknown)} is not read; " if unknown else ""
        remedy = f"give a JSON object with an offset for each endpoint: {', '.join(endpoints)}"
        raise BadOption(name, json.dumps(value), f"{problem}{remedy}")
    return dict(given)
