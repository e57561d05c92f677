"""A connection that is slow, or one that never waits, takes nothing from the others of its server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.net.backpressure.peers import Pushing, Reading, connected, round_trips
from tests.net.backpressure.served import SLOW_HOST, STREAM_HOST
from tests.net.backpressure.serving import SMALL_BUFFERS, served, until
from tests.net.tcp.loops import LOOPS

pytestmark = pytest.mark.slow

loops = pytest.mark.parametrize("loop", LOOPS)

ROUND_TRIPS = 500
MOST_IN_A_TURN = 500_000
"""Bytes that a source may send before the loop gets its turn."""


@loops
def test_a_slow_consumer_does_not_stop_other_connections(loop: str) -> None:
    with (
        served("mixed", loop, options=SMALL_BUFFERS) as server,
        connected(server.port, host=SLOW_HOST, options=SMALL_BUFFERS) as slow,
        connected(server.port) as lively,
        Pushing([slow]) as pushing,
    ):
        # So much more than was consumed: the sender is being held.
        until(lambda: pushing.sent - int(server.figures()["consumed"]), lambda ahead: ahead > 200_000)
        before = server.figures()["consumed"]
        round_trips(lively, ROUND_TRIPS)
        until(lambda: int(server.figures()["consumed"]), lambda consumed: consumed > before)
        round_trips(lively, ROUND_TRIPS)


@loops
@pytest.mark.parametrize("element", [100, 16_384], ids="elements of {} bytes".format)
def test_a_source_that_never_waits_leaves_the_others_their_turn(
    loop: str, element: int, record_property: Any
) -> None:
    with served("mixed", loop, element=element) as server:
        server.tell("watch_turns")
        with (
            connected(server.port, host=STREAM_HOST) as fast,
            connected(server.port) as lively,
            Reading(fast) as reading,
        ):
            until(lambda: reading.received, lambda received: received > 1_000_000)
            before = reading.received
            round_trips(lively, ROUND_TRIPS)
            figures = until(server.figures, lambda seen: reading.received > before + 1_000_000)

        streamed = reading.received - before
        record_property("seen", f"{streamed=:,} most_in_a_turn={figures['most_in_a_turn']:,}")
        assert 0 < figures["most_in_a_turn"] < MOST_IN_A_TURN
