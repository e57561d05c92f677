"""The load generator: load.c, compiled once with the C compiler at hand, and its modes as functions."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.net.placing import Role, placed

__all__ = ["LoadFailed", "NoCompiler", "Report", "compiled", "idle", "pingpong", "sink", "stream"]

SOURCE = Path(__file__).with_name("load.c")
STORE = Path(__file__).parents[2] / "build" / "bench"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra")
COMPILERS = ("cc", "gcc", "clang")
LONGEST = 30.0
"""Seconds that a run may take beyond those that it was asked to measure."""

Report = dict[str, float]
"""What the load generator says: round_trips, bytes, seconds and so on."""


class NoCompiler(Exception):
    """The load generator cannot be compiled; the message says what to do."""


class LoadFailed(Exception):
    """The load generator ended with a reason: a wrong byte, a closed connection, a silent server."""


def compiled() -> Path:
    """The program, in `build/bench`; compiled if its source has changed since."""
    if sys.platform != "linux":
        raise NoCompiler("the load generator uses epoll and runs on Linux only")
    version = hashlib.sha256(SOURCE.read_bytes() + repr(FLAGS).encode()).hexdigest()[:12]
    program = STORE / f"load-{version}"
    if not program.exists():
        STORE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=STORE) as folder:
            fresh = Path(folder, "load")
            _compile(fresh)
            fresh.rename(program)
    return program


def pingpong(port: int, *, connections: int, size: int, seconds: float) -> Report:
    """On each connection a message goes out, comes back, and the next one goes out."""
    return _run(seconds, "pingpong", port, connections, size, seconds)


def stream(port: int, *, size: int, in_flight: int, seconds: float) -> Report:
    """One connection writes ``size`` bytes at a time as long as at most ``in_flight`` are not yet back."""
    return _run(seconds, "stream", port, size, in_flight, seconds)


def sink(port: int, *, seconds: float) -> Report:
    """One connection reads everything that the server sends."""
    return _run(seconds, "sink", port, seconds)


@contextmanager
def idle(port: int, *, connections: int) -> Iterator[Report]:
    """Connections that sent and got back one message each, and stay open inside the block."""
    with _started("idle", port, connections) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            _finished(process)
            raise LoadFailed("the load generator said nothing")
        yield json.loads(line)
        _finished(process)


def _run(seconds: float, mode: str, *arguments: float) -> Report:
    with _started(mode, *arguments) as process:
        said = _finished(process, 2 * seconds + LONGEST)
    report: Report = json.loads(said)
    return report


@contextmanager
def _started(mode: str, *arguments: float) -> Iterator[subprocess.Popen[str]]:
    command = [str(compiled()), mode, *map(str, arguments)]
    pipe = subprocess.PIPE
    with placed(Role.CLIENT):
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()  # Does nothing to one that has ended.


def _finished(process: subprocess.Popen[str], seconds: float = LONGEST) -> str:
    """Close its input, and return what it says until it ends well."""
    said, complaint = process.communicate(timeout=seconds)
    if process.returncode != 0:
        raise LoadFailed(complaint.strip() or f"the load generator ended with {process.returncode}")
    return said


def _compile(program: Path) -> None:
    command = [*_compiler(), *FLAGS, "-o", str(program), str(SOURCE)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoCompiler(f"the compiler that CC names does not start: {error}") from error
    if result.returncode != 0:
        raise NoCompiler(
            f"{shlex.join(command)} failed; the C library's headers may be missing "
            f"(Debian: apt-get install gcc libc6-dev):\n{result.stderr.strip()}"
        )


def _compiler() -> list[str]:
    """The compiler that CC names, or the first of the usual ones."""
    if chosen := os.environ.get("CC"):
        return shlex.split(chosen)
    for name in COMPILERS:
        if found := shutil.which(name):
            return [found]
    raise NoCompiler(
        f"the load generator needs a C compiler, and none of {', '.join(COMPILERS)} is on the PATH: "
        "install one (Debian: apt-get install gcc libc6-dev), name one with CC=/path/to/compiler, "
        "or choose other questions with --only"
    )
