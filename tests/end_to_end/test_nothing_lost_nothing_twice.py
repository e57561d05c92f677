"""The one sentence of the product: from TCP senders through gateways and Spark to a reader, demand goes all
the way left, and whoever is slow or killed, nothing is lost and nothing comes twice.

Everything is a process as a user would start it. Each is slowed down in turn, and each is killed with -9 in
turn and started again, at marks of progress and not of time.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.end_to_end.stages import Reader, Stage, wait_until
from tests.free_ports import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc"),
]

SENDERS = ("north", "south")
LINES = 120_000
"""Lines of each sender."""
FILLING = "·" * 150
LOG = 5_000
"""Records that a gateway keeps at most: a small part of all, so that everybody has to wait for everybody."""
MIB = 2**20
PATIENCE = 400
"""Seconds for each mark of progress. On a busy machine Spark alone takes minutes to start again."""

APP = """
from penstock.spark import Pipeline

pipeline = (
    Pipeline({sources!r}, options={{"value": "string", "maxRecordsPerTrigger": "20000"}})
    .through(lambda df: df.selectExpr("upper(value) as value"))
    .into({sink!r}, value="string")
)
"""


def line(sender: str, number: int) -> str:
    return f"{sender} {number} {hashlib.md5(f'{sender}{number}'.encode()).hexdigest()} {FILLING}"


def test_whoever_is_slow_or_killed_every_line_arrives_once(tmp_path: Path) -> None:
    inputs = {sender: tmp_path / f"{sender}.txt" for sender in SENDERS}
    for sender, path in inputs.items():
        path.write_text("".join(line(sender, number) + "\n" for number in range(LINES)))
    out = tmp_path / "out.txt"
    ports = {sender: (free_port(), free_port()) for sender in SENDERS}
    sink = f"tcp://127.0.0.1:{free_port()}"
    app = tmp_path / "app.py"
    sources = ",".join(f"tcp://127.0.0.1:{control}" for _, control in ports.values())
    app.write_text(APP.format(sources=sources, sink=sink))

    def gateway(name: str, source: str, control: str) -> Stage:
        bounds = ("--journal", str(tmp_path / f"{name}.db"), "--max-records", str(LOG))
        return Stage(
            name, tmp_path, "gateway", "--source", source, "--control", control, *bounds, "--stay", "--quiet"
        )

    with ExitStack() as ending:

        def stage(made: Stage) -> Stage:
            ending.callback(made.end)
            return made

        stages = [stage(gateway("results", "writers", sink))]
        # With a name, so that the gateway keeps what it has not seen when it is gone.
        reading = ("tail", sink, "--codec", "text", "--id", "reader", "--lease", "10m")
        stages.append(stage(Reader("reader", tmp_path, out, *reading)))
        for sender, (port, control) in ports.items():
            listening = f"tcp-listen://127.0.0.1:{port}?acknowledge"
            stages.append(stage(gateway(f"gateway-{sender}", listening, f"tcp://127.0.0.1:{control}")))
        spark = (
            "run",
            str(app),
            "--checkpoint",
            str(tmp_path / "checkpoint"),
            "--master",
            "local[2]",
            "--quiet",
        )
        memory = ("--conf", "spark.driver.memory=768m")
        stages.append(stage(Stage("spark", tmp_path, *spark, *memory)))
        senders = []
        for sender, (port, _) in ports.items():
            send = ("send", "--acknowledged", str(inputs[sender]), f"tcp://127.0.0.1:{port}", "--quiet")
            senders.append(stage(Stage(f"sender-{sender}", tmp_path, *send, once=True)))
        stages += senders

        total = LINES * len(SENDERS)
        progress = _Counting(out)

        def describe() -> str:
            return f"{progress():,} of {total:,} lines\n" + "\n".join(each.last_words() for each in stages)

        def reached(count: int) -> Callable[[], bool]:
            return lambda: _look(stages) and progress() >= count

        # Slow and kill by turns, from left to right, while the data flows. The senders come first: at a
        # quarter of the whole, neither can have sent all of its half.
        marks = _marks(total, 2 * len(stages))
        results, reader, *gateways, run = stages[: -len(senders)]
        for each in (*senders, *gateways, run, results, reader):
            mark = next(marks)
            wait_until(reached(mark), f"before {each.name} is slowed down", PATIENCE, describe)
            each.slow_down(reached(mark + total // 50))
            mark = next(marks)
            wait_until(reached(mark), f"before {each.name} is killed", PATIENCE, describe)
            each.kill()
        wait_until(reached(total), "the end", PATIENCE, describe)
        for each in senders:
            assert each.finished.wait(PATIENCE), describe()
        starts = {each.name: each.starts for each in stages}
        peaks = {each.name: each.peak for each in stages}

    arrived = out.read_text().splitlines()
    expected = [line(sender, number).upper() for sender in SENDERS for number in range(LINES)]
    assert len(arrived) == len(expected)
    assert _hash(sorted(arrived)) == _hash(sorted(expected))
    # The data is about twice as large as any gateway or sender ever was.
    assert min(starts.values()) >= 2, starts
    size = sum(path.stat().st_size for path in inputs.values())
    # Spark is Java with a bounded heap and fifteen Python processes, whatever the data.
    for name, peak in peaks.items():
        assert peak < (2560 * MIB if name == "spark" else 128 * MIB), (name, peak // MIB, size // MIB)


class _Counting:
    """How many whole lines a growing file has, without reading it again each time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen = 0
        self._count = 0

    def __call__(self) -> int:
        with self._lock:
            if self._path.exists():
                with self._path.open("rb") as file:
                    size = file.seek(0, 2)
                    if size < self._seen:  # a half line was cut off
                        self._seen = self._count = 0
                    file.seek(self._seen)
                    while chunk := file.read(MIB):
                        self._count += chunk.count(b"\n")
                        self._seen += len(chunk)
            return self._count


def _look(stages: list[Stage]) -> bool:
    for stage in stages:
        stage.look()
    return True


def _marks(total: int, number: int) -> Iterator[int]:
    return iter([total * (mark + 1) // (number + 3) for mark in range(number)])


def _hash(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
