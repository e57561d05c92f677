"""``penstock gateway ids``, ``evict``, ``forget`` and ``give``: who uses a running gateway, and who may not.

They need the right to administer: on the gateway's own machine everybody has it, elsewhere only a key that
was given it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from penstock.cli.errors import CommandError
from penstock.cli.parser import Commands, ConnectionOptions, add_command
from penstock.cli.table import duration, fit, pad, printable
from penstock.options import option

if TYPE_CHECKING:
    from penstock.aquifer import Administrator, Handover, IdList, IdStatus, SessionStatus

__all__ = ["EvictOptions", "ForgetOptions", "GiveOptions", "IdsOptions", "add_parsers"]

_RIGHT = "Needs a key with the right `admin`, except on the gateway's own machine."
_EXAMPLES = """\
examples:
  penstock gateway ids tcp://127.0.0.1:5556               who reads, who is away, and for how much longer
  penstock gateway evict tcp://127.0.0.1:5556 nightly     end its session; it can resume
  penstock gateway evict tcp://127.0.0.1:5556 --session 7 end a session that has no id
  penstock gateway forget tcp://127.0.0.1:5556 nightly    delete the id: its records are no longer needed
  penstock gateway give tcp://HOST:5560 nightly new.pub --curve admin.key --server-key gateway.pub
                                                          hand an id over to another key
"""


@dataclass(frozen=True, kw_only=True)
class IdsOptions(ConnectionOptions):
    """The options of ``penstock gateway ids``."""

    json: bool = option(False, help="print one JSON object")


@dataclass(frozen=True, kw_only=True)
class EvictOptions(IdsOptions):
    """The options of ``penstock gateway evict``."""

    id: str | None = option(None, positional=True, metavar="ID", help="the id of the session")
    session: int | None = option(
        None, parse=int, metavar="N", help="the number of the session, as `gateway ids` shows it"
    )


@dataclass(frozen=True, kw_only=True)
class ForgetOptions(IdsOptions):
    """The options of ``penstock gateway forget``."""

    id: str = option(positional=True, metavar="ID", help="the id to delete")
    yes: bool = option(False, help="do not ask for confirmation")


@dataclass(frozen=True, kw_only=True)
class GiveOptions(IdsOptions):
    """The options of ``penstock gateway give``."""

    id: str = option(positional=True, metavar="NAME", help="the id, or with --writer the name of a writer")
    key: str = option(
        positional=True, metavar="KEY", help="a .pub file, the 40 characters of a key, or `none`"
    )
    writer: bool = option(False, help="NAME is the name of a writer, not an id")
    yes: bool = option(False, help="do not ask for confirmation")


Options = TypeVar("Options", bound=IdsOptions)


def add_parsers(commands: Commands) -> None:
    """Add the commands to those of ``penstock gateway``."""
    _add(commands, "ids", IdsOptions, _ids, "list the durable ids and the sessions of a running gateway")
    _add(commands, "evict", EvictOptions, _evict, "end a session; a durable id can resume")
    _add(commands, "forget", ForgetOptions, _forget, "delete a durable id: its records are no longer needed")
    _add(commands, "give", GiveOptions, _give, "hand an id, or the name of a writer, over to another key")


def _add(
    commands: Commands,
    name: str,
    declared: type[Options],
    run: Callable[[Administrator, Options], int],
    what: str,
) -> None:
    add_command(
        commands,
        name,
        lambda: (declared, lambda options: _run(options, run)),
        help=what,
        description=f"{what[0].upper()}{what[1:]}. {_RIGHT}",
        examples=_EXAMPLES,
    )


def _run(options: Options, run: Callable[[Administrator, Options], int]) -> int:
    from penstock.aquifer import Administrator, AquiferError

    try:
        with Administrator(options.endpoint, curve=options.curve_client()) as administrator:
            return run(administrator, options)
    except (AquiferError, ValueError) as error:
        raise CommandError(str(error), 1 if isinstance(error, AquiferError) else 2) from None


# ---------------------------------------------------------------- the commands
def _ids(administrator: Administrator, options: IdsOptions) -> int:
    listed = administrator.ids()
    if options.json:
        print(json.dumps(listed.to_dict()))
        return 0
    for line in _lines(listed):
        print(line)
    return 0


def _evict(administrator: Administrator, options: EvictOptions) -> int:
    if (options.id is None) == (options.session is None):
        raise CommandError("which session? Give its id, or its number with --session N")
    if options.id is not None:
        return _tell(options, "evicted", administrator.evict(options.id), f"ended: {printable(options.id)}")
    assert options.session is not None
    return _tell(
        options, "evicted", administrator.evict(options.session), f"ended: session {options.session}"
    )


def _forget(administrator: Administrator, options: ForgetOptions) -> int:
    name = options.id
    if not options.yes:
        found = [one for one in administrator.ids().ids if one.id == name]
        if not found:
            raise CommandError(f"there is no id {name!r}; `penstock gateway ids` lists them", 1)
        _confirm(f"{printable(name)} has not acknowledged {found[0].lag:,} records. Delete it?")
    return _tell(options, "forgotten", administrator.forget(name), f"deleted: {printable(name)}")


def _give(administrator: Administrator, options: GiveOptions) -> int:
    from penstock.aquifer import load_public

    try:
        key = "" if options.key == "none" else load_public(options.key)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None
    if not options.yes:
        _confirm(f"The present owner will no longer be able to use {printable(options.id)}. Hand it over?")
    give = administrator.give_writer if options.writer else administrator.give
    whose = f"the key {key}" if key else "clients without a key"
    return _tell(options, "given", give(options.id, key), f"{printable(options.id)} now belongs to {whose}")


def _tell(options: IdsOptions, verb: str, done: SessionStatus | IdStatus | Handover, text: str) -> int:
    print(json.dumps({verb: done.to_dict()}) if options.json else text)
    return 0


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise CommandError(f"{question} Confirm with --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed", 1)


# ---------------------------------------------------------------- what is shown
def _lines(listed: IdList) -> Iterator[str]:
    rows = [_row(one) for one in listed.ids] + [_row(one) for one in listed.sessions]
    if not rows:
        yield "no ids and no sessions"
        return
    rows.insert(0, ("ID", "SESSION", "OWNER", "BEHIND", "STATE"))
    widths = [min(max(len(row[column]) for row in rows), 40) for column in range(4)]
    for row in rows:
        cells = [pad(fit(cell, width), width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[4]]).rstrip()
    if listed.left_out:
        yield f"and {listed.left_out:,} more sessions without an id"


def _row(one: IdStatus | SessionStatus) -> tuple[str, str, str, str, str]:
    number = f"{one.number}" if one.number else "-"
    if one.number:
        state = f"{one.state} from {one.address}"
    else:
        cursor = one.to_dict()
        remaining, lease = max(cursor["remaining"], 0), cursor["lease_ms"] / 1000
        state = f"away, resumable for {duration(remaining)} of {duration(lease)}"
    return printable(one.id) if one.id is not None else "-", number, _owner(one), f"{one.lag:,}", state


def _owner(one: IdStatus | SessionStatus) -> str:
    if one.owner is None:
        return "not known yet"
    return (printable(one.name) if one.name else f"{one.owner[:8]}…") if one.owner else "no key"
