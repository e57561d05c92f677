"""Which PySpark this package works with."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["refuse_unsupported", "unsupported"]

_SUPPORTED: Final = (4, 3)
"""The minor version. Others lack parts of the streaming interface, or have other names for them."""
_VERSION: Final = re.compile(r'^__version__\b[^=]*=\s*"((\d+)\.(\d+)[^"]*)"', re.MULTILINE)


def unsupported() -> str | None:
    """What is wrong with the PySpark that is installed; None if nothing is, or if there is none."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    try:
        # Not imported: that takes a good part of a second, and a PySpark of another age may even fail at it.
        version = _VERSION.search(Path(found.origin).with_name("version.py").read_text(encoding="utf-8"))
    except OSError:
        return None  # In a zip file, as on some executors: the driver has looked.
    if version is None or (int(version[2]), int(version[3])) == _SUPPORTED:
        return None
    major, minor = _SUPPORTED
    return (
        f"penstock.spark works with PySpark {major}.{minor}, and PySpark {version[1]} is installed: "
        f"pip install 'penstock-streams[spark]' brings {major}.{minor}"
    )


def refuse_unsupported() -> None:
    """Raise an ImportError of one sentence if the PySpark that is installed is not supported."""
    problem = unsupported()
    if problem is not None:
        raise ImportError(problem)
