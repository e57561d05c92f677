"""What is raised, reported or signalled when a rule of the specification is broken.

Every violation names its rule, says what happened and says what to do instead. The catalogue
(:mod:`penstock.spec.rules`) is consulted when one is made, so a violation cannot cite a rule that does not
exist.
"""

from __future__ import annotations

from typing import Self

from penstock.arguments import whole
from penstock.spec.rules import rule as look_up

_SUBSCRIBER_METHODS = ("on_subscribe", "on_next", "on_error", "on_complete")
_PUBLISHER_METHODS = ("subscribe",)
_SUBSCRIPTION_METHODS = ("request", "cancel")


class RuleViolation(ValueError):
    """A rule of the specification was broken: ``rule`` was, ``happened`` is how, ``remedy`` is the way out.

    It is a ``ValueError`` because §3.9 asks for the platform's "illegal argument" error, and that is the one
    violation that travels through a stream by design::

        def on_error(self, error):
            if isinstance(error, RuleViolation) and error.rule == "3.9":
                ...
    """

    rule: str
    happened: str
    remedy: str

    def __init__(self, rule: str, happened: str, remedy: str = "") -> None:
        """Make a violation of ``rule`` ("3.9"); ``happened`` and ``remedy`` are sentences.

        Without a remedy the statement of the rule itself is used. A rule that is not in the catalogue raises
        ``KeyError``.
        """
        entry = look_up(rule)
        self.rule = entry.id
        self.happened = happened.rstrip(". ")
        self.remedy = (remedy or entry.statement()).rstrip(". ")
        super().__init__(f"§{self.rule} violated: {self.happened}. {self.remedy}.")

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, str]]:
        # BaseException would be rebuilt from its one message; we need the three parts.
        return type(self), (self.rule, self.happened, self.remedy)


class NoneViolation(RuleViolation, TypeError):
    """``None`` (or something of the wrong kind) was given where the specification wants an object.

    It is a ``TypeError``, Python's counterpart of the null pointer exception of §1.9 and §2.13, and it is
    raised at the caller, since there is no Subscriber to signal it to.
    """


def none_element(where: str) -> NoneViolation:
    """``None`` was given as an element; ``where`` names the place, for example ``"on_next"`` or ``"map"``."""
    return NoneViolation(
        "2.13",
        f"None was given to {where} as an element",
        "None cannot be an element of a stream; leave the element out, or send a value that stands for it",
    )


def none_error() -> NoneViolation:
    """``on_error(None)`` was called."""
    return NoneViolation(
        "2.13",
        "on_error(None) was called",
        "A failure must say what failed; pass an exception to on_error",
    )


def none_subscription() -> NoneViolation:
    """``on_subscribe(None)`` was called."""
    return NoneViolation(
        "2.13",
        "on_subscribe(None) was called",
        "A Subscriber cannot ask for elements without a Subscription; pass an object with request and cancel",
    )


def none_subscriber() -> NoneViolation:
    """``subscribe(None)`` was called."""
    return NoneViolation(
        "1.9",
        "subscribe(None) was called",
        "A Publisher needs a Subscriber to send to; pass an object with the four methods of a Subscriber",
    )


def none_publisher() -> NoneViolation:
    """``None`` was given where a Publisher was needed."""
    return NoneViolation(
        "1.9",
        "None was given as a Publisher",
        "Pass an object with a subscribe method",
    )


def not_a_subscriber(obj: object) -> NoneViolation:
    """Something was given to ``subscribe`` that lacks methods of a Subscriber; the message names them."""
    return NoneViolation(
        "1.9",
        f"subscribe was given {_a_kind_of(obj)}, which is not a Subscriber",
        _lack(obj, _SUBSCRIBER_METHODS),
    )


def not_a_publisher(obj: object) -> NoneViolation:
    """Something was given as a Publisher that has no ``subscribe``."""
    return NoneViolation(
        "1.9",
        f"{_a_kind_of(obj)} was given as a Publisher, but it is not one",
        _lack(obj, _PUBLISHER_METHODS),
    )


def not_a_subscription(obj: object) -> NoneViolation:
    """Something was given to ``on_subscribe`` that has no ``request`` or no ``cancel``."""
    return NoneViolation(
        "2.13",
        f"on_subscribe was given {_a_kind_of(obj)}, which is not a Subscription",
        _lack(obj, _SUBSCRIPTION_METHODS),
    )


def not_an_error(obj: object) -> NoneViolation:
    """Something was given to ``on_error`` that is not an exception."""
    return NoneViolation(
        "2.13",
        f"on_error was given {_a_kind_of(obj)}, which is not an exception",
        "A failure must say what failed; pass an exception to on_error",
    )


def non_positive_request(n: object) -> RuleViolation:
    """``request(n)`` was called with something that is not a whole number of at least one (§3.9).

    The message cites the rule, which the Reactive Streams text recommends and the Aquifer text demands.
    """
    if (number := whole(n)) is not None:
        happened = f"request({number}) was called"
    else:
        happened = f"request({n!r}) was called with {_a_kind_of(n)}"
    return RuleViolation(
        "3.9",
        happened,
        "A request must ask for at least one element; to ask for nothing do not call request, "
        "to stop the stream call cancel",
    )


def check_subscriber(obj: object) -> None:
    """Return normally if ``obj`` has the four methods of a Subscriber; raise ``TypeError`` if not (§1.9)."""
    if obj is None:
        raise none_subscriber()
    if not _has(obj, _SUBSCRIBER_METHODS):
        raise not_a_subscriber(obj)


def check_publisher(obj: object) -> None:
    """Return normally if ``obj`` has a ``subscribe`` method; raise ``TypeError`` if not."""
    if obj is None:
        raise none_publisher()
    if not _has(obj, _PUBLISHER_METHODS):
        raise not_a_publisher(obj)


def check_subscription(obj: object) -> None:
    """Return normally if ``obj`` has ``request`` and ``cancel``; raise ``TypeError`` if not (§2.13)."""
    if obj is None:
        raise none_subscription()
    if not _has(obj, _SUBSCRIPTION_METHODS):
        raise not_a_subscription(obj)


def _has(obj: object, names: tuple[str, ...]) -> bool:
    # Asked at every subscribe; isinstance with a protocol would take several times as long.
    # A class has the methods of its objects, and was meant to be called.
    for name in names:
        if not callable(getattr(obj, name, None)):
            return False
    return not isinstance(obj, type)


def _a_kind_of(obj: object) -> str:
    if isinstance(obj, type):
        return f"the class {obj.__name__}"
    name = type(obj).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _lack(obj: object, names: tuple[str, ...]) -> str:
    if isinstance(obj, type):
        return f"A class is not one of its objects; write {obj.__name__}(...)"
    *others, last = [name for name in names if not callable(getattr(obj, name, None))]
    return f"It lacks {', '.join(others)} and {last}" if others else f"It lacks {last}"
