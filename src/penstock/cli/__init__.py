"""The command ``penstock``: each subcommand is a module or a package with a function ``add_parser``.

A new subcommand ``penstock demo`` is a module or package ``demo`` and one more entry in ``REGISTRATIONS``.
It declares its options as a dataclass; :mod:`penstock.cli.parser` shows how. Heavy imports belong into the
function that runs it, so that ``penstock --help`` stays quick.
"""

from __future__ import annotations

try:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import Final, cast

    from penstock import __version__
    from penstock.cli import (
        completion,
        dashboard,
        demo,
        doctor,
        echo,
        gateway,
        rules,
        run,
        send,
        tail,
        tck,
        top,
        why,
    )
    from penstock.cli.errors import report_errors
    from penstock.cli.parser import Commands, Parser
    from penstock.cli.screen import complete_descriptors, ending_quietly, say
except KeyboardInterrupt:
    raise SystemExit(130) from None  # Ctrl-C before the command has begun: without a traceback, as later.

REGISTRATIONS: Final[list[Callable[[Commands], None]]] = [
    demo.add_parser,
    gateway.add_parser,
    tail.add_parser,
    why.add_parser,
    run.add_parser,
    top.add_parser,
    dashboard.add_parser,
    send.add_parser,
    echo.add_parser,
    rules.add_parser,
    tck.add_parser,
    doctor.add_parser,
    completion.add_parser,
]
"""The subcommands, in the order in which ``penstock --help`` lists them."""

_EXAMPLES = """\
examples:
  penstock demo                    watch demand hold back a source, live
  seq 1000 | penstock gateway --source stdin
                                   serve lines to any number of subscribers
  penstock tail tcp://127.0.0.1:5556
                                   read them, here or elsewhere
  penstock why tcp://127.0.0.1:5556
                                   who holds whom up?
  penstock run app.py --checkpoint state
                                   a Spark query between them, exactly once
  penstock top tcp://127.0.0.1:5556
                                   who holds whom up, in the terminal
  penstock dashboard tcp://127.0.0.1:5556
                                   the same on a page
  penstock send FILE tcp://127.0.0.1:9000
                                   a file to a server, as fast as the server reads
  penstock rules                   every rule of the specification, in short
  penstock rules 3.9 --lang ko     one rule in full, in Korean
  penstock tck yours:range         does your publisher obey the rules?
  penstock doctor                  find out what works on this machine
  penstock COMMAND --help          more about a command
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line, with every registered subcommand."""
    parser = Parser(
        prog="penstock",
        description="Reactive Streams for Python: demand goes left, data goes right.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for add_parser in REGISTRATIONS:
        add_parser(cast(Commands, commands))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 if all went well, 2 if the command line was wrong.

    ``argv`` are the arguments without the program's name; by default those of this process.
    """
    complete_descriptors()
    return ending_quietly(lambda: report_errors("", lambda: _run(argv)))


def _run(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    try:
        arguments, unknown = parser.parse_known_args(argv)
        if unknown:
            command = f"penstock {arguments.command}" if arguments.command is not None else "penstock"
            say(f"{command}: {' '.join(unknown)}: not known; see `{command} --help`")
            return 2
    except SystemExit as exit:  # argparse has printed the message
        return exit.code if isinstance(exit.code, int) else 2
    if arguments.command is None:
        parser.print_help()
        return 0
    execute: Callable[[argparse.Namespace], int] = arguments.run
    return execute(arguments)
