"""The options of ``penstock run``."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.cli.dashboard.server import metrics_option, otlp_option
from penstock.cli.logs import LogOptions
from penstock.cli.parser import section
from penstock.cli.style import json_option
from penstock.observe import DashboardOptions
from penstock.options import option

__all__ = ["RunOptions"]


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"{text!r}: write KEY=VALUE, such as spark.sql.shuffle.partitions=8")
    return key, value


def _directory(text: str) -> str:
    if not text:
        raise ValueError("it is empty: name a directory, such as state")
    return text


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of ``penstock run``."""

    target: str = option(
        positional=True, metavar="TARGET", help="app.py:pipeline, or package.module:pipeline"
    )
    checkpoint: str | None = option(
        None,
        metavar="DIR",
        shown="nowhere",
        parse=_directory,
        help="where to save how far the pipeline has come",
    )
    master: str = option("local[*]", metavar="URL", help="Spark's master")
    conf: tuple[tuple[str, str], ...] = option(
        (), repeated=True, parse=_setting, metavar="KEY=VALUE", help="a setting of Spark; can be repeated"
    )
    once: bool = option(
        False, help="process what a gateway has now, and exit; other sources are read to their end"
    )
    ship: bool = option(False, help="send this package to the executors of a cluster that lack it")
    quiet: bool = option(False, help="show no progress")
    json: bool = json_option("show progress as lines of JSON, on standard output")
    spark_log: str | None = option(
        None, metavar="FILE", help="where Spark's own log goes; - is standard error"
    )
    dashboard: DashboardOptions = section(DashboardOptions, "the dashboard")
    metrics: str | None = metrics_option()
    otlp: str | None = otlp_option()
    log: LogOptions = section(LogOptions, "messages")
