"""Everything once, whoever is killed: queries from one gateway into every sink that there is.

The driver, executors, workers in the middle of a task, other processes of Spark's, machines of a cluster,
gateways and a broker are killed (SIGKILL) at random while the records pass, and started again. In the end
each sink has to have what the source gave: all of it, nothing twice, by hash.

Two storms are in one process of Spark, with many kills and with fewer, into Parquet files and the log of a
second gateway. The third is on a standalone cluster with two workers, and the first gateway has its log in
Kafka. It writes to Delta and Iceberg as well, and runs with a Spark for which they have a release: see
``make test-spark41``. All seeds of it share the cluster, the broker and the driver.

The seeds are new each time; ``seeds.py`` says how to run more of them, or one again.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.chaos.driver import Driver
from tests.spark.chaos.seeds import seeds
from tests.spark.chaos.storm import Forecast, Storm
from tests.spark.cluster import Cluster, cluster
from tests.spark.lakes.formats import formats

if TYPE_CHECKING:
    from tests.kafka.broker import KafkaBroker

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
ON_A_CLUSTER = {
    "driver": 1,
    "executor": 1,
    "worker": 1,
    "machine": 1,
    "input": 1,
    "output": 1,
    "broker": 1,
}
TOTAL_ON_A_CLUSTER, BATCH_ON_A_CLUSTER, KEPT_ON_A_CLUSTER = 32_000, 4000, 2
"""There, each batch of each query takes a second, however few records it has."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where everything is kept, until the test is over: it is much."""
    yield tmp_path
    for place in [*tmp_path.glob("*.db*"), tmp_path / "tables"]:
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


@pytest.fixture
def end_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Forecast], None]:
    """Let a storm rage, look at what it has left, and say in a line how it was."""

    def rage(forecast: Forecast) -> None:
        storm = Storm(forecast, folder)
        try:
            storm.rage()
            storm.check()
        finally:
            storm.close()
            with capsys.disabled():
                print(f"\n{storm.summary()}")
            print(*storm.story(), sep="\n", flush=True)

    return rage


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize(
    ("kills", "batch"),
    [
        pytest.param(MANY, 25_000, id="many", marks=pytest.mark.rare(170)),
        pytest.param(FEWER, 40_000, id="fewer", marks=pytest.mark.rare(100)),
    ],
)
def test_files_and_log_have_every_record_once(
    end_well: Callable[[Forecast], None], kills: dict[str, int], batch: int, seed: int
) -> None:
    end_well(Forecast(seed, TOTAL, kills, LONGEST, batch))


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for all seeds."""
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2) as started:
        yield started


@pytest.fixture(scope="module")
def kept_driver(two_workers: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver for all seeds; each of them kills it."""
    warehouse = tmp_path_factory.getbasetemp()
    driver = Driver(tmp_path_factory.mktemp("driver"), warehouse, two_workers, lakes=bool(formats()))
    try:
        yield driver
        assert driver.leave() in (0, None), driver.last_words()
    finally:
        driver.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker for all seeds, with a topic for each."""
    from tests.kafka.broker import KafkaBroker

    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@(
    pytest.mark.rare(130)
    if formats()
    else pytest.mark.skip("Delta and Iceberg have no release for this Spark")
)
@pytest.mark.parametrize("seed", seeds())
def test_every_sink_has_every_record_once_on_a_cluster(
    end_well: Callable[[Forecast], None],
    two_workers: Cluster,
    broker: KafkaBroker,
    kept_driver: Driver,
    seed: int,
) -> None:
    for worker in two_workers.workers:
        worker.wait()  # The storm before may have killed it.
    end_well(
        Forecast(
            seed,
            TOTAL_ON_A_CLUSTER,
            ON_A_CLUSTER,
            LONGEST,
            BATCH_ON_A_CLUSTER,
            sinks=("files", "log", *formats()),
            cluster=two_workers,
            broker=broker,
            kept=KEPT_ON_A_CLUSTER,
            driver=kept_driver,
        )
    )
    for worker in two_workers.workers:
        worker.forget_applications()
