"""The pauses that reconnecting and retrying share."""

from __future__ import annotations

import doctest

import pytest

from penstock import backoff
from penstock.backoff import Backoff


def test_the_example_of_the_module_holds() -> None:
    assert doctest.testmod(backoff).failed == 0


def test_pauses_double_up_to_the_longest_however_often_one_tries() -> None:
    policy = Backoff(first=0.1, longest=1.0, jitter=0.0)

    assert [policy.pause(attempt) for attempt in range(1, 6)] == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert policy.pause(10**9) == 1.0
    assert Backoff(first=1.0, longest=float("inf"), jitter=0.0).pause(10) == 512.0


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 0.5), (0.5, 1.0), (1.0, 1.5)])
def test_jitter_moves_a_pause_by_a_part_of_itself(chance: float, pause: float) -> None:
    assert Backoff(first=1.0, jitter=0.5).pause(1, lambda: chance) == pause


def test_patience_ends() -> None:
    assert not Backoff(first=1.0).gives_up(10**9)
    assert Backoff(first=1.0, patience=5.0).gives_up(5.0)
    assert not Backoff(first=1.0, patience=5.0).gives_up(4.9)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"first": -1}, "negative"),
        ({"first": 61}, "above the longest"),
        ({"first": 1, "jitter": 2}, "from 0 to 1"),
        ({"first": 1, "patience": 0}, "seconds above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Backoff(**settings)
