"""Everything once, whoever is killed: two queries from one gateway, into files and into another gateway.

The driver, workers in the middle of a task, other processes of Spark's, and both gateways are killed
(SIGKILL) at random while half a million records pass, and started again. In the end the files and the second
gateway's log have to have what the source gave: all of it, nothing twice, and the log in the same order.

There is one storm with many kills and one with fewer. Their seeds are new each time;
``PENSTOCK_CHAOS_SEED`` gives one that has failed once more.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.aquifer.chaos.records import digests_of_source
from tests.spark.chaos.outcome import difference, records_in_files, records_in_log
from tests.spark.chaos.storm import Forecast, Storm

LONGEST = 900
"""Seconds; a quiet machine takes a twentieth of it."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(LONGEST + 60),
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="looks for the processes to kill in /proc"
    ),
]

TOTAL = 500_000
MANY = {"driver": 2, "worker": 3, "planner": 1, "committer": 1, "input": 2, "output": 2}
FEWER = {"driver": 1, "worker": 1, "planner": 1, "committer": 1, "input": 1, "output": 1}
"""A driver takes as long to come up as everything else together."""


def seed() -> int:
    """The one that is wanted, or a new one."""
    wanted = os.environ.get("PENSTOCK_CHAOS_SEED")
    return int.from_bytes(os.urandom(4)) if wanted is None else int(wanted)


expected = cache(digests_of_source)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where everything is kept, until the test is over: it is much."""
    yield tmp_path
    for database in tmp_path.glob("*.db*"):
        database.unlink()
    shutil.rmtree(tmp_path / "files", ignore_errors=True)


@pytest.mark.parametrize(
    ("kills", "batch", "seed"),
    [
        pytest.param(MANY, 25_000, number := seed(), id=f"many-{number}", marks=pytest.mark.rare(170)),
        pytest.param(FEWER, 40_000, number := seed(), id=f"fewer-{number}", marks=pytest.mark.rare(100)),
    ],
)
def test_files_and_log_have_every_record_once(
    folder: Path, kills: dict[str, int], batch: int, seed: int
) -> None:
    storm = Storm(Forecast(seed, TOTAL, kills, LONGEST, batch), folder)
    try:
        storm.rage()
        in_files = difference(records_in_files(storm.files), expected(TOTAL))
        in_log = difference(records_in_log(storm.output), expected(TOTAL))
        if in_files or in_log:
            storm.fail(f"files: {in_files or 'right'}\nlog: {in_log or 'right'}")
    finally:
        storm.close()
    print("", *storm.story(), sep="\n")
