"""The chart library that lies beside the page is the one that npm has, unchanged."""

from importlib.resources import files
from pathlib import Path

import pytest

from tests.node_packages import installed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LICENSE", "dist/uPlot.iife.min.js", "dist/uPlot.min.css"])
def test_a_vendored_file_is_that_of_the_locked_package(name: str) -> None:
    package = (
        installed(Path(__file__).parent / "browser", "the dashboard in a browser") / "node_modules/uplot"
    )
    vendored = files("penstock.observe.dashboard").joinpath("page", "uplot", name.rpartition("/")[2])

    # Every text of this repository ends with a newline.
    assert vendored.read_text("utf-8").rstrip("\n") == (package / name).read_text("utf-8").rstrip("\n")
