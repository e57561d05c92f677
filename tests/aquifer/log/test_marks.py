"""Marks: how far each writer has come. They are bounded, and none goes whose writer may still come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.aquifer import AquiferError, Gateway
from penstock.aquifer.log import Journal, marks
from penstock.aquifer.log.marks import KEPT_FOR, Marks
from tests.aquifer.writing import couriers, deliver, log_of

Open = Callable[..., Any]
DAY = 24 * 3600.0


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for three."""
    monkeypatch.setattr(marks, "MOST", 3)


def written(marks: Marks, now: float, **values: str | None) -> None:
    marks.apply(marks.changes(values, now))


def test_to_look_one_up_copies_nothing(journal: Journal) -> None:
    view = journal.marks
    journal.append([], {"a": "1"})

    assert journal.marks is view
    assert view == {"a": "1"}
    with pytest.raises(TypeError):
        view["a"] = "2"  # type: ignore[index]


def test_one_that_is_none_is_deleted(open_any: Open) -> None:
    journal = open_any()
    journal.append([], {"a": "1", "b": "2"})
    journal.append([], {"a": None, "c": None})

    assert journal.marks == {"b": "2"}


def test_they_are_stored_and_deleted_for_good(open_sqlite: Open) -> None:
    journal = open_sqlite()
    journal.append([], {"a": "1", "b": "2"})
    journal.append([], {"a": None, "b": "3"})
    journal.close()

    assert open_sqlite().marks == {"b": "3"}


@pytest.mark.usefixtures("few")
class TestBound:
    def test_a_new_name_has_to_wait_while_all_may_still_come_back(self) -> None:
        marks = Marks()
        written(marks, 0.0, a="1", b="1")
        assert marks.have_space_for("c", 0.0)
        written(marks, 0.0, c="1")

        assert not marks.have_space_for("d", KEPT_FOR)
        assert marks.have_space_for("a", KEPT_FOR)

    def test_the_one_that_was_written_longest_ago_makes_room(self) -> None:
        marks = Marks()
        for day, name in enumerate("abc"):
            written(marks, day * DAY, **{name: "1"})
        written(marks, 3 * DAY, a="2")
        now = KEPT_FOR + 1 * DAY + 1.0

        assert marks.have_space_for("d", now)
        written(marks, now, d="1")
        assert marks.values == {"c": "1", "a": "2", "d": "1"}
        assert not marks.have_space_for("e", now)

    def test_without_need_nothing_goes_however_old(self) -> None:
        marks = Marks()
        written(marks, 0.0, a="1", b="1")

        written(marks, 100 * KEPT_FOR, b="2")

        assert marks.values == {"a": "1", "b": "2"}

    def test_it_holds_over_a_restart(self, open_sqlite: Open) -> None:
        journal = open_sqlite()
        journal.append([], {"a": "1", "b": "1", "c": "1"})
        journal.close()
        journal = open_sqlite()

        assert not journal.has_space_for_mark("d")
        assert journal.has_space_for_mark("a")

    def test_one_writer_too_many_is_told_and_the_others_go_on(self) -> None:
        with Gateway(None, "tcp://127.0.0.1:0", writable=True) as gateway, couriers() as connect:
            courier = connect(gateway)
            for name in ("a", "b", "c"):
                deliver(courier, 0, [name.encode()], query=name)

            courier.stage("d", 0, 0, 0, 0, count=1, payload=b"\x91\xc4\x01d", metadata=b"\x93\x01\xc0\xc0")
            with pytest.raises(AquiferError, match="no space for 'd': too many others write"):
                courier.publish("d", 0, [(0, 0, 1)], timeout=3.0)
            deliver(courier, 1, [b"again"], query="a")

            assert log_of(gateway.endpoint) == [b"a", b"b", b"c", b"again"]
