"""The guide names every scheduler; tests/examples runs its programs."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.streams import schedulers

GUIDE = Path(__file__).parents[3] / "docs" / "schedulers.md"


def test_every_factory_is_in_the_table() -> None:
    factories = {name for name in schedulers.__all__ if name.islower()}

    assert factories == set(re.findall(r"^\|[^|]*\| `(\w+)\(", GUIDE.read_text("utf-8"), re.MULTILINE))
