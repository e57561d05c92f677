"""Every example with Spark in it runs, ends by itself, and shows what it says it shows."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kafka.broker import KafkaBroker
from tests.required_tools import require_tool
from tests.spark.scripts import run_scripts
from tests.spark.upserts.postgresql import postgresql

EXAMPLES = Path(__file__).parents[2] / "examples"

SHOWN = {
    "13_spark_windows.py": [
        "20 windows of 10 minutes and 2 sensors",
        "6000 readings in them",
        "averages: [24.0, 25.0]",
    ],
    "14_spark_log_to_parquet.py": [
        "after run 1: 5000 lines, 500 warnings",
        "after run 2: 10000 lines, 1000 warnings",
        "different lines: 10000",
    ],
    "15_spark_two_gateways.py": ["1000 of 2000 orders are paid, 12998 in all"],
    "16_spark_enrichment.py": ["{'cellar': 750, 'nowhere': 750, 'roof': 750, 'yard': 750}"],
    "17_spark_state.py": ["second 199: yard silent", "second 260: yard back", "second 449: roof silent"],
    "26_spark_upsert_sqlite.py": ["c0 1667 4165833", "c1 1667 4167500", "c2 1666 4164167"],
    "27_spark_upsert_postgresql.py": ["c0 1667 4165833", "c1 1667 4167500", "c2 1666 4164167"],
    "25_spark_mqtt_to_parquet.py": [
        "stopped, and the sensor goes on",
        "at least 1000 readings: True",
        "every reading once, without a gap: True",
    ],
    "28_spark_kafka_to_kafka.py": [
        "after payment 2500: 253 large ones",
        "after payment 5000: 506 large ones",
        "each once: True",
    ],
}


@pytest.fixture(scope="module")
def printed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What those of this run print, in one process: a Java for each would take longer than the examples."""
    tests = {item.nodeid.partition("[")[2] for item in request.session.items if item.path == Path(__file__)}
    names = [name for name in SHOWN if f"{name}]" in tests]
    if any("mqtt" in name for name in names):
        require_tool("mosquitto", part="the example of MQTT", install="apt-get install mosquitto")
    paths, servers = [EXAMPLES / name for name in names], {}
    with ExitStack() as running:
        if any("postgresql" in name for name in names):
            servers["SHOP"] = running.enter_context(postgresql())
        if any("kafka" in name for name in names):
            servers["KAFKA"] = running.enter_context(KafkaBroker(tmp_path_factory.mktemp("kafka"))).address
        return run_scripts(paths, tmp_path_factory.mktemp("examples"), **servers)


@pytest.mark.rare(20, kind="examples of Spark")
@pytest.mark.slow
@pytest.mark.timeout(1300)
@pytest.mark.parametrize("name", SHOWN)
def test_an_example_shows_what_it_says(name: str, printed: dict[str, list[str]]) -> None:
    assert printed[name] == SHOWN[name]


def test_no_example_is_left_out() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*spark*.py")) == sorted(SHOWN)
