"""Errors say where the stream was written: file, line and operator."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from penstock.arguments import describe
from penstock.streams import Flux, Mono, schedulers
from tests.streams.recording import Recorder


def fail(_: Any) -> Any:
    raise ValueError("x")


def lineno() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def note_of(stream: Any) -> str:
    error = Recorder.of(stream, first=9).wait().error
    assert error is not None
    (note,) = error.__notes__
    return note


def test_an_error_names_file_line_and_operator() -> None:
    stream = Flux.just(1).map(str).map(fail)
    line = lineno() - 1

    assert note_of(stream) == (
        f"in stream operator map(fail), assembled at {__file__}:{line} in "
        "test_an_error_names_file_line_and_operator"
    )


def test_in_a_chain_of_many_lines_the_line_of_the_operator_is_named() -> None:
    line = lineno()
    stream = (
        Flux.just(1)
        .map(str)
        .filter(fail)
        .map(str)
    )  # fmt: skip

    assert f"filter(fail), assembled at {__file__}:{line + 4} in" in note_of(stream)


FAILING: dict[str, tuple[Any, str]] = {
    "source": (lambda: Flux.from_iterable(fail(n) for n in [1]), "from_iterable("),
    "error": (lambda: Flux.error(ValueError("x")), "error(ValueError('x'))"),
    "callable": (lambda: Mono.from_callable(lambda: fail(1)), "from_callable(λ)"),
    "below a boundary": (lambda: Flux.just(1).publish_on(schedulers.shared_pool()).map(fail), "map(fail)"),
    "above a boundary": (lambda: Flux.just(1).map(fail).publish_on(schedulers.shared_pool()), "map(fail)"),
    "flat_map": (lambda: Flux.just(1).flat_map(fail), "flat_map(fail)"),
    "concat_map": (lambda: Flux.just(1).concat_map(fail), "concat_map(fail)"),
    "zip": (lambda: Flux.zip(Flux.just(1), Flux.just(2), combinator=lambda a, b: fail(a)), "zip(λ)"),
    "map_async": (lambda: Flux.just(1).map_async(fail), "map_async(fail)"),
    "inside flat_map": (lambda: Flux.just(1).flat_map(lambda n: Flux.just(n).filter(fail)), "filter(fail)"),
    "generate": (lambda: Flux.generate(lambda: 0, lambda state, sink: fail(state)), "generate(λ)"),
    "timeout": (lambda: Flux.never().timeout(0), "timeout(0.0)"),
}


@pytest.mark.parametrize(("make", "operator"), FAILING.values(), ids=FAILING)
def test_the_operator_that_failed_is_named_and_only_that(make: Any, operator: str) -> None:
    note = note_of(make())

    assert note.startswith(f"in stream operator {operator}")
    assert f"assembled at {__file__}:" in note


def test_a_plain_loop_names_it_too() -> None:
    with pytest.raises(ValueError, match="x") as raised:
        for _ in Flux.just(1).map(fail):
            pass
    assert f"map(fail), assembled at {__file__}:" in raised.value.__notes__[0]

    async def main() -> None:
        async for _ in Flux.just(1).map(fail):
            pass

    with pytest.raises(ValueError, match="x") as raised:
        asyncio.run(main())
    assert f"map(fail), assembled at {__file__}:" in raised.value.__notes__[0]


def test_the_same_error_twice_gets_no_second_note() -> None:
    error = ValueError("x")
    stream = Flux.error(error).map(str)

    Recorder.of(stream)
    Recorder.of(stream)

    assert len(error.__notes__) == 1


def test_an_argument_is_described_as_a_reader_would_write_it() -> None:
    assert [describe(x) for x in (fail, lambda: 0, 3, "a", str)] == ["fail", "λ", "3", "'a'", "str"]
    assert describe("x" * 100) == "'" + "x" * 22 + "…"


class Heavy(list[Any]):
    def __repr__(self) -> str:
        raise RuntimeError("nobody needs this")


def test_no_more_of_an_argument_is_looked_at_than_is_shown() -> None:
    class Watched:
        looks = 0

        def __repr__(self) -> str:
            Watched.looks += 1
            return "w"

    for huge in ([Watched()] * 100_000, (Watched(),) * 100_000, dict.fromkeys(range(100_000), Watched())):
        assert len(describe(huge)) <= 24
    assert Watched.looks == 0
    assert describe(["a rather long text"] * 1000) == "['a rather long text', …"
    assert describe(bytes(10_000_000)).startswith("b'\\x00")
    assert describe(10**5000) == "<int>"
    assert describe([[[1, 2], {"a": 1}]]) == "[[[1, 2], {'a': 1}]]"
    assert describe((1,)) == "(1,)"


def test_an_object_is_described_by_its_type_whatever_its_repr_does() -> None:
    assert describe(Heavy([1])) == "<Heavy>"
    assert list(Flux.from_iterable(Heavy([1]))) == [1]
    assert list(Flux.just(Heavy([1]))) == [[1]]
    assert repr(Flux.from_iterable(Heavy([1]))) == "<Flux from_iterable(<Heavy>)>"
    assert describe(n for n in [1]) == "<generator>"


def test_of_many_arguments_the_first_are_shown() -> None:
    assert repr(Flux.just(*range(100_000))) == "<Flux just(0, 1, 2, 3, 4, 5, 6, 7, …)>"


def test_an_error_about_a_wrong_argument_does_not_write_it_out() -> None:
    with pytest.raises(TypeError, match=r"map\(\) needs a function, not <Heavy>"):
        Flux.just(1).map(Heavy([1]))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"take\(\) needs a whole number, not <Heavy>"):
        Flux.just(1).take(Heavy([1]))  # type: ignore[arg-type]
