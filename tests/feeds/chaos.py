"""A gateway and programs beside it, killed and started again at random marks of progress.

``PENSTOCK_FEED_RECORDS=200000`` makes it the long run. The seed is printed, and ``PENSTOCK_FEED_SEED``
repeats it.
"""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from penstock.aquifer import AquiferPublisher, SqliteJournal
from tests.cli.running import PATIENCE, Gateway

RECORDS = int(os.environ.get("PENSTOCK_FEED_RECORDS", "3000"))
KILLS = 6 if RECORDS < 10_000 else 20
LONG = max(PATIENCE, RECORDS / 50)
GATEWAY = "gateway"


class Chaos:
    """A gateway and programs beside it, by name; each is killed and started again."""

    def __init__(
        self,
        journal: Path,
        source: str,
        programs: Mapping[str, list[str]],
        *arguments: str,
        piped: bool = False,
    ) -> None:
        self.seed = int(os.environ.get("PENSTOCK_FEED_SEED", random.randrange(10**6)))
        print(f"seed {self.seed}")  # pytest shows it if the test fails.
        self._random = random.Random(self.seed)
        self._gateway_arguments = ("--source", source, "--journal", str(journal), "--stay", *arguments)
        self._programs = programs
        self.beside: dict[str, subprocess.Popen[bytes]] = {}
        self.journal = journal
        self._piped = piped
        self._began = time.monotonic()
        self._killed: Counter[str] = Counter()
        if piped:
            self._start_piped()
        else:
            self.gateway = Gateway(*self._gateway_arguments)
            for name in programs:
                self._start(name)

    @classmethod
    @contextmanager
    def of(
        cls,
        journal: Path,
        source: str,
        programs: Mapping[str, list[str]],
        *arguments: str,
        piped: bool = False,
    ) -> Iterator[Chaos]:
        """All are gone after the block. ``piped``: the gateway reads what the only program writes."""
        chaos = cls(journal, source, programs, *arguments, piped=piped)
        try:
            yield chaos
        finally:
            for name in chaos.beside:
                chaos.kill(name)
            chaos.kill(GATEWAY)

    def run(self, progress: Callable[[], int], total: int) -> None:
        """Kill one of them now and then until all is done."""
        points = sorted(self._random.randrange(total) for _ in range(KILLS))
        everybody = [GATEWAY, *self._programs]
        victims = everybody + self._random.choices(everybody, k=KILLS - len(everybody))
        self._random.shuffle(victims)
        for point, victim in zip(points, victims, strict=True):
            self._wait_for(progress, point)
            self._killed[victim] += 1
            self.kill(victim)
            if self._piped:
                # Whoever of the two is killed, the pipe between them is gone.
                for other in everybody:
                    if other != victim:
                        self.kill(other)
                self._start_piped()
            else:
                self._start(victim)
        self._wait_for(progress, total)

    def _start(self, name: str) -> None:
        if name == GATEWAY:
            self.gateway = Gateway(*self._gateway_arguments)
        else:
            self.beside[name] = subprocess.Popen(self._programs[name])

    def _start_piped(self) -> None:
        [(name, command)] = self._programs.items()
        self.beside[name] = process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.gateway = Gateway(*self._gateway_arguments, stdin=process.stdout)
        assert process.stdout is not None
        process.stdout.close()  # The gateway has it now, and is the only one.

    def _wait_for(self, progress: Callable[[], int], point: int) -> None:
        deadline = time.monotonic() + LONG
        while progress() < point:
            assert time.monotonic() < deadline, f"seed {self.seed}: stuck at {progress()}"
            time.sleep(0.005)

    def kill(self, name: str) -> None:
        process = self.gateway.process if name == GATEWAY else self.beside[name]
        process.kill()
        process.wait(PATIENCE)
        if name == GATEWAY:
            self.gateway.__exit__(None, None, None)

    def texts(self) -> list[bytes]:
        """What the log has, read by a gateway that has no source of its own any more."""
        with closing(SqliteJournal(self.journal)) as journal:
            head = journal.head
        with Gateway("--source", "writers", "--journal", str(self.journal), "--stay") as gateway:
            return list(AquiferPublisher(gateway.endpoint, stop=head).flux())

    def stored(self) -> list[int]:
        """The same for a log of numbers up to ``RECORDS``; ``pytest -s`` shows what happened."""
        seconds = time.monotonic() - self._began
        numbers = [int(record) for record in self.texts()]
        kills = ", ".join(f"{name} {count}" for name, count in sorted(self._killed.items()))
        lost = len(set(range(RECORDS)) - set(numbers))
        twice = len(numbers) - len(set(numbers))
        print(f"{RECORDS} records, killed: {kills}; {lost} lost, {twice} twice, {seconds:.0f} s")
        return numbers


def script(text: str, *arguments: object) -> list[str]:
    """The command for a program in Python."""
    return [sys.executable, "-c", text, *map(str, arguments)]


def number_in(path: Path) -> int:
    """The number in a file that its writer replaces; 0 if there is none."""
    return int(path.read_text() or 0) if path.exists() else 0


def asked_of(journal: Path, question: str) -> Callable[[], int]:
    """Something that grows in the database of a journal; 0 as long as there is nothing."""
    return partial(_answer, journal, question)


def _answer(journal: Path, question: str) -> int:
    try:
        with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True, timeout=1)) as database:
            row = database.execute(question).fetchone()
        return int(row[0]) if row and row[0] is not None else 0
    except sqlite3.OperationalError:
        return 0


HEAD = "select max(first + count) from batches"
"""How many records a journal has."""
