"""The two sides of the protocol against each other, over lines that lose, repeat, delay and break.

Sizes are random, and often too small for what they have to hold: windows of one record, logs of one record,
records larger than any window. A run that takes too long, in simulated seconds, fails: whatever only a timer
gets going again is a stall.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock.aquifer.errors import OffsetGone, SourceFailed, TakenOver
from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.subscribe_options import SubscribeOptions
from tests.aquifer.protocol.simulated_gateway import SimulatedGateway, Source
from tests.aquifer.protocol.simulated_network import SimulatedSubscriber, Trouble, World

TOTAL = 120


def reader(random: Random, label: str = "reader", pace: float = 1, **wishes: Any) -> SimulatedSubscriber:
    wishes = {"dialect": "extended", "max_window": 1000, **wishes}
    return SimulatedSubscriber(label, SubscribeOptions(**wishes), random, pace=pace)


def tight_world(seed: int, trouble: Trouble, *, readers: int = 1, named: bool = False) -> World:
    """Everything that can be too small is, now and then."""
    random = Random(seed)
    pick = random.choice
    gateway = SimulatedGateway(
        Source(TOTAL, batch=pick([1, 3, 20]), width=pick([1, 8, 8, 200])),
        Limits(
            frames_in_flight=pick([1, 2, 5, 1024]),
            bytes_in_flight=pick([1, 100, 1000, 1 << 24]),
            max_frame_records=pick([1, 3, 10_000]),
        ),
        max_records=pick([1, 5, 20, 1000]),
        max_bytes=pick([1, 300, 1 << 20]),
        random=random,
        readers=readers,
    )
    window, window_bytes = pick([1, 2, 7, 100]), pick([1, 50, 500, 1 << 20])
    subscribers = [
        reader(
            random,
            f"reader {number}",
            pace=pick([0.2, 0.6, 1, 10]),
            name=f"reader {number}" if named else None,
            window=window,
            window_bytes=window_bytes,
        )
        for number in range(readers)
    ]
    for subscriber in subscribers:
        subscriber.manual = pick([False, False, True])
    return World(gateway, subscribers, trouble, random)


def roomy_world(*subscribers: SimulatedSubscriber, trouble: Trouble | None = None, **gateway: Any) -> World:
    """Nothing goes wrong and nothing is too small, but for what the test says."""
    random = Random(1)
    gateway.setdefault("source", Source(TOTAL))
    made = SimulatedGateway(random=random, readers=len(subscribers), **gateway)
    return World(made, list(subscribers), trouble or Trouble(), random, step=(0.005,))


def assert_all_was_read(played: World, stop: int = TOTAL) -> None:
    for line in played.lines:
        assert line.subscriber.finished is None
        assert line.subscriber.got == list(range(stop))


# -------------------------------------------------------------------- whatever the sizes, whatever the lines
@pytest.mark.parametrize("seed", range(10))
def test_everything_arrives_in_order_over_good_lines(seed: int) -> None:
    played = tight_world(seed, Trouble())
    played.run(most=60)
    assert_all_was_read(played)
    assert played.lines[0].subscriber.side.subscriptions == 1, "there was no reason to subscribe again"


@pytest.mark.parametrize("seed", range(10))
def test_control_messages_may_be_lost_repeated_and_overtaken(seed: int) -> None:
    played = tight_world(seed, Trouble(lose=0.2, repeat=0.2, delay=0.3))
    played.run(most=100)
    assert_all_was_read(played)


@pytest.mark.parametrize("seed", range(10))
def test_requests_may_be_overtaken_by_those_of_a_later_connection(seed: int) -> None:
    played = tight_world(seed, Trouble(delay=0.5, late=3.0, drop=0.005), readers=2, named=True)
    played.run(most=300)
    assert_all_was_read(played)


@pytest.mark.parametrize("seed", range(10))
def test_what_a_broken_connection_lost_is_sent_again(seed: int) -> None:
    played = tight_world(seed, Trouble(drop=0.01, delay=0.1))
    played.run(most=100)
    assert_all_was_read(played)


@pytest.mark.parametrize("seed", range(10))
def test_a_restarted_gateway_goes_on_where_its_readers_stand(seed: int) -> None:
    played = tight_world(seed, Trouble(restart=0.004, drop=0.002), readers=2, named=True)
    played.run(most=120)
    assert_all_was_read(played)


@pytest.mark.parametrize("seed", range(10))
def test_everything_can_go_wrong_at_once(seed: int) -> None:
    trouble = Trouble(lose=0.1, repeat=0.1, delay=0.2, late=2.0, drop=0.005, restart=0.002)
    played = tight_world(seed, trouble, readers=3, named=True)
    played.run(most=300)
    assert_all_was_read(played)


# -------------------------------------------------------------------- one thing at a time
@pytest.mark.parametrize("window", [1, 2, 3, 4, 119, 120, 121])
def test_a_window_smaller_than_a_batch_and_an_end_at_its_edge(window: int) -> None:
    played = roomy_world(reader(Random(2), window=window), source=Source(TOTAL, batch=40))
    played.run(most=10)
    assert_all_was_read(played)
    assert played.lines[0].subscriber.widest <= played.lines[0].subscriber.side.ahead.size


def test_a_record_larger_than_the_window_in_bytes_passes() -> None:
    played = roomy_world(reader(Random(2), window_bytes=10), source=Source(TOTAL, width=500))
    played.run(most=10)
    assert_all_was_read(played)
    assert played.lines[0].subscriber.heaviest < 2 * 520, "one is let through, not more"


def test_bytes_are_granted_as_they_are_handed_on() -> None:
    played = roomy_world(reader(Random(2), window_bytes=1000, pace=0.2), source=Source(TOTAL, width=50))
    played.run(most=30)
    assert_all_was_read(played)
    assert played.lines[0].subscriber.heaviest <= 1000 + 60


def test_a_log_of_one_record_is_read_without_waiting_for_a_timer() -> None:
    played = roomy_world(reader(Random(2)), max_records=1, source=Source(TOTAL, batch=1))
    played.run(most=TOTAL * 0.03)
    assert_all_was_read(played)


def test_a_log_with_room_for_one_large_record_is_read_without_waiting_for_a_timer() -> None:
    source = Source(TOTAL, batch=1, width=900)
    played = roomy_world(reader(Random(2)), max_bytes=1000, source=source)
    played.run(most=TOTAL * 0.03)
    assert_all_was_read(played)


def test_the_last_of_several_frames_is_acknowledged_when_it_was_dealt_with() -> None:
    """The gateway asks for it in a frame that waits behind others: an early answer is not what it needs."""
    played = roomy_world(reader(Random(2), pace=0.3), max_records=16, source=Source(TOTAL, batch=2))
    played.run(most=TOTAL / 2 * 0.05)
    assert_all_was_read(played)


def test_a_window_larger_than_the_log_does_not_stall() -> None:
    played = roomy_world(reader(Random(2), window=1000), max_records=10, source=Source(TOTAL, batch=10))
    played.run(most=TOTAL / 10 * 0.1)
    assert_all_was_read(played)


def test_few_bytes_in_flight_do_not_stall() -> None:
    limits = Limits(bytes_in_flight=400)
    played = roomy_world(reader(Random(2)), limits=limits, source=Source(TOTAL, batch=1, width=390))
    played.run(most=TOTAL * 0.03)
    assert_all_was_read(played)


@pytest.mark.parametrize("stop", [0, 1, 33, TOTAL])
def test_a_range_ends_in_the_middle_of_a_batch(stop: int) -> None:
    played = roomy_world(reader(Random(2), stop=stop), source=Source(TOTAL, batch=40))
    played.run(most=5)
    assert_all_was_read(played, stop)


def test_a_range_that_reaches_beyond_the_end_of_the_stream_ends_with_it() -> None:
    played = roomy_world(reader(Random(2), stop=TOTAL + 10))
    played.run(most=5)
    assert_all_was_read(played)


def test_what_came_before_a_failure_is_delivered_even_if_the_connection_broke_just_then() -> None:
    source = Source(TOTAL, failure="the sensor broke")
    played = roomy_world(reader(Random(2), pace=0.5), source=source, trouble=Trouble(drop=0.1))
    played.run(most=200)
    subscriber = played.lines[0].subscriber
    assert subscriber.got == list(range(TOTAL))
    assert subscriber.finished is not None
    assert isinstance(subscriber.finished.error, SourceFailed)


def test_a_reader_that_is_slow_after_the_end_keeps_its_place() -> None:
    subscriber = reader(Random(2), pace=0.002, name="durable", lease=1.0)
    played = roomy_world(subscriber, source=Source(30, batch=5))
    played.run(most=60)
    assert_all_was_read(played, 30)
    for _ in range(10):
        played.step()
    gateway = played.gateway
    assert gateway.table.counters["leases ended"] == 0
    assert gateway.table.cursors.saved["durable"].acknowledged == 30


def test_a_reader_with_records_in_its_queue_comes_back_within_its_windows() -> None:
    subscriber = reader(Random(2), pace=0.05, window=30, window_bytes=300)
    played = roomy_world(subscriber, source=Source(TOTAL, batch=5), trouble=Trouble(drop=0.005))
    played.run(most=100)
    assert_all_was_read(played)
    assert subscriber.side.subscriptions > 1
    assert subscriber.heaviest <= 300 + 20


def test_a_source_does_not_wait_for_a_connection_that_its_reader_has_given_up() -> None:
    """The old session of a reader without an id would hold the log until its lease ends, a minute later."""
    played = roomy_world(reader(Random(2), pace=0.5), max_records=10, trouble=Trouble(drop=0.05))
    played.run(most=50)
    assert_all_was_read(played)
    assert played.lines[0].subscriber.side.subscriptions > 1
    assert len(played.gateway.table.sessions) <= 1


def test_a_silent_gateway_is_asked_again() -> None:
    """The data connection breaks and comes back, and the gateway never hears that it does."""
    played = roomy_world(reader(Random(2)), source=Source(TOTAL))
    for _ in range(8):
        played.step()
    line = played.lines[0]
    line.frames.clear()
    line.topic = b"elsewhere"
    played.run(most=10)
    assert_all_was_read(played)


@pytest.mark.parametrize("width", [5, 50, 200])
def test_a_best_effort_reader_goes_on_after_a_gap_however_wide(width: int) -> None:
    gaps: list[tuple[int, int]] = []
    subscriber = reader(
        Random(2),
        keep=False,
        window=4,
        max_window=4,
        pace=0.1,
        on_gap=lambda missing, first: gaps.append((missing, first)),
    )
    # Whoever is there for a moment only looks, and the source waits for it; this one stays.
    limits = Limits(look=0.001)
    played = roomy_world(subscriber, max_records=width, source=Source(3 * width, batch=3), limits=limits)
    played.run(most=120)
    missing = {offset for first, stop in gaps for offset in range(first, stop)}
    assert gaps
    assert subscriber.finished is None
    assert subscriber.got == [offset for offset in range(3 * width) if offset not in missing]


def overtaken_while_away(subscriber: SimulatedSubscriber) -> World:
    played = roomy_world(subscriber, max_records=10, source=Source(200, batch=2, available=4))
    while len(subscriber.got) < 4:
        played.step()
    played.restart()
    played.gateway.source.available = 200
    played.gateway.log.low_watermark = 200
    played.gateway.write()
    played.run(most=20)
    return played


def test_a_best_effort_reader_that_was_overtaken_while_it_was_away_goes_on_too() -> None:
    gaps: list[tuple[int, int]] = []
    subscriber = reader(Random(2), keep=False, on_gap=lambda *gap: gaps.append(gap))
    first = overtaken_while_away(subscriber).gateway.log.first
    assert 190 <= first < 200
    assert gaps == [(4, first)]
    assert subscriber.finished is None
    assert subscriber.got == [0, 1, 2, 3, *range(first, 200)]


def test_a_kept_reader_whose_records_are_gone_is_told() -> None:
    subscriber = reader(Random(2))
    first = overtaken_while_away(subscriber).gateway.log.first
    assert 190 <= first < 200
    assert subscriber.finished is not None
    error = subscriber.finished.error
    assert isinstance(error, OffsetGone)
    assert (error.first, error.head) == (first, 200)


def test_an_id_has_one_reader_at_a_time() -> None:
    random = Random(2)
    first, second = reader(random, "first", name="same", pace=0.1), reader(random, "second", name="same")
    played = roomy_world(first, second, source=Source(TOTAL))
    played.gateway.readers = 1
    played.run(most=30)
    taken, other = sorted((first, second), key=lambda subscriber: subscriber.finished is None)
    assert taken.finished is not None
    assert isinstance(taken.finished.error, TakenOver)
    assert other.got == list(range(other.got[0], TOTAL))
    assert other.got[0] <= len(taken.got), "the second goes on where the first has acknowledged"
