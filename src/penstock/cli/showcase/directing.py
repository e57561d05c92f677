"""The director: starts the parts, slows the reader down in the middle, and compares what went and came."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

from penstock.cli.interruption import Interruption
from penstock.cli.outputs import say
from penstock.cli.showcase.parts import Part, PartFailed
from penstock.cli.showcase.picture import Moment, Picture

__all__ = ["direct"]

Facts: TypeAlias = dict[str, Any]
"""What a part has said, by name."""

_RATE: Final = 20_000
"""Readings per second that the source would like to send."""
_START: Final = 120.0
"""Seconds that Spark may take to start."""
_FINISH: Final = 120.0
"""Seconds that may pass between the last reading and the last result."""

_WAY: Final = """\
  sensors ▸ TCP ▸ Flux ▸ gateway, SQLite journal ▸ Spark: counts by window and sensor ▸ gateway ▸ reader
  ◀───────────────────────────────────── demand ──────────────────────────────────────────────────────
"""


def direct(duration: float, records: int | None, headless: bool) -> int:
    """Run the demo; 0 if the results speak of exactly the readings that were sent."""
    picture = Picture(sys.stdout, live=not headless and sys.stdout.isatty())
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    with Interruption() as interruption, ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            picture.say(_WAY)
            return _Run(folder, picture, interruption, ending).run(duration, records)
        except PartFailed as failure:
            say(f"penstock demo: {failure}")
            return 1


class _Run:
    """One run, from the first process to the verdict."""

    def __init__(self, folder: Path, picture: Picture, interruption: Interruption, ending: ExitStack) -> None:
        self._folder = folder
        self._picture = picture
        self._interruption = interruption
        self._ending = ending
        self._rates = _Rates()

    def run(self, duration: float, records: int | None) -> int:
        """Start the parts from right to left, so that nobody waits for somebody who is not there."""
        waiting = self._interruption.wait
        self._results = self._part("results")
        sink = self._results.wait_for("endpoint", 30, waiting)
        limit = ["--records", str(records)] if records is not None else []
        journal = str(self._folder / "journal.db")
        self._feed = self._part("feed", journal)
        source = self._feed.wait_for("endpoint", 30, waiting)
        if sink is None or source is None:
            return self._interrupted()
        port = str(self._feed.facts["port"])
        pace = ["--rate", str(_RATE), "--duration", str(duration)]
        self._sensors = self._part("sensors", port, *pace, *limit)
        if self._sensors.wait_for("sent", 30, waiting) is None:
            return self._interrupted()
        self._picture.say("  starting Spark, which takes some seconds; the journal fills meanwhile")
        self._engine = self._part("engine", source, sink, str(self._folder / "checkpoint"))
        if self._engine.wait_for("taken", _START, waiting) is None:
            return self._interrupted()
        self._began = time.monotonic()
        self._first_result: float | None = None
        return self._watch(duration)

    def _part(self, name: str, *arguments: str) -> Part:
        part = Part(name, *arguments, log=self._folder / f"{name}.log")
        self._ending.callback(part.end)
        return part

    # ---------------------------------------------------------------- watching
    def _watch(self, duration: float) -> int:
        ended: float | None = None
        slow = False
        while not self._interruption.wait(0.25):
            sensors, feed = self._sensors.look(), self._feed.look()
            engine, results = self._engine.look(), self._results.look()
            if sensors["error"]:
                raise PartFailed(f"the sensors could not send: {sensors['error']}")
            if results.get("error"):
                raise PartFailed(f"the reader got an error: {results['error']}")
            now = time.monotonic()
            if results["received"] and self._first_result is None:
                self._first_result = now
            wanted = ended is None and self._in_the_middle(now, duration)
            if wanted != slow:
                slow = wanted
                self._results.say("slow" if slow else "fast")
            if ended is None and sensors["ended"] and feed["journalled"] > sensors["sent"]:
                ended = now
            self._picture.show(self._moment(now, slow, ended is not None, sensors, feed, engine, results))
            if ended is not None and results["counted"] >= sensors["sent"]:
                return self._verdict(sensors, feed, engine, results, ended - self._began)
            if ended is not None and now - ended > _FINISH:
                self._verdict(sensors, feed, engine, results, ended - self._began)
                return 1
        return self._interrupted()

    def _in_the_middle(self, now: float, duration: float) -> bool:
        """Of the time in which there are results: before that, nobody would notice a slow reader."""
        return self._first_result is not None and 0.1 < (now - self._first_result) / duration < 0.5

    def _moment(
        self, now: float, slow: bool, ended: bool, sensors: Facts, feed: Facts, engine: Facts, results: Facts
    ) -> Moment:
        if ended:
            phase = "the sensors have ended; the rest is on its way"
        elif slow:
            phase = "the reader is slow: what it does not ask for is not sent to it, nor before it"
        else:
            phase = "everybody keeps up"
        return Moment(
            elapsed=now - self._began,
            phase=phase,
            sent=sensors["sent"],
            sent_rate=self._rates.of("sent", sensors["sent"], now),
            blocked=sensors["blocked"],
            asked=feed["asked"],
            held=feed["held"],
            capacity=feed["capacity"],
            batch=engine["batch"],
            batch_seconds=engine["seconds"],
            taken=engine["taken"],
            taken_rate=self._rates.of("taken", engine["taken"], now),
            results_held=results["held"],
            results_capacity=results["capacity"],
            results=results["received"],
            results_rate=self._rates.of("results", results["received"], now),
            slow=slow,
        )

    # ---------------------------------------------------------------- the end
    def _verdict(self, sensors: Facts, feed: Facts, engine: Facts, results: Facts, seconds: float) -> int:
        same = results["counted"] == sensors["sent"] and results["fingerprint"] == sensors["fingerprint"]
        memory = {
            "sensors": sensors["memory"],
            "server and gateway": feed["memory"],
            "Spark": engine["memory"] + engine["jvm"],
            "gateway and reader": results["memory"],
        }
        said = [
            "",
            f"  sent      {sensors['sent']:>12,} readings, fingerprint {sensors['fingerprint']:x}",
            f"  received  {results['counted']:>12,} readings, fingerprint {results['fingerprint']:x}, "
            f"in {results['received']:,} results",
            f"  pace      {sensors['sent'] / max(seconds, 0.1):>12,.0f} a second, over {seconds:.0f} s",
            f"  waiting   {sensors['blocked_for']:>12.1f} s, in which the sensors' socket took nothing",
            "  memory    "
            + ", ".join(f"{name} {nbytes / 2**20:.0f} MiB" for name, nbytes in memory.items())
            + ", at most",
            "",
            "  Nothing was lost, and nothing came twice." if same else "  NOT THE SAME: this is a defect.",
        ]
        self._picture.say("\n".join(said))
        return 0 if same else 1

    def _interrupted(self) -> int:
        self._picture.say("\n  interrupted; everything is being stopped")
        return self._interruption.exit_code


class _Rates:
    """How fast counts grow, over the last seconds."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, int]]] = {}

    def of(self, name: str, count: int, now: float) -> float:
        """Per second."""
        seen = self._seen.setdefault(name, [])
        seen.append((now, count))
        while len(seen) > 2 and seen[0][0] < now - 3:
            seen.pop(0)
        (then, before), (_, after) = seen[0], seen[-1]
        return (after - before) / (now - then) if now > then else 0.0
