"""The marbles in the docstrings of Flux and Mono are executed."""

from __future__ import annotations

import pytest

from penstock.streams import Flux, Mono
from penstock.testing import MarbleExample, marble_examples

FOUND = {
    f"{stream.__name__}.{name}-{number}": example
    for stream in (Flux, Mono)
    for name in dir(stream)
    if not name.startswith("_")
    for number, example in enumerate(marble_examples(getattr(stream, name).__doc__ or ""), 1)
}


@pytest.mark.parametrize("example", FOUND.values(), ids=FOUND)
def test_a_marble_is_what_the_operator_does(example: MarbleExample) -> None:
    example.run()


def test_there_are_marbles() -> None:
    assert len(FOUND) > 200
