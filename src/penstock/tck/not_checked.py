"""The rules about which no test of the kit can say anything, and why."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

NOT_CHECKED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "1.10": "binds whoever calls subscribe, and says nothing about what happens otherwise",
        "2.2": "is advice: how slow is too slow depends on the Publisher",
        "2.11": "a hand-over between threads that is not safe shows only by chance",
        "3.1": "nobody can see on whose behalf a request is made",
        "3.14": "is a permission: a Publisher may as well stay open",
    }
)
"""Why a rule is not checked, by its number; every other rule has a test that a broken subject fails."""
