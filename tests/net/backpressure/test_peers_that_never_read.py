"""A peer that never reads holds less than 1 MB of ours, whatever it is sent and whatever it sends.

Many such peers are there at once, so that what the first connection of a process costs is not taken for what
each of them costs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.net.backpressure.peers import Pushing, all_comes_back, many_connected, read, round_trips
from tests.net.backpressure.serving import Served, at_rest, served, until
from tests.net.tcp.loops import LOOPS

pytestmark = pytest.mark.slow

PEERS = 8
MOST_HELD = 1_000_000
"""Bytes of ours for each peer."""
TLS_ENGINE = 1_500_000
"""Bytes for each peer that are none of ours: between a stalled peer and a transport with TLS, either loop has
four buffers of a quarter of a MiB and more. A bare echo protocol without us takes 1.7 MB."""
WORST = 400 * MOST_HELD
"""Bytes of ours at which we look no longer."""
MORE_THAN_THE_KERNEL_HOLDS = 100_000_000
READ_FIRST = 4_000_000
# Little room on the way to the peer makes it stall soon; ours on the way in is left as it is.
PEER = {"SO_RCVBUF": 65_536}

loops = pytest.mark.parametrize("loop", LOOPS)
secured = pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])


def stalled(
    server: Served, progress: Callable[[], int], record_property: Any, before: int, *, secure: bool = False
) -> None:
    """Wait until nothing moves any more; no peer may have more than its share of us by then."""

    def look() -> tuple[int, list[dict[str, int]]]:
        return progress(), server.figures()["connections"]

    _, connections = at_rest(look, within=lambda seen: sum(each["unsent"] for each in seen[1]) < WORST)
    figures = server.figures()
    held = max(each["unsent"] + each["waiting"] for each in connections)
    growth = (figures["peak"] - before) / PEERS
    record_property("seen", f"{held=:,} growth={growth:,.0f} for each of {PEERS} peers")

    assert len(connections) == PEERS
    assert all(each["unsent"] for each in connections), "not every peer is stalled"
    assert held < MOST_HELD
    assert growth < MOST_HELD + (TLS_ENGINE if secure else 0)


def all_gone(server: Served) -> None:
    """Peers that go are noticed, although nobody was reading what they sent."""
    until(server.figures, lambda figures: not figures["connections"])


@loops
@secured
@pytest.mark.parametrize("element", [100, 262_144], ids="elements of {} bytes".format)
def test_an_endless_source_waits_for_a_peer_that_never_reads(
    loop: str, secure: bool, element: int, certificates: Path, record_property: Any
) -> None:
    """Every other peer has read for a while: what the sender has learned about its pace must not harm."""
    tls = certificates if secure else None
    with served("stream", loop, tls=tls, element=element) as server:
        before = server.forget_peak()
        with many_connected(PEERS, server.port, tls=tls, options=PEER) as peers:
            for peer in peers[::2]:
                read(peer, READ_FIRST)
            stalled(server, lambda: int(server.figures()["produced"]), record_property, before, secure=secure)
        all_gone(server)


@loops
@secured
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "not fused"])
def test_an_echo_waits_for_a_peer_that_sends_for_ever_and_never_reads(
    loop: str, secure: bool, fused: bool, certificates: Path, record_property: Any
) -> None:
    tls = certificates if secure else None
    with served("echo", loop, tls=tls, fused=fused) as server:
        before = server.forget_peak()
        with many_connected(PEERS, server.port, tls=tls, options=PEER) as peers, Pushing(peers) as pushing:
            until(lambda: pushing.least, bool)
            stalled(server, lambda: pushing.sent, record_property, before, secure=secure)
        all_gone(server)


@loops
@pytest.mark.parametrize(
    ("handler", "fused"),
    [("echo", True), ("echo", False), ("mapped_echo", True)],
    ids=["fused", "not fused", "mapped"],
)
def test_a_peer_that_was_modest_at_first_gets_no_more_of_us(
    loop: str, handler: str, fused: bool, record_property: Any
) -> None:
    """Small messages make for a wide window of elements; then the elements are as large as a read can be.

    Nothing is lost by it: when the peer reads at last, it gets everything.
    """
    with served(handler, loop, fused=fused) as server:
        with many_connected(PEERS, server.port, options=PEER) as peers:
            for peer in peers:
                round_trips(peer, 400)
            before = server.forget_peak()
            with Pushing(peers) as pushing:
                until(lambda: pushing.least, bool)
                stalled(server, lambda: pushing.sent, record_property, before)
            for peer in peers:
                all_comes_back(peer, pushing.sent_on(peer))
        all_gone(server)


@loops
@pytest.mark.parametrize("handler", ["dropping_echo", "dropping_mapped_echo"])
@pytest.mark.parametrize("modest", [0, 400], ids="{} small messages first".format)
def test_what_may_be_dropped_is_dropped_and_the_peer_need_not_wait(
    loop: str, modest: int, handler: str
) -> None:
    """Where a handler has said that it would rather lose than wait, a full socket does not stop reading.

    What was asked for before it was full comes all the same, and may be much larger than what came before.
    """
    with (
        served(handler, loop) as server,
        many_connected(1, server.port, options=PEER) as peers,
    ):
        round_trips(peers[0], modest)
        with Pushing(peers) as pushing:
            until(lambda: pushing.sent, lambda sent: sent > MORE_THAN_THE_KERNEL_HOLDS)
            (held,) = server.figures()["connections"]

    assert 0 < held["unsent"] + held["waiting"] < MOST_HELD
