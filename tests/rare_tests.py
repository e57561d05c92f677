"""Tests that take so long that a run of all tests has some of them, and others each time.

``@pytest.mark.rare(seconds)`` says how much processor time a test takes, with its processes. ``make test``
gives each of its runs a number of seconds for them (``PENSTOCK_RARE``). Chance chooses, within that; its seed
is shown, and ``PENSTOCK_RARE_SEED`` chooses the same once more. Without ``PENSTOCK_RARE``, as for pytest by
itself, all of them run.

``@pytest.mark.rare(seconds, kind="…")`` is for tests that show the same in several ways. Of each kind there
is at least one in every run, even if there is no time for it. A quarter of the time is for the others.
"""

from __future__ import annotations

import os
import random

import pytest

__all__ = ["choose", "chosen_line"]

_LINE = pytest.StashKey[str]()


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the rare tests for which there is no time in this run."""
    rare = [item for item in items if item.get_closest_marker("rare") and not _is_skipped(item)]
    limit = os.environ.get("PENSTOCK_RARE")
    if limit is None or not rare:
        return
    seed = int(os.environ.get("PENSTOCK_RARE_SEED") or int.from_bytes(os.urandom(4)))
    chosen = _chosen(rare, float(limit), random.Random(seed))
    left_out = [item for item in rare if item not in chosen]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
    config.stash[_LINE] = (
        f"{len(chosen)} of {len(rare)} rare tests this time (PENSTOCK_RARE_SEED={seed} chooses the same)"
    )


def chosen_line(config: pytest.Config) -> str | None:
    """How many rare tests this run has, if not all."""
    return config.stash.get(_LINE, None)


def _chosen(rare: list[pytest.Item], limit: float, chance: random.Random) -> set[pytest.Item]:
    """In a random order the first of each kind, then others as long as there is time; at least one.

    One that takes longer than all the time for the others has its turn as well: instead of them, and so
    seldom that runs take no longer on average.
    """
    shuffled = chance.sample(rare, len(rare))
    firsts = {kind: item for item in reversed(shuffled) if (kind := _kind(item)) is not None}
    chosen = set(firsts.values())
    there_is = max(limit - sum(map(_seconds, chosen)), limit / 4)  # The kinds leave some to the others.
    spent = 0.0
    for item in shuffled:
        if item in chosen:
            continue
        seconds = _seconds(item)
        has_its_turn = seconds > there_is and spent == 0 and chance.random() < there_is / seconds
        if has_its_turn or spent + seconds <= there_is:
            chosen.add(item)
            spent += seconds
    return chosen or {min(shuffled, key=_seconds)}


def _is_skipped(item: pytest.Item) -> bool:
    """Whether it would take the place of one that runs."""
    return any(mark.args and mark.args[0] is True for mark in item.iter_markers("skipif"))


def _kind(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("rare")
    assert marker is not None, "it is a rare one"
    kind: str | None = marker.kwargs.get("kind")
    return kind


def _seconds(item: pytest.Item) -> float:
    marker = item.get_closest_marker("rare")
    assert marker is not None, "it is a rare one"
    (seconds,) = marker.args
    return float(seconds)
