"""What holds for tests that open connections."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet_loop(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The event loop has nothing to complain about: no callback of ours raises, no task fails unheard."""
    yield
    told = [
        record
        for phase in ("setup", "call")
        for record in caplog.get_records(phase)
        if record.name == "asyncio" and record.levelno >= logging.WARNING
    ]
    assert not told, [record.getMessage() for record in told]
