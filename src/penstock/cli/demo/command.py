"""The options of ``penstock demo``, and which of its parts they run."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.cli.errors import CommandError
from penstock.cli.logs import CommandLog, LogOptions
from penstock.cli.parser import section
from penstock.cli.style import json_option
from penstock.observe import DashboardOptions
from penstock.options import option, parse_count, parse_duration

__all__ = ["DemoOptions", "run_demo"]


def _seconds(text: str) -> float:
    if text.strip("0.") and (value := parse_duration(text)) >= 1:
        return value
    raise ValueError(f"{text!r}: a run needs at least 1 second; write 90s or 2m")


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The options of ``penstock demo``."""

    duration: float | None = option(
        None, parse=_seconds, metavar="TIME", shown="40s", help="how long to run, as in 90 or 2m"
    )
    records: int | None = option(
        None, parse=parse_count, metavar="N", help="how many records to send at most"
    )
    start_limit: float = option(
        300.0,
        parse=parse_duration,
        metavar="TIME",
        shown="5m",
        help="how long each part may take to start; Spark needs a while on a busy machine",
    )
    headless: bool = option(False, help="print lines instead of drawing, for CI")
    json: bool = json_option("print a JSON object in a line for each moment, and one at the end")
    picture: str = option(
        "penstock-demo.svg",
        metavar="FILE",
        help="the file for a picture of rates and levels over time; with none, there is no picture",
    )
    dashboard: DashboardOptions = section(DashboardOptions, "the dashboard (by default at a free port)")
    log: LogOptions = section(LogOptions, "messages")
    only_streams: bool = option(False, help="a source, a queue and a subscriber in one process")


def run_demo(options: DemoOptions) -> int:
    """Run the demo; 0 if everything that was sent was received."""
    with CommandLog(options.log, "demo"):
        return _run(options)


def _run(options: DemoOptions) -> int:
    if options.only_streams:
        from penstock.cli.demo.streams import run_streams

        if options.json:
            raise CommandError("--json needs the whole demo; --only-streams prints lines with --headless")
        if options.dashboard.listen is not None:
            raise CommandError("--dashboard needs the whole demo; --only-streams has no gateway to look at")
        return run_streams(options.duration or 9.0, headless=options.headless)
    try:
        import penstock.spark  # noqa: F401
    except ImportError as error:
        if error.name is not None:
            raise
        text = f"{error}; or run the part that needs nothing else: penstock demo --only-streams"
        raise CommandError(text, 1) from None
    from penstock.cli.demo.director import direct

    drawn = None if options.picture == "none" else options.picture
    return direct(
        options.duration or 40.0,
        options.records,
        options.headless,
        options.start_limit,
        drawn,
        as_json=options.json,
        dashboard=options.dashboard,
    )
