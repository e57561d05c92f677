"""A thousand connections, half of which are stalled: the others do not notice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.net import load
from benchmarks.net.placing import Role, placed
from tests.net.backpressure.peers import Pushing, many_connected
from tests.net.backpressure.serving import SMALL_BUFFERS, Served, at_rest, served, until
from tests.required_tools import missing_part

pytestmark = pytest.mark.slow

HALF = 500
PAIRS = 5
MOST_PAIRS = 60
"""So many are measured on a machine that is busy with something else."""
SECONDS = 0.2
"""Of load for each measurement; there are two for each pair."""
LEAST_SHARE = 0.5
"""Of the throughput that there is without the stalled ones; the rest is the scatter of busy machines."""
MOST_HELD = 1_000_000
"""Bytes of ours for each stalled connection."""


@pytest.fixture(scope="module", autouse=True)
def program() -> Path:
    try:
        return load.compiled()
    except load.NoCompiler as problem:
        missing_part("A thousand connections", str(problem))


@contextmanager
def stalled_connections(server: Served) -> Iterator[None]:
    """Connections that send for ever and never read; they are stalled when the block begins."""
    with many_connected(HALF, server.port, options=SMALL_BUFFERS) as peers, Pushing(peers) as pushing:
        until(lambda: pushing.least, bool)
        at_rest(lambda: (pushing.sent, server.figures()["connections"]))
        yield


def throughput(server: Served) -> float:
    report = load.pingpong(server.port, connections=HALF, size=64, seconds=SECONDS)
    return report["round_trips"] / report["seconds"]


@pytest.mark.rare(9, kind="a thousand connections")
@pytest.mark.parametrize(("loop", "fused"), [("asyncio", False), ("uvloop", True)])
def test_the_others_keep_their_throughput(loop: str, fused: bool, record_property: Any) -> None:
    with ExitStack() as stack:
        with placed(Role.SERVER):
            crowded, calm = (
                stack.enter_context(served("echo", loop, fused=fused, options=SMALL_BUFFERS)) for _ in "ab"
            )
        before = crowded.forget_peak()
        with stalled_connections(crowded):
            figures = crowded.figures()
            growth = (figures["peak"] - before) / HALF
            held = [each["unsent"] + each["waiting"] for each in figures["connections"]]
            # By turns, and the best of each: whatever else the machine does can only take something away.
            with_stalled = without = 0.0
            for number in range(MOST_PAIRS):
                if number >= PAIRS and with_stalled / without >= LEAST_SHARE:
                    break
                with_stalled, without = max(with_stalled, throughput(crowded)), max(without, throughput(calm))
            still_there = len(crowded.figures()["connections"])
        record_property("seen", f"{with_stalled=:.0f} {without=:.0f} {growth=:,.0f} held={max(held):,}")

        assert len(held) == HALF
        assert all(each["unsent"] for each in figures["connections"]), "not every peer is stalled"
        assert still_there >= HALF
        assert max(held) < MOST_HELD
        assert growth < MOST_HELD
        assert with_stalled / without >= LEAST_SHARE
