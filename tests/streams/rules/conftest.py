"""The schedulers that the tests of the rules share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.streams import on_dropped
from tests.streams.rules.publishers import Env


@pytest.fixture(scope="session")
def env() -> Iterator[Env]:
    env = Env()
    yield env
    env.close()


@pytest.fixture
def dropped() -> Iterator[list[BaseException]]:
    """The errors that nobody could be told of."""
    seen: list[BaseException] = []
    with on_dropped(error=lambda error, where: seen.append(error)):
        yield seen
