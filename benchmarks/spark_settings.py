"""What does each setting of ``penstock.spark.session()`` do for a trigger?

``python -m benchmarks.spark_settings`` measures it, in about seven minutes on a quiet machine.
Each setting is taken back by itself, to Spark's own value, in a session of its own; sessions with all
settings run in between. A trigger has ten records: the time is what Spark needs for any batch at all. It is
measured from the end of a batch to the end of the next one, and as processor time of Java and all Python
processes that it has started. ``--write`` puts the tables into the pages that show them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks import spark_gateways as gateways
from benchmarks.processes import beside
from benchmarks.spark_queries import PATIENCE, Batch, last_batch, reported, running, silenced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["SETTINGS", "Setting", "settings_table"]

ROOT: Final = Path(__file__).resolve().parent.parent
RECORDS: Final = 10
"""In each trigger."""
WARM_UP: Final = 15
TRIGGERS: Final = 30
LONGEST: Final = 15.0
"""Seconds for the triggers that count; if they take longer, fewer count."""
ALL: Final = "all settings"
_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
_STORE: Final = "org.apache.spark.sql.execution.streaming.state"
_ROCKS: Final = {"spark.sql.streaming.stateStore.providerClass": f"{_STORE}.RocksDBStateStoreProvider"}
_CHANGELOG: Final = {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}
_ONE_PARTITION: Final = {"spark.sql.shuffle.partitions": "1"}

_STORES: Final = {
    "no checksums of its files": {"spark.sql.streaming.checkpoint.fileChecksum.enabled": "false"},
    "RocksDB": _ROCKS,
    "RocksDB with a changelog": _ROCKS | _CHANGELOG,
    "one partition": _ONE_PARTITION,
    "one partition, RocksDB with a changelog": _ONE_PARTITION | _ROCKS | _CHANGELOG,
}
"""Other ways to store state, which ``session()`` does not choose."""


class Setting(NamedTuple):
    """A setting of ``session()``, and what Spark does without it."""

    name: str
    default: str
    """What Spark itself has, as a value, or in words if there is no such value."""
    effect: str
    without: str | None = None
    """The value that takes it back; None if it is not about the time of a trigger."""


SETTINGS: Final = (
    Setting(
        "spark.sql.shuffle.partitions",
        "200",
        "tasks of a batch after a shuffle, and of its state; stored in the checkpoint at the first start",
        "200",
    ),
    Setting(
        "spark.python.unix.domain.socket.enabled",
        "false",
        "Spark talks to Python over Unix domain sockets; TCP delays small packets",
        "false",
    ),
    Setting(
        _MANAGER,
        "one that starts about 19 processes for each batch",
        "writes the checkpoint through Hadoop's file systems",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager",
    ),
    Setting(
        "spark.penstock.checksums",
        "no such setting",
        "Hadoop writes no checksum file beside each file of the checkpoint",
        "true",
    ),
    Setting(
        "spark.driver.extraJavaOptions",
        "no options",
        "Java starts processes without a copy of its page tables, and on a machine with at most four "
        "processors it collects garbage without threads of its own, unless you have chosen a collector",
        "-Dpenstock.benchmark=true",
    ),
    Setting(
        "spark.sql.streaming.pollingDelay",
        "10ms",
        "the pause before Spark asks again after a trigger without records; the source itself waits for them",
        "10ms",
    ),
    Setting("spark.ui.enabled", "true", "no web page of the session; set it to `true` to see one", "true"),
    Setting(
        "spark.sql.execution.arrow.maxRecordsPerBatch", "10000", "rows in a batch between Spark and Python"
    ),
    Setting("spark.ui.showConsoleProgress", "false", "no progress bars among the output of a program"),
    Setting(
        "spark.sql.python.filterPushdown.enabled",
        "false",
        "`spark.read` applies conditions on offset, timestamp, key and endpoint itself",
    ),
    Setting(
        "spark.python.authenticate.socketTimeout", "15s", "how long Python has to connect, on a busy machine"
    ),
    Setting("spark.network.timeout", "120s", "a peer on this machine that is silent is busy, not lost"),
    Setting("spark.driver.host", "the machine's name", "nothing listens on the network"),
    Setting("spark.driver.bindAddress", "spark.driver.host", "nothing listens on the network"),
)


class Cost(NamedTuple):
    """What a trigger takes."""

    elapsed: float
    processor: float
    """Milliseconds."""
    phases: Mapping[str, float]


# ---------------------------------------------------------------- one session
def measure(overrides: Mapping[str, str], *, thorough: bool) -> dict[str, Cost]:
    """Start a session with these settings changed, and measure triggers; runs in a process of its own."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with silenced():
        from benchmarks.spark_sources import ArrowInMemory
        from penstock.spark import session

        spark = session("settings", "local[2]", config=overrides)
        spark.sparkContext.setLogLevel("OFF")
        spark.dataSource.register(ArrowInMemory)
    gateway: Any = spark.sparkContext._gateway
    java: int = gateway.proc.pid
    try:
        # Java compiles what runs often: the first round of all is slower by half.
        _each_kind(spark, java)
        others = _beside(spark, java) if thorough else {}
        return _each_kind(spark, java) | others
    finally:
        with silenced():
            spark.stop()


def _each_kind(spark: SparkSession, java: int) -> dict[str, Cost]:
    return {
        "stateless": _stateless(spark, java),
        "stateful": _stateful(spark, java),
        "into a sink": _into_a_sink(spark, java),
    }


def _beside(spark: SparkSession, java: int) -> dict[str, Cost]:
    """What a trigger takes in other ways, for the table of its parts."""
    costs = {}
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=RECORDS, numPartitions=1).load()
    with running(rate) as query:
        costs["rate-micro-batch"] = _cost(query, java)
    memory = spark.readStream.format("arrow_in_memory")
    rows = memory.options(rows=1_000_000, rowsPerTrigger=RECORDS, partitions=1).load()
    with running(rows) as query:
        costs["Arrow in memory"] = _cost(query, java)
    with _source(spark) as rows, running(rows, _fetch) as query:
        costs["into a function"] = _cost(query, java)
    with _source(spark) as rows, running(rows, asyncProgressTrackingEnabled="true") as query:
        costs["stateless, asyncProgressTracking"] = _cost(query, java)
    for name, state in _STORES.items():
        before = {key: spark.conf.get(key, None) for key in state}
        for key, value in state.items():
            spark.conf.set(key, value)
        costs[f"stateful, {name}"] = _stateful(spark, java)
        for key, usual in before.items():
            if usual is None:
                spark.conf.unset(key)
            else:  # To unset it would give Spark's default, not ours.
                spark.conf.set(key, usual)
    return costs


def _fetch(rows: DataFrame, batch: int) -> None:
    rows.select("offset").toArrow()


@contextmanager
def _source(spark: SparkSession) -> Iterator[DataFrame]:
    with beside(gateways.serve_few, 100_000) as line:
        source = spark.readStream.format("aquifer").option("endpoint", line.hear())
        yield source.options(maxRecordsPerTrigger=RECORDS, partitions=1).load()


def _stateless(spark: SparkSession, java: int) -> Cost:
    with _source(spark) as rows, running(rows) as query:
        return _cost(query, java)


def _stateful(spark: SparkSession, java: int) -> Cost:
    with _source(spark) as rows:
        counts = rows.groupBy("key").count()
        with running(counts, outputMode="complete") as query:
            return _cost(query, java)


def _into_a_sink(spark: SparkSession, java: int) -> Cost:
    with (
        _source(spark) as rows,
        beside(gateways.take_in) as sink,
        running(rows.select("value"), "aquifer", endpoint=sink.hear(), value="binary") as query,
    ):
        return _cost(query, java)


def _cost(query: StreamingQuery, java: int) -> Cost:
    warm = _after(query, WARM_UP, LONGEST, least=2)
    began = processor_time(java)
    batches = _after(query, warm[-1].number + TRIGGERS, LONGEST, least=warm[-1].number + 2)
    ended = processor_time(java)
    counted = [batch for batch in batches if batch.number > warm[-1].number]
    ends = [warm[-1].ended, *(batch.ended for batch in counted)]
    phases = {
        phase: median(batch.durations.get(phase, 0) for batch in counted) for phase in counted[0].durations
    }
    between = median(after - before for before, after in pairwise(ends))
    return Cost(between, (ended - began) / len(counted), phases)


def _after(query: StreamingQuery, number: int, seconds: float, least: int = 0) -> list[Batch]:
    """The batches up to one with this number, or as many as there are when the time is over."""
    since = time.monotonic()
    while time.monotonic() - since < PATIENCE:
        error = query.exception()
        if error is not None:
            raise error
        last = last_batch(query)
        if last >= number or (last >= max(least, 1) and time.monotonic() - since > seconds):
            return reported(query)
        time.sleep(0.02)
    raise TimeoutError(f"there was no batch {number} within {PATIENCE:g} s")


def processor_time(process: int) -> float:
    """Milliseconds of a process, of those that it has started, and of those of them that have ended."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                facts = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It has ended just now.
            children[int(facts[1])].append(int(entry.name))
            ticks[int(entry.name)] = sum(map(int, facts[11:15]))
    waiting, total = [process], 0
    while waiting:
        each = waiting.pop()
        total += ticks.get(each, 0)
        waiting += children[each]
    return 1000 * total / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------- all sessions
def _in_a_process(name: str, *, thorough: bool = False) -> dict[str, Cost]:
    command = [sys.executable, "-m", "benchmarks.spark_settings", "--one", name]
    ran = subprocess.run(
        command + ["--thorough"] * thorough, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    found = json.loads(ran.stdout.splitlines()[-1])
    return {kind: Cost(**cost) for kind, cost in found.items()}


def compare(rounds: int) -> tuple[dict[str, list[dict[str, Cost]]], dict[str, Cost]]:
    """All settings, each without its own; before every third one, a session with all of them."""
    costs: dict[str, list[dict[str, Cost]]] = defaultdict(list)
    thorough = _in_a_process(ALL, thorough=True)
    measured = [setting.name for setting in SETTINGS if setting.without is not None]
    for number, name in enumerate(measured * rounds):
        print(f"without {name}", file=sys.stderr, flush=True)
        if number % 3 == 0:
            costs[ALL].append(_in_a_process(ALL))
        costs[name].append(_in_a_process(name))
    return costs, thorough


KINDS: Final = {"stateless": "Trigger without it", "stateful": "With state", "into a sink": "Into a sink"}


def settings_table(costs: Mapping[str, list[dict[str, Cost]]]) -> str:
    """All settings, with what a trigger takes without each; only what they do, if there are no figures."""
    from penstock.spark import settings

    ours = settings("local[2]")
    kinds = list(KINDS) if costs else []
    headings = ["Setting", "Ours", "Spark's", "What it does", *(KINDS[kind] for kind in kinds)]
    lines = [
        f"| {' | '.join(headings)} |",
        f"|---|---|---|---|{'--:|' * len(kinds)}",
    ]
    if costs:
        lines.append(f"| none left out | | | | {' | '.join(_text(costs[ALL], kind) for kind in kinds)} |")
    for setting in SETTINGS:
        value = ours[setting.name].rpartition(".")[2] if setting.name == _MANAGER else ours[setting.name]
        default = setting.default if " " in setting.default else f"`{setting.default}`"
        measured = costs.get(setting.name, [])
        figures = [_text(measured, kind) if measured else "–" for kind in kinds]
        cells = (f"`{setting.name}`", f"`{value}`", default, setting.effect, *figures)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _text(measured: list[dict[str, Cost]], kind: str) -> str:
    elapsed = median(costs[kind].elapsed for costs in measured)
    processor = median(costs[kind].processor for costs in measured)
    return f"{elapsed:,.0f} ms ({processor:,.0f})"


PHASES: Final = (
    "latestOffset",
    "walCommit",
    "queryPlanning",
    "addBatch",
    "commitOffsets",
    "triggerExecution",
)


def _parts_table(costs: Mapping[str, Cost]) -> str:
    lines = [
        f"| Trigger, ms | {' | '.join(PHASES)} | to the next one | processor time |",
        f"|---{'|--:' * (len(PHASES) + 2)}|",
    ]
    for kind, cost in costs.items():
        parts = [f"{cost.phases.get(phase, 0):.0f}" for phase in PHASES]
        lines.append(f"| {kind} | {' | '.join(parts)} | {cost.elapsed:.0f} | {cost.processor:.0f} |")
    return "\n".join(lines)


def _write(page: str, name: str, table: str) -> None:
    path = ROOT / page
    text = path.read_text()
    block = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
    written, count = re.subn(block, lambda found: f"{found[1]}{table}\n{found[2]}", text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{page} has no place for the table {name}: put <!-- {name} --> there")
    path.write_text(written)


def main() -> None:
    """Measure one session, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_settings", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="how often each setting is measured")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--thorough", action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.one is not None:
        taken_back = {setting.name: setting.without for setting in SETTINGS if setting.name == wanted.one}
        overrides = {name: value for name, value in taken_back.items() if value is not None}
        costs = measure(overrides, thorough=wanted.thorough)
        print(json.dumps({kind: cost._asdict() for kind, cost in costs.items()}))
        return
    compared, parts = compare(wanted.rounds)
    load = f"Load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    tables = {
        ("docs/spark.md", "settings"): settings_table(compared),
        ("docs/decisions/0061-what-a-trigger-costs.md", "parts"): f"{_parts_table(parts)}\n\n{load}",
    }
    for (page, name), table in tables.items():
        print(f"{page}, {name}:\n\n{table}\n")
        if wanted.write:
            _write(page, name, table)


if __name__ == "__main__":
    main()
