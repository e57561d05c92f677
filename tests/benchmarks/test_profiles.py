"""The profiles of the benchmarks: how often a function is called for an element."""

from __future__ import annotations

import pytest

pytest.importorskip("reactivex", reason="the profiles compare with reactivex")

from benchmarks import profiles


def test_a_profile_names_what_an_element_calls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "ELEMENTS", 500)
    monkeypatch.setattr(profiles, "SECONDS", 0.01)

    profiles.show("create")

    shown = capsys.readouterr().out
    assert "| drain: push | 0.99" in shown or "| drain: push | 1.00" in shown
    assert "+ the token" in shown


def test_calls_are_those_that_more_elements_add() -> None:
    def run(n: int) -> None:
        sorted([3, 1, 2])  # once, however many elements
        for x in range(n):
            abs(x)
            str.upper("x")

    assert profiles._calls(run) == 2
