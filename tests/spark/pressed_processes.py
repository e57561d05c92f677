"""The processes of the backpressure test: a source with its gateway, and a driver with a slow query.

Each is started as ``python -m tests.spark.pressed_processes ROLE …``. It answers every line on its input,
which is a question, with one line of JSON. When its input ends, so does it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import pyarrow as pa

ROOT = Path(__file__).parents[2]

BOUND = 100_000
"""Records that the gateway's log may hold."""
ROW = 100
"""Bytes of a record."""
SLOW = 2_000
"""Rows that the query takes in a second, at most."""
BATCH = 10_000
"""Rows of a micro-batch: five seconds of the query's work, all of it granted by the gateway bit by bit."""


# ---------------------------------------------------------------- in the processes
def run_source() -> None:
    """A source that always has another row, read by a gateway whose log is bounded."""
    from penstock.aquifer import Gateway, MemoryJournal
    from tests.aquifer.faults.rigs import ANYWHERE, Numbers, eventually

    source, journal = Numbers(width=ROW), MemoryJournal(max_records=BOUND)
    wall, processor = time.monotonic(), time.process_time()
    with Gateway(source, ANYWHERE, journal=journal) as gateway:
        eventually(lambda: gateway.status()["records"] == BOUND, "the log does not fill up", 400)
        filling = {"seconds": time.monotonic() - wall, "processor_seconds": time.process_time() - processor}

        def status() -> dict[str, Any]:
            # In this order: what becomes free in between makes what may be given more, not less.
            given, now = source.given, gateway.status()
            return {
                "endpoint": gateway.endpoint,
                "given": given,
                "filling": filling,
                **{name: now[name] for name in ("records", "floor")},
            }

        _answer(status)


def run_driver(endpoint: str, checkpoint: str) -> None:
    """A query that is slowed down, with a heap of a fixed size."""
    from penstock.spark import session

    options = (
        "-Djdk.lang.Process.launchMechanism=VFORK -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
        # All of the heap is there from the beginning. What Java takes later is outside of it.
        "-Xms512m -XX:+AlwaysPreTouch"
    )
    config = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": options}
    spark = session(name="pressed", master="local[2]", config=config)
    spark.sparkContext.setLogLevel("ERROR")

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, 100):
                rows = batch.slice(start, 100)
                time.sleep(rows.num_rows / SLOW)
                yield rows

    reader = spark.readStream.format("aquifer").option("endpoint", endpoint).option("partitions", "1")
    rows = reader.option("maxRecordsPerTrigger", str(BATCH)).load()
    writer = rows.mapInArrow(slowly, rows.schema).writeStream.format("noop")
    query = writer.option("checkpointLocation", checkpoint).start()

    def status() -> dict[str, Any]:
        progress = query.lastProgress
        return {"active": query.isActive, "batch": -1 if progress is None else int(progress["batchId"])}

    def heap() -> dict[str, Any]:
        runtime = spark._jvm.java.lang.Runtime.getRuntime()
        runtime.gc()
        return {"alive": int(runtime.totalMemory()) - int(runtime.freeMemory())}

    _answer(status, heap)
    query.stop()
    spark.stop()


def _answer(*questions: Callable[[], dict[str, Any]]) -> None:
    answers = {question.__name__: question for question in questions}
    for line in sys.stdin:
        print(json.dumps(answers[line.strip()]()), flush=True)


# ---------------------------------------------------------------- in the test
class Pressed:
    """One of these processes, with all that it starts; gone at the end of the ``with`` block."""

    def __init__(self, errors: Path, role: str, *arguments: str) -> None:
        self._errors = errors
        with errors.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.pressed_processes", role, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                start_new_session=True,
                # One pool of memory for all threads of a process: otherwise each thread of Java that comes
                # for the first time takes some more, for minutes.
                env={**os.environ, "MALLOC_ARENA_MAX": "1"},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self._members():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.communicate()

    def ask(self, question: str = "status") -> dict[str, Any]:
        """Its answer: how it is; or, with ``heap``, what is alive in Java's heap."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(question, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"the process has ended: {self._errors.read_text(errors='replace')[-3000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def memory(self) -> dict[str, int]:
        """The bytes that its processes hold, by what they are.

        What several share by having been forked counts once. What is read from files, code above all, does
        not count: it is the same however much data there is, and who else has it in use is not our business.
        """
        held: dict[str, int] = {}
        for pid in self._members():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # It has ended.
            numbers = dict(line.split(":", 1) for line in rollup.splitlines()[1:])
            size = sum(int(numbers[name].split()[0]) * 1024 for name in ("Pss_Anon", "Pss_Shmem"))
            role = self._role(pid, command)
            held[role] = held.get(role, 0) + size
        return held

    def _role(self, pid: int, command: str) -> str:
        if pid == self._process.pid:
            return "the process itself"
        return "Java" if "java" in command.split("\0")[0] else "Python beside Java"

    def _members(self) -> list[int]:
        members = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getsid(int(entry.name)) == self._process.pid:
                    members.append(int(entry.name))
            except (ProcessLookupError, PermissionError):
                continue
        return members


if __name__ == "__main__":
    {"source": run_source, "driver": run_driver}[sys.argv[1]](*sys.argv[2:])
