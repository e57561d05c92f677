"""Tests that take so long that a run of all tests has some of them, and others each time.

``@pytest.mark.rare(seconds)`` says how much processor time a test takes, with its processes. ``make test``
gives each of its runs a number of seconds for them (``PENSTOCK_RARE``). Chance chooses, within that; its seed
is shown, and ``PENSTOCK_RARE_SEED`` chooses the same once more. Without ``PENSTOCK_RARE``, as for pytest by
itself, all of them run.
"""

from __future__ import annotations

import os
import random

import pytest

__all__ = ["choose", "chosen_line"]

_LINE = pytest.StashKey[str]()


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the rare tests for which there is no time in this run."""
    rare = [item for item in items if item.get_closest_marker("rare")]
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
    """The first in a random order, at least one, for as long as there is time."""
    chosen: set[pytest.Item] = set()
    spent = 0.0
    for item in chance.sample(rare, len(rare)):
        seconds = _seconds(item)
        if not chosen or spent + seconds <= limit:
            chosen.add(item)
            spent += seconds
    return chosen


def _seconds(item: pytest.Item) -> float:
    marker = item.get_closest_marker("rare")
    assert marker is not None, "it is a rare one"
    (seconds,) = marker.args
    return float(seconds)
