"""Options that one stream of a gateway has of its own: ``--stream-option orders.codec=json``.

Which options a stream can have is read from the dataclasses that declare them for the whole gateway.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

from penstock.aquifer import GatewayOptions, JournalOptions
from penstock.cli.errors import CommandError
from penstock.endpoint import check_stream_name
from penstock.feeds import FeedOptions
from penstock.options import Option, options_of

__all__ = ["OptionsOfStream", "StreamOption", "check_stream_options", "parse_stream_option"]

T = TypeVar("T")


def _own(declared: type, *, without: Sequence[str] = (), only: Sequence[str] = ()) -> dict[str, Option]:
    """The options of a dataclass that a stream can have, by the flag without its hyphens."""
    return {
        each.flag.removeprefix("--"): each
        for each in options_of(declared)
        if each.flag is not None and each.name not in without and (not only or each.name in only)
    }


_DECLARED: Final = {
    FeedOptions: _own(FeedOptions),
    JournalOptions: _own(JournalOptions, without=("path",)),
    GatewayOptions: _own(GatewayOptions, only=("compress",)),
}
_KNOWN: Final = {name: each for own in _DECLARED.values() for name, each in own.items()}


class StreamOption(NamedTuple):
    """An option for one stream."""

    stream: str
    name: str
    """As in the flag, without its hyphens."""
    value: object

    @property
    def text(self) -> str:
        """What the user has to look for in the command line."""
        return f"{self.stream}.{self.name}"


def parse_stream_option(text: str) -> StreamOption:
    """Read ``NAME.OPTION=VALUE``, or ``NAME.OPTION`` for a switch; a ValueError says what to write."""
    place, equals, value = text.partition("=")
    stream, dot, name = place.rpartition(".")
    if not (dot and stream and name):
        raise ValueError(
            f"{text!r} does not say which stream and which option; write NAME.OPTION=VALUE, as in "
            "orders.codec=json"
        )
    check_stream_name(stream)
    declared = _KNOWN.get(name)
    if declared is None:
        close = difflib.get_close_matches(name, _KNOWN, 1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        raise ValueError(f"{place}: a stream has no option {name!r}{meant}; it has {', '.join(_KNOWN)}")
    if declared.is_switch:
        if equals:
            raise ValueError(f"{place} takes no value; leave out ={value}")
        return StreamOption(stream, name, True)
    if not value:
        example = declared.choices[0] if declared.choices else declared.metavar
        raise ValueError(f"{place} needs a value; write {place}={example}")
    return StreamOption(stream, name, _value(place, declared, value))


def _value(place: str, declared: Option, text: str) -> object:
    if declared.choices and text not in declared.choices:
        raise ValueError(f"{place}: {text!r} is not known; write {', '.join(declared.choices)}")
    try:
        return text if declared.parse is None else declared.parse(text)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


@dataclass(frozen=True)
class OptionsOfStream:
    """The options that hold for one stream."""

    feed: FeedOptions
    journal: JournalOptions
    gateway: GatewayOptions

    def of(self, stream: str, given: Sequence[StreamOption]) -> OptionsOfStream:
        """These options, with those that are given for this stream; CommandError if they do not fit."""
        own = {each.name: each.value for each in given if each.stream == stream}
        try:
            return OptionsOfStream(
                _with(self.feed, FeedOptions, own),
                _with(self.journal, JournalOptions, own),
                _with(self.gateway, GatewayOptions, own),
            )
        except ValueError as error:
            raise CommandError(f"--stream-option {stream}: {error}") from None


def _with(options: T, declared: type[T], own: dict[str, object]) -> T:
    names = _DECLARED[declared]
    changed: dict[str, Any] = {names[name].name: value for name, value in own.items() if name in names}
    return replace(options, **changed) if changed else options  # type: ignore[type-var]


def check_stream_options(streams: Sequence[str], given: Sequence[StreamOption]) -> None:
    """CommandError if an option is for a stream that there is not, or is given twice."""
    if given and not streams:
        raise CommandError(
            f"--stream-option {given[0].text}: there are no streams with names; give them with --stream "
            "NAME=SOURCE, or use the option itself with --source"
        )
    seen: set[str] = set()
    for each in given:
        if each.stream not in streams:
            close = difflib.get_close_matches(each.stream, streams, 1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            raise CommandError(
                f"--stream-option {each.text}: there is no stream {each.stream!r}{meant}; there are "
                f"{', '.join(streams)}"
            )
        if each.text in seen:
            raise CommandError(f"--stream-option {each.text} is given twice: give it once")
        seen.add(each.text)
