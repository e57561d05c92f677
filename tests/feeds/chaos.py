"""A gateway and a program beside it, killed and started again at random marks of progress.

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
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from penstock.aquifer import AquiferPublisher, SqliteJournal
from tests.cli.running import PATIENCE, Gateway

RECORDS = int(os.environ.get("PENSTOCK_FEED_RECORDS", "3000"))
KILLS = 6 if RECORDS < 10_000 else 20
LONG = max(PATIENCE, RECORDS / 50)


class Chaos:
    """A gateway and a program beside it; each is killed and started again."""

    def __init__(
        self, journal: Path, source: str, program: list[str], *arguments: str, piped: bool = False
    ) -> None:
        self.seed = int(os.environ.get("PENSTOCK_FEED_SEED", random.randrange(10**6)))
        print(f"seed {self.seed}")  # pytest shows it if the test fails.
        self._random = random.Random(self.seed)
        self._gateway_arguments = ("--source", source, "--journal", str(journal), "--stay", *arguments)
        self._program = program
        self.journal = journal
        self._piped = piped
        if piped:
            self._start_piped()
        else:
            self.gateway = Gateway(*self._gateway_arguments)
            self.beside = subprocess.Popen(program)

    @classmethod
    @contextmanager
    def of(
        cls, journal: Path, source: str, program: list[str], *arguments: str, piped: bool = False
    ) -> Iterator[Chaos]:
        """Both are gone after the block. ``piped``: the gateway reads what the program writes."""
        chaos = cls(journal, source, program, *arguments, piped=piped)
        try:
            yield chaos
        finally:
            chaos.kill_beside()
            chaos.kill_gateway()

    def run(self, progress: Callable[[], int], total: int) -> None:
        """Kill one of them now and then until all is done."""
        points = sorted(self._random.randrange(total) for _ in range(KILLS))
        victims = [self._random.random() < 0.5 for _ in points[2:]] + [True, False]
        self._random.shuffle(victims)
        deadline = time.monotonic() + LONG
        for point, is_gateway in zip(points, victims, strict=True):
            self._wait_for(progress, point, deadline)
            if self._piped:
                # Whoever of the two is killed, the pipe between them is gone.
                first, second = self.kill_gateway, self.kill_beside
                for kill in (first, second) if is_gateway else (second, first):
                    kill()
                self._start_piped()
            elif is_gateway:
                self.kill_gateway()
                self.gateway = Gateway(*self._gateway_arguments)
            else:
                self.kill_beside()
                self.beside = subprocess.Popen(self._program)
        self._wait_for(progress, total, deadline)

    def _start_piped(self) -> None:
        self.beside = subprocess.Popen(self._program, stdout=subprocess.PIPE)
        self.gateway = Gateway(*self._gateway_arguments, stdin=self.beside.stdout)
        assert self.beside.stdout is not None
        self.beside.stdout.close()  # The gateway has it now, and is the only one.

    def _wait_for(self, progress: Callable[[], int], point: int, deadline: float) -> None:
        while progress() < point:
            assert time.monotonic() < deadline, f"seed {self.seed}: stuck at {progress()}"
            time.sleep(0.005)

    def kill_gateway(self) -> None:
        self.gateway.process.kill()
        self.gateway.process.wait(PATIENCE)
        self.gateway.__exit__(None, None, None)

    def kill_beside(self) -> None:
        self.beside.kill()
        self.beside.wait(PATIENCE)

    def texts(self) -> list[bytes]:
        """What the log has, read by a gateway that has no source of its own any more."""
        with closing(SqliteJournal(self.journal)) as journal:
            head = journal.head
        with Gateway("--source", "writers", "--journal", str(self.journal), "--stay") as gateway:
            return list(AquiferPublisher(gateway.endpoint, stop=head).flux())

    def stored(self) -> list[int]:
        """The same for a log of numbers."""
        return [int(record) for record in self.texts()]


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
