"""``penstock tck``: check at the command line whether a publisher obeys the rules."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.cli.parser import Commands, add_command
from penstock.cli.screen import say
from penstock.cli.style import json_option, print_json
from penstock.cli.table import pad, wrap
from penstock.options import option, parse_duration

_EXAMPLES = """\
examples:
  penstock tck myproject.sources:numbers               numbers(n) returns a publisher of n elements
  penstock tck myproject.sources:ticks --elements 100  it can make 100 elements at most
  penstock tck myproject.sources:jobs --profile asyncio --report jobs.html
  penstock tck myproject.tests:TestNumbers             any verification class works as well
"""


def _elements(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not a number of elements; write 0, 1, 100, …")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class TckOptions:
    """The options of ``penstock tck``."""

    subject: str = option(
        positional=True,
        metavar="MODULE:FACTORY",
        help="a function that takes a number n and returns a publisher of n elements",
    )
    failed: str | None = option(
        None, metavar="MODULE:FACTORY", help="a function that returns a publisher that fails at once"
    )
    elements: int | None = option(
        None, parse=_elements, metavar="MAX", help="the most elements that FACTORY can make"
    )
    spelling: str | None = option(
        None,
        choices=("snake_case", "camelCase", "rsocket"),
        shown="snake_case",
        help="how the publisher spells its methods",
    )
    profile: str | None = option(
        None,
        choices=("sync", "threads", "asyncio"),
        shown="threads, which suits all but event loops",
        help="where the publisher does its work",
    )
    fanout: str | None = option(
        None, choices=("unicast", "multicast"), help="what several subscribers are promised"
    )
    timeout: float | None = option(
        None, parse=parse_duration, metavar="S", shown="2", help="seconds to wait for a signal"
    )
    time_limit: float = option(
        600.0, parse=parse_duration, metavar="S", shown="600", help="seconds for all tests together"
    )
    report: str | None = option(None, metavar="FILE", help="also write a report: .md, .json or .html")
    strict: bool = option(False, help="an unexpected skip is a failure")
    json: bool = json_option("print the report as one JSON object, as --report FILE.json writes it")


def _load() -> tuple[type[TckOptions], Callable[[TckOptions], int]]:
    return TckOptions, run_tck


def add_parser(commands: Commands) -> None:
    """Add ``penstock tck`` to the command line."""
    add_command(
        commands,
        "tck",
        _load,
        help="check whether a publisher obeys the rules of Reactive Streams",
        description="Run the conformance kit on a publisher, and print for each rule whether it is obeyed.",
        examples=_EXAMPLES,
    )


def run_tck(options: TckOptions) -> int:
    """Run the kit; 0 if every rule is obeyed, 1 if not, 2 if the subject cannot be found."""
    from penstock.tck import About, ProgressLine, Report, format_for, names_of_tests, write_report
    from penstock.tck import run as run_verification

    try:
        verification = _verification(options)
        if options.report is not None:
            format_for(options.report)
            _must_be_writable(options.report)
    except (_Unusable, ValueError) as error:
        say(f"penstock tck: {error}")
        return 2
    if not options.json:
        print(f"{options.subject}, profile {verification.profile}", flush=True)
    start = time.perf_counter()
    tests = run_verification(verification, time_limit=options.time_limit)
    results = list(ProgressLine(names_of_tests(verification), sys.stderr).over(tests))
    took = time.perf_counter() - start
    report = Report(results, about=About.of([verification]))
    unwritten = None
    if options.report is not None:
        # First, because the reader of the lines below may stop before the last one.
        try:
            write_report(report, options.report)
        except OSError as error:
            unwritten = f"cannot write the report {options.report}: {error.strerror}"
    cut_short = any(result.message.startswith("not run:") for result in results)
    broken = report.counts["fail"] or (options.strict and report.counts["unexpected skip"])
    if options.json:
        with tempfile.TemporaryDirectory(prefix="penstock-tck-") as folder:
            write_report(report, f"{folder}/report.json")
            print_json(json.loads(Path(folder, "report.json").read_text("utf-8")))
        if unwritten is not None:
            say(f"penstock tck: {unwritten}")
        return 1 if broken or cut_short or unwritten is not None else 0
    width = max(shutil.get_terminal_size().columns, 60)
    for line in _lines(report, verification.subject_name(), width):
        print(line)
    print(f"\n{report.summary} in {took:.1f} s")
    if unwritten is not None:
        say(f"penstock tck: {unwritten}")
    elif options.report is not None:
        print(f"report written to {options.report}")
    if cut_short:
        print(f"the time limit of {options.time_limit:g} s was reached: allow more with --time-limit")
    return 1 if broken or cut_short or unwritten is not None else 0


class _Unusable(Exception):
    """The subject cannot be used; the message says why."""


def _must_be_writable(report: str) -> None:
    """Told before the tests, which may take minutes."""
    folder = Path(report).parent
    if not folder.is_dir():
        raise _Unusable(f"cannot write the report {report}: there is no folder {folder}; make it first")
    if Path(report).is_dir():
        raise _Unusable(f"cannot write the report {report}: it is a folder; name a file")


def _verification(options: TckOptions) -> Any:
    from penstock.tck import SPELLINGS, Environment, PublisherVerification, Verification

    named = _named(options.subject)
    settings: dict[str, Any] = {"subject": options.subject}
    if options.spelling is not None:
        settings["spelling"] = SPELLINGS[options.spelling]
    if options.elements is not None:
        settings["max_elements_from_publisher"] = options.elements
    if options.timeout is not None:
        settings["environment"] = Environment(timeout=options.timeout)
    settings |= {
        name: value for name in ("profile", "fanout") if (value := getattr(options, name)) is not None
    }
    if options.failed is not None:
        failed = _named(options.failed)
        settings["create_failed_publisher"] = lambda self: failed()
    if isinstance(named, type) and issubclass(named, Verification):
        return type(named.__name__, (named,), settings)
    if not callable(named):
        raise _Unusable(
            f"{options.subject} is not a function, but {named!r}; name one that makes a publisher"
        )
    settings["create_publisher"] = lambda self, elements: named(elements)
    return type("Subject", (PublisherVerification,), settings)


def _named(where: str) -> Any:
    module_name, colon, name = where.partition(":")
    if not (module_name and colon and name):
        raise _Unusable(f"{where!r} does not name a module and a function; write MODULE:FACTORY")
    from penstock.tck import described, place_of

    # As with `python -m`, modules of the current directory can be imported.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except ImportError as error:
        hint = "; run the command in the folder that has it, or set PYTHONPATH"
        absent = isinstance(error, ModuleNotFoundError) and module_name.startswith(str(error.name))
        raise _Unusable(f"cannot import {module_name}: {error}{hint if absent else ''}") from None
    except KeyboardInterrupt:
        raise
    except AttributeError as error:
        raise _Unusable(f"{where}: {error}") from None
    except BaseException as error:
        # A module that fails, or exits, when it is imported.
        raise _Unusable(f"cannot import {module_name}: {described(error)}{place_of(error)}") from None
    return found


def _lines(report: Any, subject: str, width: int) -> Iterator[str]:
    above: set[str] = set()
    for rule in report.rules:
        cell = report.cell(rule, subject)
        if cell.verdict == "none":
            continue
        label = rule if rule == "setup" else f"§{rule}"
        told = {result.headline for result in cell.results if result.verdict != "pass"}
        if cell.verdict == "skip" and told == above:
            yield f"  {pad(label, 7)} {cell.text}, as above"
            continue
        above = told if cell.verdict == "skip" else set()
        yield f"  {pad(label, 7)} {cell.text}"
        seen = set()
        for result in cell.results:
            if result.verdict == "pass" or (result.verdict == "skip" and result.headline in seen):
                continue
            seen.add(result.headline)
            if result.verdict == "fail":
                yield f"          {result.test}"
                yield from (f"            {line}" for line in result.message.splitlines())
            else:
                yield from (f"            {line}" for line in wrap(result.headline, width - 12))
