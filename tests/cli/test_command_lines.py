"""Command lines in pages, examples and messages have options that exist."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import build_parser
from penstock.cli.parser import Parser
from tests.source.repository import texts

SHOWN = ("README.md", "CONTRIBUTING.md", "docs", "examples", "news", "src")
"""What a user gets to read."""
LINE = re.compile(r"\bpenstock ([a-z]+)(?: ([a-z]+))?\b((?:(?!`|\||; |&&|\bpenstock ).)*)")
"""A command, perhaps one below it, and what follows up to the end of the command line."""
OPTION = re.compile(r"(?<![\w/<!-])--[a-z](?:-?[a-z])+(?!\w)(?!-)")
"""Not a part of a marble, such as ``--x-y--``."""
OF_OTHERS = {
    "java": {"--add-modules"},
    "kafka-configs": {"--add-config", "--alter", "--bootstrap-server", "--topic"},
    "kafka-topics": {
        "--bootstrap-server",
        "--config",
        "--create",
        "--delete",
        "--replication-factor",
        "--topic",
    },
    "make bench": {"--only", "--quick"},
    "make lock": {"--upgrade"},
    "make tck-loaded": {"--at-once", "--loops", "--runs"},
    "pip": {"--force-reinstall", "--only-binary"},
    "pytest with the kit": {"--rs-jvm-results", "--rs-report", "--rs-strict"},
    "python -m benchmarks.spark_settings": {"--write"},
    "spark-submit": {"--driver-memory", "--py-files"},
    "uvicorn": {"--ws-per-message-deflate", "--ws-ping-timeout"},
}
"""Options of other programs that our pages mention."""


def actions(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.Action]]:
    """Each option of the commands below a parser."""
    if isinstance(parser, Parser):
        parser.load()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from actions(inner, f"{name} {word}".strip())
        elif action.option_strings:
            yield name, action


def options(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, set[str]]]:
    """Each command below a parser, with its options."""
    if isinstance(parser, Parser):
        parser.load()
    yield name, set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from options(inner, f"{name} {word}".strip())


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    return dict(options(build_parser()))


def shown() -> Iterator[tuple[Path, str]]:
    """The texts that a user gets to read, with their continued lines in one."""
    for path, text in texts():
        if path.parts[0] in SHOWN and path.suffix in (".py", ".md", ".yml"):
            yield path, re.sub(r"\\+\n\s*", "", text)


def test_each_command_line_has_options_of_its_command(known: dict[str, set[str]]) -> None:
    wrong = []
    for path, text in shown():
        for first, second, rest in LINE.findall(text):
            command = f"{first} {second}" if f"{first} {second}" in known else first
            if command in known:
                wrong += [
                    f"{path}: penstock {command} {option}"
                    for option in OPTION.findall(rest)
                    if option not in known[command]
                ]
    assert not wrong, "\n".join(wrong)


def test_each_command_in_a_page_exists(known: dict[str, set[str]]) -> None:
    named = {(path, word) for path, text in shown() for word in re.findall(r"`penstock ([a-z]+)", text)}
    assert {word for _, word in named} >= {"gateway", "run", "tail"}
    assert not [f"{path}: penstock {word}" for path, word in named if word not in known]


def test_each_option_belongs_to_a_command(known: dict[str, set[str]]) -> None:
    """Also if a page names it without its command."""
    all_known = set().union(*known.values(), *OF_OTHERS.values())
    wrong = {
        f"{path}: {option}"
        for path, text in shown()
        for option in OPTION.findall(text)
        if option not in all_known and path.parts[:3] != ("src", "penstock", "streams")  # Its marbles.
    }
    assert not wrong, "\n".join(sorted(wrong))


def test_each_option_is_on_a_page() -> None:
    """Under one of its names."""
    pages = "\n".join(text for path, text in shown() if path.parts[0] == "docs" and len(path.parts) == 2)
    named = set(OPTION.findall(pages))
    missing = [
        f"penstock {command}: {'/'.join(action.option_strings)}"
        for command, action in actions(build_parser())
        if not named.intersection(action.option_strings)
    ]
    assert not missing, "\n".join(missing)
