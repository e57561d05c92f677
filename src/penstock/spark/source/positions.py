"""The position of a query, as Spark logs it: an offset for each gateway, and all that a restart needs.

Spark stores positions as JSON, compares them as strings, and returns them after a restart, perhaps to another
process that knows nothing else. So a position includes the epoch of each log, the number of partitions of the
batch that ends there and its number, the name of the cursor that the gateways keep, and where the query
began. The last is needed once: Spark logs where a batch ends, but not where it starts, and asks again for the
start of the very first batch.

The epoch identifies a log. Its endpoint may change: a gateway that is restarted with the same journal may
listen elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.spark.errors import BadCheckpoint

__all__ = ["OffsetRange", "QueryPosition", "cut_ranges", "partition_count"]

_SMALLEST_RANGE: Final = 1000
"""Records; a further task costs more than reading this many records in the same task."""
_SHOWN: Final = 100
"""Characters of a foreign position."""


@dataclass(frozen=True, slots=True)
class QueryPosition:
    """A position in the logs of all gateways of a source."""

    offsets: Mapping[str, int]
    """By endpoint."""
    epochs: Mapping[str, str]
    initial: Mapping[str, int]
    """Where the query began to read each log. It changes if a gateway starts a new log."""
    name: str
    """The durable id of the query's cursors."""
    partitions: int
    query: str = ""
    """Identifies the query; unlike the name of its cursors, it is new for each checkpoint."""
    batch: int = 0
    """The number of the batch that ends here."""

    def to_json(self) -> dict[str, Any]:
        """The form that Spark logs; equal positions have equal JSON."""
        return {
            "batch": self.batch,
            "epochs": dict(sorted(self.epochs.items())),
            "initial": dict(sorted(self.initial.items())),
            "name": self.name,
            "offsets": dict(sorted(self.offsets.items())),
            "partitions": self.partitions,
            "query": self.query,
        }

    @classmethod
    def from_json(cls, logged: Mapping[str, Any]) -> QueryPosition:
        """Read the form of :meth:`to_json`; BadCheckpoint if another source has logged it."""
        try:
            return cls(
                offsets=dict(logged["offsets"]),
                epochs=dict(logged["epochs"]),
                initial=dict(logged["initial"]),
                name=str(logged["name"]),
                partitions=int(logged["partitions"]),
                # Checkpoints of earlier versions have neither.
                query=str(logged.get("query", logged["name"])),
                batch=int(logged.get("batch", 0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            text = repr(logged)
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            raise BadCheckpoint(
                "the checkpoint belongs to another query, or its sources were in another order: it has "
                f"{shown} where the position in a gateway's log should be. Give each query a checkpoint of "
                "its own, and leave its sources in their order"
            ) from None

    @property
    def is_beginning(self) -> bool:
        """Whether the query has read nothing yet."""
        return self.offsets == self.initial

    def at(self, offsets: Mapping[str, int], partitions: int) -> QueryPosition:
        """A later position of the same query: the end of its next batch."""
        return replace(self, offsets=dict(offsets), partitions=partitions, batch=self.batch + 1)

    def with_new_log(self, endpoint: str, epoch: str, first: int) -> QueryPosition:
        """The position after a gateway has started a new log: at the first record of that log."""
        return replace(
            self,
            offsets={**self.offsets, endpoint: first},
            epochs={**self.epochs, endpoint: epoch},
            initial={**self.initial, endpoint: first},
        )

    def without(self, endpoints: Collection[str]) -> QueryPosition:
        """The same position without some gateways."""
        return replace(
            self,
            offsets={each: offset for each, offset in self.offsets.items() if each not in endpoints},
            epochs={each: epoch for each, epoch in self.epochs.items() if each not in endpoints},
            initial={each: offset for each, offset in self.initial.items() if each not in endpoints},
        )

    def moved(self, endpoints: Mapping[str, str]) -> QueryPosition:
        """The same position if gateways listen elsewhere; ``endpoints`` maps the old endpoints to the new."""
        return replace(
            self,
            offsets={endpoints.get(endpoint, endpoint): offset for endpoint, offset in self.offsets.items()},
            epochs={endpoints.get(endpoint, endpoint): epoch for endpoint, epoch in self.epochs.items()},
            initial={endpoints.get(endpoint, endpoint): offset for endpoint, offset in self.initial.items()},
        )


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of one log that one task reads."""

    endpoint: str
    epoch: str
    start: int
    stop: int
    name: str
    """The durable id of the query's cursor."""


def cut_ranges(start: QueryPosition, end: QueryPosition) -> list[OffsetRange]:
    """Cut a batch into ranges. They depend on Spark's log alone, so a repeated batch has the same ranges.

    Spark has not logged the start of the first batch. If that batch is repeated, ``start`` is a new
    beginning, perhaps with other offsets and another name. Then ``end`` has the right ones.
    """
    cut: list[OffsetRange] = []
    for endpoint, stop in sorted(end.offsets.items()):
        first = end.initial[endpoint]
        if not start.is_beginning and start.epochs.get(endpoint) == end.epochs[endpoint]:
            first = start.offsets[endpoint]
        length = _range_length(stop - first, end.partitions)
        cut += [
            OffsetRange(endpoint, end.epochs[endpoint], at, min(at + length, stop), end.name)
            for at in range(first, stop, length)
        ]
    return cut


def partition_count(wanted: int | None, counts: Collection[int], least: int | None = None) -> int:
    """The number of ranges for each gateway, of which a batch has so many records each.

    ``wanted`` is what the user asked for, and ``least`` the fewest ranges of all gateways together.

    Spark does not tell a data source how many cores there are. The number of this machine is right for a
    local master, and a fair guess on a cluster.
    """
    if wanted is None:
        cores = max(1, (os.cpu_count() or 2) // len(counts))
        wanted = max(1, min(cores, sum(counts) // (_SMALLEST_RANGE * len(counts))))
    if least is None:
        return wanted
    partitions = max(wanted, -(-least // len(counts)))
    # A gateway with few records, or none, has fewer ranges than this.
    while (missing := min(least, sum(counts)) - _range_count(counts, partitions)) > 0:
        partitions += -(-missing // len(counts))
    return partitions


def _range_count(counts: Collection[int], partitions: int) -> int:
    return sum(-(-count // _range_length(count, partitions)) for count in counts)


def _range_length(records: int, partitions: int) -> int:
    return max(1, -(-records // partitions))
