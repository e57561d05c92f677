"""A module that has the name of a public function hides it, because importing it binds its name."""

from types import ModuleType

import pytest

import penstock.net
import penstock.net.http


@pytest.mark.parametrize("front", [penstock.net, penstock.net.http], ids=lambda front: front.__name__)
def test_no_module_hides_a_public_name(front: ModuleType) -> None:
    assert [name for name in front.__all__ if isinstance(getattr(front, name), ModuleType)] == []
