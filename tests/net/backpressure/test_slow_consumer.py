"""A sender that would push 2 GiB meets a consumer of 1 MB/s: it waits, and our memory stays as it was.

All combinations run at the same time, each with a server process of its own: what is waited for is the
consumers' leisure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.net.backpressure.peers import TWO_GIB, Pushing, connected, largest_buffer
from tests.net.backpressure.serving import SMALL_BUFFERS, Served, served, until
from tests.net.tcp.loops import LOOPS

pytestmark = pytest.mark.slow

WATCHED = 4_000_000
"""Bytes that the consumer takes while we look."""
MOST_GROWTH = 5_000_000
"""Bytes by which the server may grow meanwhile."""

WORST = 40 * MOST_GROWTH
"""By so much, and we look no longer."""


class Way(NamedTuple):
    loop: str
    secure: bool
    small_buffers: bool

    def __str__(self) -> str:
        parts = (self.loop, "TLS" if self.secure else "plain")
        return "-".join((*parts, "small buffers" if self.small_buffers else "default buffers"))

    @property
    def buffers(self) -> dict[str, int]:
        return SMALL_BUFFERS if self.small_buffers else {}

    def trusting(self, certificates: Path) -> Path | None:
        return certificates if self.secure else None

    @property
    def held(self) -> int:
        """Bytes that may be on their way between sender and consumer, at most."""
        if self.small_buffers:
            # The kernel doubles each size that it is told. Ours: read-ahead and a chunk; below TLS one more.
            return 2 * sum(SMALL_BUFFERS.values()) + 1_000_000
        return largest_buffer("tcp_rmem") + largest_buffer("tcp_wmem") + 1_000_000


WAYS = list(itertools.starmap(Way, itertools.product(LOOPS, (False, True), (True, False))))


@dataclass
class Seen:
    """What was observed on one way."""

    before: int
    peak: int = 0
    sent: int = 0
    consumed: int = 0
    most_on_the_way: int = 0

    @property
    def growth(self) -> int:
        return self.peak - self.before


@pytest.fixture(scope="module")
def seen(certificates: Path) -> Iterator[dict[Way, Seen]]:
    with ExitStack() as stack:
        servers = {
            way: stack.enter_context(
                served("slow", way.loop, tls=way.trusting(certificates), options=way.buffers)
            )
            for way in WAYS
        }
        results = {way: Seen(server.forget_peak()) for way, server in servers.items()}
        watched: list[tuple[Served, Pushing, Seen]] = []
        for way, server in servers.items():
            tls = way.trusting(certificates)
            connection = stack.enter_context(connected(server.port, tls=tls, options=way.buffers))
            pushing = stack.enter_context(Pushing([connection]))
            watched.append((server, pushing, results[way]))

        def look() -> list[int]:
            return [observe(*each) for each in watched]

        def seen_enough(consumed: list[int]) -> bool:
            return min(consumed) >= WATCHED or any(each.growth > WORST for each in results.values())

        until(look, seen_enough)
        yield results


def observe(server: Served, pushing: Pushing, seen: Seen) -> int:
    # What was sent is looked at first: what is consumed in between can only make the difference smaller.
    seen.sent = pushing.sent
    figures = server.figures()
    seen.consumed, seen.peak = figures["consumed"], figures["peak"]
    seen.most_on_the_way = max(seen.most_on_the_way, seen.sent - seen.consumed)
    return seen.consumed


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_server_does_not_grow(seen: dict[Way, Seen], way: Way, record_property: Any) -> None:
    record_property("seen", f"{seen[way]}, growth={seen[way].growth}")

    assert seen[way].growth < MOST_GROWTH
    assert seen[way].consumed >= WATCHED


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_sender_is_held_to_the_kernels_buffers_and_the_consumers_pace(
    seen: dict[Way, Seen], way: Way
) -> None:
    assert seen[way].sent < TWO_GIB
    assert seen[way].most_on_the_way < way.held


def test_a_consumer_that_hoards_would_be_seen() -> None:
    """The same measurement, of a handler that takes all and keeps it: so it can fail."""
    with served("hoarding", "asyncio") as server, connected(server.port) as connection:
        before = server.forget_peak()
        with Pushing([connection]):
            figures = until(server.figures, lambda figures: figures["consumed"] > 8 * MOST_GROWTH)

    assert figures["peak"] - before > MOST_GROWTH
