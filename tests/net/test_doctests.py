"""The examples in the docstrings run as printed."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

from penstock.net import framing, http


def examples(package: ModuleType) -> list[doctest.DocTest]:
    names = [module.name for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    modules = [package, *(importlib.import_module(name) for name in names)]
    found = [test for module in modules for test in doctest.DocTestFinder().find(module)]
    return [test for test in found if test.examples]


@pytest.mark.parametrize("example", [*examples(framing), *examples(http)], ids=lambda example: example.name)
def test_an_example_in_a_docstring_runs_as_printed(example: doctest.DocTest) -> None:
    failures: list[str] = []
    doctest.DocTestRunner().run(example, out=failures.append)

    assert "".join(failures) == ""


@pytest.mark.parametrize(("package", "least"), [(framing, 10), (http, 3)])
def test_there_are_examples(package: ModuleType, least: int) -> None:
    assert len(examples(package)) >= least
