"""``penstock gateway replay``: put dead letters back into their stream, as they are, or mended."""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.errors import CommandError, ExitCode
from penstock.cli.parser import Commands, ConnectionOptions, add_command
from penstock.cli.progress import ProgressBar
from penstock.cli.style import confirm, json_option, print_json, yes_option
from penstock.cli.table import counted, printable
from penstock.options import option

if TYPE_CHECKING:
    from penstock.feeds import DeadLetter, Replacement

__all__ = ["ReplayOptions", "add_parsers"]

_DESCRIPTION = """\
Put the dead letters of a running gateway back into the stream that they come from. Each is read again with
the codec of the stream; one that is still wrong stays where it is, and the command says why. A letter that
was replayed is not replayed again, so the same command can be repeated, also after it was killed.

The stream has to be open, on a gateway that was started with --on-bad-line dead-letter: without it, bad lines
are kept, and nobody can write. If the source has ended, start the gateway on the same journal with --source
writers --on-bad-line dead-letter, and replay then. With keys, this needs the right to read and to write.
"""
_EXAMPLES = """\
examples:
  penstock gateway replay tcp://127.0.0.1:5556/dead-letters
                                     try all of them again, after the reason is gone: a wrong --codec,
                                     a small --max-line
  penstock gateway replay tcp://127.0.0.1:5556/orders.dead-letters --by mend.py:quotes
                                     what the function quotes(letter) in mend.py returns: bytes, a string,
                                     a list of these, or None to leave the letter where it is
  penstock gateway export tcp://127.0.0.1:5556/dead-letters letters.jsonl
  $EDITOR letters.jsonl              correct the field text of some, and remove the others
  penstock gateway replay tcp://127.0.0.1:5556/dead-letters --edited letters.jsonl

exit codes: 0 done; 1 something failed, or a letter is still wrong; 2 wrong command line; 130 Ctrl-C
"""


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(ConnectionOptions):
    """The options of ``penstock gateway replay``."""

    by: str | None = option(
        None,
        metavar="FILE.py:FUNCTION",
        help="a function that makes the line of a letter, or None; MODULE:FUNCTION is one that is installed",
    )
    edited: str | None = option(
        None, metavar="FILE", help="replay the letters in this file, which `gateway export` has written"
    )
    into: str | None = option(
        None,
        metavar="ENDPOINT",
        shown="the stream that they come from",
        help="the stream that gets them, for letters that a Spark query has written",
    )
    codec: str | None = option(
        None, metavar="CODEC", shown="that of the stream", help="how the letters are read, as for a gateway"
    )
    yes: bool = yes_option()
    json: bool = json_option()
    quiet: bool = option(False, help="show no progress")


def add_parsers(commands: Commands) -> None:
    """Add the command to those of ``penstock gateway``."""
    add_command(
        commands,
        "replay",
        lambda: (ReplayOptions, _replay),
        help="put dead letters back into their stream, each once",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )


def _replay(options: ReplayOptions) -> int:
    from penstock import feeds
    from penstock.aquifer import AquiferError, LogReader

    transform = None if options.by is None else _function(options.by)
    edited = None if options.edited is None else _letters(options.edited)
    curve = options.curve_client()
    try:
        target = options.into or feeds.home_of(options.endpoint)
        if not options.yes:
            with LogReader(options.endpoint, patience=5.0, curve=curve) as log:
                count = log.state().records
            several = f"the {count:,} letters of {options.endpoint}"
            chosen = several if edited is None else f"{len(edited):,} of {several}"
            confirm(f"This puts {chosen} into {target}. Replay them?", options.yes)
        with ProgressBar("replay", total=1, hidden=options.quiet or options.json) as progress:
            report = feeds.replay(
                options.endpoint,
                transform,
                into=options.into,
                edited=edited,
                codec=options.codec,
                curve=curve,
                patience=5.0,
                progress=lambda done, total: progress.update(done, total=total),
            )
    except (AquiferError, LookupError) as error:
        raise CommandError(str(error), ExitCode.FAILED) from None
    except (ValueError, TypeError) as error:
        raise CommandError(str(error)) from None
    if options.json:
        print_json({"replayed": asdict(report)})
    else:
        records = counted(report.records, "record")
        parts = [f"{report.replayed:,} of {counted(report.letters, 'letter')} replayed, as {records}"]
        parts += [f"{report.replayed_before:,} were replayed before"] * bool(report.replayed_before)
        parts += [f"{report.left:,} left by the function"] * bool(report.left)
        parts += [f"{report.wrong:,} are still wrong"] * bool(report.wrong)
        print("; ".join(parts))
        for reason in report.reasons:
            print(f"  {printable(reason)}")
    return ExitCode.FAILED if report.wrong else ExitCode.OK


def _letters(path: str) -> list[Any]:
    from penstock.feeds import edited_letters

    try:
        with open(path, "rb") as lines:
            return list(edited_letters(lines))
    except OSError as error:
        raise CommandError(f"--edited: cannot read {path}: {error.strerror}", ExitCode.FAILED) from None
    except ValueError as error:
        raise CommandError(f"--edited {path}: {error}") from None


def _function(text: str) -> Callable[[DeadLetter], Replacement]:
    place, _, name = text.rpartition(":")
    if not (place and name):
        raise CommandError(f"--by {text}: write FILE.py:FUNCTION or MODULE:FUNCTION")
    try:
        if place.endswith(".py"):
            sys.path.insert(0, str(Path(place).resolve().parent))
            names = runpy.run_path(place)
        else:
            sys.path.insert(0, str(Path.cwd()))
            names = vars(importlib.import_module(place))
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise CommandError(f"--by {text}: {place} cannot be loaded: {what}", ExitCode.FAILED) from error
    function = names.get(name)
    if not callable(function):
        raise CommandError(f"--by {text}: there is no function {name} in {place}")

    def call(letter: DeadLetter) -> Replacement:
        try:
            made: Replacement = function(letter)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise CommandError(
                f"--by {text}: the function failed for the letter {letter.offset}: {what}", ExitCode.FAILED
            ) from error
        return made

    return call
