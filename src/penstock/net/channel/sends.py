"""Sends that were put one after the other, and run when somebody subscribes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, Self

from penstock.spec import Publisher, Subscriber
from penstock.streams import Mono
from penstock.streams.conversion import as_stream
from penstock.streams.stream import Stream

__all__ = ["Sends"]


class Sends(ABC):
    """What the sending sides of all sockets have in common; immutable, each step makes a longer one."""

    def __init__(self, before: Mono[Any] | None) -> None:
        self._before = before

    @abstractmethod
    def _behind(self, before: Mono[Any]) -> Self:
        """The same side, with this to be done first."""

    def _and(self, step: Stream[Any]) -> Self:
        following = step._as_flux().then()
        return self._behind(following if self._before is None else self._before.then(following))

    def then(self, publisher: Publisher[Any]) -> Self:
        """When everything before has been sent, run this to its end; its elements are not sent."""
        return self._and(as_stream(publisher, "then()"))

    def mono(self) -> Mono[Any]:
        """The end of it all, as a Mono."""
        return Mono.empty() if self._before is None else self._before

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Send; the subscriber hears of the end, or of the error."""
        self.mono().subscribe(subscriber)

    def __await__(self) -> Generator[Any, None, None]:
        return self.mono().__await__()
