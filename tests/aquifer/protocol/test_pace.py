"""How much is sent ahead: little in the beginning, more on a quick line, what is carried on a slow one."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from penstock.aquifer.protocol.pace import Pace

KIB = 1024


@dataclass
class Line:
    """A line between a gateway that always has something to send and a subscriber that answers at once."""

    rate: float
    trip: float = 0.0
    pace: Pace = field(default_factory=lambda: Pace(16 << 20))
    now: float = 0.0
    sent: int = 0
    received: int = 0
    longest: float = 0.0

    def run(self, seconds: float) -> None:
        """Send as much as the pace allows, and tell it what has arrived, when its answer is back."""
        free_at, answers = self.now, list[tuple[float, int, float]]()
        until = self.now + seconds
        while self.now < until:
            while self.pace.may_send(self.sent - self.received):
                self.sent += self.pace.ask_every
                self.pace.asked(self.sent, self.received, self.now)
                free_at = max(free_at, self.now) + self.pace.ask_every / self.rate
                answers.append((free_at + self.trip, self.sent, self.now))
            self.now, self.received, when = answers.pop(0)
            self.longest = max(self.longest, self.now - when)
            self.pace.arrived(self.received, self.now)


def test_on_a_quick_line_everything_that_is_allowed_is_sent_after_a_few_round_trips() -> None:
    line = Line(rate=1e9, trip=0.001)
    line.run(0.02)
    assert line.pace.ahead == 16 << 20
    assert line.pace.message == 16 << 20
    assert not line.pace.slow


@pytest.mark.parametrize("rate", [8_000, 45_000, 1_000_000])
def test_on_a_slow_line_no_more_is_on_its_way_than_it_carries_in_a_few_seconds(rate: int) -> None:
    line = Line(rate=rate)
    line.run(60)
    assert line.pace.ahead <= max(4 * rate, 16 * KIB)
    assert line.pace.message <= max(rate, 4 * KIB)
    assert line.pace.slow
    line.longest = 0.0
    line.run(60)
    assert line.longest < 6


@pytest.mark.parametrize(("rate", "trip"), [(50e6, 0.2), (1e6, 1.0), (45_000, 0.8), (8_000, 0.1)])
def test_a_line_is_kept_busy_however_far_away(rate: float, trip: float) -> None:
    line = Line(rate=rate, trip=trip)
    line.run(30)
    before = line.received
    line.run(30)
    assert line.received - before > 0.9 * 30 * rate


def test_a_line_that_gets_faster_is_noticed() -> None:
    line = Line(rate=45_000)
    line.run(30)
    line.rate = 5e6
    line.run(30)
    assert line.pace.ahead > 1 << 20


def test_a_line_that_gets_slower_is_noticed() -> None:
    line = Line(rate=50e6, trip=0.01)
    line.run(1)
    line.rate = 100_000
    line.run(300)
    assert line.pace.ahead < 500_000


def test_a_source_that_gives_little_does_not_make_the_line_look_slow() -> None:
    pace = Pace(16 << 20)
    for number in range(1, 100):
        assert pace.may_send(100)
        pace.asked(100 * number, 100 * (number - 1), float(number))
        pace.arrived(100 * number, number + 0.4)
    assert pace.ahead == 64 * KIB, "neither more nor less: nothing had to wait"


def test_on_a_quick_line_there_is_soon_less_to_ask_though_nothing_has_to_wait() -> None:
    """A live source of 10 MB a second on a machine where everything arrives within a millisecond."""
    pace, sent, now = Pace(16 << 20), 0, 0.0
    for _ in range(20):
        before, sent = sent, sent + pace.ask_every
        now += pace.ask_every / 10e6
        assert pace.may_send(sent - before)
        pace.asked(sent, before, now)
        pace.arrived(sent, now + 0.001)
    assert pace.ask_every == 4 << 20
