"""What the JVM part needs, and how it says that it is missing: see tests/required_tools.py."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

from tests import required_tools
from tests.conformance.jvm import kit

PART = "The JVM conformance kit"


def require_kit() -> None:
    """Called at the top of a test module: skip it, or fail it under the strict switch, without the tools."""
    required_tools.require_tool("javac", part=PART, install="apt-get install default-jdk-headless")
    if not kit.jars_are_here():
        required_tools.require_tool("mvn", part=PART, install="apt-get install maven")
    if find_spec("jpype") is None:
        _missing(
            "JPype is not installed; install it with: make setup"
        )


def fetched_class_path() -> list[Path]:
    """Return the kit's class path; without a way to fetch the jars, skip or fail."""
    try:
        return kit.class_path()
    except kit.KitUnavailable as problem:
        _missing(str(problem))


def _missing(reason: str) -> NoReturn:
    if os.environ.get(required_tools.STRICT_SWITCH, "0") not in ("", "0"):
        pytest.fail(f"{PART}: {reason}", pytrace=False)
    pytest.skip(f"{PART}: {reason}", allow_module_level=True)
