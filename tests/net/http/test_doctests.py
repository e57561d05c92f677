"""The examples in the docstrings run as printed."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from penstock.net import http


def examples() -> list[doctest.DocTest]:
    names = [module.name for module in pkgutil.iter_modules(http.__path__, "penstock.net.http.")]
    modules = [http, *(importlib.import_module(name) for name in names)]
    found = [test for module in modules for test in doctest.DocTestFinder().find(module)]
    return [test for test in found if test.examples]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_an_example_in_a_docstring_runs_as_printed(example: doctest.DocTest) -> None:
    failures: list[str] = []
    doctest.DocTestRunner().run(example, out=failures.append)

    assert "".join(failures) == ""


def test_there_are_examples() -> None:
    assert len(examples()) >= 3
