"""What the kit writes down of an element costs the same, however large the element is."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.tck.evidence import shown

LONGEST = 60

VALUES: list[Any] = [
    1,
    None,
    {1},
    set(),
    [],
    (),
    {},
    (1,),
    [1, 2],
    {"a": [1, (2,)], "b": b"z"},
    "it's",
    "é\n",
    "a" * 58,
    "a" * 59,
    "a" * 60,
    b"x" * 1000,
    bytearray(b"q" * 70),
    list(range(1000)),
    tuple("abc" * 100),
    {number: {number: "text"} for number in range(100)},
    [[[[1]]]],
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_it_is_the_beginning_of_the_repr(value: Any) -> None:
    whole = repr(value)

    assert shown(value) == (whole if len(whole) <= LONGEST else whole[: LONGEST - 1] + "…")


class Counted:
    """Counts how often somebody looks at it."""

    looks = 0

    def __repr__(self) -> str:
        Counted.looks += 1
        return "x"


@pytest.mark.parametrize(
    "kind", [list, tuple, lambda items: dict(enumerate(items)), lambda items: (1, [items])]
)
def test_no_more_of_a_collection_is_looked_at_than_is_shown(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counted, "looks", 0)

    assert shown(kind([Counted()] * 100_000)).endswith("…")
    assert 0 < Counted.looks <= LONGEST


def test_a_list_that_holds_itself_has_an_end() -> None:
    endless: list[Any] = []
    endless.append(endless)

    assert shown(endless) == "[[[[[[[[…]]]]]]]]"
