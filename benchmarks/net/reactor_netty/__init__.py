"""The real Reactor Netty: its jars, fetched once by Maven, and EchoServer.java, compiled once.

Everything lands in `build/bench`, which `make clean` removes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from functools import cache
from pathlib import Path

from tests.maven_jars import JarsUnavailable, fetched, pinned_in, put_in_place, run

__all__ = ["available", "command"]

HERE = Path(__file__).parent
STORE = HERE.parents[2] / "build" / "bench"
LIBRARY = STORE / "reactor-netty"

# It has one core, as the other servers have; by default it would start four threads for it.
OPTIONS = ("-Dreactor.netty.ioWorkerCount=1", "-Dfile.encoding=UTF-8")


@cache
def available() -> bool:
    """Whether it can be started. If not, it is said once why, and how that can be mended."""
    try:
        _class_path()
    except JarsUnavailable as problem:
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
    jars = fetched(HERE / "pom.xml", pinned_in(HERE / "jars.sha256"), LIBRARY, "-DincludeScope=runtime")
    return [*jars, _compiled(jars)]


def _require(tool: str, package: str) -> None:
    if shutil.which(tool) is None:
        raise JarsUnavailable(f"{tool} is not on the PATH (Debian: apt-get install {package})")


def _compiled(jars: list[Path]) -> Path:
    source = HERE / "EchoServer.java"
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    classes = STORE / f"echo-server-{version}"
    if not classes.exists():
        with put_in_place(classes) as folder:
            options = ["--release", "11", "-cp", os.pathsep.join(map(str, jars)), "-d", str(folder)]
            run(["javac", "-nowarn", *options, str(source)])
    return classes
