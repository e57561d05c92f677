"""The JVM's conformance kit on this machine: its jars, fetched once, and the shim, compiled once.

Everything lands in `build/jvm`, which `make clean` removes.
"""

import hashlib
import os
from pathlib import Path

from tests.maven_jars import ROOT, JarsUnavailable, fetched, put_in_place, run

__all__ = ["JARS", "ROOT", "STORE", "JarsUnavailable", "class_path", "jars_are_here"]

HERE = Path(__file__).parent
STORE = ROOT / "build" / "jvm"

# What the coordinates of pom.xml must bring: file name and SHA-256.
JARS = {
    "reactive-streams-1.0.4.jar": "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28",
    "reactive-streams-tck-1.0.4.jar": "8423b5062b3f3c5600a85cfad5a6ccbda88129a822be82b2e364d737d53c9836",
    "reactive-streams-examples-1.0.4.jar": "95f5f682e67fe791c6ff47a96281c22521961d317550c7110cd0b0e11dc4d9c2",
    "testng-7.3.0.jar": "63727488f9717d57f0d0a0fee5a1fc10a2be9cfcff2ec3a7187656d663c0774e",
}


def jars_are_here() -> bool:
    """Whether every jar has been fetched before, so that Maven is not needed."""
    return all((STORE / "lib" / name).exists() for name in JARS)


def class_path() -> list[Path]:
    """Return the jars and the folder with the compiled shim, after fetching, checking and compiling them."""
    jars = fetched(HERE / "pom.xml", JARS, STORE / "lib", "-DexcludeTransitive=true")
    return [*jars, _shim(jars)]


def _shim(jars: list[Path]) -> Path:
    sources = sorted((HERE / "shim").rglob("*.java"))
    version = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    classes = STORE / f"shim-{version}"
    if not classes.exists():
        with put_in_place(classes) as folder:
            # For the oldest Java that has java.util.concurrent.Flow and is still around.
            options = [
                "-nowarn",
                "--release",
                "11",
                "-cp",
                os.pathsep.join(map(str, jars)),
                "-d",
                str(folder),
            ]
            run(["javac", *options, *map(str, sources)])
    return classes
