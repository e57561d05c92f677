"""What a client may do at a gateway: read, write, administer."""

from __future__ import annotations

import re
from enum import Flag
from typing import Final, NamedTuple, Protocol

__all__ = ["ALL_RIGHTS", "LOCAL", "USUAL_RIGHTS", "Access", "Caller", "Right", "rights_in"]


class Right(Flag):
    """Rights are given to keys one by one, in the list of those who are let in."""

    READ = 1
    """Subscribe, and keep a place under an id of its own."""
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
    """Who sent a message, as far as that is proven."""

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
