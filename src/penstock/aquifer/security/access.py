"""The list of clients that a gateway lets in, with the rights of each; read again when it changes.

The list is a directory of ``*.pub`` files or one file with a key to a line::

    clients/alice.pub               clients.txt

    public = "…40 characters…"      # key                          who, and what for
    rights = "read, write"          …40 characters… alice rights=read,write
                                    …40 characters… bob, laptop

A key without a line of rights may read and write. A list that is missing, cannot be read or makes no sense
is not taken over: the last good one stays in force, and the log says so.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from enum import Flag
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from penstock.aquifer.security.keys import check_key, load_public, read_key_file

__all__ = [
    "ALL_RIGHTS",
    "LOCAL",
    "USUAL_RIGHTS",
    "Access",
    "AccessList",
    "Caller",
    "Client",
    "Right",
    "rights_in",
]

_log = logging.getLogger("penstock.aquifer")

_NOTHING: Final = "no client can connect: there is no key in %s"


class Right(Flag):
    """What a key may do; each key on the access list has its own rights."""

    READ = 1
    """Subscribe, and have a durable id."""
    WRITE = 2
    """Publish batches, if the gateway is writable, under a name of its own."""
    ADMIN = 4
    """See everybody's ids and sessions; end, delete and hand them over."""

    def __str__(self) -> str:
        return ", ".join(right.name.lower() for right in Right if right in self and right.name) or "none"


ALL_RIGHTS: Final = Right.READ | Right.WRITE | Right.ADMIN
USUAL_RIGHTS: Final = Right.READ | Right.WRITE
"""Those of a key for which nothing else is said."""


class Caller(NamedTuple):
    """The sender of a message, as far as that is proven."""

    owner: str
    """Its public key, which CURVE has proven; empty if it came without one. What it creates belongs to it."""
    address: str
    """The IP address that it came from."""
    rights: Right

    @property
    def is_local(self) -> bool:
        """Whether it came from this machine, over loopback."""
        return self.address.startswith("127.") or self.address in ("::1", "::ffff:127.0.0.1")

    def may(self, right: Right) -> bool:
        """Whether it has this right."""
        # For each message: `in` would make new flags.
        return bool(self.rights._value_ & right._value_)


class Access(Protocol):
    """What a gateway has to know about the list of its clients."""

    version: int
    """Grows with every change."""

    def rights_of(self, key: str) -> Right | None:
        """What a key may do; None if it may not even connect."""
        ...

    def name_of(self, key: str) -> str:
        """What the list calls the owner of a key."""
        ...


LOCAL: Final = Caller("", "127.0.0.1", ALL_RIGHTS)
"""A program on the same machine, over loopback and without a key: it could read the journal itself."""


def rights_in(text: str) -> Right:
    """The rights that are named in a text, with commas or blanks between; ``none`` for none at all."""
    names = [name for name in re.split(r"[\s,]+", text.strip().lower()) if name]
    known = {str(right.name).lower(): right for right in Right}
    rights = Right(0)
    for name in names:
        if name not in known and names != ["none"]:
            raise ValueError(f"{name!r} is not a right: there are {', '.join(known)}, or none")
        rights |= known.get(name, Right(0))
    if not names:
        raise ValueError(f"no right is named: there are {', '.join(known)}, or none")
    return rights


class Client(NamedTuple):
    """A key on the list."""

    rights: Right
    name: str
    """What the list calls it: the name of its file, or the note behind it."""


class AccessList:
    """The keys that may connect, with the rights of each. It is thread-safe."""

    def __init__(self, clients: Mapping[str, Client] | None, path: Path | None = None) -> None:
        self.version = 0
        """Grows with every change."""
        self._lock = threading.Lock()
        self._path = path
        self._listed = clients
        """None: everybody may come."""
        self._allowed: dict[str, Client] = {}
        self._revoked: set[str] = set()
        """What was said by :meth:`allow` and :meth:`revoke`, whatever the list says."""
        self._loaded = self._signature()
        self._waiting = self._loaded
        self._complaint: str | None = None

    @classmethod
    def of(cls, allowed: Collection[str] | Mapping[str, Right | str] | None) -> AccessList:
        """A list that is in memory alone: keys, or keys with their rights; None lets everybody in."""
        if allowed is None:
            return cls(None)
        clients = {}
        for key in allowed:
            rights = allowed[key] if isinstance(allowed, Mapping) else USUAL_RIGHTS
            clients[check_key(key, repr(key))] = Client(
                rights if isinstance(rights, Right) else rights_in(rights), ""
            )
        return cls(clients)

    @classmethod
    def load(cls, path: Path) -> AccessList:
        """Read a list; OSError or ValueError if that cannot be done."""
        clients = _read(path)
        if not clients:
            _log.warning(_NOTHING, path)
        return cls(clients, path)

    # ---------------------------------------------------------------- who may do what
    @property
    def keys(self) -> frozenset[str] | None:
        """The keys that may connect; None if all may."""
        with self._lock:
            if self._listed is None:
                return None
            return frozenset((self._listed.keys() | self._allowed.keys()) - self._revoked)

    def rights_of(self, key: str) -> Right | None:
        """What a key may do here; None if it may not even connect."""
        client = self._find(key)
        return None if client is None else client.rights

    def name_of(self, key: str) -> str:
        """What the list calls the owner of a key; empty if it does not say."""
        client = self._find(key)
        return "" if client is None else client.name

    def _find(self, key: str) -> Client | None:
        with self._lock:
            if key in self._revoked:
                return None
            if self._listed is None:
                return self._allowed.get(key, Client(USUAL_RIGHTS, ""))
            return self._allowed.get(key) or self._listed.get(key)

    def allow(self, key: str, rights: Right = USUAL_RIGHTS) -> None:
        """Let a key in from now on, whatever the list says."""
        with self._lock:
            self._allowed[check_key(key, repr(key))] = Client(rights, "")
            self._revoked.discard(key)
            self.version += 1

    def revoke(self, key: str) -> None:
        """Keep a key out from now on, whatever the list says."""
        with self._lock:
            self._revoked.add(check_key(key, repr(key)))
            self._allowed.pop(key, None)
            self.version += 1

    # ---------------------------------------------------------------- reading it again
    def refresh(self) -> None:
        """Read the list again if it has changed since, and not since the last time this was asked.

        Somebody may still be writing it: half of the list could be taken for the whole, and the clients in
        the other half would be cut off.
        """
        now = self._signature()
        if self._path is None or now == self._loaded or now != self._waiting:
            self._waiting = now
        else:
            self.reload()

    def reload(self) -> bool:
        """Read the list again now; False, and the last good one stays in force, if that cannot be done."""
        if self._path is None:
            return True
        seen = self._signature()
        try:
            clients = _read(self._path)
            if not clients and self._path.is_file() and not self._path.stat().st_size:
                raise ValueError(f"{self._path} is empty; perhaps somebody is writing it just now")
        except (OSError, ValueError) as error:
            self._loaded = self._waiting = seen
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.error("the list of clients was not read again, the last one stays in force: %s", error)
            return False
        self._loaded = self._waiting = seen
        self._complaint = None
        with self._lock:
            before, self._listed = self._listed or {}, clients
            self.version += before != clients
        _tell_changes(before, clients, self._path)
        return True

    def _signature(self) -> object:
        """What changes when the list does."""
        if self._path is None:
            return None
        try:
            files = _key_files(self._path) if self._path.is_dir() else [self._path]
            states = [(file.name, file.stat()) for file in files]
        except OSError as error:
            return error.errno
        return [(name, s.st_mtime_ns, s.st_ctime_ns, s.st_size, s.st_ino) for name, s in states]


def _read(path: Path) -> dict[str, Client]:
    clients: dict[str, Client] = {}
    for key, client, where in _in_directory(path) if path.is_dir() else _in_file(path):
        if clients.get(key, client).rights != client.rights:
            raise ValueError(f"{where}: this key is on the list twice, with different rights")
        clients[key] = client
    return clients


def _in_directory(path: Path) -> Iterator[tuple[str, Client, Path]]:
    for file in _key_files(path):
        key = load_public(file)
        line = read_key_file(str(file)).get("rights")
        try:
            yield key, Client(USUAL_RIGHTS if line is None else rights_in(line), file.stem), file
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None


def _key_files(path: Path) -> list[Path]:
    # Not Path.glob: it takes a directory that cannot be read for an empty one. Everybody would be cut off.
    return sorted(file for file in path.iterdir() if file.name.endswith(".pub"))


def _in_file(path: Path) -> Iterator[tuple[str, Client, str]]:
    for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), start=1):
        key, *words = line.split() or ["#"]
        if key.startswith("#"):  # no key does: four bytes never make such a group in Z85
            continue
        where = f"{path}, line {number}"
        check_key(key, f"{where}: {key!r}")
        rights = [word.removeprefix("rights=") for word in words if word.startswith("rights=")]
        name = " ".join(word for word in words if not word.startswith("rights="))
        try:
            yield key, Client(rights_in(",".join(rights)) if rights else USUAL_RIGHTS, name), where
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


def _tell_changes(before: Mapping[str, Client], after: Mapping[str, Client], path: Path) -> None:
    if not after:
        _log.warning(_NOTHING, path)
    if before == after:
        return
    added, removed = after.keys() - before.keys(), before.keys() - after.keys()
    changed = sum(before[key].rights != after[key].rights for key in after.keys() & before.keys())
    _log.info(
        "the list of clients was read again: %d keys, %d of them new, %d with other rights, %d removed",
        len(after),
        len(added),
        changed,
        len(removed),
    )
