"""Where a query stands, as Spark logs it: an offset for each gateway, and what is needed to read it again.

Spark keeps these as JSON, compares them as texts, and gives them back after a restart, perhaps to another
process that knows nothing else. So a position says everything: the epoch that its offsets belong to, into how
many partitions a batch that ends here was cut, under which name the gateways hold records back, and where the
query began. The last is needed once: Spark logs where a batch ends, not where it starts, and asks anew for
the start of the very first one.

A log is known by its epoch. Its endpoint is only where it was last found: a gateway that is started again
with the same journal may listen elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

__all__ = ["OffsetRange", "Position", "cut_ranges", "partition_count"]

_SMALLEST_RANGE: Final = 1000
"""Records; a task of its own costs more than to read fewer than so many in the task beside it."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the logs of all gateways of a source."""

    offsets: Mapping[str, int]
    """By endpoint."""
    epochs: Mapping[str, str]
    initial: Mapping[str, int]
    """Where the query began to read the log; another than at first if the gateway has started a new one."""
    name: str
    """The durable id under which the gateways keep records for this query."""
    partitions: int

    def to_json(self) -> dict[str, Any]:
        """What Spark logs; the same position always gives the same text."""
        return {
            "epochs": dict(sorted(self.epochs.items())),
            "initial": dict(sorted(self.initial.items())),
            "name": self.name,
            "offsets": dict(sorted(self.offsets.items())),
            "partitions": self.partitions,
        }

    @classmethod
    def from_json(cls, logged: Mapping[str, Any]) -> Position:
        """What :meth:`to_json` made."""
        return cls(
            offsets=dict(logged["offsets"]),
            epochs=dict(logged["epochs"]),
            initial=dict(logged["initial"]),
            name=str(logged["name"]),
            partitions=int(logged["partitions"]),
        )

    @property
    def is_beginning(self) -> bool:
        """Whether nothing was read up to here."""
        return self.offsets == self.initial

    def at(self, offsets: Mapping[str, int], partitions: int) -> Position:
        """The same query, further on."""
        return replace(self, offsets=dict(offsets), partitions=partitions)

    def with_new_log(self, endpoint: str, epoch: str, first: int) -> Position:
        """The same query, after a gateway has started a new log: it begins anew there, with its first."""
        return replace(
            self,
            offsets={**self.offsets, endpoint: first},
            epochs={**self.epochs, endpoint: epoch},
            initial={**self.initial, endpoint: first},
        )

    def moved(self, places: Mapping[str, str]) -> Position:
        """The same position, when gateways listen elsewhere: ``places`` has the new endpoints by the old."""
        return replace(
            self,
            offsets={places.get(endpoint, endpoint): offset for endpoint, offset in self.offsets.items()},
            epochs={places.get(endpoint, endpoint): epoch for endpoint, epoch in self.epochs.items()},
            initial={places.get(endpoint, endpoint): offset for endpoint, offset in self.initial.items()},
        )


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The part of a batch that one task reads."""

    endpoint: str
    epoch: str
    start: int
    stop: int
    name: str
    """Under which the gateway keeps these records."""


def cut_ranges(start: Position, end: Position) -> list[OffsetRange]:
    """Cut a batch: a function of what Spark has logged alone, so that a repeated batch is cut the same.

    Of the first batch Spark has not logged the start. If it has to be repeated, ``start`` is a new beginning,
    with other offsets perhaps, and under another name: then the end knows better.
    """
    cut: list[OffsetRange] = []
    for endpoint, stop in sorted(end.offsets.items()):
        first = end.initial[endpoint]
        if not start.is_beginning and start.epochs.get(endpoint) == end.epochs[endpoint]:
            first = start.offsets[endpoint]
        length = max(1, -(-(stop - first) // end.partitions))
        cut += [
            OffsetRange(endpoint, end.epochs[endpoint], at, min(at + length, stop), end.name)
            for at in range(first, stop, length)
        ]
    return cut


def partition_count(wanted: int | None, endpoints: int, records: int) -> int:
    """Into how many pieces to cut what comes from each gateway; ``wanted`` is what the user said.

    A data source is not told how many cores there are. Those of this machine are a good guess on one machine,
    and better than none on a cluster.
    """
    if wanted is not None:
        return wanted
    cores = max(1, (os.cpu_count() or 2) // endpoints)
    return max(1, min(cores, records // (_SMALLEST_RANGE * endpoints)))
