"""The examples in the bridges' docstrings run as printed."""

from __future__ import annotations

import doctest

from penstock.interop import reactivex_bridge


def test_the_examples_of_a_docstring_run_as_printed() -> None:
    failed, attempted = doctest.testmod(reactivex_bridge)

    assert (failed, attempted) == (0, 5)
