"""A query of 2 000 rows a second behind a source of 200 000: what is too much waits at the source."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.aquifer.faults.rigs import eventually
from tests.spark.pressed_processes import BATCH, BOUND, ROW, SLOW, Pressed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SOURCE: Final = 200_000
"""Rows that the source can give in a second, at least."""
WINDOW: Final = 60
"""Seconds during which nothing may grow."""
LONGEST: Final = 400
"""Seconds for which the query may take to get on."""
WARM: Final = 2
"""The number of the batch after which Java has loaded and compiled most of what it needs."""
FLAT: Final = SOURCE * ROW
"""Bytes. Whoever kept what the query does not take would grow by this much in each second of the window; it
is the most that anybody may grow by in all of it. Java does, at first: Spark starts a few threads more with
each batch, up to a bound of its own, and what is called often is compiled.
"""


@pytest.mark.rare(60)
def test_a_slow_query_holds_a_fast_source_back_and_nobody_grows(tmp_path: Path) -> None:
    with Pressed(tmp_path / "source.log", "source") as source:
        begun = source.ask()
        # What the filling of the log took in processor time, whatever else the machine had to do.
        assert BOUND / begun["filling"]["processor_seconds"] > SOURCE
        with Pressed(tmp_path / "driver.log", "driver", begun["endpoint"], str(tmp_path / "out")) as driver:
            eventually(lambda: driver.ask()["batch"] >= WARM, "the query does not begin", 400)
            observed = _observe(source, driver)

    assert observed["growth"] == {
        name: growth for name, growth in observed["growth"].items() if growth < FLAT
    }
    taken, seconds = observed["taken"], observed["seconds"]
    assert taken <= SLOW * seconds + 2 * BATCH, "the query was not slowed down"
    assert taken >= 2 * BATCH, "the query stood still"
    print(f"{taken / seconds:.0f} rows/s; grown by {observed['growth']}")


def _observe(source: Pressed, driver: Pressed) -> dict[str, Any]:
    """Look at all processes once a second."""
    begun, pause = time.monotonic(), threading.Event()
    now = first = source.ask()
    heap = driver.ask("heap")["alive"]
    at_first = _memory(source, driver)
    growth = dict.fromkeys(at_first, 0)
    # On a busy machine the query is even slower than it is meant to be.
    while (seconds := time.monotonic() - begun) < WINDOW or (
        now["floor"] - first["floor"] < 2 * BATCH and seconds < LONGEST
    ):
        now = source.ask()
        # The log is full, but for a batch whose place is being filled; and the source has given no more than
        # the log has room for, beyond what the query is done with.
        assert BOUND - BATCH <= now["records"] <= BOUND
        assert now["given"] <= now["floor"] + BOUND
        for name, size in _memory(source, driver).items():
            growth[name] = max(growth.get(name, 0), size - at_first.get(name, 0))
        pause.wait(1.0)
    last = driver.ask()
    assert last["active"], "the query has ended"
    # The heap has its full size from the beginning, so what counts is what is alive in it.
    growth["in the heap of Java"] = driver.ask("heap")["alive"] - heap
    taken = source.ask()["floor"] - first["floor"]
    return {"growth": growth, "taken": taken, "seconds": time.monotonic() - begun}


def _memory(source: Pressed, driver: Pressed) -> dict[str, int]:
    return {f"gateway: {name}": size for name, size in source.memory().items()} | {
        f"driver: {name}": size for name, size in driver.memory().items()
    }
