"""``penstock gateway ls``, ``evict``, ``forget``, ``move`` and ``give``: who uses a gateway, and from where.

They need the right to administer: on the gateway's own machine everybody has it, elsewhere only a key that
was given it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.cli.errors import CommandError, ExitCode
from penstock.cli.parser import Commands, ConnectionOptions, add_command
from penstock.cli.style import Column, Tone, confirm, json_option, print_json, show_table, toned, yes_option
from penstock.cli.table import duration, printable
from penstock.options import option

if TYPE_CHECKING:
    from penstock.aquifer import Administrator, CursorMove, Handover, IdStatus, SessionStatus

__all__ = ["EvictOptions", "ForgetOptions", "GiveOptions", "LsOptions", "MoveOptions", "add_parsers"]

_RIGHT = "Needs a key with the right `admin`, except on the gateway's own machine."
_EXAMPLES = """\
examples:
  penstock gateway ls tcp://127.0.0.1:5556                  who reads, who is away, for how much longer
  penstock gateway evict tcp://127.0.0.1:5556 nightly       end its session; it can resume
  penstock gateway evict tcp://127.0.0.1:5556 --session 7   end a session that has no id
  penstock gateway forget tcp://127.0.0.1:5556 nightly      delete the id: its records are no longer needed
  penstock gateway move tcp://127.0.0.1:5556 nightly 1000   read again from offset 1000, or skip to it
  penstock gateway give tcp://HOST:5560 nightly new.pub --curve admin.key --server-key gateway.pub
                                                            hand an id over to another key
"""


@dataclass(frozen=True, kw_only=True)
class LsOptions(ConnectionOptions):
    """The options of ``penstock gateway ls``."""

    json: bool = json_option()


@dataclass(frozen=True, kw_only=True)
class EvictOptions(LsOptions):
    """The options of ``penstock gateway evict``."""

    id: str | None = option(None, positional=True, metavar="ID", help="the id of the session")
    session: int | None = option(
        None, parse=int, metavar="N", help="the number of the session, as `gateway ls` shows it"
    )


@dataclass(frozen=True, kw_only=True)
class ForgetOptions(LsOptions):
    """The options of ``penstock gateway forget``."""

    id: str = option(positional=True, metavar="ID", help="the id to delete")
    yes: bool = yes_option()


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not an offset; write 0, 1, 2, …")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class MoveOptions(LsOptions):
    """The options of ``penstock gateway move``."""

    id: str = option(positional=True, metavar="ID", help="the id to move")
    offset: int = option(
        positional=True, parse=_offset, metavar="OFFSET", help="the record that it gets next, of the log's"
    )
    yes: bool = yes_option()


@dataclass(frozen=True, kw_only=True)
class GiveOptions(LsOptions):
    """The options of ``penstock gateway give``."""

    id: str = option(positional=True, metavar="NAME", help="the id, or with --writer the name of a writer")
    key: str = option(
        positional=True, metavar="KEY", help="a .pub file, the 40 characters of a key, or `none`"
    )
    writer: bool = option(False, help="NAME is the name of a writer, not an id")
    yes: bool = yes_option()


Options = TypeVar("Options", bound=LsOptions)


def add_parsers(commands: Commands) -> None:
    """Add the commands to those of ``penstock gateway``."""
    _add(commands, "ls", LsOptions, _ls, "list the durable ids and the sessions of a running gateway")
    _add(commands, "evict", EvictOptions, _evict, "end a session; a durable id can resume")
    _add(commands, "forget", ForgetOptions, _forget, "delete a durable id: its records are no longer needed")
    _add(commands, "move", MoveOptions, _move, "let a durable id continue at another offset")
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
def _ls(administrator: Administrator, options: LsOptions) -> int:
    listed = administrator.ids()
    if options.json:
        print_json(listed.to_dict())
        return 0
    rows = [*map(_row, listed.ids), *map(_row, listed.sessions)]
    if not rows:
        print("no ids and no sessions")
        return 0
    show_table(_COLUMNS, rows)
    if listed.left_out:
        print(f"and {listed.left_out:,} more sessions without an id")
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
        lag = _found(administrator, name).lag
        confirm(f"{printable(name)} has not acknowledged {lag:,} records. Delete it?", options.yes)
    return _tell(options, "forgotten", administrator.forget(name), f"deleted: {printable(name)}")


def _move(administrator: Administrator, options: MoveOptions) -> int:
    name, offset = options.id, options.offset
    if not options.yes:
        found = _found(administrator, name)
        ends = " Somebody reads as it, and that session ends." if found.here else ""
        if offset > found.acknowledged:
            what = f"never gets the records {found.acknowledged:,} to {offset - 1:,}"
            confirm(f"{printable(name)} {what}.{ends} Move it?", options.yes)
        elif ends:
            moves = f"{printable(name)} is moved from {found.acknowledged:,} to {offset:,}."
            confirm(f"{moves}{ends} Move it?", options.yes)
    moved = administrator.move(name, offset)
    return _tell(
        options, "moved", moved, f"moved: {printable(name)} from {moved.acknowledged:,} to {moved.offset:,}"
    )


def _found(administrator: Administrator, name: str) -> IdStatus:
    for one in administrator.ids().ids:
        if one.id == name:
            return one
    raise CommandError(f"there is no id {name!r}; `penstock gateway ls` lists them", ExitCode.FAILED)


def _give(administrator: Administrator, options: GiveOptions) -> int:
    from penstock.aquifer import load_public

    try:
        key = "" if options.key == "none" else load_public(options.key)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None
    text = f"The present owner will no longer be able to use {printable(options.id)}. Hand it over?"
    confirm(text, options.yes)
    give = administrator.give_writer if options.writer else administrator.give
    whose = f"the key {key}" if key else "clients without a key"
    return _tell(options, "given", give(options.id, key), f"{printable(options.id)} now belongs to {whose}")


def _tell(
    options: LsOptions, verb: str, done: SessionStatus | IdStatus | Handover | CursorMove, text: str
) -> int:
    if options.json:
        print_json({verb: done.to_dict()})
    else:
        print(text)
    return 0


# ---------------------------------------------------------------- what is shown
_COLUMNS: Final = (
    Column("ID"),
    Column("SESSION"),
    Column("OWNER"),
    Column("BEHIND", right=True),
    Column("FOR", right=True),
    Column("STATE"),
)


def _row(one: IdStatus | SessionStatus) -> tuple[str, ...]:
    number = f"{one.number}" if one.number else "-"
    if one.number:
        member = f" by {one.member}" if one.member else ""
        state = f"{one.state}{member} from {one.address}"
    else:
        cursor = one.to_dict()
        remaining, lease = max(cursor["remaining"], 0), cursor["lease_ms"] / 1000
        state = f"away, resumable for {duration(remaining)} of {duration(lease)}"
    tone = Tone.GOOD if one.number else Tone.WARNING
    name, seconds = one.id if one.id is not None else "-", one.to_dict().get("lag_seconds")
    behind_for = duration(seconds) if one.lag and seconds is not None else "-"
    return name, number, _owner(one), f"{one.lag:,}", behind_for, toned(state, tone)


def _owner(one: IdStatus | SessionStatus) -> str:
    if one.owner is None:
        return "not known yet"
    return (one.name if one.name else f"{one.owner[:8]}…") if one.owner else "no key"
