"""An error reaches its reader whatever its class refuses: to be changed, to be shown, to be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.streams import Flux, Mono, schedulers

PATIENCE = 10


@dataclass(frozen=True)
class FrozenError(Exception):
    """Refuses every assignment, also that of a note, a cause or a traceback."""

    code: int = 7


class StubbornError(Exception):
    """Raises in every method that a message, a note or a comparison could call."""

    def _refuse(self, *_: object) -> Any:
        raise RuntimeError("this class refuses")

    __str__ = __repr__ = __eq__ = __bool__ = add_note = with_traceback = _refuse
    __hash__ = Exception.__hash__


class OddNotes(Exception):
    """Has something of its own where notes should be."""

    __notes__ = 5


class NotesThatAreNotText(Exception):
    def __init__(self) -> None:
        super().__init__()
        self.__notes__: list[Any] = [5]


KINDS = [FrozenError, StubbornError, OddNotes, NotesThatAreNotText]


def numbers() -> Flux[int]:
    return Flux.just(1, 2, 3)


def failing(kind: Callable[[], Exception]) -> Flux[int]:
    def fail(number: int) -> int:
        raise kind()

    return numbers().map(fail)


def failing_on_a_pool(kind: Callable[[], Exception]) -> Flux[int]:
    def fail(number: int) -> int:
        raise kind()

    return numbers().publish_on(schedulers.shared_pool()).map(fail)


def failing_in_a_coroutine(kind: Callable[[], Exception]) -> Flux[int]:
    async def fail(number: int) -> int:
        raise kind()

    return numbers().map_async(fail)


def failing_in_a_function_for_errors(kind: Callable[[], Exception]) -> Flux[int]:
    def fail(error: BaseException) -> Flux[int]:
        raise kind()

    return numbers().map(lambda n: n // 0).on_error_resume(fail)


WAYS: list[Callable[[Callable[[], Exception]], Flux[int]]] = [
    failing,
    failing_on_a_pool,
    failing_in_a_coroutine,
    failing_in_a_function_for_errors,
    lambda kind: Flux.error(kind()),
    lambda kind: failing(kind).checkpoint("here"),
    lambda kind: numbers().map(lambda n: n // 0).on_error_map(lambda error: kind()),
    lambda kind: failing(kind).subscribe_on(schedulers.shared_pool()).cache(),
    lambda kind: Flux.merge(failing_on_a_pool(kind), Flux.never()),
    lambda kind: failing(kind).retry(1),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", range(len(WAYS)))
def test_an_error_of_any_class_reaches_its_reader(way: int, kind: type[Exception]) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - its type is what is asserted
        WAYS[way](kind).collect_list().block(PATIENCE)

    assert raised.type is kind


def test_a_frozen_error_has_its_note_and_its_cause() -> None:
    with pytest.raises(FrozenError) as raised:
        numbers().map(lambda n: n // 0).on_error_map(lambda error: FrozenError()).checkpoint(
            "here"
        ).then().block()

    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert "the checkpoint 'here'" in raised.value.__notes__[0]


def test_a_cached_frozen_error_has_the_same_traceback_for_each_reader() -> None:
    cached = failing(FrozenError).cache()
    depths = []
    for _ in range(3):
        with pytest.raises(FrozenError) as raised:
            cached.then().block()
        depths.append(len(raised.traceback))

    assert depths[0] == depths[1] == depths[2]


def test_cast_names_an_element_that_cannot_be_shown() -> None:
    class Secret:
        def __repr__(self) -> str:
            raise RuntimeError("nobody may see this")

    with pytest.raises(TypeError, match=r"cast\(int\) met .*Secret"):
        Mono.just(Secret()).cast(int).block()
