"""Members of a reader group as processes: they come, leave, are stopped and killed, and so is the gateway.

Whatever happens, each record is handled, those of a key in order, and a record that was handled by a member
that neither was killed nor stopped is handled once. In the end every partition has an owner.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import pytest

from penstock.aquifer import GroupStatus, partition_of, probe
from tests.aquifer.faults.processes import GatewayProcess
from tests.aquifer.faults.rigs import eventually, free_endpoint

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stops and kills processes with signals")

ROOT = Path(__file__).parents[2]
KEYS = 30
TIMEOUT = 8.0


class Process:
    """One member, and what it wrote down."""

    def __init__(self, endpoint: str, path: Path) -> None:
        self.path = path
        self.was_hurt = False
        """Whether it was killed or stopped: what it had acknowledged may not have been told."""
        self.stops = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.aquifer.group_member", endpoint, "g", str(path)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        )

    @property
    def listens(self) -> bool:
        """Whether it would hear that it is to leave: a process that has just been started would only die."""
        return self.path.exists()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self.stops += number is signal.SIGSTOP
        self.was_hurt |= number in (signal.SIGKILL, signal.SIGSTOP)
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(120)

    def close(self) -> None:
        if self.is_alive:
            self._process.kill()
        self._process.wait()

    def events(self) -> list[tuple[int, int, str]]:
        """When it has handled which record, with which key."""
        text = self.path.read_text() if self.listens else ""
        lines = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
        return [(int(when), int(offset), key) for when, offset, key in lines]


class Play:
    """A gateway, its members, and what is done to them."""

    def __init__(self, folder: Path, total: int, seed: int) -> None:
        self.chance = Random(seed)
        self.total = total
        self.endpoint = free_endpoint()
        self.folder = folder
        self.members: list[Process] = []
        self.stopped: list[Process] = []
        self.said: list[str] = []
        self.began = time.monotonic_ns()
        self._arguments = (
            f"lambda done: Flux.from_iterable([Record(b'', key=b'k%d' % (n % {KEYS})) "
            f"for n in range(done, {total})]), {self.endpoint!r}, "
            f"journal=SqliteJournal({str(folder / 'log.db')!r}), limits=Limits(member_timeout={TIMEOUT})"
        )
        self.gateway = GatewayProcess(self._arguments)
        self.somebody_comes()
        self.somebody_comes()

    def close(self) -> None:
        for member in self.members:
            member.close()
        self.gateway.__exit__()

    # ---------------------------------------------------------------- what is done
    def running(self) -> list[Process]:
        return [member for member in self.members if member.is_alive and member not in self.stopped]

    def somebody_comes(self) -> None:
        self.members.append(Process(self.endpoint, self.folder / f"member-{len(self.members)}"))

    def somebody_leaves(self) -> None:
        member = self.chance.choice(self.running())
        eventually(lambda: member.listens or not member.is_alive)
        member.send(signal.SIGTERM)

    def somebody_is_killed(self) -> None:
        self.chance.choice(self.running()).send(signal.SIGKILL)

    def somebody_is_stopped(self) -> None:
        member = self.chance.choice(self.running())
        member.send(signal.SIGSTOP)
        self.stopped.append(member)

    def somebody_goes_on(self) -> None:
        if self.stopped:
            self.stopped.pop(0).send(signal.SIGCONT)

    def the_gateway_is_killed(self) -> None:
        self.gateway.kill()
        self.gateway.__exit__()
        self.gateway = GatewayProcess(self._arguments)
        # Who leaves before it has found the gateway again cannot tell what it has acknowledged.
        eventually(
            lambda: all(one.member or not one.lag for one in self.group().partitions),
            f"they do not come back, after {self.said}",
        )

    def perform(self, acts: int) -> None:
        everything = [
            self.somebody_comes,
            self.somebody_leaves,
            self.somebody_is_killed,
            self.somebody_is_stopped,
            self.somebody_goes_on,
            self.the_gateway_is_killed,
        ]
        for act in range(1, acts + 1):
            self.await_handled(act * self.total // (acts + 2))
            what = self.chance.choice(everything)
            if len(self.running()) < 2 and what not in (self.somebody_goes_on, self.the_gateway_is_killed):
                what = self.somebody_comes
            self.said.append(f"{(time.monotonic_ns() - self.began) / 1e9:.2f} s: {what.__name__}")
            what()
        while self.stopped:
            self.somebody_goes_on()

    def await_handled(self, count: int) -> None:
        eventually(
            lambda: len({offset for member in self.members for _, offset, _ in member.events()}) >= count,
            f"fewer than {count} records were handled, after {self.said}",
            timeout=100,
        )

    # ---------------------------------------------------------------- what has to hold
    def check(self) -> None:
        events = sorted(
            (when, offset, key, number)
            for number, member in enumerate(self.members)
            for when, offset, key in member.events()
        )
        assert {offset for _, offset, _, _ in events} == set(range(self.total)), "nothing is lost"
        last: defaultdict[str, int] = defaultdict(lambda: -KEYS)
        first_by: dict[int, tuple[int, int]] = {}
        late: Counter[int] = Counter()
        for when, offset, key, number in events:
            assert key == f"k{offset % KEYS}"
            if key not in last:
                last[key] = offset % KEYS - KEYS
            assert offset <= last[key] + KEYS, f"{key}: {offset} came before those between {last[key]} and it"
            last[key] = max(last[key], offset)
            if offset in first_by and not self.members[first_by[offset][0]].was_hurt:
                # Who is stopped has a record in its hands, and handles it when it goes on. Who leaves has
                # told what it has handled.
                first, handled = first_by[offset]
                late[number] += 1
                assert late[number] <= self.members[number].stops, (
                    f"{offset} came to member {first} and {(when - handled) / 1e9:.2f} s later to {number}, "
                    f"{(handled - self.began) / 1e9:.2f} s after the beginning, after {self.said}"
                )
            first_by[offset] = number, when

    def group(self) -> GroupStatus:
        (group,) = probe(self.endpoint, 60.0).groups or []
        return group


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def perform(folder: Path, total: int, acts: int, seed: int) -> None:
    play = Play(folder, total, seed)
    try:
        play.perform(acts)
        print(f"seed {seed}:", *play.said)
        for member in play.members:
            code = member.wait()
            assert code in (0, -signal.SIGKILL), f"{member.path.name} ended with {code}, after {play.said}"
        play.check()
        assert {one.acknowledged for one in play.group().partitions} == {total}
    finally:
        play.close()


def test_members_that_are_killed_and_stopped_lose_nothing(folder: Path) -> None:
    perform(folder, 3000, 4, seed=1)


@pytest.mark.rare(18)
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_members_and_gateways_that_are_killed_and_stopped_lose_nothing(folder: Path, seed: int) -> None:
    perform(folder, 10_000, 10, seed)


def test_every_partition_has_an_owner_again_after_a_member_was_killed(folder: Path) -> None:
    endpoint = free_endpoint()
    arguments = f"Flux.never(), {endpoint!r}, limits=Limits(member_timeout={TIMEOUT})"
    with GatewayProcess(arguments):
        joined = [Process(endpoint, folder / str(number)) for number in range(3)]
        try:

            def owners() -> list[str | None]:
                groups = probe(endpoint, 60.0).groups or []
                return [one.member for group in groups for one in group.partitions if not one.free]

            def owners_when_shared_by(count: int) -> list[str | None]:
                """Shared evenly: before that, partitions may change hands between two looks."""
                found: list[str | None] = []

                def look() -> bool:
                    found[:] = owners()
                    sizes = sorted(Counter(found).values())
                    is_complete = len(found) == 8 and None not in found
                    return is_complete and len(sizes) == count and sizes[-1] - sizes[0] <= 1

                eventually(look)
                return found

            before = owners_when_shared_by(3)
            joined[0].send(signal.SIGKILL)
            after = owners_when_shared_by(2)
            kept = [one == two for one, two in zip(before, after, strict=True)]
            assert sum(kept) >= 5, "those of the others stay where they are"
        finally:
            for member in joined:
                member.close()


def test_keys_are_where_the_play_expects_them() -> None:
    """All partitions have something to do."""
    assert len({partition_of(b"k%d" % number, 0, 8) for number in range(KEYS)}) == 8
