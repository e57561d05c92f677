"""The figures that screens show: rates over some seconds, trouble instead of an error, and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from penstock.observe import Hop, LiveFigures, LiveUpdate, Snapshot, SubscriberFigures, Verdict, level
from penstock.observe.dashboard.history import History


def hop(id: str, records: int = 0, **figures: object) -> Hop:
    return Hop(id=id, kind="cursor", name=id, records_in=records, records_out=records, **figures)  # type: ignore[arg-type]


def at(clock: float, *hops: Hop) -> Snapshot:
    return Snapshot(at=clock, clock=clock, hops=hops)


def live(*snapshots: Snapshot | Exception) -> list[LiveUpdate]:
    def look() -> Snapshot:
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return found

    left = iter(snapshots)
    clock = count(100)
    figures = LiveFigures(look, window=5.0, monotonic=lambda: float(next(clock)))
    return [figures.update() for _ in snapshots]


def rate(update: LiveUpdate, id: str) -> float:
    (found,) = (each.records_out for each in update.rates if each.hop == id)
    return found


def test_a_rate_is_taken_over_the_last_seconds_so_that_bursts_do_not_flicker() -> None:
    bursts = [at(float(second), hop("query", 1000 * (second // 5))) for second in range(21)]

    updates = live(*bursts)

    assert updates[0].rates == ()
    assert [rate(each, "query") for each in updates[5:]] == [200.0] * 16


def test_a_hop_that_is_new_has_a_rate_after_its_second_look() -> None:
    updates = live(at(0, hop("a", 0)), at(1, hop("a", 10), hop("b", 0)), at(2, hop("a", 20), hop("b", 7)))

    assert [each.hop for each in updates[1].rates] == ["a"]
    assert rate(updates[2], "b") == 7.0


def test_an_error_keeps_the_last_figures_and_says_for_how_long() -> None:
    first, second, third, fourth = live(
        at(1, hop("a", 5)), OSError("no answer"), OSError("no answer"), at(4, hop("a", 8))
    )

    assert first.trouble is None
    assert (second.trouble, second.snapshot.hops) == ("no answer", first.snapshot.hops)
    assert third.trouble_seconds == 1.0
    assert fourth.trouble is None
    assert rate(fourth, "a") == 1.0


def test_an_observer_with_another_clock_begins_anew() -> None:
    updates = live(at(50, hop("a", 500)), at(1, hop("a", 3)), at(2, hop("a", 5)))

    assert updates[1].rates == ()
    assert rate(updates[2], "a") == 2.0


def test_of_too_many_cursors_those_that_lag_most_are_shown_and_the_limiting_one_always() -> None:
    cursors = [hop(f"cursor-{number}", lag_records=number) for number in range(1000)]
    subscribers = tuple(
        SubscriberFigures(hop=f"cursor-{number}", name=str(number), lag_records=number)
        for number in range(1000)
    )
    verdict = Verdict(sentence="…", limiting="cursor-0")
    look = Snapshot(at=1, clock=1, hops=(*cursors,), verdict=verdict, subscribers=subscribers)

    (update,) = live(look)

    shown = [each.id for each in update.snapshot.hops]
    assert len(shown) == 200
    assert update.hops_left_out == update.subscribers_left_out == 800
    assert shown[0] == "cursor-0"
    assert "cursor-999" in shown
    assert len(update.to_json()) < 200_000


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({}, None),
        ({"waiting": 5}, None),
        ({"waiting": 5, "capacity": 10}, 0.5),
        ({"waiting": 1, "capacity": 10, "waiting_bytes": 90, "capacity_bytes": 100}, 0.9),
        ({"waiting": 11, "capacity": 10}, 1.0),
    ],
)
def test_a_level_is_by_records_or_by_bytes_whichever_is_more(
    figures: dict[str, int], expected: float | None
) -> None:
    assert level(hop("log", **figures)) == expected


def figures(history: History) -> tuple[list[float], dict[str, dict[str, list[float | None]]]]:
    shown = history.to_dict()
    return shown["clock"], shown["hops"]  # type: ignore[return-value]


def updates_of(points: int, hops: int = 1, first: int = 0) -> Iterator[LiveUpdate]:
    snapshots = (
        at(float(t), *(hop(f"hop-{n}", t * 10, waiting=1, capacity=4) for n in range(first, first + hops)))
        for t in range(points)
    )
    look = LiveFigures(snapshots.__next__)
    return (look.update() for _ in range(points))


def test_the_history_keeps_the_last_points_and_forgets_hops_that_are_gone() -> None:
    history = History(points=50)
    for update in updates_of(130):
        history.add(update)
    clock, hops = figures(history)
    assert clock == [float(t) for t in range(80, 130)]
    assert hops["hop-0"]["rate"] == [10.0] * 50
    assert hops["hop-0"]["level"] == [0.25] * 50
    assert hops["hop-0"]["lag"] == [None] * 50

    for update in updates_of(300, first=7):  # a clock that went back: another observer
        history.add(update)
    clock, hops = figures(history)
    assert list(hops) == ["hop-7"]
    assert {len(column) for column in hops["hop-7"].values()} == {len(clock)} == {50}


def test_the_history_has_a_bound_however_many_hops_come_and_go() -> None:
    history = History(points=20)
    for number in range(500):
        history.add(LiveUpdate(snapshot=at(float(number), *(hop(f"{number}-{n}") for n in range(100)))))

    _, hops = figures(history)
    assert len(hops) <= 64
    assert {len(column) for columns in hops.values() for column in columns.values()} == {20}
