"""The director: starts the parts, makes the reader slow for a while, and checks that nothing was lost."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar

from penstock.cli.demo.ipc import (
    EngineReport,
    IntakeReport,
    Part,
    PartFailed,
    PartReport,
    ResultsReport,
    SensorsReport,
)
from penstock.cli.demo.onlooker import Onlooker
from penstock.cli.demo.picture import Moment, Picture
from penstock.cli.demo.summary import MomentHistory, summary_svg
from penstock.cli.logs import is_json, tell
from penstock.cli.screen import Screen
from penstock.cli.signals import Interruption
from penstock.cli.spark_start import SparkStart
from penstock.observe import DashboardOptions

__all__ = ["direct", "phase_of"]

R = TypeVar("R", bound=PartReport)

_RATE: Final = 20_000
"""Readings per second that the sensors would like to send."""
_SIGN_AFTER: Final = 2.0
"""Seconds in which most parts start; after that the user sees a sign of life."""
_BACKLOG: Final = 2 * _RATE
"""Readings of two seconds: with a smaller backlog, Spark keeps up."""
_FINISH: Final = 120.0
"""Seconds that may pass between the last reading and the last result."""
_LONGEST: Final = 10
"""For how many durations the reader is slow at most, if nobody waits for it."""
_SEEN: Final = 3.0
"""Seconds for which the waiting sensors are shown at least."""


def direct(
    duration: float,
    records: int | None,
    headless: bool,
    start_limit: float,
    drawn: str | None = None,
    *,
    as_json: bool = False,
    dashboard: DashboardOptions | None = None,
) -> int:
    """Run the demo; 0 if the results count exactly the readings that were sent.

    ``drawn`` is the file of the summary picture, if there is to be one.
    """
    picture = Picture(Screen(sys.stdout, must_be_read=True), headless=headless, as_json=as_json)
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    with Interruption() as interruption, ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            picture.way()
            run = _Run(folder, picture, interruption, ending, start_limit, drawn, dashboard)
            return run.run(duration, records)
        except PartFailed as failure:
            tell("demo", str(failure))
            return 1


class _Run:
    """One run, from the first process to the verdict."""

    def __init__(
        self,
        folder: Path,
        picture: Picture,
        interruption: Interruption,
        ending: ExitStack,
        start_limit: float,
        drawn: str | None,
        dashboard: DashboardOptions | None,
    ) -> None:
        self._folder = folder
        self._dashboard = dashboard
        self._drawn = drawn
        self._history = MomentHistory()
        self._start_limit = start_limit
        self._picture = picture
        self._interruption = interruption
        self._ending = ending
        self._rates = _Rates()
        self._spark = SparkStart("demo")

    def run(self, duration: float, records: int | None) -> int:
        """Start the parts from right to left, so that each finds the next one ready."""
        self._results = self._part("results", ResultsReport, "results", module="gateways")
        sink = self._started(self._results)
        journal = str(self._folder / "journal.db")
        self._intake = self._part("intake", IntakeReport, "intake", journal, module="gateways")
        source = self._started(self._intake)
        if sink is None or source is None:
            return self._interrupted()
        readers = {source.endpoint: "Spark", sink.endpoint: "the reader"}
        self._onlooker = self._ending.enter_context(Onlooker(readers))
        self._onlooker.show(self._note, self._dashboard)
        limit = ["--records", str(records)] if records is not None else []
        pace = ["--rate", str(_RATE), "--duration", str(duration)]
        self._sensors = self._part("sensors", SensorsReport, str(source.port), *pace, *limit)
        if self._started(self._sensors) is None:
            return self._interrupted()
        checkpoint = str(self._folder / "checkpoint")
        self._engine = self._part("engine", EngineReport, source.endpoint, sink.endpoint, checkpoint)
        starting = time.monotonic()
        if self._started(self._engine) is None:
            return self._interrupted()
        self._picture.started()
        self._began = time.monotonic()
        self._spark.took(self._began - starting)
        self._first_result: float | None = None
        self._full = False
        """Whether the gateway of the slow reader has filled up."""
        self._waits: float | None = None
        """When the sensors began to wait for the slow reader."""
        return self._watch(duration)

    def _note(self, text: str) -> None:
        """Tell something beside the figures: a message for a program, a line of the picture for people."""
        if is_json():
            tell("demo", text)
        else:
            self._picture.say(f"  {text}")

    def _started(self, part: Part[R]) -> R | None:
        """Wait for a part with signs of life; None if the user interrupts."""

        def waits(seconds: float, elapsed: float) -> bool:
            if part.name == "engine":
                held = self._intake.report.held
                about = f"starting Spark{self._spark.estimate}; {held:,} readings wait in the journal"
                self._picture.starting(about, elapsed)
            elif elapsed > _SIGN_AFTER:
                self._picture.starting(f"starting the part {part.name!r}", elapsed)
            return self._interruption.wait(seconds)

        return part.wait(self._start_limit, waits)

    def _part(self, name: str, kind: type[R], *arguments: str, module: str | None = None) -> Part[R]:
        part = Part(name, kind, *arguments, log=self._folder / f"{name}.log", module=module)
        self._ending.callback(part.end)
        return part

    # ---------------------------------------------------------------- watching
    def _watch(self, duration: float) -> int:
        ended: float | None = None
        slow = False
        while not self._interruption.wait(0.25):
            sensors, intake = self._sensors.report, self._intake.report
            engine, results = self._engine.report, self._results.report
            if sensors.error:
                raise PartFailed(f"the sensors could not send: {sensors.error}")
            if results.error:
                raise PartFailed(f"the reader failed: {results.error}")
            now = time.monotonic()
            if results.received and self._first_result is None:
                self._first_result = now
            if slow:
                self._full = self._full or results.held >= results.capacity * 0.75
                if self._full and sensors.blocked and self._waits is None:
                    self._waits = now
            wanted = ended is None and self._in_the_middle(now, duration)
            if wanted != slow:
                slow = wanted
                self._results.say("slow" if slow else "fast")
            if ended is None and sensors.ended and intake.journalled > sensors.sent:
                ended = now
            moment = self._moment(now, slow, ended is not None, sensors, intake, engine, results)
            self._history.add(moment)
            self._picture.show(moment)
            if ended is not None and results.counted >= sensors.sent:
                return self._verdict(sensors, intake, engine, results, ended - self._began)
            if ended is not None and now - ended > _FINISH:
                self._verdict(sensors, intake, engine, results, ended - self._began)
                return 1
        return self._interrupted()

    def _in_the_middle(self, now: float, duration: float) -> bool:
        """Return whether the reader should be slow now: in the middle of the time in which there are results.

        On a busy machine it takes longer until its gateway has filled up and the sensors wait, which is what
        there is to see.
        """
        if self._first_result is None:
            return False
        passed = (now - self._first_result) / duration
        unseen = self._waits is None or now - self._waits < _SEEN
        return 0.1 < passed < 0.5 or (0.5 <= passed < _LONGEST and unseen)

    def _moment(
        self,
        now: float,
        slow: bool,
        ended: bool,
        sensors: SensorsReport,
        intake: IntakeReport,
        engine: EngineReport,
        results: ResultsReport,
    ) -> Moment:
        return Moment(
            elapsed=now - self._began,
            phase=phase_of(slow=slow, ended=ended, blocked=sensors.blocked, backlog=intake.held),
            sent=sensors.sent,
            sent_rate=self._rates.of("sent", sensors.sent, now),
            blocked=sensors.blocked,
            open_demand=intake.open_demand,
            held=intake.held,
            capacity=intake.capacity,
            batch=engine.batch,
            batch_seconds=engine.seconds,
            taken=engine.taken,
            taken_rate=self._rates.of("taken", engine.taken, now),
            results_held=results.held,
            results_capacity=results.capacity,
            results=results.received,
            results_rate=self._rates.of("results", results.received, now),
            slow=slow,
            limit=self._onlooker.sentence,
        )

    # ---------------------------------------------------------------- the end
    def _verdict(
        self,
        sensors: SensorsReport,
        intake: IntakeReport,
        engine: EngineReport,
        results: ResultsReport,
        seconds: float,
    ) -> int:
        same = results.counted == sensors.sent and results.fingerprint == sensors.fingerprint
        memory = {
            "sensors": sensors.memory,
            "server and gateway": intake.memory,
            "Spark": engine.memory + engine.jvm,
            "gateway and reader": results.memory,
        }
        said = [
            "",
            f"  sent      {sensors.sent:>12,} readings, fingerprint {sensors.fingerprint:x}",
            f"  received  {results.counted:>12,} readings, fingerprint {results.fingerprint:x}",
            f"  results   {results.received:>12,}",
            f"  pace      {sensors.sent / max(seconds, 0.1):>12,.0f} a second, over {seconds:.0f} s",
            f"  waiting   {sensors.blocked_for:>12.1f} s, the sensors for demand",
            *(f"  memory    {nbytes / 2**20:>12.0f} MiB at most, {name}" for name, nbytes in memory.items()),
            "",
            "  Nothing was lost, and nothing arrived twice." if same else "  NOT THE SAME: this is a defect.",
        ]
        self._picture.say("\n".join(said))
        self._draw(sensors, results, same, seconds)
        self._picture.end(
            same=same,
            sent=sensors.sent,
            received=results.counted,
            seconds=round(seconds, 1),
            blocked_seconds=round(sensors.blocked_for, 1),
            picture=self._drawn,
        )
        return 0 if same else 1

    def _draw(self, sensors: SensorsReport, results: ResultsReport, same: bool, seconds: float) -> None:
        """Write the summary picture; a file that cannot be written does not make the demo fail."""
        if self._drawn is None:
            return
        title = "Nothing was lost, and nothing arrived twice" if same else "NOT THE SAME: this is a defect"
        subtitle = (
            f"{sensors.sent:,} readings sent, {results.counted:,} counted in the results, {seconds:.0f} s; "
            f"the sensors waited for {sensors.blocked_for:.0f} s, Spark's start included"
        )
        try:
            Path(self._drawn).write_text(summary_svg(self._history.moments, title, subtitle), "utf-8")
        except OSError as error:
            tell("demo", f"cannot write {self._drawn}: {error.strerror}; name another with --picture")
        else:
            self._note(f"rates and levels over time are in {self._drawn}")

    def _interrupted(self) -> int:
        self._picture.say("\n  interrupted; stopping everything")
        return self._interruption.exit_code


def phase_of(*, slow: bool, ended: bool, blocked: bool, backlog: int) -> str:
    """Say in a few words what the figures show."""
    if ended:
        return "the sensors have ended; the rest is on its way"
    if slow and blocked:
        return "the reader is slow, so every earlier stage waits"
    if slow:
        return "the reader is slow; the logs before it fill up"
    if blocked:
        return "the journal is full, so the sensors wait for Spark"
    if backlog > _BACKLOG:
        return "Spark catches up with the journal"
    return "every stage keeps up"


class _Rates:
    """Computes how fast counts grow, over the last seconds."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, int]]] = {}

    def of(self, name: str, count: int, now: float) -> float:
        """Return the growth per second of a count."""
        seen = self._seen.setdefault(name, [])
        seen.append((now, count))
        while len(seen) > 2 and seen[0][0] < now - 3:
            seen.pop(0)
        (then, before), (_, after) = seen[0], seen[-1]
        return (after - before) / (now - then) if now > then else 0.0
