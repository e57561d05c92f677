"""Options are declared once: as a field with its help, from which the flags and the tables are made."""

import argparse
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from typing import cast

import pytest

from penstock.cli.parser import Commands, Parser, add_command, section
from penstock.options import (
    markdown_table,
    option,
    options_of,
    parse_count,
    parse_duration,
    parse_port,
    parse_rate,
    parse_size,
)


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = option(1 << 20, parse=parse_size, metavar="SIZE", shown="1M", help="how large")
    hidden: int = option(7, flag=None, help="only in Python")


@dataclass(frozen=True, kw_only=True)
class Declared:
    where: str = option(positional=True, metavar="WHERE", help="a place")
    others: tuple[str, ...] = option((), positional=True, repeated=True, metavar="MORE", help="more places")
    colour: str = option("red", choices=("red", "blue"), help="a colour | or another")
    tap: str | None = option(None, bare="all", choices=("all", "some"), help="what to log")
    setting: tuple[int, ...] = option((), repeated=True, parse=int, help="a number; can be repeated")
    loud: bool = option(False, aliases=("--noisy",), help="at 100% volume")
    state: str = "no option"
    inner: Inner = section(Inner, "the inside")


def parsed(*arguments: str) -> Declared:
    got: list[Declared] = []
    parser = Parser(prog="penstock")
    commands = cast(Commands, parser.add_subparsers())

    def run(options: Declared) -> int:
        got.append(options)
        return 0

    add_command(commands, "paint", lambda: (Declared, run), help="", description="", examples="examples:\n")
    found = parser.parse_args(["paint", *arguments])
    assert found.run(found) == 0
    return got[0]


def test_every_option_has_its_default() -> None:
    assert parsed("here") == Declared(where="here")


def test_every_option_can_be_given() -> None:
    line = "here there --colour blue --tap --setting 1 --setting 2 --noisy --size 64K"

    assert parsed(*line.split()) == Declared(
        where="here",
        others=("there",),
        colour="blue",
        tap="all",
        setting=(1, 2),
        loud=True,
        inner=Inner(size=64 * 1024),
    )
    assert parsed("here", "--tap", "some").tap == "some"


def test_the_help_of_a_command_is_made_of_the_declaration(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--help")

    shown = " ".join(capsys.readouterr().out.split())
    for said in ("WHERE a place", "(default red)", "at 100% volume", "the inside:", "how large (default 1M)"):
        assert said in shown
    assert "hidden" not in shown


def test_a_wrong_value_is_named_with_its_flag_and_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parsed("here", "--size", "large")

    assert end.value.code == 2
    assert capsys.readouterr().err == (
        "penstock paint: argument --size: 'large' is not a size; write 500000, 512K, 64M or 2G; "
        "see `penstock paint --help`\n"
    )


def test_options_are_loaded_when_they_are_parsed_and_not_before(capsys: pytest.CaptureFixture[str]) -> None:
    def load() -> tuple[type[Declared], Callable[[Declared], int]]:
        raise ImportError("this needs more: pip install 'penstock-streams[connect]'")

    parser = Parser(prog="penstock")
    commands = cast(Commands, parser.add_subparsers())
    add_command(commands, "paint", load, help="", description="", examples="")
    assert "paint" in parser.format_help()
    with pytest.raises(SystemExit) as end:
        parser.parse_args(["paint", "here"])

    assert end.value.code == 1
    assert capsys.readouterr().err == (
        "penstock paint: this needs more: pip install 'penstock-streams[connect]'\n"
    )


def test_a_plain_parser_gets_the_options_at_once() -> None:
    parser = argparse.ArgumentParser()
    add_command(
        parser.add_subparsers(),
        "paint",
        lambda: (Declared, lambda options: 3),
        help="",
        description="",
        examples="",
    )
    found = parser.parse_args(["paint", "here"])

    assert found.run(found) == 3


def test_fields_are_described_in_order_and_others_are_left_out() -> None:
    described = options_of(Declared)

    assert [each.name for each in described] == ["where", "others", "colour", "tap", "setting", "loud"]
    assert [each.flag for each in options_of(Inner)] == ["--size", None]
    assert described[0].default is MISSING
    assert described[5].is_switch


def test_a_table_for_a_page() -> None:
    assert markdown_table(Inner) == (
        "| flag | in Python | default | meaning |\n"
        "|---|---|---|---|\n"
        "| `--size` | `size` | `1M` | how large |\n"
        "|  | `hidden` | `7` | only in Python |"
    )
    assert "a colour \\| or another" in markdown_table(Declared)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_count, "500", 500),
        (parse_count, "10K", 10_000),
        (parse_count, "1_000", 1000),
        (parse_size, "512", 512),
        (parse_size, "1.5K", 1536),
        (parse_size, "64MiB", 64 << 20),
        (parse_duration, "90", 90.0),
        (parse_duration, "1.5h", 5400.0),
        (parse_rate, "0.5/s", 0.5),
        (parse_port, "0", 0),
    ],
)
def test_a_quantity_is_read_as_people_write_it(
    parse: Callable[[str], float], text: str, value: float
) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_count, "0"),
        (parse_count, "1.5"),
        (parse_size, "-1"),
        (parse_size, "64X"),
        (parse_duration, "0"),
        (parse_duration, "1w"),
        (parse_rate, "0/s"),
        (parse_port, "65536"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_shows_what_can(
    parse: Callable[[str], float], text: str
) -> None:
    with pytest.raises(ValueError, match=rf"^'{text}' is not a .*; write "):
        parse(text)
