"""Tests that need a program from outside: skipped loudly where it is missing, failed under the strict switch.

A part that silently does not run looks like a part that passes. So each skipped part is told once at the end
of the run, and `PENSTOCK_STRICT=1` (set by `.ci/run`) turns every such skip into a failure.
"""

import os
import shutil
from typing import NoReturn

import pytest

STRICT_SWITCH = "PENSTOCK_STRICT"

_skipped_parts: dict[str, str] = {}


def require_tool(tool: str, *, part: str, install: str) -> str:
    """Return the path of `tool`; without it, skip the calling test, or fail it under the strict switch.

    `part` names what stays untested, and `install` is the command that mends it. May also be called at the
    top of a module, which then is skipped as a whole.
    """
    path = shutil.which(tool)
    if path is None:
        missing_part(part, f"{tool} is not on the PATH; install it with: {install}")
    return path


def missing_part(part: str, reason: str) -> NoReturn:
    """Skip the calling test, or module, and tell so at the end; fail it under the strict switch."""
    line = f"{part}: {reason}"
    if os.environ.get(STRICT_SWITCH, "0") not in ("", "0"):
        pytest.fail(line, pytrace=False)
    _skipped_parts.setdefault(part, line)
    pytest.skip(line, allow_module_level=True)


def skipped_part_lines() -> list[str]:
    """Return one line for each part that was skipped so far."""
    return [f"SKIPPED PART: {reason}" for reason in _skipped_parts.values()]
