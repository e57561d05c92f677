"""``penstock completion``: what a shell needs to complete commands, options, choices and file names."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.cli.parser import Commands, Parser, add_command
from penstock.options import option

__all__ = ["CompletionOptions", "add_parser"]

_DESCRIPTION = """\
Print a script that makes a shell complete the commands of penstock, their options, and the values of those
that have choices or name files. Needs the extra `cli`.
"""

_EXAMPLES = """\
examples:
  penstock completion bash   into ~/.local/share/bash-completion/completions/penstock
  penstock completion zsh    into a directory of $fpath, under the name _penstock
  penstock completion tcsh   into a file that ~/.tcshrc sources
"""

_FILES: Final = ("FILE", "KEYFILE", "PEM", "PATH", "JOURNAL", "TARGET")
_FOLDERS: Final = ("DIR",)
"""What the help calls a value that is a file, or a directory."""


@dataclass(frozen=True, kw_only=True)
class CompletionOptions:
    """The options of ``penstock completion``."""

    shell: str = option(positional=True, choices=("bash", "zsh", "tcsh"), help="bash, zsh or tcsh")


def _load() -> tuple[type[CompletionOptions], Callable[[CompletionOptions], int]]:
    return CompletionOptions, run_completion


def add_parser(commands: Commands) -> None:
    """Add ``penstock completion`` to the command line."""
    add_command(
        commands,
        "completion",
        _load,
        help="print a script that makes a shell complete these commands",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )


def run_completion(options: CompletionOptions) -> int:
    """Print the script."""
    import shtab

    from penstock.cli import build_parser

    parser = build_parser()
    _prepare(parser)
    print(shtab.complete(parser, options.shell))
    return 0


def _prepare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every command, and say which of them are files."""
    import shtab

    if isinstance(parser, Parser):
        try:
            parser.load()
        except ImportError:
            return  # Its extra is not installed, so it cannot be used and has nothing to complete.
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _prepare(command)
        elif action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
