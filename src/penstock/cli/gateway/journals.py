"""``penstock gateway verify`` and ``compact``: looking after a journal while no gateway has it open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from penstock.cli.errors import CommandError, ExitCode
from penstock.cli.parser import Commands, add_command
from penstock.cli.progress import ProgressBar
from penstock.cli.screen import Screen
from penstock.cli.style import Tone, json_option, paint, print_json, toned
from penstock.cli.table import counted, printable, size
from penstock.options import option

__all__ = ["JournalFileOptions", "add_parsers"]

_VERIFY = """\
Read a journal from its beginning to its end, and check every checksum, the order of the records, the cursors
of the subscribers and the marks of the writers. Nothing is changed. The gateway has to be stopped, because
the journal is locked meanwhile.
"""

_COMPACT = """\
Give the space of forgotten records back to the disk. A journal keeps that space and fills it again. That
suits a journal whose size is steady, and wastes space if the journal was once larger. Records, offsets,
cursors and the epoch stay as they are.

The gateway has to be stopped. The new file is written beside the old one, verified, and put in its place: it
needs as much free space as the records take, and if it is killed the old file is still there.
"""

_EXAMPLES = """\
examples:
  penstock gateway verify readings.db           sound, or what is wrong and where
  penstock gateway verify readings.db --json    for a program
  penstock gateway compact readings.db          how much was given back

exit codes: 0 sound, or done; 1 damaged, in use, or not a journal; 2 wrong command line; 130 Ctrl-C
"""


@dataclass(frozen=True, kw_only=True)
class JournalFileOptions:
    """The options of ``penstock gateway verify`` and ``compact``."""

    path: str = option(positional=True, metavar="JOURNAL", help="the file that --journal named")
    json: bool = json_option()
    quiet: bool = option(False, help="show no progress")


T = TypeVar("T")


def add_parsers(commands: Commands) -> None:
    """Add the commands to those of ``penstock gateway``."""
    add_command(
        commands,
        "verify",
        lambda: (JournalFileOptions, _verify),
        help="check every checksum of a journal that no gateway has open",
        description=_VERIFY,
        examples=_EXAMPLES,
    )
    add_command(
        commands,
        "compact",
        lambda: (JournalFileOptions, _compact),
        help="give the space of forgotten records back to the disk",
        description=_COMPACT,
        examples=_EXAMPLES,
    )


def _verify(options: JournalFileOptions) -> int:
    from penstock.aquifer import verify_journal

    verified = _with_progress("verify", options, verify_journal)
    if options.json:
        print_json(verified.to_dict())
        return ExitCode.OK if verified.is_sound else ExitCode.FAILED
    screen, what = Screen(), f"{counted(verified.records, 'record')}, {size(verified.nbytes)}"
    if verified.is_sound:
        last = f"{verified.first:,} to {verified.head - 1:,}" if verified.records else "none"
        cursors, marks = counted(verified.cursors, "cursor"), counted(verified.marks, "mark")
        print(f"sound: {what}; offsets {last}; {cursors}, {marks}")
        return ExitCode.OK
    count = len(verified.findings) + verified.more_findings
    print(f"damaged: {count} finding{'s' * (count != 1)}; {what} are as they were written")
    for finding in verified.findings:
        print(f"  {printable(finding)}")
    if verified.more_findings:
        print(f"  and {verified.more_findings:,} more")
    remedy = f"move the file away to begin a new journal; `sqlite3 {options.path} .recover` may save records"
    screen.write(f"{paint(toned('penstock gateway verify:', Tone.BAD), screen)} {remedy}\n")
    return ExitCode.FAILED


def _compact(options: JournalFileOptions) -> int:
    from penstock.aquifer import compact_journal

    done = _with_progress("compact", options, compact_journal)
    if options.json:
        print_json(done.to_dict())
    else:
        freed = f"{size(done.freed)} given back" if done.freed > 0 else "nothing to give back"
        records = counted(done.records, "record")
        print(f"{freed}: {size(done.before)} before, {size(done.after)} now, {records}")
    return ExitCode.OK


def _with_progress(
    what: str, options: JournalFileOptions, tend: Callable[[str, Callable[[int, int], object]], T]
) -> T:
    from penstock.aquifer import JournalError

    if not options.path:
        raise CommandError("the path of the journal is empty; name the file that --journal named")
    with ProgressBar(what, total=1, unit="bytes", hidden=options.quiet or options.json) as progress:
        try:
            return tend(options.path, lambda done, total: progress.update(done, total=total))
        except JournalError as error:
            raise CommandError(str(error), ExitCode.FAILED) from None
