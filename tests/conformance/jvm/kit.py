"""The JVM's conformance kit on this machine: its jars, fetched once, and the shim, compiled once.

Everything lands in `build/jvm`, which `make clean` removes.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
STORE = ROOT / "build" / "jvm"

# What the coordinates of pom.xml must bring: file name and SHA-256.
JARS = {
    "reactive-streams-1.0.4.jar": "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28",
    "reactive-streams-tck-1.0.4.jar": "8423b5062b3f3c5600a85cfad5a6ccbda88129a822be82b2e364d737d53c9836",
    "reactive-streams-examples-1.0.4.jar": "95f5f682e67fe791c6ff47a96281c22521961d317550c7110cd0b0e11dc4d9c2",
    "testng-7.3.0.jar": "63727488f9717d57f0d0a0fee5a1fc10a2be9cfcff2ec3a7187656d663c0774e",
}
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_SECONDS = 240


class KitUnavailable(Exception):
    """The kit could not be fetched or compiled; the message says why."""


def jars_are_here() -> bool:
    """Whether every jar has been fetched before, so that Maven is not needed."""
    return all((STORE / "lib" / name).exists() for name in JARS)


def class_path() -> list[Path]:
    """Return the jars and the folder with the compiled shim, after fetching, checking and compiling them."""
    library = STORE / "lib"
    if not jars_are_here():
        _fetch(library)
    # Checked every time: a file in a build folder is anybody's.
    _check(library)
    jars = [library / name for name in JARS]
    return [*jars, _shim(jars)]


def _fetch(library: Path) -> None:
    with _put_in_place(library) as folder:
        command = ["mvn", "--quiet", "--batch-mode", f"--file={HERE / 'pom.xml'}", COPY_GOAL]
        _run([*command, "-DexcludeTransitive=true", f"-DoutputDirectory={folder}"])
        _check(folder)


def _check(folder: Path) -> None:
    for name, expected in JARS.items():
        jar = folder / name
        if not jar.exists():
            raise KitUnavailable(f"{name} is not among what Maven brought")
        found = hashlib.sha256(jar.read_bytes()).hexdigest()
        if found != expected:
            raise KitUnavailable(f"{name} is not the file it should be: its SHA-256 is {found}")


def _shim(jars: list[Path]) -> Path:
    sources = sorted((HERE / "shim").rglob("*.java"))
    version = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    classes = STORE / f"shim-{version}"
    if not classes.exists():
        with _put_in_place(classes) as folder:
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
            _run(["javac", *options, *map(str, sources)])
    return classes


@contextmanager
def _put_in_place(target: Path) -> Iterator[Path]:
    """Give a new folder to fill, which then becomes `target`: complete, or not at all."""
    STORE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=STORE) as folder:
        filled = Path(folder, "filled")
        filled.mkdir()
        yield filled
        shutil.rmtree(target, ignore_errors=True)
        filled.rename(target)


def _run(command: list[str]) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KitUnavailable(f"{command[0]}: {error}") from error
    if result.returncode != 0:
        raise KitUnavailable(f"{command[0]} failed:\n{result.stdout}{result.stderr}".strip())
