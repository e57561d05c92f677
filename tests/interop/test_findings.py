"""What the kit finds in rsocket-py is what the documentation says it finds, no more and no less."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from penstock.tck import Environment, Verification, run
from tests.interop.rsocket_under_the_kit import TheirAsyncStream, TheirStream

PAGE = (Path(__file__).parents[2] / "docs" / "interop.md").read_text("utf-8")
IMPATIENT = Environment(timeout=0.3, gc=0.3)
"""What does not come at once from these, never comes."""
PATIENT = Environment(timeout=3, gc=3)
"""On a busy machine it may come later. Each thing that never comes takes that long."""


def documented() -> dict[str, str]:
    """The rules of the table, each with what the kit says."""
    return dict(re.findall(r"^\| §([\d.]+) +\| `([^`]+)`", PAGE, re.MULTILINE))


def found_in(verification: type[Verification], environment: Environment) -> dict[str, list[str]]:
    """The rules that are broken, each with all that the kit says about it."""
    found: dict[str, list[str]] = {}
    for result in run(type("Timed", (verification,), {"environment": environment})):
        if result.verdict == "fail" or result.message.startswith("optional: "):
            for rule, happened in re.findall(r"§([\d.]+) violated: (.*)", result.message):
                # What was still missing when something else was found says nothing of its own.
                if " by then" not in happened:
                    found.setdefault(rule, []).append(happened)
    return found


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The loop logs every exception that a publisher lets escape."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_the_page_names_the_version_that_is_tested() -> None:
    assert f"**rsocket {version('rsocket')}**" in PAGE


@pytest.mark.slow
@pytest.mark.parametrize("verification", [TheirStream, TheirAsyncStream])
def test_the_table_is_what_the_kit_finds(verification: type[Verification]) -> None:
    table, found = documented(), found_in(verification, IMPATIENT)
    if set(found) != set(table):
        found = found_in(verification, PATIENT)

    assert set(table) == set(found)
    for rule, says in table.items():
        assert any(says in happened for happened in found[rule]), (rule, found[rule])
