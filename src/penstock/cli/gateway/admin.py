"""``penstock gateway ids``, ``evict``, ``forget`` and ``give``: who uses a running gateway, and who may not.

They need the right to administer: over loopback everybody has it, elsewhere a key that was given it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.cli.connection import add_connection, curve_client
from penstock.cli.errors import CommandError, report_errors
from penstock.cli.parser import Commands
from penstock.cli.quantities import duration
from penstock.cli.table import fit, pad, printable

if TYPE_CHECKING:
    from penstock.aquifer import Administrator

__all__ = ["add_parsers"]

_RIGHT = "Needs a key with the right `admin`, except on the gateway's own machine."
_EXAMPLES = """\
examples:
  penstock gateway ids tcp://127.0.0.1:5556               who reads, who is away, and for how long it is kept
  penstock gateway evict tcp://127.0.0.1:5556 nightly     end its session; its place is kept
  penstock gateway evict tcp://127.0.0.1:5556 --session 7 end a session that has no id
  penstock gateway forget tcp://127.0.0.1:5556 nightly    delete the id: nothing is kept for it any more
  penstock gateway give tcp://HOST:5560 nightly new.pub --curve admin.key --server-key gateway.pub
                                                          let an id belong to another key
"""


def add_parsers(commands: Commands) -> None:
    """Add the commands to those of ``penstock gateway``."""
    ids = _command(commands, "ids", "list the durable ids and the sessions of a running gateway", _ids)
    evict = _command(commands, "evict", "end a session; an id keeps its place", _evict)
    evict.add_argument("id", metavar="ID", nargs="?", help="the id that the session has")
    evict.add_argument("--session", type=int, metavar="N", help="its number, as `gateway ids` shows it")
    forget = _command(commands, "forget", "delete a durable id: nothing is kept for it any more", _forget)
    forget.add_argument("id", metavar="ID", help="the id to delete")
    give = _command(commands, "give", "let an id, or a writer's name, belong to another key", _give)
    give.add_argument("id", metavar="NAME", help="the id, or with --writer the name that somebody writes as")
    give.add_argument("key", metavar="KEY", help="a .pub file, the 40 characters of a key, or `none`")
    give.add_argument("--writer", action="store_true", help="it is the name of a writer, not an id")
    for parser in (forget, give):
        parser.add_argument("--yes", action="store_true", help="do it without asking first")
    for parser in (ids, evict, forget, give):
        parser.add_argument("--json", action="store_true", help="print one JSON object")


def _command(
    commands: Commands, name: str, what: str, run: Callable[[Administrator, argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}. {_RIGHT}",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_connection(parser)
    parser.set_defaults(run=lambda arguments: report_errors(f"gateway {name}", lambda: _run(arguments, run)))
    return parser


def _run(arguments: argparse.Namespace, run: Callable[[Administrator, argparse.Namespace], int]) -> int:
    from penstock.aquifer import Administrator, AquiferError

    try:
        with Administrator(arguments.endpoint, curve=curve_client(arguments)) as administrator:
            return run(administrator, arguments)
    except (AquiferError, ValueError) as error:
        raise CommandError(str(error), 1 if isinstance(error, AquiferError) else 2) from None


# ---------------------------------------------------------------- the commands
def _ids(administrator: Administrator, arguments: argparse.Namespace) -> int:
    listed = administrator.ids()
    if arguments.json:
        print(json.dumps(listed))
        return 0
    for line in _lines(listed):
        print(line)
    return 0


def _evict(administrator: Administrator, arguments: argparse.Namespace) -> int:
    if (arguments.id is None) == (arguments.session is None):
        raise CommandError("which session? Give its id, or its number with --session N")
    done = administrator.evict(arguments.id if arguments.session is None else arguments.session)
    who = arguments.id if arguments.session is None else f"session {arguments.session}"
    return _tell(arguments, done, f"ended: {printable(str(who))}")


def _forget(administrator: Administrator, arguments: argparse.Namespace) -> int:
    name = arguments.id
    if not arguments.yes:
        found = [one for one in administrator.ids()["ids"] if one["id"] == name]
        if not found:
            raise CommandError(f"there is no id {name!r}; `penstock gateway ids` lists them", 1)
        _confirm(f"{printable(name)} has not acknowledged {found[0]['lag']:,} records. Delete its place?")
    return _tell(arguments, administrator.forget(name), f"deleted: {printable(name)}")


def _give(administrator: Administrator, arguments: argparse.Namespace) -> int:
    from penstock.aquifer.security.keys import load_public

    try:
        key = "" if arguments.key == "none" else load_public(arguments.key)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None
    if not arguments.yes:
        _confirm(f"Its owner will not be able to use {printable(arguments.id)} any more. Hand it over?")
    give = administrator.give_writer if arguments.writer else administrator.give
    whose = f"the key {key}" if key else "those without a key"
    return _tell(arguments, give(arguments.id, key), f"{printable(arguments.id)} belongs to {whose} now")


def _tell(arguments: argparse.Namespace, done: Mapping[str, Any], text: str) -> int:
    print(json.dumps(done) if arguments.json else text)
    return 0


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise CommandError(f"{question} Say so with --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed", 1)


# ---------------------------------------------------------------- what is shown
def _lines(listed: Mapping[str, Any]) -> Iterator[str]:
    rows = [_row(one) for one in listed["ids"]] + [_row(one) for one in listed["sessions"]]
    if not rows:
        yield "no ids, and no sessions"
        return
    rows.insert(0, ("ID", "SESSION", "OWNER", "BEHIND", "STATE"))
    widths = [min(max(len(row[column]) for row in rows), 40) for column in range(4)]
    for row in rows:
        cells = [pad(fit(cell, width), width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[4]]).rstrip()
    if listed["left_out"]:
        yield f"and {listed['left_out']:,} more sessions without an id"


def _row(one: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    if one.get("here", True):
        state = f"{one['state']} from {one['address']}"
    else:
        state = f"away, kept for {duration(max(one['remaining'], 0))} of {duration(one['lease_ms'] / 1000)}"
    return (
        printable(one["id"]) if one["id"] is not None else "-",
        str(one["session"]) if "session" in one else "-",
        _owner(one),
        f"{one['lag']:,}",
        state,
    )


def _owner(one: Mapping[str, Any]) -> str:
    if one["owner"] is None:
        return "not known yet"
    return printable(one["name"]) or f"{one['owner'][:8]}…" if one["owner"] else "no key"
