"""The upserts of the examples count each order once, whenever their driver is killed.

The driver is killed (SIGKILL) twice: when both databases have a batch that the checkpoint does not have, so
that Spark must run it again; and at a random moment. In the end both databases have the totals of all orders.
``tests/spark/chaos/seeds.py`` says how to run more seeds.
"""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.aquifer.faults.rigs import eventually
from tests.spark.chaos.checkpoints import committed
from tests.spark.chaos.processes import driver
from tests.spark.chaos.seeds import seeds
from tests.spark.conftest import SPARK_SETTINGS
from tests.spark.upserts.driver_process import UpsertSettings
from tests.spark.upserts.postgresql import postgresql

if TYPE_CHECKING:
    from tests.spark.conftest import Serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOTAL, BATCH = 20_000, 1000
CUSTOMERS = 7
SOON = 400
DRIVER = "tests.spark.upserts.driver_process"
TOTALS = "SELECT customer, orders, cents FROM totals ORDER BY customer"
BATCHES = "SELECT count(*) FROM batches"


def cents(number: int) -> int:
    """What an order costs."""
    return number * 7919 % 10_007


def asked(name: str, place: str, question: str) -> list[Any]:
    """What a database answers."""
    if name == "sqlite":
        with closing(sqlite3.connect(place, timeout=60)) as database:
            return database.execute(question).fetchall()
    with psycopg.connect(place) as server:
        return server.execute(question.encode()).fetchall()


@pytest.mark.rare(60)
@pytest.mark.parametrize("seed", seeds())
def test_each_order_counts_once(seed: int, serve: Serve, tmp_path: Path) -> None:
    chance = random.Random(seed)
    orders = [{"customer": f"c{number % CUSTOMERS}", "cents": cents(number)} for number in range(TOTAL)]
    log = tmp_path / "driver.log"
    with postgresql() as address:
        settings = UpsertSettings(
            folder=str(tmp_path),
            endpoint=serve(orders, codec="json").endpoint,
            databases={"sqlite": str(tmp_path / "shop.db"), "postgresql": address},
            total=TOTAL,
            batch=BATCH,
            trap=chance.randrange(TOTAL // BATCH // 3),
            config=SPARK_SETTINGS,
        )

        def words() -> str:
            return f"seed {seed}\n{log.read_text(errors='replace')[-3000:]}"

        with driver(DRIVER, settings, log) as trapped:
            names = [*settings.databases]
            eventually(
                lambda: all(settings.caught(name).exists() for name in names) or trapped.poll() is not None,
                "the queries do not get to the trap",
                SOON,
            )
            assert trapped.poll() is None, words()
        for name, place in settings.databases.items():
            assert asked(name, place, BATCHES) == [(settings.trap + 1,)], words()
            assert committed(settings.checkpoint(name)) == settings.trap * BATCH, words()

        settings.trap = -1
        enough = chance.randrange(TOTAL // BATCH // 2, TOTAL // BATCH)
        with driver(DRIVER, settings, log) as surprised:
            name = chance.choice(names)
            eventually(
                lambda: (
                    asked(name, settings.databases[name], BATCHES)[0][0] >= enough
                    or surprised.poll() is not None
                ),
                "the queries do not go on",
                SOON,
            )
            time.sleep(chance.uniform(0, 0.3))  # So that the kill meets a batch at any stage.
        with driver(DRIVER, settings, log) as undisturbed:
            assert undisturbed.wait(SOON) == 0, words()

        found = {name: asked(name, place, TOTALS) for name, place in settings.databases.items()}
    expected = [
        (f"c{customer}", len(numbers), sum(map(cents, numbers)))
        for customer in range(CUSTOMERS)
        for numbers in [range(customer, TOTAL, CUSTOMERS)]
    ]
    for name, rows in found.items():
        assert digest(rows) == digest(expected), f"{name}: {rows}\ninstead of {expected}\n{words()}"


def digest(rows: list[Any]) -> str:
    """One text for all totals."""
    return sha256(repr([tuple(row) for row in rows]).encode()).hexdigest()
