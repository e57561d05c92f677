"""The Subscribers that the kit is let loose on: the ways out of a stream, and a hand-written one."""

from typing import Any

from penstock.spec import strict
from penstock.streams.terminal import BlockingReader, Running
from tests.conformance.jvm.subject import Kind, Subject


class Plain:
    """Written from the interfaces alone, with none of the rules in mind: the guard must see to them."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def on_subscribe(self, subscription: Any) -> None:
        self.subscription = subscription
        subscription.request(1)

    def on_next(self, element: Any) -> None:
        self.items.append(element)
        self.subscription.request(1)

    def on_error(self, error: BaseException) -> None:
        self.items.append(error)

    def on_complete(self) -> None:
        self.items.append("completed")


def running() -> Running:
    def ignore(_: Any = None) -> None: ...

    return Running(ignore, ignore, ignore, prefetch=4)


def window() -> BlockingReader:
    return BlockingReader(prefetch=4)


WHITEBOX = {
    "running_whitebox": Subject(Kind.WHITEBOX, running),
    "blocking_window_whitebox": Subject(Kind.WHITEBOX, window),
    "guarded_whitebox": Subject(Kind.WHITEBOX, Plain, guard=strict),
}

BLACKBOX = {
    "running_blackbox": Subject(Kind.BLACKBOX, running),
    "blocking_window_blackbox": Subject(Kind.BLACKBOX, window),
    "guarded_blackbox": Subject(Kind.BLACKBOX, Plain, guard=strict),
}

SUBSCRIBERS = {**WHITEBOX, **BLACKBOX}
