"""Commands whose flags are declared as dataclass fields, and the parser that is made of them.

A command declares its options once, and gets them back as a typed object::

    @dataclass(frozen=True, kw_only=True)
    class EchoOptions:
        port: int | None = option(None, parse=parse_port, metavar="N", help="the port to listen on")

    def add_parser(commands: Commands) -> None:
        add_command(commands, "echo", lambda: (EchoOptions, run_echo), help="…", description="…")

The options are loaded when the command is parsed and not before, so that ``penstock --help`` stays quick and
a command may take its options from a package that is not installed everywhere.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from penstock.cli.errors import CommandError, ExitCode, report_errors
from penstock.cli.help_formatter import HelpFormatter
from penstock.cli.screen import Screen
from penstock.cli.style import Tone, paint, paint_help, toned
from penstock.options import Option, option, options_of, parse_duration

if TYPE_CHECKING:
    from penstock.aquifer import CurveClient
    from penstock.observe import Observer

    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    # argparse gives the type no public name, and no subscript at run time.
    Commands = argparse._SubParsersAction

__all__ = [
    "ClientKeys",
    "Commands",
    "ConnectionOptions",
    "ObservedOptions",
    "Parser",
    "add_command",
    "section",
]

Options = TypeVar("Options")
_SECTION = "section"
_PROBE_TIMEOUT = 2.0
"""Seconds in which a gateway has to answer."""


class Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line, and adds its arguments only when they are needed."""

    complete: Callable[[argparse.ArgumentParser], None] | None = None
    """Adds the arguments; called before the first parsing."""

    def __init__(self, **settings: Any) -> None:
        """Take the settings of argparse; the help is as wide as the terminal."""
        settings.setdefault("formatter_class", HelpFormatter)
        if sys.version_info >= (3, 14):
            settings.setdefault("color", False)  # One way to colour, in all versions.
        super().__init__(**settings)

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        screen = Screen()
        name = paint(toned(f"{self.prog}:", Tone.BAD), screen)
        screen.write(f"{name} {message}; see `{self.prog} --help`\n")
        self.exit(ExitCode.USAGE)

    def print_help(self, file: Any = None) -> None:
        """Print the help, with colours at a terminal."""
        screen = Screen(sys.stdout if file is None else file, must_be_read=True)
        screen.write(paint_help(self.format_help(), screen))

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the version, or why the parser exits; argparse drops what it cannot write."""
        Screen(file, must_be_read=file is sys.stdout).write(message)

    def load(self) -> None:
        """Add the arguments, if that was not done."""
        complete, self.complete = self.complete, None
        if complete is not None:
            complete(self)

    def _loaded(self) -> int:
        self.load()
        return ExitCode.OK

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the arguments, and parse."""
        args = sys.argv[1:] if args is None else args
        code = report_errors(self.prog.partition(" ")[2], self._loaded, debug=_wants_debug(args))
        if code:
            self.exit(code)
        self._refuse_unknown_options(args)
        return super().parse_known_args(args, namespace)

    def _refuse_unknown_options(self, args: Sequence[str]) -> None:
        """Report an option that there is not, before argparse takes its value for something else."""
        known = self._option_string_actions
        for given in args:
            if given == "--" or given in self._commands():
                return  # What follows is for the parser of the command.
            name = given.partition("=")[0]
            if name.startswith("--") and not any(option.startswith(name) for option in known):
                self.error(f"{name}: not known{_meant(name, known)}")

    def _commands(self) -> Collection[str]:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return action.choices
        return ()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not among the choices, and add the one that was probably meant."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += _meant(str(value), map(str, action.choices or ()))
            raise


def _wants_debug(args: Sequence[str]) -> bool:
    """Return whether a traceback is wanted, before the arguments are parsed."""
    return "--debug" in args


def _meant(given: str, known: Iterable[str]) -> str:
    """What was probably meant, as the end of a message; empty if nothing is close."""
    close = difflib.get_close_matches(given, list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""


def section(declared: type, title: str, *, without: Collection[str] = ()) -> Any:
    """Declare a dataclass field that holds the options of another dataclass, with a heading in the help.

    The options in ``without`` have no flag here and keep their defaults.
    """
    metadata = {_SECTION: (declared, title, frozenset(without))}
    return dataclasses.field(default_factory=declared, metadata=metadata)


def add_command(
    commands: Commands,
    name: str,
    load: Callable[[], tuple[type[Options], Callable[[Options], int]]],
    *,
    help: str,
    description: str,
    examples: str,
    more: Callable[[argparse.ArgumentParser], object] | None = None,
) -> None:
    """Add a command. ``load`` returns its options, a dataclass, and the function that runs it.

    ``more`` adds what a dataclass cannot say: the commands of a command.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help, description=description, epilog=examples
    )

    def complete(parser: argparse.ArgumentParser) -> None:
        declared, run = load()
        _add_options(parser, declared)
        command = parser.prog.partition(" ")[2]
        parser.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )
        parser.set_defaults(
            run=lambda arguments: report_errors(
                command,
                lambda: run(_read(declared, arguments)),
                debug=getattr(arguments, "debug", False),
                as_json=getattr(arguments, "log.format", "text") == "json",  # See LogOptions.
            )
        )
        if more is not None:
            more(parser)

    if isinstance(parser, Parser):
        parser.complete = complete
    else:
        complete(parser)


def _add_options(
    parser: argparse._ActionsContainer, declared: type, prefix: str = "", without: Collection[str] = ()
) -> None:
    for each in options_of(declared):
        if each.name not in without and (each.flag is not None or each.positional):
            _add_option(parser, each, prefix)
    for field in dataclasses.fields(declared):
        if _SECTION in field.metadata:
            inner, title, left_out = field.metadata[_SECTION]
            _add_options(parser.add_argument_group(title), inner, f"{prefix}{field.name}.", left_out)


def _add_option(parser: argparse._ActionsContainer, each: Option, prefix: str) -> None:
    shown = f" (default {each.shown})" if each.shown is not None else ""
    settings: dict[str, Any] = {"help": f"{each.help}{shown}".replace("%", "%%")}
    required = each.default is dataclasses.MISSING
    if each.is_switch:
        settings["action"] = "store_true"
    else:
        settings["default"] = None if required else each.default
        settings["metavar"] = each.metavar
        settings["choices"] = each.choices or None
        if each.parse is not None:
            settings["type"] = _type(each.parse)
        if each.repeated:
            settings["action" if not each.positional else "nargs"] = "append" if not each.positional else "*"
            settings["default"] = []
        elif each.bare is not None:
            settings |= {"nargs": "?", "const": each.bare}
    if each.positional:
        if not required and not each.repeated:
            settings["nargs"] = "?"
        parser.add_argument(f"{prefix}{each.name}", **settings)
    else:
        assert each.flag is not None
        parser.add_argument(each.flag, *each.aliases, dest=f"{prefix}{each.name}", **settings)


def _type(parse: Callable[[str], object]) -> Callable[[str], object]:
    """A parser of :mod:`penstock.options` as argparse wants it: it keeps the message of this error alone."""

    def read(text: str) -> object:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _read(declared: type[Options], arguments: argparse.Namespace, prefix: str = "") -> Options:
    """Make the options of what was parsed."""
    values: dict[str, Any] = {}
    given = vars(arguments)
    for field in dataclasses.fields(declared):  # type: ignore[arg-type]
        key = f"{prefix}{field.name}"
        if _SECTION in field.metadata:
            values[field.name] = _read(field.metadata[_SECTION][0], arguments, f"{key}.")
        elif key in given:
            value = given[key]
            values[field.name] = tuple(value) if isinstance(value, list) else value
    try:
        return declared(**values)
    except ValueError as error:
        raise CommandError(str(error)) from None


def _curve_option() -> Any:
    return option(None, metavar="KEYFILE", help="your own .key file, for an encrypted connection")


def _server_key_option() -> Any:
    return option(None, metavar="KEY", help="the gateway's public key: its .pub file, or the 40 characters")


class ClientKeys:
    """Options with the keys of a client: ``curve`` and ``server_key``."""

    curve: str | None
    server_key: str | None

    def curve_client(self) -> CurveClient | None:
        """Load the keys that were given; None if none were, CommandError if they cannot be used."""
        if self.curve is None and self.server_key is None:
            return None
        if self.curve is None or self.server_key is None:
            raise CommandError(
                "--curve and --server-key go together: your own keys and the gateway's public key"
            )
        from penstock.aquifer import CurveClient, load_keys, load_public

        try:
            return CurveClient(load_keys(self.curve), load_public(self.server_key))
        except (OSError, ValueError) as error:
            raise CommandError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions(ClientKeys):
    """How to reach a gateway; the options of a command inherit from it."""

    endpoint: str = option(
        positional=True, metavar="ENDPOINT", help="the gateway, as tcp://HOST:PORT or tcp://HOST:PORT/STREAM"
    )
    curve: str | None = _curve_option()
    server_key: str | None = _server_key_option()


@dataclass(frozen=True, kw_only=True)
class ObservedOptions(ClientKeys):
    """Which gateways to look at; the options of a command inherit from it."""

    endpoints: tuple[str, ...] = option(
        (), positional=True, repeated=True, metavar="ENDPOINT", help="the gateways, as tcp://HOST:PORT"
    )
    curve: str | None = _curve_option()
    server_key: str | None = _server_key_option()
    interval: float = option(1.0, parse=parse_duration, metavar="TIME", shown="1s", help="how often to look")

    def observer(self) -> Observer:
        """Return what looks at the gateways; CommandError if none is named or a name cannot be used."""
        from penstock.endpoint import Endpoint
        from penstock.observe import Observer

        if not self.endpoints:
            raise CommandError("which gateways? Name at least one, such as tcp://127.0.0.1:5556")
        for endpoint in self.endpoints:
            try:
                Endpoint.parse(endpoint)
            except ValueError as error:
                raise CommandError(str(error)) from None
        return Observer(*self.endpoints, curve=self.curve_client(), timeout=_PROBE_TIMEOUT)
