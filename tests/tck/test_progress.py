"""While the tests run one can see which, on a terminal and in a log."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator

from penstock.tck import Result
from penstock.tck.runner import ProgressLine

NAMES = ["test_required_spec101_one", "test_required_spec313_other"]
DEADLINE = 30


class Screen(io.StringIO):
    """What is written, and an event for the first line of it."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal
        self.written = threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str, /) -> int:
        count = super().write(text)
        self.written.set()
        return count


def results(screen: Screen) -> Iterator[Result]:
    """The first test takes until its line is on the screen."""
    assert screen.written.wait(DEADLINE)
    yield Result("x", NAMES[0], "1.1", "required", "fail", "", 1.0)
    screen.written.clear()
    assert screen.written.wait(DEADLINE)
    yield Result("x", NAMES[1], "3.13", "required", "pass", "", 1.0)


def test_a_terminal_shows_a_line_that_changes_and_is_gone_at_the_end() -> None:
    screen = Screen(terminal=True)

    assert len(list(ProgressLine(NAMES, screen).over(results(screen)))) == 2

    said = screen.getvalue()
    assert re.search(r"\r0 of 2 tests, \d+ s: §1\.1 test_required_spec101_one\033\[K", said)
    assert "\r1 of 2 tests, 1 failed, " in said
    assert "\n" not in said
    assert said.endswith("\r\033[K")


def test_a_log_gets_a_line_now_and_then() -> None:
    screen = Screen(terminal=False)

    list(ProgressLine(NAMES, screen, every=0.05).over(results(screen)))

    assert re.search(r"^0 of 2 tests, \d+ s: §1\.1 test_required_spec101_one\n", screen.getvalue())
    assert "\033" not in screen.getvalue()


def test_a_quick_run_says_nothing_to_a_log() -> None:
    screen = Screen(terminal=False)

    list(ProgressLine(NAMES, screen).over([]))

    assert screen.getvalue() == ""


def test_a_closed_output_does_not_stop_the_tests() -> None:
    screen = Screen(terminal=True)
    screen.close()

    done = list(ProgressLine(NAMES, screen).over([Result("x", NAMES[0], "1.1", "required", "pass", "", 1.0)]))

    assert len(done) == 1
    assert list(ProgressLine(NAMES, None).over(done)) == done
