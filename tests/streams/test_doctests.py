"""The examples in the docstrings run as printed, and so does the Python of the documentation."""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib
import io
import pkgutil
import re
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock import streams

ROOT = Path(__file__).parents[2]
NAMES: dict[str, Any] = {name: getattr(streams, name) for name in streams.__all__}
NAMES |= {"asyncio": asyncio, "io": io, "threading": threading}


def modules() -> list[ModuleType]:
    names = [module.name for module in pkgutil.walk_packages(streams.__path__, "penstock.streams.")]
    return [streams, *(importlib.import_module(name) for name in names)]


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for module in modules() for test in finder.find(module, extraglobs=dict(NAMES))]
    return [test for test in found if test.examples]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_an_example_in_a_docstring_runs_as_printed(example: doctest.DocTest) -> None:
    failures: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(example, out=failures.append)

    assert "".join(failures) == ""


def test_there_are_examples() -> None:
    assert len(examples()) > 50


# The guide of the schedulers has a test of its own, which compares what its examples print.
PAGES = sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "schedulers.md")
FENCED = [
    pytest.param(text, id=f"{path.name}-{number}")
    for path in PAGES
    for number, text in enumerate(re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.DOTALL), 1)
]


@pytest.mark.parametrize("text", FENCED)
def test_an_example_of_the_documentation_is_python(text: str) -> None:
    compile(text, "<docs>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("text", [param for param in FENCED if param.id == "index.md-1"])
def test_the_first_example_of_the_documentation_runs(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(text, "<docs>", "exec"), {"__name__": "__main__"})

    assert capsys.readouterr().out == "21.5\n22.0\n"
