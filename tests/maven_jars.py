"""Jars for tests, fetched once by Maven from the coordinates in a pom.xml, and checked against pinned sums.

Everything lands in `build`, which `make clean` removes.
"""

import fcntl
import hashlib
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["ROOT", "JarsUnavailable", "fetched", "pinned_in", "put_in_place", "run"]

ROOT = Path(__file__).parents[1]
_COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_LONGEST = 240
"""Seconds that Maven, or a compiler, may take."""


class JarsUnavailable(Exception):
    """Jars could not be fetched or compiled; the message says why."""


def pinned_in(sums: Path) -> dict[str, str]:
    """The SHA-256 of each jar by its file name, from a file that sha256sum has written."""
    return {name: digest for digest, name in (line.split() for line in sums.read_text().splitlines())}


def fetched(pom: Path, pinned: Mapping[str, str], library: Path, *arguments: str) -> list[Path]:
    """Return the jars in a folder, after fetching them into it if one is missing."""
    if not all((library / name).exists() for name in pinned):
        with put_in_place(library) as folder:
            maven = ["mvn", "--quiet", "--batch-mode", f"--file={pom}", _COPY_GOAL]
            run([*maven, *arguments, f"-DoutputDirectory={folder}"])
            _check(folder, pinned)
    # Checked every time: a file in a build folder is anybody's.
    _check(library, pinned)
    return [library / name for name in pinned]


@contextmanager
def put_in_place(target: Path) -> Iterator[Path]:
    """Give a new folder to fill, which then becomes `target`: complete, or not at all.

    Of two processes that do this at the same time, the second one waits and replaces the first one's.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        target.with_name(f"{target.name}.lock").open("w") as lock,
        tempfile.TemporaryDirectory(dir=target.parent) as folder,
    ):
        filled = Path(folder, "filled")
        filled.mkdir()
        yield filled
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Put aside and not removed, which takes longer: somebody may be starting a Java with what is there.
        with suppress(FileNotFoundError):
            target.rename(Path(folder, "replaced"))
        filled.rename(target)


def run(command: list[str]) -> None:
    """Run Maven or a compiler; JarsUnavailable with what it said if it fails."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JarsUnavailable(f"{command[0]}: {error}") from error
    if result.returncode != 0:
        raise JarsUnavailable(f"{command[0]} failed:\n{result.stdout}{result.stderr}".strip())


def _check(folder: Path, pinned: Mapping[str, str]) -> None:
    for name, expected in pinned.items():
        jar = folder / name
        if not jar.exists():
            raise JarsUnavailable(f"{name} is not among what Maven brought")
        found = hashlib.sha256(jar.read_bytes()).hexdigest()
        if found != expected:
            raise JarsUnavailable(f"{name} is not the file it should be: its SHA-256 is {found}")
