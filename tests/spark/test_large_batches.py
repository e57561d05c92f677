"""A batch of Spark that is larger than the memory that a gateway has for what is staged."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.aquifer import AquiferPublisher
from tests.aquifer.faults.processes import GatewayProcess
from tests.aquifer.faults.rigs import ANYWHERE, eventually, nameless_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 4000
TIMES = 1600
"""How often the hash of a row is repeated: 102 kB, and 410 MB in all."""


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be removed here")
@pytest.mark.rare(25)
def test_400_megabytes_in_one_batch_are_there_once(spark: SparkSession, tmp_path: Path) -> None:
    arguments = f"None, {ANYWHERE!r}, writable=True, journal=SqliteJournal({str(tmp_path / 'log.db')!r})"
    frame = spark.range(0, ROWS, 1, 8).selectExpr(f"repeat(sha2(string(id), 256), {TIMES}) as value")
    with GatewayProcess(arguments) as gateway, gateway.watched() as most:
        writer = frame.write.format("aquifer").mode("append").option("value", "string")
        writer = writer.options(endpoint=gateway.endpoint, writerId="large", batchId="0")
        for _ in range(2):
            writer.save()

        assert most() < 200
        eventually(lambda: nameless_files(tmp_path, gateway.pid) == {})
        expected = {hashlib.sha256(b"%d" % row).hexdigest().encode() for row in range(ROWS)}
        for record in AquiferPublisher(gateway.endpoint, stop=ROWS).flux():
            expected.remove(record[:64])
            assert record == record[:64] * TIMES
        assert expected == set()
