"""What the JVM part needs, and how it says that it is missing: see tests/required_tools.py."""

from importlib.util import find_spec
from pathlib import Path

from tests import required_tools
from tests.conformance.jvm import kit

PART = "The JVM conformance kit"


def require_kit() -> None:
    """Called at the top of a test module: skip it, or fail it under the strict switch, without the tools."""
    required_tools.require_tool("javac", part=PART, install="apt-get install default-jdk-headless")
    if not kit.jars_are_here():
        required_tools.require_tool("mvn", part=PART, install="apt-get install maven")
    if find_spec("jpype") is None:
        required_tools.missing_part(PART, "JPype is not installed; install it with: make setup")


def fetched_class_path() -> list[Path]:
    """Return the kit's class path; without a way to fetch the jars, skip or fail."""
    try:
        return kit.class_path()
    except kit.JarsUnavailable as problem:
        required_tools.missing_part(PART, str(problem))
