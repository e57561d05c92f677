"""The token bucket that streams, sockets and gateways share."""

from __future__ import annotations

import doctest

import pytest

from penstock import token_bucket
from penstock.token_bucket import TokenBucket


def test_its_example_runs_as_printed() -> None:
    assert doctest.testmod(token_bucket) == (0, 3)


def test_a_bucket_gives_its_rate_whatever_the_clock_does() -> None:
    bucket = TokenBucket(10, burst=3, now=100.0)
    assert [bucket.take(100.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.take(100.0) == pytest.approx(0.1)
    assert bucket.take(100.05) == pytest.approx(0.05)
    assert bucket.take(100.1001) == 0.0
    bucket.give_back()
    assert bucket.take(100.1001) == 0.0
    assert bucket.take(100.1001) > 0.09
    # However long the rest, no more than a burst.
    assert [bucket.take(200.0) > 0 for _ in range(4)] == [False, False, False, True]


def test_what_was_refused_costs_nothing() -> None:
    bucket = TokenBucket(10, burst=1, now=0.0)
    assert bucket.take(0.0) == 0.0
    taken = sum(bucket.take(tick / 100) == 0.0 for tick in range(1, 101))

    assert taken == 10  # ten per second, although somebody asked a hundred times


def test_a_cost_above_the_burst_is_paid_later() -> None:
    bucket = TokenBucket(100, burst=50, now=0.0)

    assert bucket.take(0.0, 250) == 0.0
    assert bucket.take(0.0, 50) == pytest.approx(2.5)
    assert bucket.take(2.4, 50) == pytest.approx(0.1)
    assert bucket.take(2.5, 50) == 0.0


def test_a_cost_above_the_burst_waits_until_the_bucket_is_full() -> None:
    bucket = TokenBucket(100, burst=50, now=0.0)
    assert bucket.take(0.0, 1) == 0.0

    assert bucket.take(0.0, 1000) == pytest.approx(0.01)
    assert bucket.take(0.01, 1000) == 0.0


def test_waiting_as_long_as_it_says_is_enough() -> None:
    """Sums of fractions must not make it ask for another wait that no clock can measure."""
    bucket = TokenBucket(3, burst=1, now=0.0)
    now = 0.0
    for _ in range(1000):
        pause = bucket.take(now)
        now += pause
        assert pause == 0.0 or bucket.take(now) == 0.0
