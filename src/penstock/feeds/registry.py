"""Feeds by URL scheme: those of this package, those of others' packages, and those that a program adds.

A module of :mod:`penstock.feeds.schemes` declares its schemes in ``SCHEMES`` and is found there. Another
package names its schemes as entry points of the group ``penstock.feeds``::

    [project.entry-points."penstock.feeds"]
    nats = "myproject.nats_feed:NATS"

where ``NATS`` is a :class:`Scheme`. A program can call :func:`register`.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib
import logging
import pkgutil
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Final, TypeAlias
from urllib.parse import unquote, unquote_plus, urlsplit

from penstock.arguments import describe
from penstock.endpoint import Endpoint
from penstock.feeds.feed import BadFeed, Feed, FeedOptions, UnknownScheme
from penstock.secret_file import read_secret

__all__ = ["FeedAddress", "FeedUrl", "Opener", "Scheme", "known_schemes", "open", "register"]

_log = logging.getLogger("penstock.feeds")

GROUP: Final = "penstock.feeds"
"""The group of the entry points."""


@dataclass(frozen=True, slots=True)
class FeedAddress:
    """Where a server is, and what to ask of it."""

    host: str
    port: int
    path: str
    """What follows the first ``/``: a topic, the name of a stream; empty if there is none."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class FeedUrl:
    """The URL of a feed, taken apart: ``tcp://HOST:PORT?once``, ``file:PATH``, ``stdin``."""

    text: str
    """The URL as it was written."""
    scheme: str
    rest: str
    """What follows the scheme and its colon, without ``//`` and without the flags after the ``?``."""
    flags: frozenset[str] = frozenset()
    """The words after the ``?``, if the scheme has declared any."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The values after the ``?``, by name, if the scheme has declared any: ``?qos=1&group=readers``."""

    @property
    def shown(self) -> str:
        """The URL without a password, for messages and names."""
        return _without_secrets(self.text)

    @property
    def target(self) -> str:
        """The URL that the server is asked for: without the parameters, which follow a ``#`` there."""
        return self.text.partition("#")[0]

    @property
    def shown_target(self) -> str:
        """The same without a password, for messages and names."""
        return self.shown.partition("#")[0]

    def secret(self, name: str) -> str | None:
        """What the file has that this parameter names, without white space at its ends; None without it."""
        path = self.parameters.get(name)
        if path is None:
            return None
        try:
            return read_secret(path).decode()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise BadFeed(f"cannot read the {name} {path}: {reason}") from None

    def address(self, default_port: int) -> FeedAddress:
        """The parts of ``user:password@HOST:PORT/PATH``; BadFeed if there is no host or a wrong port."""
        try:
            parts = urlsplit(f"//{self.rest}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise BadFeed(f"{self.shown}: {error}") from None
        if not host:
            raise BadFeed(f"{self.shown} names no host; write {self.scheme}://HOST:PORT/…")
        user, password = (None if it is None else unquote(it) for it in (parts.username, parts.password))
        return FeedAddress(
            host, default_port if port is None else port, unquote(parts.path[1:]), user, password
        )

    def server(self) -> tuple[str, int]:
        """The host and the port of one server to connect to; BadFeed if it is not one."""
        endpoint = self._endpoint()
        if not endpoint.is_one_place:
            raise BadFeed(f"{self.shown}: name the host and the port of one server")
        return endpoint.host, endpoint.port

    def listener(self, options: FeedOptions) -> tuple[str, int]:
        """The host and the port to listen at; only on this machine, unless the options allow more."""
        endpoint = self._endpoint()
        if not (endpoint.is_loopback or options.allow_remote):
            here = str(Endpoint("127.0.0.1", endpoint.port)).replace("tcp", self.scheme, 1)
            raise BadFeed(
                f"{self.shown} can be reached from other machines, and everybody there could write into the "
                f"log. Listen at {here}, or allow it with allow_remote=True (--insecure)"
            )
        return "0.0.0.0" if endpoint.host == "*" else endpoint.host, endpoint.port

    def refuse_on_a_loop(self) -> None:
        """Raise if an event loop runs in this thread; for a feed that waits for the network to be opened."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise RuntimeError(
            f"opening {self.shown} would block the event loop that runs in this thread: write "
            "await asyncio.to_thread(feeds.open, url), and await asyncio.to_thread(feed.close) at the end"
        )

    def _endpoint(self) -> Endpoint:
        try:
            return Endpoint.parse_address(f"tcp://{self.rest}")
        except ValueError as error:
            raise BadFeed(_without_secrets(str(error)).replace("tcp://", f"{self.scheme}://")) from None


Opener: TypeAlias = Callable[[FeedUrl, FeedOptions], Feed]
"""Opens a feed, or raises a FeedError: everything that can be checked is checked here, before any reading."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """One kind of feed: the scheme of its URLs, and the function that opens it."""

    name: str
    """What the URL begins with: ``tcp``."""
    form: str
    """What people write: ``tcp://HOST:PORT``."""
    help: str
    """Where the records come from, in a sentence without a capital letter and a full stop."""
    open: Opener
    flags: Mapping[str, str] = field(default_factory=dict)
    """The words that may follow a ``?``, each with its help."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The names that may follow a ``?`` with a value, each with its help: ``{"qos": "0, 1 or 2"}``."""
    options: frozenset[str] = frozenset()
    """Those of the options ``follow``, ``take_last_line`` and ``restart`` that the feed heeds."""
    separator: str = "?"
    """What the flags and parameters follow: ``#`` where all before it is the URL of a server."""


_lock: Final = threading.RLock()
"""Reentrant: the module of an entry point may call :func:`register` while it is imported."""
_known: Final[dict[str, Scheme]] = {}
_entry_points: Final[dict[str, EntryPoint]] = {}
"""Those of other packages that were not loaded yet."""
_is_filled = False
_OF_SOME: Final = {
    "follow": "is for files and directories: write file:PATH or dir:PATH",
    "take_last_line": "is for files: write file:PATH",
    "format": "is for files and directories: write file:PATH or dir:PATH",
    "restart": "is for programs and responses: write exec:COMMAND or http://HOST/PATH",
}
"""Options that only some feeds heed. For the others they would be a mistake without an effect."""


def open(url: str, options: FeedOptions | None = None) -> Feed:
    """Open the feed at a URL: ``feeds.open("file:app.log", FeedOptions(follow=True))``.

    A URL with an unknown scheme is an :class:`UnknownScheme` that lists the known ones; a server that is not
    there and a port that is taken are a :class:`FeedUnavailable`. The feed has to be closed.
    """
    options = options if options is not None else FeedOptions()
    if not isinstance(url, str):
        raise TypeError(f"feeds.open() needs a URL such as 'file:app.log', not {describe(url)}")
    if not isinstance(options, FeedOptions):
        raise TypeError(f"feeds.open() needs FeedOptions(…), not {describe(options)}")
    name, colon, rest = url.partition(":")
    scheme = _scheme(name)
    if scheme is None or bool(colon) != (":" in scheme.form):
        meant = _meant(name, colon, rest)
        forms = f"{meant}, or one of {_forms()}" if meant else _forms()
        raise UnknownScheme(f"{_without_secrets(url)!r} is not a feed; write {forms}")
    for wanted, what in _OF_SOME.items():
        if getattr(options, wanted) and wanted not in scheme.options:
            given = getattr(options, wanted)
            raise BadFeed(f"{wanted}={given!r} (--{wanted.replace('_', '-')}) {what}")
    rest = rest.removeprefix("//")
    flags: set[str] = set()
    parameters: dict[str, str] = {}
    if scheme.flags or scheme.parameters:
        rest, _, query = rest.partition(scheme.separator)
        for each in filter(None, query.split("&")):
            given, equals, value = each.partition("=")
            if equals and given in scheme.parameters:
                parameters[given] = unquote_plus(value)
            elif not equals and given in scheme.flags:
                flags.add(given)
            else:
                possible = ", ".join([*scheme.flags, *(f"{it}=…" for it in scheme.parameters)])
                where = f"after the {scheme.separator} there can be {possible}"
                place = _without_secrets(url).partition(scheme.separator)[0]
                # The value may be a secret under a name with a slip.
                raise BadFeed(f"{place}: {given + ('=…' if equals else '')!r} is not known; {where}")
    feed = scheme.open(FeedUrl(url, name, rest, frozenset(flags), parameters), options)
    feed.opened_with = options
    return feed


def register(scheme: Scheme) -> None:
    """Add a scheme to those of this process; BadFeed if there is another one of that name."""
    if not isinstance(scheme, Scheme):
        raise TypeError(f"register() needs a Scheme, not {describe(scheme)}")
    _fill()
    with _lock:
        known = _known.setdefault(scheme.name, scheme)
    if known is not scheme:
        raise BadFeed(f"there is a feed with the scheme {scheme.name!r} already; choose another name")


def known_schemes() -> Mapping[str, Scheme]:
    """Return every known scheme by its name.

    The feeds of other packages are loaded for it; one that cannot be loaded is logged and left out.
    """
    _fill()
    for name in list(_entry_points):
        try:
            _load(name)
        except BadFeed as error:
            _log.warning("%s", error)
    return MappingProxyType(dict(sorted(_known.items())))


def _scheme(name: str) -> Scheme | None:
    _fill()
    return _known.get(name) or _load(name)


def _forms() -> str:
    forms = [scheme.form for scheme in _known.values()]
    forms += [f"{name}:…" for name in _entry_points]
    return ", ".join(forms)


def _meant(name: str, colon: str, rest: str) -> str:
    """The URL that was probably meant; empty if none is close."""
    close = difflib.get_close_matches(name.lower(), [*_known, *_entry_points], 1)
    if not close:
        return f"file:{name}" if not colon and re.search(r"[./]", name) else ""
    scheme = _known.get(close[0])
    if scheme is not None and (not rest or ":" not in scheme.form):
        return scheme.form
    return _without_secrets(f"{close[0]}:{rest}")


def _fill() -> None:
    """Find the modules of this package, and the names of the others; nothing of theirs is imported yet."""
    global _is_filled
    with _lock:
        if _is_filled:
            return
        package = importlib.import_module("penstock.feeds.schemes")
        for module in sorted(each.name for each in pkgutil.iter_modules(package.__path__)):
            for scheme in importlib.import_module(f"{package.__name__}.{module}").SCHEMES:
                _known[scheme.name] = scheme
        for point in entry_points(group=GROUP):
            if point.name not in _known:
                _entry_points[point.name] = point
        _is_filled = True


def _load(name: str) -> Scheme | None:
    with _lock:
        point = _entry_points.get(name)
        if point is None:
            return _known.get(name)
        try:
            found = point.load()
        except Exception as error:
            raise BadFeed(f"the feed {name!r} of {_package(point)} cannot be loaded: {error}") from error
        if not isinstance(found, Scheme) or found.name != name:
            raise BadFeed(
                f"the entry point {point.value} of {_package(point)} has to be a Scheme({name!r}, …), "
                f"not {found!r}"
            )
        del _entry_points[name]
        return _known.setdefault(name, found)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "another package"


def _without_secrets(url: str) -> str:
    """The URL without its password, and without a token among its parameters."""
    # A password may have a / that should have been written as %2F; a port is followed by one, too.
    end = r"[^@]*@(?:[^/?#@]*@)*"
    url = re.sub(rf"(//[^/?#@:\[]*:\d+[/?#]){end}", r"\1…@", url)
    url = re.sub(rf"(//[^/?#@:\[]*):(?!\d+[/?#]){end}", r"\1@", url)
    return re.sub(rf"([?&#](?:[\w.-]*{_SECRET}|hello))=[^&#]*", r"\1=…", url, flags=re.I)


_SECRET: Final = r"(?:token|passw(?:or)?d|pwd|secret|signature|sig|auth|credentials?|(?:api|access)[-_]?key)"
"""How the names of parameters end whose values are not shown."""
