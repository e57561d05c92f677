"""The options of ``format("aquifer")``: what there is, what it must look like, and what to do if it does not.

Spark hands options over as texts, in any case of letters. Here they become typed values, once, before
anything is started. A misspelt option is an error, because Spark would silently do without it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from penstock.aquifer import Endpoint, GatewayUnreachable, Refused
from penstock.spark.errors import BadOption

__all__ = ["SINK_NAMES", "SOURCE_NAMES", "SinkOptions", "SourceOptions", "naming_the_options"]

_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", "paths"})
"""Options that Spark itself adds or reads."""
_LEASE: Final = 3600.0
"""Seconds that the gateways keep the place of a stopped query, unless the options say otherwise."""
_FAILFAST: Final = (
    "a record that cannot be read fails the query, as FAILFAST says, and there is no other mode. To deal "
    'with bad records, read with option("value", "string") and use from_json, which knows PERMISSIVE and '
    "DROPMALFORMED"
)

VALUE_FORMATS: Final = ("binary", "string", "json", "msgpack", "arrow")


@contextmanager
def naming_the_options(curve_key: str | None) -> Iterator[None]:
    """If a gateway does not answer, or does not let us in: say which options have to do with it."""
    try:
        yield
    except Refused as error:
        raise Refused(
            f'{error}. The option "curveKey" is {curve_key!r}: put the public half of that key where the '
            "gateway looks (penstock gateway --allow), or name a key that is there"
        ) from error
    except GatewayUnreachable as error:
        hint = (
            'if it wants keys, set the options "curveKey" and "curveServer"'
            if curve_key is None
            else 'it answers with keys only at its --curve-control, and only if the option "curveServer" is '
            "its own public key"
        )
        raise GatewayUnreachable(f'{error} The option "endpoint" says where it is; {hint}.') from error


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to read from gateways."""

    endpoints: tuple[str, ...]
    starting: str | dict[str, int] | None
    """``"earliest"``, ``"latest"`` or an offset for each endpoint; None if nothing was said."""
    ending: str | dict[str, int]
    partitions: int | None
    max_records: int | None
    max_bytes: int | None
    target_seconds: float | None
    subscription: str | None
    value: str
    fail_on_data_loss: bool
    patience: float
    lease: float | None
    """Seconds, if something was said."""
    wait: float
    curve_key: str | None
    curve_server: str | None

    @property
    def stream_lease(self) -> float:
        """How long the gateways keep the place of a stream of which they hear nothing."""
        return self.lease or _LEASE

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SourceOptions:
        """Read the options of a DataFrame reader."""
        options = _Options(given, SOURCE_NAMES)
        mode = options.text("mode") or "FAILFAST"
        if mode.upper() != "FAILFAST":
            raise BadOption("mode", mode, _FAILFAST)
        endpoints = options.endpoints()
        return cls(
            endpoints=endpoints,
            starting=options.offsets("startingOffsets", endpoints),
            ending=options.offsets("endingOffsets", endpoints) or "latest",
            partitions=options.whole_number("partitions"),
            max_records=options.whole_number("maxRecordsPerTrigger"),
            max_bytes=options.whole_number("maxBytesPerTrigger"),
            target_seconds=options.seconds("targetBatchSeconds"),
            subscription=options.text("subscription"),
            value=options.one_of("value", VALUE_FORMATS, "binary"),
            fail_on_data_loss=options.yes_or_no("failOnDataLoss", True),
            patience=options.seconds("patienceSeconds") or 30.0,
            lease=options.seconds("leaseSeconds"),
            wait=options.seconds("waitSeconds") or 1.0,
            curve_key=options.text("curveKey"),
            curve_server=options.text("curveServer"),
        )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How to write to a gateway."""

    endpoint: str
    value: str
    patience: float
    timeout: float
    """Seconds that a batch may wait for room behind the gateway."""
    delivery: tuple[str, int] | None
    """For ``df.write``: who writes, and which of its batches this is. It is published once, however often it
    is written."""
    curve_key: str | None
    curve_server: str | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SinkOptions:
        """Read the options of a DataFrame writer."""
        options = _Options(given, SINK_NAMES)
        endpoints = options.endpoints()
        if len(endpoints) > 1:
            raise BadOption("endpoint", ",".join(endpoints), "a query writes to one gateway; name one")
        return cls(
            endpoint=endpoints[0],
            value=options.one_of("value", VALUE_FORMATS, "json"),
            patience=options.seconds("patienceSeconds") or 30.0,
            timeout=options.seconds("timeoutSeconds") or 600.0,
            delivery=options.delivery(),
            curve_key=options.text("curveKey"),
            curve_server=options.text("curveServer"),
        )


SOURCE_NAMES: Final = (
    "endpoint",
    "startingOffsets",
    "endingOffsets",
    "partitions",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "targetBatchSeconds",
    "subscription",
    "value",
    "failOnDataLoss",
    "mode",
    "patienceSeconds",
    "leaseSeconds",
    "waitSeconds",
    "curveKey",
    "curveServer",
)
SINK_NAMES: Final = (
    "endpoint",
    "value",
    "writerId",
    "batchId",
    "patienceSeconds",
    "timeoutSeconds",
    "curveKey",
    "curveServer",
)


class _Options:
    """Texts by name, whatever the case of its letters."""

    def __init__(self, given: Mapping[str, str], names: tuple[str, ...]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        known = {name.lower(): name for name in names}
        for name in given:
            if name.lower() not in known and name.lower() not in _SPARKS_OWN and "." not in name:
                near = difflib.get_close_matches(name.lower(), known, 1)
                hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(names)}"
                raise BadOption(name, given[name], f"there is no such option; {hint}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower()) or None

    def endpoints(self) -> tuple[str, ...]:
        text = self.text("endpoint")
        example = 'give where a gateway listens: .option("endpoint", "tcp://127.0.0.1:5556")'
        if text is None:
            raise BadOption("endpoint", None, example)
        names = [name.strip() for name in text.split(",") if name.strip()]
        try:
            # In one order, so that the same gateways always have the same partitions.
            endpoints = tuple(sorted({str(Endpoint.parse(name)) for name in names}))
        except ValueError as error:
            raise BadOption("endpoint", text, str(error)) from error
        if not endpoints:
            raise BadOption("endpoint", text, example)
        return endpoints

    def offsets(self, name: str, endpoints: tuple[str, ...]) -> str | dict[str, int] | None:
        text = self.text(name)
        if text is None:
            return None
        if text.lower() in ("earliest", "latest"):
            return text.lower()
        remedy = (
            "give earliest, latest, a number, or with several endpoints a JSON object with an offset for "
            f'each: {{"{endpoints[0]}": 0}}'
        )
        try:
            value: Any = json.loads(text)
        except ValueError as error:
            raise BadOption(name, text, remedy) from error
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0 and len(endpoints) == 1:
            return {endpoints[0]: value}
        if not isinstance(value, dict) or set(value) != set(endpoints):
            raise BadOption(name, text, remedy)
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value.values()):
            raise BadOption(name, text, remedy)
        return value

    def whole_number(self, name: str) -> int | None:
        remedy = "give a whole number of at least 1"
        number: int | None = self._parsed(name, int, remedy)
        if number is not None and not 1 <= number < 2**63:
            raise BadOption(name, number, remedy)
        return number

    def seconds(self, name: str) -> float | None:
        remedy = "give a number of seconds above 0"
        number: float | None = self._parsed(name, float, remedy)
        if number is not None and not 0 < number < float("inf"):
            raise BadOption(name, number, remedy)
        return number

    def delivery(self) -> tuple[str, int] | None:
        writer = self.text("writerId")
        number: int | None = self._parsed("batchId", int, "give the number of the batch, from 0 on")
        if (writer is None) != (number is None):
            given, value = ("writerId", writer) if number is None else ("batchId", number)
            raise BadOption(given, value, "writerId and batchId go together: who writes, and which batch")
        if writer is None or number is None:
            return None
        if not 0 <= number < 2**63:
            raise BadOption("batchId", number, "give the number of the batch, from 0 on")
        return writer, number

    def one_of(self, name: str, values: tuple[str, ...], default: str) -> str:
        text = (self.text(name) or default).lower()
        if text not in values:
            raise BadOption(name, text, f"give one of {', '.join(values)}")
        return text

    def yes_or_no(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise BadOption(name, text, "give true or false")
        return text.lower() == "true"

    def _parsed(self, name: str, kind: Callable[[str], Any], remedy: str) -> Any:
        text = self.text(name)
        if text is None:
            return None
        try:
            return kind(text)
        except ValueError as error:
            raise BadOption(name, text, remedy) from error
