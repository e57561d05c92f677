"""Settings that make no sense are refused, and the refusal names them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.aquifer.log import MemoryJournal, SqliteJournal

BOUNDS = ["max_records", "max_bytes", "cache_bytes"]


@pytest.mark.parametrize("setting", BOUNDS)
@pytest.mark.parametrize("value", [0, -1])
def test_a_bound_below_one(path: Path, setting: str, value: Any) -> None:
    needs = rf"SqliteJournal\({setting}\) needs a number of at least 1, not {value}"
    with pytest.raises(ValueError, match=needs):
        SqliteJournal(path, **{setting: value})

    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("setting", BOUNDS)
@pytest.mark.parametrize("value", [1.5, "10", True])
def test_a_bound_that_is_no_whole_number(path: Path, setting: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"SqliteJournal\({setting}\) needs a whole number"):
        SqliteJournal(path, **{setting: value})


@pytest.mark.parametrize("setting", ["max_records", "max_bytes"])
def test_the_bounds_of_the_journal_in_memory(setting: str) -> None:
    with pytest.raises(ValueError, match=rf"MemoryJournal\({setting}\)"):
        MemoryJournal(**{setting: 0})
    with pytest.raises(TypeError, match=rf"MemoryJournal\({setting}\)"):
        MemoryJournal(**{setting: "many"})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -3.5, float("nan"), float("inf")])
def test_an_age_that_is_none(path: Path, value: float) -> None:
    with pytest.raises(
        ValueError, match=r"SqliteJournal\(max_age\) needs a (finite number|number above 0), not"
    ):
        SqliteJournal(path, max_age=value)


def test_an_age_that_is_no_number(path: Path) -> None:
    with pytest.raises(TypeError, match=r"SqliteJournal\(max_age\) needs a number"):
        SqliteJournal(path, max_age="1h")  # type: ignore[arg-type]


def test_a_switch_that_is_no_bool(path: Path) -> None:
    with pytest.raises(TypeError, match=r"SqliteJournal\(keep_acknowledged\) needs True or False"):
        SqliteJournal(path, keep_acknowledged=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, 7, b"journal.db"])
def test_a_path_that_is_none(value: Any) -> None:
    with pytest.raises(TypeError, match=r"SqliteJournal\(path\) needs a path"):
        SqliteJournal(value)


def test_an_empty_path() -> None:
    with pytest.raises(ValueError, match=r"SqliteJournal\(path\) needs the path of a file"):
        SqliteJournal("")


@pytest.mark.parametrize("bound", ["max_records", "max_bytes"])
def test_none_is_no_bound(path: Path, bound: str) -> None:
    with closing(SqliteJournal(path, **{bound: None})) as on_disk:
        for journal in (on_disk, MemoryJournal(**{bound: None})):
            assert getattr(journal, bound) is None
            wanted = {"records": 1, "nbytes": 1} | {"records" if bound == "max_records" else "nbytes": 2**60}
            assert journal.make_space(**wanted, low_watermark=0)


def test_some_bytes_are_cached(path: Path) -> None:
    with pytest.raises(TypeError, match=r"SqliteJournal\(cache_bytes\) needs a whole number"):
        SqliteJournal(path, cache_bytes=None)  # type: ignore[arg-type]
