"""What every test of backpressure needs."""

from pathlib import Path

import pytest

from penstock.net import SelfSigned


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for localhost, and its key."""
    folder = tmp_path_factory.mktemp("certificates")
    SelfSigned.make("localhost", "127.0.0.1").save(folder)
    return folder
