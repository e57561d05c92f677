"""Where a query stands, as Spark logs it: an offset for each gateway, and what is needed to read it again.

Spark keeps these as JSON, compares them as texts, and gives them back after a restart, perhaps to another
process that knows nothing else. So a position says everything: the epoch that its offsets belong to, into how
many partitions a batch that ends here was cut, under which name the gateways hold records back, and where the
query began. The last is needed once: Spark logs where a batch ends, not where it starts, and asks anew for
the start of the very first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Piece", "Position", "pieces"]


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the logs of all gateways of a source."""

    offsets: Mapping[str, int]
    """By endpoint."""
    epochs: Mapping[str, str]
    initial: Mapping[str, int]
    """Where the query began."""
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

    def at(self, offsets: Mapping[str, int], partitions: int) -> Position:
        """The same query, further on."""
        return replace(self, offsets=dict(offsets), partitions=partitions)

    def start_of_batch_to(self, end: Position) -> Mapping[str, int]:
        """Where a batch that ends at ``end`` starts, if Spark says that it starts here.

        Of the first batch Spark does not remember the start, and after a restart this is a new beginning,
        under a new name: then the end knows better.
        """
        return self.offsets if self.name == end.name else end.initial


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a batch that one task reads."""

    endpoint: str
    epoch: str
    start: int
    stop: int


def pieces(start: Mapping[str, int], end: Position) -> list[Piece]:
    """Cut a batch: a function of what Spark has logged alone, so that a repeated batch is cut the same."""
    cut: list[Piece] = []
    for endpoint, stop in end.offsets.items():
        first = start.get(endpoint, end.initial[endpoint])
        length = -(-(stop - first) // end.partitions) if stop > first else 0
        cut += [
            Piece(endpoint, end.epochs[endpoint], at, min(at + length, stop))
            for at in (range(first, stop, length) if length else ())
        ]
    return cut
