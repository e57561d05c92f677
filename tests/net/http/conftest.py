"""The servers that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.net.http.serving import SERVERS, Served, served

LOST = ["dropped e", "was never retrieved", "was destroyed but it is pending", "ResourceWarning"]
"""What the log of a server that lost nothing and left nothing behind does not contain."""


@pytest.fixture(scope="module", params=list(SERVERS))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Each of the servers in turn, with the application of the tests."""
    with served(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running
    told = running.log.read_text()
    lost = [mark for mark in LOST if mark in told]
    assert not lost, told


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server, where it does not matter which."""
    with served("uvicorn-asyncio-h11", tmp_path_factory.mktemp("server")) as running:
        yield running
