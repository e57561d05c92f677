"""The real Reactor Netty: its jars, fetched once by Maven, and EchoServer.java, compiled once.

Everything lands in `build/bench`, which `make clean` removes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

__all__ = ["Unavailable", "available", "command"]

HERE = Path(__file__).parent
STORE = HERE.parents[2] / "build" / "bench"
LIBRARY = STORE / "reactor-netty"
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
LONGEST = 240
"""Seconds that Maven, or the compiler, may take."""

# It has one core, as the other servers have; by default it would start four threads for it.
OPTIONS = ("-Dreactor.netty.ioWorkerCount=1", "-Dfile.encoding=UTF-8")


class Unavailable(Exception):
    """Reactor Netty could not be fetched or compiled; the message says why."""


@cache
def available() -> bool:
    """Whether it can be started. If not, it is said once why, and how that can be mended."""
    try:
        _class_path()
    except Unavailable as problem:
        print(f"Reactor Netty is left out: {problem}", file=sys.stderr, flush=True)
        return False
    return True


def command(mode: str) -> list[str]:
    """What starts the server: ``echo`` or ``source``."""
    return ["java", *OPTIONS, "-cp", os.pathsep.join(map(str, _class_path())), "EchoServer", mode]


def _class_path() -> list[Path]:
    """The jars and the folder with the compiled server, after fetching, checking and compiling them."""
    for tool, package in (("java", "default-jdk-headless"), ("javac", "default-jdk-headless")):
        _require(tool, package)
    if not LIBRARY.exists():
        _require("mvn", "maven")
        with _put_in_place(LIBRARY) as folder:
            maven = ["mvn", "--quiet", "--batch-mode", f"--file={HERE / 'pom.xml'}", COPY_GOAL]
            _run([*maven, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"])
            _check(folder)
    _check(LIBRARY)  # Every time: a file in a build folder is anybody's.
    jars = [LIBRARY / name for name in _pinned()]
    return [*jars, _compiled(jars)]


def _require(tool: str, package: str) -> None:
    if shutil.which(tool) is None:
        raise Unavailable(f"{tool} is not on the PATH (Debian: apt-get install {package})")


def _pinned() -> dict[str, str]:
    """The SHA-256 of each jar, by its file name."""
    lines = (HERE / "jars.sha256").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _check(folder: Path) -> None:
    for name, expected in _pinned().items():
        jar = folder / name
        if not jar.exists():
            raise Unavailable(f"{name} is not among what Maven brought")
        found = hashlib.sha256(jar.read_bytes()).hexdigest()
        if found != expected:
            raise Unavailable(f"{name} is not the file it should be: its SHA-256 is {found}")


def _compiled(jars: list[Path]) -> Path:
    source = HERE / "EchoServer.java"
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    classes = STORE / f"echo-server-{version}"
    if not classes.exists():
        with _put_in_place(classes) as folder:
            options = ["--release", "11", "-cp", os.pathsep.join(map(str, jars)), "-d", str(folder)]
            _run(["javac", "-nowarn", *options, str(source)])
    return classes


@contextmanager
def _put_in_place(target: Path) -> Iterator[Path]:
    """Give a new folder to fill, which then becomes `target`: complete, or not at all."""
    STORE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=STORE) as folder:
        filled = Path(folder, "filled")
        filled.mkdir()
        yield filled
        filled.rename(target)


def _run(command: list[str]) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from error
    if result.returncode != 0:
        raise Unavailable(f"{command[0]} failed:\n{result.stdout}{result.stderr}".strip())
