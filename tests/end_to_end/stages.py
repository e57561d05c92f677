"""The stages of the whole way as processes that are slowed down, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Reader", "Stage", "wait_until"]


def wait_until(true: Callable[[], bool], what: str, seconds: float, describe: Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s\n{describe()}"
        time.sleep(0.2)


class Stage:
    """A command that runs until its work is done, and is started again whenever it ends before."""

    def __init__(self, name: str, folder: Path, *arguments: str, once: bool = False) -> None:
        self.name = name
        self.peak = 0
        """The most memory that a process of this stage has had, in bytes."""
        self.starts = 0
        self.finished = threading.Event()
        """It ended by itself, and well."""
        self._arguments = arguments
        self._log = folder / f"{name}.log"
        self._once = once
        self._over = False
        self._process: subprocess.Popen[bytes] | None = None
        self._changed = threading.Condition()
        self._keeper = threading.Thread(target=self._keep)
        self._keeper.start()

    # ---------------------------------------------------------------- running
    def command(self) -> list[str]:
        return [sys.executable, "-m", "penstock", *self._arguments]

    def _open(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=self.output(),
                stderr=log,
                start_new_session=True,
            )

    def output(self) -> int:
        return subprocess.DEVNULL

    def _keep(self) -> None:
        while not self._over:
            with self._changed:
                self._process = process = self._open()
                self.starts += 1
                self._changed.notify_all()
            code = process.wait()
            _kill_session(process.pid)
            if code == 0 and self._once and not self._over:
                self.finished.set()
                return

    # ---------------------------------------------------------------- what is done to it
    def kill(self) -> None:
        """kill -9, with everything that it has started; returns when its successor is there."""
        with self._changed:
            before = self.starts
            assert self._process is not None
            _kill_session(self._process.pid)
            assert self._changed.wait_for(lambda: self.starts > before or self.finished.is_set(), 120)

    def slow_down(self, until: Callable[[], bool], most: float = 4.0) -> None:
        """Let it run for a tenth of the time, until something has come of it nevertheless."""
        assert self._process is not None
        leader, deadline = self._process.pid, time.monotonic() + most
        try:
            while not until() and time.monotonic() < deadline:
                _signal_session(leader, signal.SIGSTOP)
                time.sleep(0.18)  # this is the slowness itself
                _signal_session(leader, signal.SIGCONT)
                time.sleep(0.02)
        finally:
            _signal_session(leader, signal.SIGCONT)

    def look(self) -> None:
        """Note the memory that it has now, with all its processes."""
        process = self._process
        if process is not None:
            self.peak = max(self.peak, sum(_memory(member) for member in _session(process.pid)))

    def end(self) -> None:
        self._over = True
        if self._process is not None:
            _kill_session(self._process.pid)
        self._keeper.join(120)

    def last_words(self) -> str:
        said = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return f"{self.name} (started {self.starts} times): " + " | ".join(said[-5:])


class Reader(Stage):
    """`penstock tail` into a file; what is in the file is where the next one begins."""

    def __init__(self, name: str, folder: Path, out: Path, *arguments: str) -> None:
        self._out = out
        super().__init__(name, folder, *arguments)

    def command(self) -> list[str]:
        # A line that was cut off by a kill is not there: it will come again, whole.
        text = self._out.read_bytes() if self._out.exists() else b""
        whole = text.rfind(b"\n") + 1
        if whole != len(text):
            with self._out.open("r+b") as file:
                file.truncate(whole)
        return [*super().command(), "--from", str(text.count(b"\n"))]

    def output(self) -> int:
        return os.open(self._out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def _session(leader: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == leader:
                members.append(int(entry.name))
        except (ProcessLookupError, PermissionError):
            continue
    return members


def _signal_session(leader: int, number: int) -> None:
    for member in _session(leader):
        try:
            os.kill(member, number)
        except ProcessLookupError:
            continue


def _kill_session(leader: int) -> None:
    while members := _session(leader):
        _signal_session(leader, signal.SIGKILL)
        if all(_is_dead(member) for member in members):
            return


def _is_dead(process: int) -> bool:
    """Gone, or dead and not yet waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _memory(process: int) -> int:
    """Its share: pages that several processes have in common count in parts."""
    try:
        facts = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(fact.split()[1]) * 1024 for fact in facts if fact.startswith("Pss:"))
