"""Small scripts that stand in for a program that Spark starts: written once for a user, and used again."""

from __future__ import annotations

import logging
import os
import shlex
import stat
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Final

__all__ = ["python_for_workers", "write_script"]

_log = logging.getLogger("penstock.spark")

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
