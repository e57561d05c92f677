"""The versions of PySpark that this package works with, and what the installed one can do.

Spark 4.2 tells a stream reader where a query is, how much a batch may have, and that its trigger is
AvailableNow. Before that, a reader has to know these by itself: see ``source/self_paced.py``. The rest of the
differences are names, and ``spark_interface.py`` has them.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["has_admission_control", "installed", "refuse_unsupported", "unsupported"]

_OLDEST: Final = (4, 0)
_NEWEST: Final = (4, 3)
_ADMISSION_CONTROL: Final = (4, 2)
_VERSION: Final = re.compile(r"""^__version__\b[^=]*=\s*["']((\d+)\.(\d+)[^"']*)["']""", re.MULTILINE)


def has_admission_control() -> bool:
    """Whether Spark tells a stream reader where the query is, and how much a batch may have."""
    return installed() >= _ADMISSION_CONTROL


@cache
def installed() -> tuple[int, int]:
    """The major and minor version of the PySpark of this process."""
    found = _found()
    if found is None:
        # PySpark is in a zip file, as on some executors.
        from pyspark.version import __version__

        found = _parsed(f'__version__ = "{__version__}"')
    assert found is not None, "PySpark has a version"
    return found[1]


def unsupported() -> str | None:
    """A message if the installed PySpark is not supported; None if it is, or if there is none."""
    found = _found()
    if found is None or _OLDEST <= found[1] <= _NEWEST:
        return None  # If PySpark is in a zip file, the driver has checked it.
    text, version = found
    works = f"penstock.spark works with PySpark {_OLDEST[0]}.{_OLDEST[1]} to {_NEWEST[0]}.{_NEWEST[1]}, and "
    if version < _OLDEST:
        return (
            f"{works}PySpark {text} is installed, which has no streaming data sources in Python: "
            "pip install 'penstock-streams[spark]' installs a newer one"
        )
    return (
        f"{works}PySpark {text} is installed, for which it has not been tested: "
        f"pip install 'pyspark<{_NEWEST[0]}.{_NEWEST[1] + 1}', or a newer penstock-streams"
    )


def refuse_unsupported() -> None:
    """Raise ImportError if the installed PySpark is not supported."""
    problem = unsupported()
    if problem is not None:
        raise ImportError(problem)


def _found() -> tuple[str, tuple[int, int]] | None:
    """The version of the installed PySpark; read, not imported, which takes long and may fail."""
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        return None
    try:
        return _parsed(Path(package.origin).with_name("version.py").read_text(encoding="utf-8"))
    except OSError:
        return None


def _parsed(text: str) -> tuple[str, tuple[int, int]] | None:
    version = _VERSION.search(text)
    return None if version is None else (version[1], (int(version[2]), int(version[3])))
