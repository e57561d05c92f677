"""Settings that make no sense are refused, and the refusal names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.aquifer.log import MemoryJournal, SqliteJournal

BOUNDS = ["max_records", "max_bytes", "cache_bytes"]


@pytest.mark.parametrize("setting", BOUNDS)
@pytest.mark.parametrize("value", [0, -1])
def test_a_bound_below_one(path: Path, setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"SqliteJournal\({setting}\) must be at least 1, not {value}"):
        SqliteJournal(path, **{setting: value})

    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("setting", BOUNDS)
@pytest.mark.parametrize("value", [1.5, "10", None, True])
def test_a_bound_that_is_no_whole_number(path: Path, setting: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"SqliteJournal\({setting}\) must be a whole number"):
        SqliteJournal(path, **{setting: value})


@pytest.mark.parametrize("setting", ["max_records", "max_bytes"])
def test_the_bounds_of_the_journal_in_memory(setting: str) -> None:
    with pytest.raises(ValueError, match=rf"MemoryJournal\({setting}\)"):
        MemoryJournal(**{setting: 0})
    with pytest.raises(TypeError, match=rf"MemoryJournal\({setting}\)"):
        MemoryJournal(**{setting: "many"})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -3.5, float("nan"), float("inf")])
def test_an_age_that_is_none(path: Path, value: float) -> None:
    with pytest.raises(ValueError, match=r"SqliteJournal\(max_age\) must be greater than 0"):
        SqliteJournal(path, max_age=value)


def test_an_age_that_is_no_number(path: Path) -> None:
    with pytest.raises(TypeError, match=r"SqliteJournal\(max_age\) must be a number"):
        SqliteJournal(path, max_age="1h")  # type: ignore[arg-type]


def test_a_switch_that_is_no_bool(path: Path) -> None:
    with pytest.raises(TypeError, match=r"SqliteJournal\(keep_acknowledged\) must be True or False"):
        SqliteJournal(path, keep_acknowledged=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, 7, b"journal.db"])
def test_a_path_that_is_none(value: Any) -> None:
    with pytest.raises(TypeError, match=r"SqliteJournal\(path\) must be"):
        SqliteJournal(value)


def test_an_empty_path() -> None:
    with pytest.raises(ValueError, match=r"SqliteJournal\(path\) must name a file"):
        SqliteJournal("")
