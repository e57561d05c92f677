"""What makes the many Javas that tests start cheap: the quick compiler, and classes that are there already.

Most of what a Java with Spark in it does at first is to load and check fifteen thousand classes. One writes
them to a file at its end, in the form that they have in memory; those after it only map that file, and take 6
seconds of a processor instead of 10 until a query has run. A Java that the file does not fit, of another
version or with other classes, does not use it.

``python -m tests.quick_java -m pytest …`` writes the file for the PySpark of this Python, and then runs it
with these arguments.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import zlib
from importlib.metadata import version
from pathlib import Path

__all__ = ["OPTIONS", "use_from_now_on", "write_archive"]

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For every Java that a test starts: none lives long enough for a better compiler to be worth its time."""
_ROOT = Path(__file__).parent.parent
_EXAMPLE = _ROOT / "examples" / "14_spark_log_to_parquet.py"
_ARCHIVES = _ROOT / "build" / "java"
_PATIENCE = 600
"""Seconds for the query and for the writing of the file."""
_VARIABLE = "JDK_JAVA_OPTIONS"
_SILENT = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"


def use_from_now_on() -> Path:
    """Set the options for each Java that this process or one of its children starts.

    Returns the file with the classes, which need not be there.
    """
    made_for = f"{_java()} {version('pyspark')}"
    archive = _ARCHIVES / f"classes-{zlib.crc32(made_for.encode()):08x}.jsa"
    said = os.environ.get(_VARIABLE, "")
    os.environ[_VARIABLE] = f"{said} {OPTIONS} {_SILENT} '-XX:SharedArchiveFile={archive}'".strip()
    return archive


def write_archive(archive: Path) -> None:
    """Run what most tests run, in a Java that writes its classes to this file when it ends.

    A busy machine may take minutes for that. Without the file the tests are slower, and otherwise the same,
    so a failure here is shown and not raised: if the example has a defect, its own test says so.
    """
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    draft = archive.with_name(f"{archive.name}-{os.getpid()}")
    options = f"{OPTIONS} {_SILENT} '-XX:ArchiveClassesAtExit={draft}'"
    try:
        subprocess.run(
            [sys.executable, "-m", "tests.quick_java"],
            env={**os.environ, _VARIABLE: options},
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            timeout=_PATIENCE,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"the tests start Java without the archive of its classes: {error}\n{error.output}", flush=True)
        return
    draft.replace(archive)


def _java() -> str:
    from penstock.spark.programs import java_home

    java = java_home() / "bin" / "java"
    return subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr


def _run_a_query() -> None:
    from pyspark import SparkContext

    runpy.run_path(str(_EXAMPLE), run_name="__main__")
    gateway = SparkContext._gateway
    assert gateway is not None, "the example has started Spark"
    gateway.shutdown()
    gateway.proc.stdin.close()  # The sign for it to end.
    gateway.proc.wait()  # write_archive() has the limit


if __name__ == "__main__":
    if arguments := sys.argv[1:]:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # Hundreds of Pythons would compile the package.
        write_archive(use_from_now_on())
        os.execv(sys.executable, [sys.executable, *arguments])
    _run_a_query()
