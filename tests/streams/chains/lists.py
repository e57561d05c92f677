"""What operators do, on plain lists."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

Elements = list[Any]


def weight(x: Any) -> int:
    """A number for any element: pieces and pairs weigh what their parts do."""
    return x if isinstance(x, int) else sum(weight(part) for part in x)


def unchanged(elements: Elements, key: Callable[[Any], Any]) -> Elements:
    return [x for i, x in enumerate(elements) if i == 0 or key(x) != key(elements[i - 1])]


def firsts(elements: Elements, key: Callable[[Any], Any]) -> Elements:
    seen: dict[Any, Any] = {}
    for x in elements:
        seen.setdefault(key(x), x)
    return list(seen.values())


def up_to(elements: Elements, predicate: Callable[[Any], bool]) -> Elements:
    """``takewhile`` with the element that ends it."""
    end = next((i for i, x in enumerate(elements) if predicate(x)), len(elements))
    return elements[: end + 1]


def pieces(elements: Elements, size: int, skip: int) -> Elements:
    return [elements[i : i + size] for i in range(0, len(elements), skip)]


def cut(elements: Elements, predicate: Callable[[Any], bool], *, before: bool) -> Elements:
    result: Elements = [[]]
    for x in elements:
        if before and predicate(x):
            result.append([x])
        elif not before and predicate(x):
            result[-1].append(x)
            result.append([])
        else:
            result[-1].append(x)
    return [piece for piece in result if piece]


def runs(elements: Elements, predicate: Callable[[Any], bool]) -> Elements:
    result: Elements = [[]]
    for x in elements:
        if predicate(x):
            result[-1].append(x)
        else:
            result.append([])
    return [piece for piece in result if piece]


def neighbours(elements: Elements, key: Callable[[Any], Any]) -> Elements:
    """Pieces of neighbours with the same key."""
    return [list(run) for _, run in groupby(elements, key)]


def heaviness(x: Any) -> int:
    """A weight that is not negative."""
    return abs(weight(x))


def weighed(elements: Elements, most: int) -> Elements:
    """Pieces that weigh at most ``most``; a heavier element is alone, and a full piece takes nothing more."""
    result: Elements = []
    total = most
    for x in elements:
        if total < most and total + heaviness(x) <= most:
            result[-1].append(x)
            total += heaviness(x)
        else:
            result.append([x])
            total = heaviness(x)
    return result


def grouped(elements: Elements, key: Callable[[Any], Any]) -> dict[Any, Elements]:
    result: dict[Any, Elements] = {}
    for x in elements:
        result.setdefault(key(x), []).append(x)
    return result


def levels(elements: Elements, leads_to: Callable[[Any], Elements]) -> Elements:
    """A forest, level by level."""
    result: Elements = []
    level = elements
    while level:
        result += level
        level = [y for x in level for y in leads_to(x)]
    return result


def depths(elements: Elements, leads_to: Callable[[Any], Elements]) -> Elements:
    """A forest, each element followed by all that it leads to."""
    return [y for x in elements for y in (x, *depths(leads_to(x), leads_to))]
