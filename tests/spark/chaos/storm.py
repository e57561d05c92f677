"""The storm: who runs, who is killed when, who is started again, and how it has to end.

Who is killed follows from the seed, and so does where: a kill is due when all queries together have committed
so many records, and a moment later, so that it meets a batch at any stage; or in the very moment in which a
batch appears in the second gateway's log or in a table, and Spark does not know it yet. How far a batch is
then is for the machine to say, so a seed does not repeat a run exactly, but nearly.

No kill is wasted: each comes while all queries are in the middle of the stream, and something has been
committed since the kill before it. Everybody is killed once before anybody is killed again: should a machine
be so fast that the queries get to the end before all kills are done, it is these that do not take place.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import pytest

from penstock.aquifer import LogReader
from tests.aquifer.chaos.children import port_that_stays_free
from tests.aquifer.chaos.records import digests_of_source
from tests.spark.chaos.checkpoints import committed
from tests.spark.chaos.driver import Driver
from tests.spark.chaos.driver_process import QuerySettings
from tests.spark.chaos.gateway_process import GatewaySettings
from tests.spark.chaos.outcome import difference, records_in_files, records_in_log, records_in_table
from tests.spark.chaos.processes import Part, Process, kill
from tests.spark.cluster import Cluster
from tests.spark.lakes import formats

if TYPE_CHECKING:
    from tests.kafka.broker import KafkaBroker

__all__ = ["Forecast", "Storm"]

_LOOK: Final = 0.05
"""Seconds between looks at how far everybody is."""
_LOOK_CLOSELY: Final = 0.002
"""Seconds between looks at a table, when a kill is to meet it in the middle of a commit."""
_LONGEST_DELAY: Final = 0.3
"""Seconds between the place of a kill and the kill: about what a batch takes."""
_LONGEST_BATCH: Final = 10.0
_TO_ANSWER: Final = 60.0
_BESIDE: Final = {
    "planner": "pyspark.sql.streaming.python_streaming_source_runner",
    "committer": "pyspark.daemon pyspark.sql.worker.python_streaming_sink_runner",
}
_EXECUTOR: Final = "executor.CoarseGrainedExecutorBackend"
_COMMITS: Final = {"files": "_spark_metadata/[0-9]*", **formats.COMMITS}
"""The files of a table of which there is one more after each commit."""
_ONCE_A_KILL: Final = (
    # A process of Spark's own in which our reader or writer lives is gone, and this Spark does not replace.
    "Python worker exited unexpectedly",
    "Broken pipe",
    "Connection reset",
    "(no cause message)",  # Of reading from it, Spark says no more than this.
    # The second gateway is gone, with what was staged for a batch and not published.
    "run the batch again",
)
"""Why a query may fail, and be started again: as often as somebody was killed, not oftener."""
_ANY_TIME: Final = (
    # The machine has so much to do that a new process does not get to its first line for ten seconds.
    "Python worker failed to connect back",
)
"""Why a query of Spark may fail even if nobody is killed."""


@dataclass(frozen=True)
class Forecast:
    """What is to happen."""

    seed: int
    total: int
    kills: Mapping[str, int]
    """How often who is killed: the driver, with everything that it has started; an executor of the cluster; a
    Python worker while it runs a task; a machine of the cluster, that is, one of its workers with all that it
    has started; the process beside the driver that plans the batches of a query; the one that commits the
    batches of the log; the first gateway; the second one; the broker that has the log of the first."""
    seconds: float
    """How long it may take."""
    batch: int
    """The most records in a batch; with larger ones it is over sooner, and there is room for fewer kills."""
    sinks: tuple[str, ...] = ("files", "log")
    """What the queries write to; the log is that of the second gateway."""
    cluster: Cluster | None = None
    """Where the tasks run, if not in the driver."""
    broker: KafkaBroker | None = None
    """Where the first gateway keeps its log, if not in a file."""
    kept: int = 4
    """Batches that the first gateway has room for: no query can be further ahead of another, and nothing
    stays for long that has been committed."""
    driver: Driver | None = None
    """One that is there for the next storm, too, if not one for this storm alone."""


@dataclass(frozen=True)
class Blow:
    """A kill that is planned."""

    kind: str
    place: int
    """Due when so many records have been committed, in all queries together."""
    delay: float
    at_publication: bool
    """Whether to wait for a batch to appear where a query writes to."""


class Storm:
    """Two gateways, a driver with queries that read from the first, and somebody who kills them."""

    def __init__(self, forecast: Forecast, folder: Path) -> None:
        self.forecast = forecast
        self.events: list[str] = []
        """What has happened."""
        self.was_right = False
        """Whether every sink had what it has to have."""
        self.struck: dict[str, int] = dict.fromkeys(forecast.kills, 0)
        self._chance = random.Random(forecast.seed)
        self._blows = self._plan()
        self._pause = threading.Event()
        self._began = time.monotonic()
        self._due: float | None = None
        self._committed_then = 0
        """At the last kill, or start."""
        ports = [port_that_stays_free(random.Random()) for _ in range(2)]
        self.input, self.output = (f"tcp://127.0.0.1:{port}" for port in ports)
        self._settings = QuerySettings(
            str(folder),
            self.input,
            self.output,
            forecast.total,
            forecast.batch,
            [*_ONCE_A_KILL, *_ANY_TIME],
            [*forecast.sinks],
        )
        kept = forecast.kept * forecast.batch
        broker = forecast.broker
        journal = (
            str(folder / "input.db") if broker is None else f"kafka://{broker.address}/input-{forecast.seed}"
        )
        source = GatewaySettings(self.input, journal, forecast.total, kept, len(forecast.sinks))
        target = GatewaySettings(self.output, str(folder / "output.db"), 0, 10 * forecast.total, 0)
        lakes = bool(formats.COMMITS.keys() & {*forecast.sinks})
        self._driver = forecast.driver or Driver(folder, folder.parent, forecast.cluster, lakes=lakes)
        self._gateways = [
            Part("input", "gateway_process", source, folder),
            Part("output", "gateway_process", target, folder),
        ]
        self._parts = {part.name: part for part in (*self._gateways, self._driver)}

    def _plan(self) -> list[Blow]:
        """All kills in some order, each somewhere in a stretch of its own, and none near either end."""
        chance, forecast = self._chance, self.forecast
        once = list(forecast.kills)
        again = [kind for kind, times in forecast.kills.items() for _ in range(times - 1)]
        chance.shuffle(once)
        chance.shuffle(again)
        kinds = once + again
        together = forecast.total * len(forecast.sinks)
        stretch = together * 2 // 3 // len(kinds)
        often = {"committer": 1.0, "driver": 0.5, "output": 0.5}
        return [
            Blow(
                kind,
                place=together // 50 + number * stretch + chance.randrange(stretch),
                delay=chance.uniform(0, _LONGEST_DELAY),
                at_publication=chance.random() < often.get(kind, 0.0),
            )
            for number, kind in enumerate(kinds)
        ]

    # ---------------------------------------------------------------- the storm
    def rage(self) -> None:
        """Start everybody, kill them as planned, and wait until the driver is done."""
        for part in self._gateways:
            part.start()
        self._driver.begin(self._settings)
        while not self._driver.is_done():
            self._look()
        self._note("the driver is done")
        if self.forecast.driver is None and (status := self._driver.leave()) != 0:
            self.fail(f"the driver ended with status {status}")
        if not all(self.struck.values()):
            self.fail("it was over before everybody was killed")
        failures = [line for line in self.failures() if not any(reason in line for reason in _ANY_TIME)]
        if len(failures) > sum(self.struck.values()):
            self.fail("queries failed oftener than anybody was killed")

    def check(self) -> None:
        """Every sink has what the source gave: all of it, nothing twice, and a log in the same order."""
        expected = digests_of_source(self.forecast.total)
        wrong = {sink: difference(self._records_in(sink), expected) for sink in self.forecast.sinks}
        if any(wrong.values()):
            self.fail("\n".join(f"{sink}: {how or 'right'}" for sink, how in wrong.items()))
        self.was_right = True

    def _records_in(self, sink: str) -> list[bytes]:
        if sink == "log":
            return records_in_log(self.output)
        if sink == "files":
            return records_in_files(self._settings.table(sink))
        return records_in_table(self._settings.read_back(sink))

    def close(self) -> None:
        """Nothing of it is left, however it ended."""
        for part in self._gateways:
            part.kill()
        if self.forecast.driver is None:
            self._driver.close()
        elif not self.was_right:
            self._driver.kill()

    def _look(self) -> None:
        self._pause.wait(_LOOK)
        if time.monotonic() > self._began + self.forecast.seconds:
            self.fail(f"it is not over after {self.forecast.seconds:g} s")
        for name, part in self._parts.items():
            status = part.ended()
            if status is not None:
                self.fail(f"the part {name} ended by itself, with status {status}")
        if self._blows and self._is_due(self._blows[0]):
            self._strike(self._blows[0])

    def _is_due(self, blow: Blow) -> bool:
        reached = self._reached()
        together = sum(reached.values())
        if together < blow.place or together <= self._committed_then or not all(reached.values()):
            return False
        if self._due is None:
            self._due = time.monotonic() + blow.delay
        return time.monotonic() >= self._due

    def _strike(self, blow: Blow) -> None:
        reached = self._reached()
        if not all(0 < count < self.forecast.total for count in reached.values()):
            if not self.struck[blow.kind]:
                self.fail(f"too late for {blow}: {reached}")
            self._blows.clear()
            return
        killed = self._kill(blow)
        if not killed:
            return  # Nobody was there just now. At the next look, perhaps.
        when = "when a batch was published, " if blow.at_publication else ""
        self._blows.pop(0)
        self._due = None
        self._committed_then = sum(reached.values())
        self.struck[blow.kind] += 1
        self._note(f"killed {killed}, {when}at {reached}")

    def _kill(self, blow: Blow) -> str:
        """Kill somebody, and start again what does not start again by itself; who was killed, if anybody."""
        if blow.kind in self._parts:
            return self._kill_part(blow)
        cluster, broker = self.forecast.cluster, self.forecast.broker
        if blow.kind == "broker" and broker is not None:
            broker.kill()
            broker.start()  # It answers when this returns.
        elif blow.kind == "machine" and cluster is not None:
            machine = self._chance.choice(cluster.workers)
            machine.kill()
            machine.start()
        else:
            return self._kill_process(blow)
        return blow.kind

    def _kill_part(self, blow: Blow) -> str:
        """Kill one of the three, and start it again; who was killed, if anybody."""
        part, victims = self._parts[blow.kind], [blow.kind]
        if blow.at_publication and not self._kill_at_publication(blow, part.processes()):
            return ""
        if blow.kind == "driver":
            # Now and then a gateway goes down with it.
            victims += self._chance.choice([[], ["input"], ["output"]])
        for name in victims:
            self._parts[name].kill()
        for name in victims:
            self._parts[name].start()
        return " and ".join(victims)

    def _kill_process(self, blow: Blow) -> str:
        """Kill one that Spark has started; which one, if any. Spark has to see to the rest."""
        if blow.kind == "executor":
            found = [process for process in self._of_spark() if _EXECUTOR in process.command]
        else:
            found = self._workers() if blow.kind == "worker" else self._beside(_BESIDE[blow.kind])
        if not found:
            return ""
        if blow.at_publication:
            return blow.kind if self._kill_at_publication(blow, found) else ""
        victim = self._chance.choice(found)
        return f"{blow.kind} {victim.pid}" if kill(victim.pid) else ""

    def _kill_at_publication(self, blow: Blow, processes: list[Process]) -> bool:
        """Kill as soon as a batch appears in a sink of the victim's; False if none did in time."""
        sink = self._chance.choice(self.forecast.sinks) if blow.kind == "driver" else "log"
        if not (self._log_grows() if sink == "log" else self._table_grows(sink)):
            return False
        for process in processes:
            kill(process.pid)
        return True

    def _log_grows(self) -> bool:
        with closing(LogReader(self.output, patience=_TO_ANSWER)) as client:
            head = client.state().head
            return client.state(beyond=head, wait=_LONGEST_BATCH).head > head

    def _table_grows(self, sink: str) -> bool:
        def commits() -> int:
            return sum(1 for _ in self._settings.table(sink).glob(_COMMITS[sink]))

        before, until = commits(), time.monotonic() + _LONGEST_BATCH
        while (now := commits()) == before and time.monotonic() < until:
            self._pause.wait(_LOOK_CLOSELY)
        return now > before

    def _workers(self) -> list[Process]:
        """The processes that run tasks, and are at it."""
        before = {process.pid: process.ticks for process in self._of_spark()}
        self._pause.wait(_LOOK)
        return [
            process
            for process in self._beside("pyspark.daemon pyspark.worker")
            if process.ticks > before.get(process.pid, process.ticks)
        ]

    def _beside(self, module: str) -> list[Process]:
        """The processes that run a module of Spark's, without those that only fork them."""
        processes = [
            process for process in self._of_spark() if process.command.strip().endswith(f"-m {module}")
        ]
        pids = {process.pid for process in processes}
        return [p for p in processes if p.parent in pids or "pyspark.daemon" not in p.command]

    def _of_spark(self) -> list[Process]:
        """All that the driver has started, and all that the workers of the cluster have."""
        cluster = self.forecast.cluster
        machines = () if cluster is None else cluster.workers
        started = [process for machine in machines for process in machine.processes()]
        return [*self._driver.processes(), *started]

    def _reached(self) -> dict[str, int]:
        return {sink: committed(self._settings.checkpoint(sink)) for sink in self.forecast.sinks}

    # ---------------------------------------------------------------- telling
    def failures(self) -> list[str]:
        """Why queries have failed, and were started again by their driver."""
        lines = self._driver.said().splitlines()
        openings = tuple(f"{sink} failed: " for sink in self.forecast.sinks)
        return [line for line in lines if line.startswith(openings)]

    def story(self) -> list[str]:
        """What happened, in lines."""
        title = f"seed {self.forecast.seed} (PENSTOCK_CHAOS_SEED={self.forecast.seed} repeats it)"
        return [title, *self.events, *self.failures()]

    def summary(self) -> str:
        """How it was, in one line."""
        forecast, seconds = self.forecast, time.monotonic() - self._began
        killed = ", ".join(f"{times} {kind}" for kind, times in self.struck.items())
        sinks, outcome = ", ".join(forecast.sinks), "each record once" if self.was_right else "FAILED"
        return (
            f"seed {forecast.seed}: {outcome} in {sinks}; killed {killed}; {len(self.failures())} queries "
            f"started again; {seconds:.0f} s"
        )

    def fail(self, why: str) -> NoReturn:
        """Fail the test, and tell all that is needed to find out why."""
        lines = [why, *self.story(), f"committed: {self._reached()}"]
        lines += [f"--- {part.name} said last: {part.last_words()}" for part in self._parts.values()]
        pytest.fail("\n".join(lines), pytrace=False)

    def _note(self, event: str) -> None:
        self.events.append(f"{time.monotonic() - self._began:7.2f} s: {event}")
