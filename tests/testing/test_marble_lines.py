"""Marbles: read, drawn, as a source and as an expectation; and the blocks of docstrings."""

from __future__ import annotations

import pytest

from penstock.streams import Flux, Mono
from penstock.testing import (
    ExpectationFailed,
    Marble,
    MarbleError,
    MarbleExample,
    marble,
    marble_examples,
    verify,
)


def test_a_line_is_read() -> None:
    line = Marble.parse("1-(aB)-|", {"B": [2]})

    assert [tuple(signal) for signal in line.signals] == [
        (0, "on_next", 1),
        (2, "on_next", "a"),
        (2, "on_next", [2]),
        (4, "on_complete", None),
    ]
    assert line.frames == 5
    assert line.ends


def test_spaces_are_for_the_eye() -> None:
    assert Marble.parse(" 1 - (a |)") == Marble.parse("1-(a|)")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("1|2", "nothing after its end"),
        ("(12", "not closed"),
        ("1)2", "a group is"),
        ("((1))", "a group is"),
        ("(1-2)", "a group is"),
        ("1+2", "a letter, a digit"),
    ],
)
def test_a_line_that_is_not_one(line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Marble.parse(line)


@pytest.mark.parametrize("line", ["1-2-3-|", "(ab)-#", "---", "|", "#", "a", "-(1|)"])
def test_a_source_does_what_the_line_says(line: str) -> None:
    verify(marble(line)).marble(line).cancel() if not Marble.parse(line).ends else verify(
        marble(line)
    ).marble(line)


def test_a_source_is_cold() -> None:
    verify(marble("1-|").repeat(1)).marble("1-1-|")


def test_the_elements_of_a_source_wait_for_demand() -> None:
    verify(marble("123|"), virtual=True).request(1).wait(1).next(1).request(5).next(2, 3).complete()


def test_a_source_that_is_cancelled_leaves_no_timer() -> None:
    verify(marble("1-2-3-|").take(1)).marble("(1|)")


def test_a_stream_that_fails_with_a_class() -> None:
    verify(marble("1-#", {"#": OSError}), virtual=True).next(1).wait(1).error(OSError)
    verify(marble("1-#"), virtual=True).next(1).wait(1).error(MarbleError)


def test_a_failure_draws_what_came() -> None:
    with pytest.raises(ExpectationFailed) as failed:
        verify(Flux.interval(0.02).take(3).map(lambda n: n * 10)).marble("--0-A-A|", A=10)

    first, second, *_ = str(failed.value).splitlines()
    assert first == "expected  --0-A-A|"
    assert second == "came      --0-A-(B|)-   where B = 20"


def test_a_signal_between_two_frames_never_matches() -> None:
    with pytest.raises(ExpectationFailed, match=r"on_next\(0\) at frame 1\.500"):
        verify(Mono.timer(0.015)).marble("--(0|)")


def test_a_line_without_an_end_is_looked_at_for_its_length() -> None:
    verify(Flux.interval(0.01)).marble("-012").wait(0.01).next(3).cancel()


def test_a_block_of_a_docstring() -> None:
    (example,) = marble_examples(
        """Do something.

        Emits when it can.

        Marble::

            a: 1-2-|
            mono: -(x|)
            a.map(
                big
            )
            >  A-B-|
            where A = [1, 1], B = [2, 1], big = lambda x: [x, 1]

            mono.flux()
            >  -(x|)

        After it.
        """
    )

    assert example.sources == {"a": "1-2-|", "mono": "-(x|)"}
    assert len(example.results) == 2
    assert set(example.definitions) == {"A", "B", "big"}
    example.run()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("a: 1|\na.map(str)", "no result"), ("a: 1|\n> 1|", "no expression"), ("a: 1|", "no result")],
)
def test_a_block_that_cannot_be_run(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        MarbleExample.parse(text)


@pytest.mark.parametrize("result", ["2-|", "1|", "1--|", "1-#", "1-", "(11)-|"])
def test_a_wrong_marble_fails(result: str) -> None:
    with pytest.raises(ExpectationFailed):
        MarbleExample.parse(
            f"a: 1-|\na.map(lambda x: x)\n> {result}x" if result == "1-" else f"a: 1-|\na\n> {result}"
        ).run()


def test_another_error_than_the_one_named_fails() -> None:
    MarbleExample.parse("a: 1-#\na\n> 1-#").run()
    with pytest.raises(ExpectationFailed):
        MarbleExample.parse("a: 1-#\na\n> 1-#\nwhere # = OSError").run()
