"""The play: who takes part, who is killed when, and how it has to end.

Nothing depends on the clock. A subscriber is killed when it has come to a place that the seed has chosen; the
gateway when the log has come to such a place, and everybody has got something since both were started. Until
then the source stops at the end of a stretch of its own for each gateway, so that no kill comes too late.
Each time one of the extended subscribers dies with the gateway, and is back before it.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
import pytest

from penstock.aquifer.records.batch import values_of
from tests.aquifer.chaos.children import Child, port_that_stays_free, wait_for_any_end
from tests.aquifer.chaos.extended_process import ExtendedSettings
from tests.aquifer.chaos.gateway_process import GatewaySettings, open_log
from tests.aquifer.chaos.lossy_proxy import LossyProxy
from tests.aquifer.chaos.plain_process import PlainSettings
from tests.aquifer.chaos.records import BLOCK, Output, digests_of_source, offset_in
from tests.kafka.broker import KafkaBroker

__all__ = ["Play", "Script"]

_LOOK: Final = 0.01
"""Seconds between looks at how far everybody is."""
_WEIGH: Final = 0.2
_TO_COME_UP: Final = 60.0
_TO_CLOSE: Final = 60.0


@dataclass(frozen=True)
class Script:
    """What is to happen."""

    total: int
    seed: int
    rate: float
    """Records per second of the source."""
    gateway_kills: int
    subscriber_kills: int
    """How often each of the extended subscribers is killed."""
    seconds: float
    """How long it may take."""
    broker_kills: int = 0
    """How often the broker is killed, if the log is in one."""
    dropped: float = 0.05
    repeated: float = 0.05


@dataclass(eq=False)
class Part:
    """A subscriber, how far it is, and where it is to be killed."""

    child: Child
    path: Callable[[], Path]
    """Where it keeps what it has."""
    kill_at: list[int] = field(default_factory=list)
    kills_due: int = 0
    fresh_from: int = 0
    """How far it was when it, or the gateway, was last started."""
    done: bool = False

    def is_there(self) -> bool:
        """Whether it has begun."""
        return self.path().exists()

    def reached(self) -> int:
        """How far it has come."""
        return offset_in(self.path())


class Play:
    """Six subscribers, a gateway, and the proxy between it and half of them."""

    def __init__(self, script: Script, folder: Path, broker: KafkaBroker | None = None) -> None:
        self.script = script
        self._folder = folder
        self._broker = broker
        self.broker_kills = 0
        self._chance = random.Random(script.seed)
        self._began = time.monotonic()
        self._weighed = 0.0
        self.events: list[str] = []
        """Who was killed when."""
        self.expected = digests_of_source(script.total)
        self._expected_path = folder / "expected"
        self._expected_path.write_bytes(self.expected)
        self._broker_kill_at = sorted(self._place(0, script.total) for _ in range(script.broker_kills))
        control = f"tcp://127.0.0.1:{port_that_stays_free(random.Random())}"
        self.gateway = self._make_gateway(control)
        self._stretch = script.total // (script.gateway_kills + 1)
        self._gateway_kill_at = [
            self._place(number * self._stretch, self._stretch) for number in range(script.gateway_kills)
        ]
        names = ["fast", "bursts", "durable"]
        self.proxy = LossyProxy(
            control, names, seed=script.seed, dropped=script.dropped, repeated=script.repeated
        )
        # As much in a burst as the source gives during the pause alone: these two fall behind.
        large, small = int(script.rate * 0.1), int(script.rate * 0.02)
        self.extended = [
            self._extended("fast"),
            self._extended("bursts", burst=large, first_burst=large, pause=0.1),
            self._extended("durable", id="durable", window=2048, burst=small, first_burst=1, pause=0.02),
        ]
        for part in self.extended:
            part.kill_at = sorted(self._place(0, script.total) for _ in range(script.subscriber_kills))
            part.kills_due = script.subscriber_kills
        self._die_with_gateway = self._chance.choices(self.extended, k=script.gateway_kills)
        for part in self._die_with_gateway:
            part.kills_due += 1
        self.plain = [
            self._plain("many", control, count=20_000),
            self._plain("some", control, count=1_000, pause=500 / script.rate),
            self._plain("few", control, count=333),
        ]

    @property
    def parts(self) -> list[Part]:
        """All subscribers."""
        return [*self.extended, *self.plain]

    @property
    def _children(self) -> list[Child]:
        return [self.gateway, *(part.child for part in self.parts)]

    # ---------------------------------------------------------------- who takes part
    def _make_gateway(self, control: str) -> Child:
        where = str(self._folder / "journal.db")
        if self._broker is not None:
            where = f"kafka://{self._broker.address}/chaos"
        settings = GatewaySettings(control, where, self.script.total, self.script.rate, self.script.total)
        return Child("gateway", "gateway_process", settings, self._folder)

    def _extended(self, name: str, **more: Any) -> Part:
        settings = ExtendedSettings(name, self.proxy.endpoint(name), *self._paths(name), **more)
        child = Child(name, "extended_process", settings, self._folder)
        return Part(child, lambda: Path(settings.output))

    def _plain(self, name: str, control: str, **more: Any) -> Part:
        settings = PlainSettings(name, control, *self._paths(name), **more)
        child = Child(name, "plain_process", settings, self._folder)
        # It starts a new file whenever a gateway has died, and for no other reason.
        return Part(child, lambda: Path(f"{settings.output}.{self.gateway.kills}"))

    def _paths(self, name: str) -> tuple[str, str, str]:
        start = str(self._folder / name)
        return f"{start}.output", f"{start}.summary", str(self._expected_path)

    def _place(self, start: int, length: int) -> int:
        """Somewhere in the middle of a stretch of the log."""
        return start + self._chance.randrange(length // 10, length * 8 // 10)

    # ---------------------------------------------------------------- the play
    def perform(self) -> None:
        """Start everybody, kill them as it is written, and wait for the end."""
        try:
            self.proxy.start()
            self._start_gateway()
            for part in self.parts:
                part.child.start()
            self._until_everybody_is_there()
            self.gateway.tell(b"go")
            self._until_everybody_is_done()
        finally:
            self.proxy.stop()

    def close(self) -> None:
        """Nothing of it is left, however it ended."""
        for child in self._children:
            child.clear_away()

    def _start_gateway(self) -> None:
        self.gateway.settings.hold_at = (
            (self.gateway.kills + 1) * self._stretch if self._gateway_kill_at else self.script.total
        )
        self.gateway.start()
        if self.gateway.line(_TO_COME_UP) != b"ready\n":
            self.fail("the gateway did not come up", self.gateway)
        for part in self.parts:
            part.fresh_from = part.reached()

    def _until_everybody_is_there(self) -> None:
        while not all(part.is_there() for part in self.parts):
            self._look()

    def _until_everybody_is_done(self) -> None:
        while not all(part.done for part in self.parts):
            self._look()
            self._kill_subscribers()
            self._kill_broker()
            self._kill_gateway()

    def _look(self) -> None:
        """Wait a little, or until a process ends; see who has ended, and how."""
        wait_for_any_end(self._children, _LOOK)
        now = time.monotonic()
        if now > self._began + self.script.seconds:
            self.fail(f"it is not over after {self.script.seconds:g} s")
        if now - self._weighed >= _WEIGH:
            self._weighed = now
            for child in self._children:
                child.weigh()
        self._see_who_is_done()

    def _see_who_is_done(self) -> None:
        if self.gateway.ended() is not None:
            self.fail("the gateway ended by itself", self.gateway)
        for part in self.parts:
            if not part.done and (status := part.child.ended()) is not None:
                if status != 0:
                    self.fail(f"{part.child.name} ended with status {status}", part.child)
                part.done = True
                self._note(f"{part.child.name} is done")

    def _kill_subscribers(self) -> None:
        for part in self.extended:
            if part.kill_at and not part.done and part.reached() >= part.kill_at[0]:
                part.kill_at.pop(0)
                self._kill_and_start(part)

    def _kill_and_start(self, part: Part) -> None:
        part.child.kill()
        part.fresh_from = part.reached()
        self._note(f"killed {part.child.name} at {part.fresh_from}")
        part.child.start()

    def _kill_broker(self) -> None:
        if self._broker_kill_at and self._log_reached() >= self._broker_kill_at[0]:
            assert self._broker is not None
            self._broker_kill_at.pop(0)
            self._broker.kill()
            self._note(f"killed the broker at {self._log_reached()}")
            self._broker.start()
            self.broker_kills += 1
            self._note("the broker is back")

    def _kill_gateway(self) -> None:
        if not self._gateway_kill_at or self._log_reached() < self._gateway_kill_at[0]:
            return
        if all(self._reads(part) for part in self.parts):
            self._gateway_kill_at.pop(0)
            where = ", ".join(f"{part.child.name} at {part.reached()}" for part in self.parts)
            self.gateway.kill()
            self._note(f"killed the gateway ({where})")
            self._kill_and_start(self._die_with_gateway.pop())
            self._start_gateway()
            self.gateway.tell(b"go")
            self._note("the gateway is back")

    def _reads(self, part: Part) -> bool:
        # One that was killed at the end of the stretch cannot get anything more.
        at_the_end = part.fresh_from + BLOCK > self.gateway.settings.hold_at
        return not part.done and (part.reached() > part.fresh_from or at_the_end)

    def _log_reached(self) -> int:
        return max(part.reached() for part in self.parts)

    # ---------------------------------------------------------------- how it ended
    def check(self) -> None:
        """Everybody has everything, once; and so has the journal."""
        for part in self.parts:
            self._check_output(part)
        for part in self.extended:
            if part.child.kills != part.kills_due:
                self.fail(f"{part.child.name} was killed {part.child.kills} times, not {part.kills_due}")
        for part in self.plain:
            given_up = self.summary(part)["given_up"]
            if len(given_up) != self.script.gateway_kills:
                self.fail(f"{part.child.name} started over {len(given_up)} times: {given_up}", part.child)
        if self.broker_kills != self.script.broker_kills:
            self.fail(f"the broker was killed {self.broker_kills} times")
        if self.gateway.kills != self.script.gateway_kills:
            self.fail(f"the gateway was killed {self.gateway.kills} times")
        self.gateway_status = msgspec.json.decode(self.gateway.finish(_TO_CLOSE))
        if self.gateway.process.returncode != 0:
            self.fail(f"the gateway closed with status {self.gateway.process.returncode}", self.gateway)
        self._check_journal()

    def summary(self, part: Part) -> dict[str, Any]:
        """What a subscriber said at its end."""
        said: dict[str, Any] = msgspec.json.decode(Path(part.child.settings.summary).read_bytes())
        return said

    def _check_output(self, part: Part) -> None:
        path = Path(part.child.settings.output)
        runs = [path]
        if part in self.plain:
            runs = [Path(f"{path}.{number}") for number in range(self.gateway.kills + 1)]
        for run in runs[:-1]:
            # What was given up must have been right as far as it went.
            digests = run.read_bytes()
            self._compare(f"{part.child.name}, {run.name},", digests, self.expected[: len(digests)])
        self._compare(part.child.name, runs[-1].read_bytes(), self.expected)
        count = self.summary(part)["count"]
        if count != self.script.total:
            self.fail(f"{part.child.name} has {count} records", part.child)

    def _compare(self, whose: str, digests: bytes, expected: bytes) -> None:
        if sha256(digests).digest() == sha256(expected).digest():
            return
        for block in range(max(len(digests), len(expected)) // 32):
            place = slice(block * 32, block * 32 + 32)
            if digests[place] != expected[place]:
                first = block * BLOCK
                self.fail(f"{whose} differs first in the {BLOCK} records from offset {first} on")
        self.fail(f"{whose} has {len(digests)} bytes of digests, not {len(expected)}")

    def _check_journal(self) -> None:
        journal = open_log(self.gateway.settings.journal)
        again = Output(self._folder / "journal.output", self.expected)
        try:
            while again.count < journal.head:
                batch = journal.find(again.count)
                assert batch is not None
                assert batch.first == again.count
                for value in values_of(batch):
                    again.take(value)
            again.finish()
        finally:
            journal.close()
            again.close()

    # ---------------------------------------------------------------- telling
    def _note(self, event: str) -> None:
        self.events.append(f"{time.monotonic() - self._began:7.2f} s: {event}")

    def fail(self, why: str, child: Child | None = None) -> NoReturn:
        """Fail the test, and tell all that is needed to find out why."""
        lines = [why, f"seed {self.script.seed}, {self.script.total} records; what happened:", *self.events]
        lines += [f"  {part.child.name} is at {part.reached()}" for part in self.parts]
        lines += [f"dropped {dict(self.proxy.dropped)}", f"repeated {dict(self.proxy.repeated)}"]
        for teller in self._children if child is None else [child]:
            lines += [f"{teller.name} said last: {teller.last_words()}"]
        if self.gateway.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                lines += [f"the state of the gateway: {self.gateway.finish(_TO_CLOSE).decode()}"]
        pytest.fail("\n".join(lines), pytrace=False)
