"""Threads that change places as often as Python lets them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from penstock.streams import on_dropped, schedulers
from penstock.streams.schedulers import PoolScheduler


@pytest.fixture(autouse=True)
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def pool() -> Iterator[PoolScheduler]:
    with schedulers.pool(4, "race") as pool:
        yield pool


@pytest.fixture(autouse=True)
def nothing_dropped() -> Iterator[list[BaseException]]:
    """A race must not leave stray errors behind; a test that expects some clears the list."""
    seen: list[BaseException] = []
    with on_dropped(error=lambda error, where: seen.append(error)):
        yield seen
    assert seen == []
