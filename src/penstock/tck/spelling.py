"""Subjects that spell the four interfaces differently.

A verification speaks the spelling of :mod:`penstock.spec`. A test class whose subject speaks another one says
which, and the kit translates in both directions::

    class TestTheirRange(PublisherVerification):
        spelling = CAMEL_CASE

``request``, ``cancel`` and ``subscribe`` are spelled alike everywhere; a spelling of your own overrides the
methods of :class:`Spelling` that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

_SNAKE: Final[tuple[str, ...]] = ("on_subscribe", "on_next", "on_error", "on_complete")
_CAMEL: Final[tuple[str, ...]] = ("onSubscribe", "onNext", "onError", "onComplete")

HINT_CAMEL_CASE: Final[str] = (
    "the subject spells the methods in camelCase: say spelling = CAMEL_CASE, or --spelling camelCase"
)
HINT_SNAKE_CASE: Final[str] = (
    "the subject spells the methods in snake_case: leave the spelling out, or say --spelling snake_case"
)
HINT_RSOCKET: Final[str] = (
    "the subject tells with an element whether it is the last: say spelling = RSOCKET, or --spelling rsocket"
)


class Spelling:
    """A spelling of the interfaces, and the way from it to ours and back; this one is ours already."""

    name: str = "snake_case"

    def publisher_from(self, theirs: Any) -> Any:
        """Return their Publisher as one of ours."""
        return theirs

    def subscriber_from(self, theirs: Any) -> Any:
        """Return their Subscriber as one of ours."""
        return theirs

    def processor_from(self, theirs: Any) -> Any:
        """Return their Processor as one of ours."""
        return theirs

    def publisher_to(self, ours: Any) -> Any:
        """Return our Publisher as one of theirs."""
        return ours

    def subscriber_to(self, ours: Any) -> Any:
        """Return our Subscriber as one of theirs."""
        return ours

    def __repr__(self) -> str:
        return f"<spelling {self.name}>"


class _Foreign(Spelling):
    """What the two other spellings have in common: a Publisher is one by the Subscribers that it takes."""

    def publisher_from(self, theirs: Any) -> Any:
        return _Publisher(theirs, self.subscriber_to)

    def publisher_to(self, ours: Any) -> Any:
        return _Publisher(ours, self.subscriber_from)

    def processor_from(self, theirs: Any) -> Any:
        return _Processor(self.subscriber_from(theirs), self.publisher_from(theirs))


class _Publisher:
    def __init__(self, publisher: Any, translate: Any) -> None:
        self._publisher = publisher
        self._translate = translate

    def subscribe(self, subscriber: Any, /) -> Any:
        # None goes through as it is: §1.9 has something to say about it.
        return self._publisher.subscribe(None if subscriber is None else self._translate(subscriber))


class _Processor:
    def __init__(self, subscriber: Any, publisher: Any) -> None:
        self.on_subscribe = subscriber.on_subscribe
        self.on_next = subscriber.on_next
        self.on_error = subscriber.on_error
        self.on_complete = subscriber.on_complete
        self.subscribe = publisher.subscribe


class _CamelCase(_Foreign):
    name = "camelCase"

    def subscriber_from(self, theirs: Any) -> Any:
        return _FromCamel(theirs)

    def subscriber_to(self, ours: Any) -> Any:
        return _ToCamel(ours)


class _FromCamel:
    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs

    def on_subscribe(self, subscription: Any, /) -> Any:
        return self._theirs.onSubscribe(subscription)

    def on_next(self, element: Any, /) -> Any:
        return self._theirs.onNext(element)

    def on_error(self, error: Any, /) -> Any:
        return self._theirs.onError(error)

    def on_complete(self) -> Any:
        return self._theirs.onComplete()


class _ToCamel:
    def __init__(self, ours: Any) -> None:
        self._ours = ours

    def onSubscribe(self, subscription: Any) -> None:
        self._ours.on_subscribe(subscription)

    def onNext(self, element: Any) -> None:
        self._ours.on_next(element)

    def onError(self, error: Any) -> None:
        self._ours.on_error(error)

    def onComplete(self) -> None:
        self._ours.on_complete()

    def __getattr__(self, name: str) -> Any:
        # A Publisher that looks for our spelling gets an AttributeError, and the user gets the hint.
        sought = getattr(self._ours, "sought", None)
        if sought is not None:
            sought(name)
        raise AttributeError(f"this Subscriber has no {name}")


class _RSocket(_Foreign):
    name = "rsocket"

    def subscriber_from(self, theirs: Any) -> Any:
        # Their second argument has a default, so our calls are theirs already.
        return theirs

    def subscriber_to(self, ours: Any) -> Any:
        return _ToRSocket(ours)


class _ToRSocket:
    """A Subscriber whose ``on_next`` may say that this element is the last one."""

    def __init__(self, ours: Any) -> None:
        self._ours = ours

    def on_subscribe(self, subscription: Any) -> None:
        self._ours.on_subscribe(subscription)

    def on_next(self, value: Any, is_complete: bool = False) -> None:
        self._ours.on_next(value)
        if is_complete:
            self._ours.on_complete()

    def on_error(self, exception: Any) -> None:
        self._ours.on_error(exception)

    def on_complete(self) -> None:
        self._ours.on_complete()


SNAKE_CASE: Final[Spelling] = Spelling()
"""``on_subscribe``, ``on_next``, ``on_error``, ``on_complete``: the spelling of :mod:`penstock.spec`."""

CAMEL_CASE: Final[Spelling] = _CamelCase()
"""``onSubscribe``, ``onNext``, ``onError``, ``onComplete``: the spelling of the JVM."""

RSOCKET: Final[Spelling] = _RSocket()
"""The spelling of rsocket-py, where ``on_next(value, is_complete=True)`` is the last element and the end."""


def _subscriber_methods(spelling: Spelling) -> tuple[str, ...]:
    """What a Subscriber of this spelling has; nothing is known of a spelling of the user's own."""
    if spelling is CAMEL_CASE:
        return _CAMEL
    return _SNAKE if spelling in (SNAKE_CASE, RSOCKET) else ()


def _publisher_methods(spelling: Spelling) -> tuple[str, ...]:
    return ("subscribe",) if spelling in SPELLINGS.values() else ()


METHODS_OF: Final[Mapping[str, Callable[[Spelling], tuple[str, ...]]]] = {
    "a Publisher": _publisher_methods,
    "a Subscriber": _subscriber_methods,
    "a Processor": lambda spelling: (*_subscriber_methods(spelling), *_publisher_methods(spelling)),
}
"""The methods that a subject needs, by its kind and spelling."""


def spelling_hint(theirs: Any, lacking: str) -> str:
    """What may be wrong with the spelling if ``theirs`` has no method ``lacking``; empty if nothing."""
    other = dict(zip((*_SNAKE, *_CAMEL), (*_CAMEL, *_SNAKE), strict=True)).get(lacking, "")
    if not callable(getattr(theirs, other or lacking, None)):
        return ""
    return HINT_CAMEL_CASE if other in _CAMEL else HINT_SNAKE_CASE


def sought_hint(name: str) -> str:
    """What may be wrong with the spelling if a Publisher looks for this method of its Subscriber."""
    return HINT_CAMEL_CASE if name in _CAMEL else HINT_SNAKE_CASE if name in _SNAKE else ""


SPELLINGS: Final[Mapping[str, Spelling]] = {s.name: s for s in (SNAKE_CASE, CAMEL_CASE, RSOCKET)}
"""The spellings by name, as the command line takes them."""
