"""Delta and Iceberg have every record once, by hash, when their driver is killed.

The driver is killed (SIGKILL) in the moment in which one of the tables has a new commit: as a rule the
checkpoint does not have that batch yet, so Spark runs it again. The seed says which table and which commit;
``tests/spark/chaos/seeds.py`` says how to run more of them. Runs with a Spark for which the jars exist: see
``make test-spark41``.
"""

from __future__ import annotations

import random
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pytest

from tests.aquifer.faults.rigs import eventually
from tests.spark.chaos.processes import driver
from tests.spark.chaos.seeds import seeds
from tests.spark.conftest import SPARK_SETTINGS
from tests.spark.lakes.driver_process import LakeSettings
from tests.spark.lakes.formats import COMMITS, formats, settings

if TYPE_CHECKING:
    from tests.spark.conftest import Serve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not formats(), reason="neither Delta nor Iceberg has a release for this Spark"),
]

TOTAL, BATCH = 12_000, 2000
SOON = 400
DRIVER = "tests.spark.lakes.driver_process"


@pytest.mark.rare(60, kind="lakes")
@pytest.mark.parametrize("seed", seeds())
def test_tables_have_every_record_once(seed: int, serve: Serve, tmp_path: Path) -> None:
    chance, log = random.Random(seed), tmp_path / "driver.log"
    records = [b"%012d" % number + chance.randbytes(20) for number in range(TOTAL)]
    config = {**SPARK_SETTINGS, **settings(tmp_path)}
    told = LakeSettings(str(tmp_path), serve(records).endpoint, TOTAL, BATCH, config)
    victim, commits = chance.choice(formats()), chance.randrange(2, TOTAL // BATCH)

    def words() -> str:
        return f"seed {seed}\n{log.read_text(errors='replace')[-3000:]}"

    def is_due() -> bool:
        return sum(1 for _ in told.table(victim).glob(COMMITS[victim])) >= commits

    with driver(DRIVER, told, log) as process:
        eventually(lambda: is_due() or process.poll() is not None, f"{victim} does not grow", SOON)
        assert process.poll() is None, words()
    with driver(DRIVER, told, log) as undisturbed:
        assert undisturbed.wait(SOON) == 0, words()

    for name in formats():
        table = parquet.read_table(told.read_back(name)).sort_by("offset")
        assert table.column("offset").to_pylist() == list(range(TOTAL)), f"{name}: {words()}"
        assert digest(table.column("value").to_pylist()) == digest(records), f"{name}: {words()}"


def digest(records: list[bytes]) -> str:
    """One text for all records."""
    return sha256(b"".join(records)).hexdigest()
