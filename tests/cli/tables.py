"""Tables of the manual that are made of declarations: feeds, and the options of commands.

``python -m tests.cli.tables`` writes them; a test compares.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from penstock import feeds
from penstock.aquifer import GatewayOptions, JournalOptions
from penstock.cli import build_parser
from penstock.cli.demo.command import DemoOptions
from penstock.cli.doctor import DoctorOptions
from penstock.cli.echo import EchoOptions
from penstock.cli.errors import ExitCode
from penstock.cli.gateway.server import GatewayCommandOptions, KeyOptions
from penstock.cli.logs import LogOptions
from penstock.cli.parser import Parser
from penstock.cli.send import SendOptions
from penstock.cli.tail import TailOptions
from penstock.feeds import FeedOptions
from penstock.observe import METRICS, DashboardOptions
from penstock.options import Option, markdown_table, options_of


def exit_codes() -> str:
    """The exit codes of all commands."""
    rows = ["| code | meaning |", "|---|---|"]
    return "\n".join([*rows, *(f"| {int(code)} | {code.meaning} |" for code in ExitCode)])


DOCS: Final = Path(__file__).parents[2] / "docs"


def schemes() -> str:
    """Every scheme of a feed."""
    rows = ["| URL | where the records come from |", "|---|---|"]
    known = feeds.known_schemes()
    plain = {over_tls(name): scheme for name, scheme in known.items() if over_tls(name) in known}
    for scheme in known.values():
        mark, twin = scheme.separator, plain.get(scheme.name)
        rows.append(
            f"| `{scheme.form}` | {scheme.help if twin is None else f'the same as `{twin.name}`, over TLS'} |"
        )
        words = {**scheme.flags, **{f"{name}=…": what for name, what in scheme.parameters.items()}}
        if twin is not None:  # Of two schemes that differ in TLS, the second has only what it has alone.
            shared = {*twin.flags, *(f"{name}=…" for name in twin.parameters)}
            words = {word: what for word, what in words.items() if word not in shared}
        rows += [f"| `{scheme.form}{mark}{word}` | {what} |" for word, what in words.items()]
    return "\n".join(rows)


def over_tls(name: str) -> str:
    """What the scheme would be called that is this one over TLS."""
    return name.replace("-listen", "s-listen") if name.endswith("-listen") else f"{name}s"


def command_list() -> str:
    """Every command, with what its help says in one line."""
    rows = ["| command | what it does |", "|---|---|"]
    rows += [f"| `{name}` | {what} |" for name, what in commands_of(build_parser(), "penstock")]
    return "\n".join(rows)


def commands_of(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, str]]:
    """The commands below a parser, with their help."""
    if isinstance(parser, Parser):
        parser.load()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for word, inner in action.choices.items():
                yield f"{name} {word}", helps.get(word, "")
                yield from commands_of(inner, f"{name} {word}")


def metrics() -> str:
    """Every metric, with its names in Prometheus and in OpenTelemetry."""
    rows = ["| Prometheus | OpenTelemetry | unit | kind | meaning |", "|---|---|---|---|---|"]
    for each in METRICS:
        name = f"{each.name}_total" if each.kind == "counter" else each.name
        unit = f"`{each.otel_unit}`" if each.otel_unit else ""
        more = "".join(f" Also has the label `{label}`." for label in each.labels[3:])
        rows.append(f"| `{name}` | `{each.otel_name}` | {unit} | {each.kind} | {each.help}{more} |")
    return "\n".join(rows)


def flags(*declared: type) -> str:
    """The flags of a command; one that two classes declare is that of the first."""
    rows = {"": "| option | meaning |\n|---|---|"}
    for each in (each for owner in declared for each in options_of(owner)):
        if each.flag is not None or each.positional:
            rows.setdefault(each.flag or each.name, _row(each))
    return "\n".join(rows.values())


def _row(each: Option) -> str:
    value = f" {each.metavar}" if each.metavar else f" {'/'.join(each.choices)}" if each.choices else ""
    name = f"{each.metavar}" if each.positional else f"{each.flag}{value}"
    default = f" (default {each.shown})" if each.shown else ""
    return f"| `{name}` | {each.help}{default} |"


TABLES: Final[Mapping[str, Mapping[str, Callable[[], str]]]] = {
    "feeds.md": {"schemes": schemes, "options": lambda: markdown_table(FeedOptions)},
    "aquifer.md": {
        "gateway": lambda: flags(
            GatewayCommandOptions,
            FeedOptions,
            JournalOptions,
            GatewayOptions,
            KeyOptions,
            DashboardOptions,
            LogOptions,
        ),
        "tail": lambda: flags(TailOptions, LogOptions),
    },
    "metrics.md": {"metrics": metrics, "log options": lambda: flags(LogOptions)},
    "cli.md": {
        "exit codes": exit_codes,
        "commands": command_list,
        "doctor": lambda: flags(DoctorOptions),
        "demo": lambda: flags(DemoOptions, DashboardOptions, LogOptions),
        "send": lambda: flags(SendOptions, LogOptions),
        "echo": lambda: flags(EchoOptions, LogOptions),
    },
}


def with_tables(name: str) -> str:
    """A page with its tables as they should be."""
    page = (DOCS / name).read_text("utf-8")
    for title, table in TABLES[name].items():
        before, _, rest = page.partition(f"<!-- {title} -->\n")
        _, end, after = rest.partition(f"<!-- /{title} -->")
        assert end, f"docs/{name} has no place for the table {title!r}"
        page = f"{before}<!-- {title} -->\n\n{table()}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    for name in TABLES:
        (DOCS / name).write_text(with_tables(name), "utf-8")
