"""A missing tool is told once per part, and fails the run under the strict switch."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.required_tools import STRICT_SWITCH, require_tool
from tests.source.repository import ROOT

NEEDS_A_MISSING_TOOL = """
from tests.required_tools import require_tool

def test_one():
    require_tool("no-such-tool", part="JVM conformance", install="apt-get install no-such-tool")

def test_two():
    require_tool("no-such-tool", part="JVM conformance", install="apt-get install no-such-tool")
"""
REASON = "JVM conformance: no-such-tool is not on the PATH; install it with: apt-get install no-such-tool"


def run(test: Path, *, strict: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != STRICT_SWITCH}
    if strict is not None:
        environment[STRICT_SWITCH] = strict
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    return subprocess.run(
        [*command, "--rootdir", str(test.parent), str(test)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def needs_a_missing_tool(tmp_path: Path) -> Path:
    path = tmp_path / "test_needs_a_missing_tool.py"
    path.write_text(NEEDS_A_MISSING_TOOL)
    return path


@pytest.mark.parametrize("off", [None, "", "0"])
def test_without_the_switch_a_part_is_skipped_with_one_line(
    needs_a_missing_tool: Path, off: str | None
) -> None:
    result = run(needs_a_missing_tool, strict=off)

    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 skipped" in result.stdout
    assert result.stdout.splitlines().count(f"SKIPPED PART: {REASON}") == 1


def test_with_the_switch_the_same_tests_fail_with_the_reason(needs_a_missing_tool: Path) -> None:
    result = run(needs_a_missing_tool, strict="1")

    assert result.returncode == 1, result.stdout + result.stderr
    assert "2 failed" in result.stdout
    assert REASON in result.stdout
    assert "SKIPPED PART" not in result.stdout


def test_a_module_may_be_skipped_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "test_module.py"
    path.write_text(NEEDS_A_MISSING_TOOL.replace("def test_one():\n    ", ""))

    result = run(path, strict=None)

    assert "1 skipped" in result.stdout
    assert result.stdout.splitlines().count(f"SKIPPED PART: {REASON}") == 1


def test_a_tool_that_is_there_is_returned() -> None:
    assert require_tool("sh", part="none", install="none") == shutil.which("sh")
