"""Writes the tables of options in ``docs/spark.md``: ``python -m tests.spark.option_tables``."""

from __future__ import annotations

import re
from dataclasses import MISSING
from pathlib import Path

from penstock.options import Option
from penstock.spark.options import SinkOptions, SourceOptions, spark_options

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
HEAD = "| Option | Value | Meaning | Default |\n|---|---|---|---|\n"


def table(options: type[SourceOptions] | type[SinkOptions]) -> str:
    """A table with a row for each option."""
    return HEAD + "".join(
        f"| `{each.flag}` | {each.metavar} | {each.help} | {_default(each)} |\n"
        for each in spark_options(options)
    )


def _default(option: Option) -> str:
    if option.default is MISSING:
        return "required"
    if option.shown is None:
        return "none"
    return option.shown if " " in option.shown else f"`{option.shown}`"


def with_tables(page: str) -> str:
    """The page with both tables as the fields have them."""
    first, _, between, _, last = re.split(rf"({re.escape(HEAD)}(?:\|.*\n)*)", page)
    return "".join((first, table(SourceOptions), between, table(SinkOptions), last))


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
