"""Which endpoints mean the same stream: a gateway's default stream is found with its name and without."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.aquifer import GatewayStatus

__all__ = ["StreamNames", "plain", "split_peer"]

_LOCAL: Final = re.compile(r"^tcp://(localhost|\[::1\]):", re.IGNORECASE)
_PEER: Final = re.compile(r"(tcp://[^/]+(?:/[^/]+)?)(/(?:cursor|producer)/.*)", re.DOTALL)
_LETTERS: Final = "dead-letters"


def plain(endpoint: str) -> str:
    """The same place in one spelling: an observer and a client may have called it differently."""
    return _LOCAL.sub("tcp://127.0.0.1:", endpoint)


def split_peer(peer: str) -> tuple[str, str]:
    """The endpoint in the id of a cursor or a producer, and the rest of it."""
    found = _PEER.fullmatch(peer)
    return (found[1], found[2]) if found is not None else (peer, "")


class StreamNames:
    """The streams that were found in one look, each by every endpoint that means it."""

    def __init__(self) -> None:
        self._homes: dict[str, str] = {}

    def add(self, endpoint: str, status: GatewayStatus) -> str:
        """Note what answered at an endpoint; returns the endpoint with the name of the stream, if it has one.

        A stream that was found before keeps the spelling that it has.
        """
        address = _address(endpoint)
        home = f"{address}/{status.stream}" if status.stream else address
        home = self._homes.setdefault(plain(home), home)
        self._homes[plain(endpoint)] = home
        if any(each.default and each.name == status.stream for each in status.streams):
            self._homes[plain(address)] = home
        return home

    def home(self, endpoint: str) -> str:
        """The endpoint under which the stream was found; the same one if it was not found."""
        return self._homes.get(plain(endpoint), endpoint)

    @staticmethod
    def beside(endpoint: str, status: GatewayStatus) -> list[str]:
        """The other streams that are meant: all of a gateway, or the dead letters of a stream."""
        address = _address(endpoint)
        if endpoint == address:
            names = [each.name for each in status.streams if each.name != status.stream]
        else:
            names = [each.name for each in status.streams if each.name == f"{status.stream}.{_LETTERS}"]
        return [f"{address}/{name}" if name else address for name in names]


def _address(endpoint: str) -> str:
    return "/".join(endpoint.split("/", 3)[:3])
