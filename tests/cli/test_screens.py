"""What is drawn fits the screen, whatever its size: nothing wraps, scrolls away, or is cut wrongly."""

import io
import re
import signal
from dataclasses import replace
from typing import Any

import pytest

from penstock.aquifer import Gateway
from penstock.cli.block import Block
from penstock.cli.demo import picture
from penstock.cli.demo.director import phase_of
from penstock.cli.demo.streams import StreamFigures, drawing, line
from penstock.cli.gateway.figures import AwayFigures, GatewayFigures, Meter, ReaderFigures
from penstock.cli.gateway.view import block
from penstock.cli.screen import Screen
from penstock.cli.table import columns, fit, printable, row
from tests.cli.running import PATIENCE
from tests.cli.terminals import Terminal

WIDTHS = [36, 50, 80, 132]

READER = ReaderFigures("a-reader", "extended", "streaming", 1, 1, 12_345, 1_234_567.0, False)
GATEWAY = GatewayFigures(
    uptime=1000.0,
    epoch="0123456789ab",
    durable=True,
    codec="bytes",
    taken=123_456_789,
    skipped=12,
    source_rate=1_234_567.0,
    held_back=1.0,
    first=1_000_000,
    head=11_000_000,
    end=None,
    failure=None,
    stalled="the disk is full: there is no room for another record",
    full=1.0,
    needed=0.99,
    records=10_000_000,
    max_records=10_000_000,
    bytes=10**9,
    max_bytes=2**30,
    readers=[READER, replace(READER, id="\x1b[2Jevil" + "x" * 200), replace(READER, id="독자" * 10)],
    away=[],
    counters={},
    left_out={"subscribers": 0, "absent": 0},
)
MOMENT = picture.Moment(
    elapsed=123.4,
    phase="the reader is slow, so every earlier stage waits",
    sent=12_345_678,
    sent_rate=20_000.0,
    blocked=True,
    open_demand=2048,
    held=60_000,
    capacity=60_000,
    batch=123,
    batch_seconds=12.3,
    taken=12_345_678,
    taken_rate=20_000.0,
    results_held=16,
    results_capacity=16,
    results=1234,
    results_rate=8.0,
    slow=True,
)
STREAM = StreamFigures(123.4, True, 1_234_567.0, 1_234_567.0, 256, 256, 64, 192)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_gateway_says_everything_at_any_width(width: int) -> None:
    lines = [fit(line, width) for line in block(GATEWAY, width)]
    text = " ".join(" ".join(lines).split())

    assert all(columns(line) <= width for line in lines)
    assert "\x1b" not in text
    for said in ("HELD BACK", "100% full, 99% still needed", "10,000,000 of 10,000,000 records", "12,345"):
        assert said in text
    assert "the disk is full: there is no room for another record" in text


@pytest.mark.parametrize("width", [50, 80, 132])
def test_the_demo_says_what_counts_at_any_width(width: int) -> None:
    limit = "the reader (no id) at tcp://127.0.0.1:40000 limits the flow: the log before it is full"
    lines = picture.drawing(replace(MOMENT, limit=limit), width)

    assert limit in " ".join(" ".join(lines).split())
    assert all(columns(line) <= width for line in lines)
    assert "".join(lines).count("BLOCKED") == 1
    assert any(line.endswith("SLOW") for line in lines)
    assert columns(picture.line(MOMENT, width)) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_the_demo_of_streams_fits(width: int) -> None:
    assert all(columns(shown) <= width for shown in [*drawing(STREAM, width), line(STREAM, width)])


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"slow": False, "blocked": False, "backlog": 100}, "every stage keeps up"),
        ({"slow": False, "blocked": True, "backlog": 60_000}, "the sensors wait"),
        ({"slow": False, "blocked": False, "backlog": 50_000}, "catches up"),
        ({"slow": True, "blocked": False, "backlog": 0}, "fill up"),
        ({"slow": True, "blocked": True, "backlog": 60_000}, "every earlier stage waits"),
        ({"slow": False, "blocked": True, "backlog": 60_000, "ended": True}, "have ended"),
    ],
)
def test_the_caption_of_the_demo_is_borne_out_by_its_figures(facts: dict[str, Any], says: str) -> None:
    assert says in phase_of(**{"ended": False, **facts})


def test_a_row_goes_on_below_and_a_name_cannot_command_a_terminal() -> None:
    assert row("label", ["one,", "two", "three"], 50) == ["  label       one, two  three"]
    assert row("label", ["x" * 20, "y" * 20], 50) == ["  label       " + "x" * 20, " " * 14 + "y" * 20]
    assert printable("a\x1b[31m\nb") == "a\ufffd[31m\ufffdb"
    assert fit("한국어입니다", 6) == "한국…"


class Drawing(io.StringIO):
    """Keeps what is drawn on a terminal, and knows its size."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    def fileno(self) -> int:
        return self._terminal.fileno()

    def isatty(self) -> bool:
        return True

    def taken(self) -> str:
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


def test_a_block_is_never_higher_than_its_screen_and_follows_its_width() -> None:
    with Terminal(80, 6) as terminal:
        shown = Drawing(terminal)
        drawn = Block(Screen(shown))
        drawn.draw(["x" * 60] * 20)
        first = shown.taken()
        assert first.count("\n") == 5
        assert "16 more lines" in first
        terminal.resize(40, 24)
        drawn.draw(["y"])
        # Four lines of sixty columns are two each now, and so is the fifth.
        assert shown.taken().startswith("\x1b[10A")
        drawn.draw(["z"])
        assert shown.taken().startswith("\x1b[1A\x1b[2Kz\n")
        drawn.say("news")
        assert shown.taken() == "\x1b[1A\x1b[2Knews\n\x1b[2Kz\n\x1b[J"


def shown_at(width: int, *command: str) -> list[str]:
    """The lines of a command on a terminal of so many columns, without what moves the cursor."""
    with Terminal(width) as terminal, terminal.run(*command) as program:
        output, stopped = b"", False
        while piece := terminal.read():
            output += piece
            if not stopped and b"subscribers none" in output:
                stopped = True
                program.send_signal(signal.SIGINT)
        program.wait(PATIENCE)
    return re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", output.decode()).splitlines()


@pytest.mark.parametrize("width", [50, 80])
@pytest.mark.parametrize(
    "command",
    [
        ("demo", "--only-streams", "--duration", "1"),
        ("demo", "--only-streams", "--duration", "1", "--headless"),
        ("gateway", "--source", "stdin", "--stay", "--control", "tcp://127.0.0.1:0"),
    ],
    ids=lambda command: " ".join(command[:3]),
)
def test_no_line_of_a_block_is_wider_than_the_terminal(width: int, command: tuple[str, ...]) -> None:
    lines = shown_at(width, *command)

    blocks = [line for line in lines if line.startswith("  ") or "/s" in line]
    assert blocks
    assert all(columns(line) <= width for line in blocks)


def test_a_gateway_with_many_readers_says_how_many_are_not_shown() -> None:
    away = [AwayFigures(f"id-{number}", 0, 60.0, 60.0) for number in range(256)]
    crowd = replace(GATEWAY, readers=[READER] * 20, away=away, left_out={"subscribers": 3, "absent": 244})
    text = "\n".join(block(crowd, 120))
    assert "and 11 more; penstock gateway ls lists them" in text
    assert "and 488 more; penstock gateway ls lists them" in text


def test_a_gateway_that_others_write_to_is_not_held_back_while_it_has_room() -> None:
    with Gateway(None, "tcp://127.0.0.1:0", codec="bytes", writable=True) as gateway:
        meter = Meter()
        meter.look(gateway.status())
        assert meter.figures(gateway.status(), 1.0).held_back == 0
