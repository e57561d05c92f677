"""What a durable reader has not acknowledged comes again to its successor, whatever happened in between.

Readers stall for longer than their lease, lose their lines, see their gateway restart, and are killed with
records in hand. Then another comes with the same id, and without a place of its own.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aquifer.protocol.messages import OnSubscribe, Subscribe, SubscribeFields, extension
from penstock.aquifer.protocol.session import SessionEvent
from penstock.aquifer.protocol.subscribe_options import SubscribeOptions
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog, send_all
from tests.aquifer.protocol.on_the_line import OnTheLine, asked
from tests.aquifer.protocol.simulated_gateway import SimulatedGateway, Source
from tests.aquifer.protocol.simulated_network import Line, SimulatedSubscriber, Trouble, World

TOTAL = 150


class HardWorld(World):
    """A world in which readers stall and die."""

    stalled_until = 0.0

    def _turn(self, line: Line) -> None:
        if self.now >= self.stalled_until:
            super()._turn(line)

    def replace_reader(self, subscriber: SimulatedSubscriber) -> None:
        """The reader is killed, and another one comes in its place."""
        (line,) = self.lines
        if line.topic is not None:
            self._drop(line)
        self.up.clear()  # What it said last is lost with it, or it would take the place of its successor.
        self.lines = [Line(subscriber)]
        self._do(self.lines[0], subscriber.side.start(self.now))

    def sleep(self, seconds: float) -> None:
        """The gateway is down, and comes back."""
        self.now += seconds
        self.restart(crash=self.random.random() < 0.5)


def reader(random: Random, lease: float) -> SimulatedSubscriber:
    wishes = SubscribeOptions(
        dialect="extended", name="w", lease=lease, max_window=40, window=40, patience=600
    )
    return SimulatedSubscriber("reader", wishes, random, pace=random.choice([0.3, 1, 5]), manual=True)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_that_was_not_acknowledged_is_skipped_for_a_successor(seed: int) -> None:
    random = Random(seed)
    lease = random.choice([0.5, 2.0])
    first = reader(random, lease)
    # Room for everything: a place that was forgotten is the beginning then, and never beyond it.
    gateway = SimulatedGateway(Source(TOTAL, batch=7), max_records=10 * TOTAL, random=random)
    trouble = Trouble(lose=0.05, repeat=0.05, delay=0.1, drop=random.choice([0.0, 0.01]))
    world = HardWorld(gateway, [first], trouble, random)
    readers, acknowledged = [first], [0]
    while not readers[-1].over:
        world.step()
        assert world.now < 600, world.status()
        happens = random.random()
        if happens < 0.004:
            world.stalled_until = world.now + lease * random.choice([0.5, 3])
        elif happens < 0.006:
            world.sleep(lease * random.choice([0.1, 3]))
        elif happens < 0.010 and len(readers) < 6:
            reading = readers[-1].reading
            acknowledged.append(max(acknowledged[-1], reading.acknowledged if reading is not None else 0))
            readers.append(reader(random, lease))
            world.stalled_until = 0.0
            world.replace_reader(readers[-1])

    for known, one in zip(acknowledged, readers, strict=True):
        if one.got:
            assert one.got[0] <= known, "this one begins behind what nobody has dealt with"
            assert one.got == list(range(one.got[0], one.got[0] + len(one.got)))
    assert readers[-1].got[-1] == TOTAL - 1


# -------------------------------------------------------------------- one thing at a time
def test_who_asks_again_says_what_it_has_dealt_with_beside_what_has_arrived() -> None:
    line = OnTheLine(name="w")
    line.welcome()
    line.frame(0, 100)
    line.hand_on(10)
    (wishes,) = asked(line.refuse("LEASE"))
    assert wishes is not None
    assert (wishes.from_, wishes.ack) == (100, 10)


def subscribe(front: FrontTable, peer: bytes, **wishes: object) -> int:
    """Come as ``w``; the offset at which the gateway begins."""
    answer = front.ask(Subscribe(x=SubscribeFields(v=1, id="w", **wishes)), peer)  # type: ignore[arg-type]
    assert isinstance(answer, OnSubscribe), answer
    given = extension(answer.x)
    assert given is not None
    assert isinstance(given.next, int)
    front.session(peer).handle(SessionEvent.JOINED, front.now)
    return given.next


def test_a_reader_that_comes_back_after_its_lease_keeps_what_it_has_not_acknowledged() -> None:
    front = FrontTable(log=PretendedLog(head=1000))
    subscribe(front, b"one", me="a", nth=1, lease=5000)
    front.grant(b"one", limit=100)
    send_all(front.session(b"one"))
    front.grant(b"one", limit=100, ack=10, got=100)
    front.pass_time(6)
    assert front.table.sessions == front.table.cursors.saved == {}

    assert subscribe(front, b"two", me="a", nth=2, from_=100, ack=10) == 100
    assert front.table.low_watermark() == 10
    front.ask(Subscribe(cancel=True), b"two")

    assert subscribe(front, b"successor") == 10


def test_where_a_reader_starts_is_not_taken_for_what_it_has_dealt_with() -> None:
    """One of another make, which says from and nothing else, and then dies."""
    front = FrontTable(log=PretendedLog(head=1000))
    assert subscribe(front, b"one", from_=100) == 100
    front.ask(Subscribe(cancel=True), b"one")
    assert subscribe(front, b"successor") == 0


def test_an_acknowledgement_beside_from_moves_no_place_back_or_beyond_what_it_reads() -> None:
    front = FrontTable(log=PretendedLog(head=1000))
    subscribe(front, b"one")
    front.grant(b"one", limit=100)
    send_all(front.session(b"one"))
    front.grant(b"one", limit=100, ack=40)
    front.ask(Subscribe(cancel=True), b"one")

    subscribe(front, b"two", from_=60, ack=90)
    assert front.session(b"two").acknowledged == 40


@pytest.mark.parametrize("ack", [-1, 1001])
def test_an_acknowledgement_that_cannot_be_is_refused(ack: int) -> None:
    front = FrontTable(log=PretendedLog(head=1000))
    answer = front.ask(Subscribe(x=SubscribeFields(v=1, id="w", from_=5, ack=ack)))
    assert not isinstance(answer, OnSubscribe)
    assert front.table.sessions == {}
