"""What the kit can be let loose on: a Publisher, a Subscriber, a Processor, and how to make fresh ones."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

METHODS = Path(__file__).parent / "methods"
ENDLESS = 2**63 - 2
"""As many elements as the kit asks for, and completion too: one more would mean that there is none."""


class Kind(StrEnum):
    """Which of the kit's four verifications."""

    PUBLISHER = "publisher"
    WHITEBOX = "whitebox"
    BLACKBOX = "blackbox"
    PROCESSOR = "processor"


@dataclass(frozen=True)
class Subject:
    """Something to be verified. `create` makes a fresh one for each test.

    A Publisher is made from the number of its elements, a Processor from its buffer size, a Subscriber from
    nothing. `failed` makes a Publisher that fails at once.
    """

    kind: Kind
    create: Callable[..., Any]
    failed: Callable[[], Any] | None = None
    guard: Callable[[Any], Any] | None = None
    """Put around a Subscriber, outside of the white-box probe."""
    probed: bool = False
    """The Subscriber is made with a probe, in the words of `penstock.tck`, and tells it all by itself."""
    trigger: Callable[[Any], None] | None = None
    """Makes a Subscriber without a probe ask for elements."""
    max_elements: int = ENDLESS
    max_subscribers: int = ENDLESS
    """How many Subscribers a Processor may have."""
    coordinated: bool = False
    """A Processor that sends an element when all its Subscribers have asked for it."""
    skips: frozenset[str] = frozenset()
    """Tests that cannot run for this subject, beside those that test nothing."""

    def may_skip(self, method: str) -> bool:
        """Whether the kit is expected to skip this test. It also skips an `optional_` test that fails."""
        return method.startswith("untested_") or method in self.skips


@cache
def methods(kind: Kind) -> tuple[str, ...]:
    """Return the names of the kit's tests for a kind of subject; test_kit.py compares them with the jar."""
    # The kit's verification of Processors is that of Publishers, that of Subscribers, and a little more.
    parts = [Kind.PROCESSOR, Kind.PUBLISHER, Kind.WHITEBOX] if kind is Kind.PROCESSOR else [kind]
    return tuple(name for part in parts for name in (METHODS / f"{part}.txt").read_text().split())


def resolve(place: str) -> Any:
    """Return what is at "package.module:name"; the name may go on, into attributes and mappings."""
    module, _, path = place.partition(":")
    found: Any = import_module(module)
    for name in path.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    return found


def load(place: str, kind: Kind | None = None, failed: str | None = None) -> Subject:
    """Return the subject at "package.module:name"; a plain function there is its `create`."""
    found = resolve(place)
    if isinstance(found, Subject):
        return found
    if kind is None:
        raise TypeError(f"{place} is a plain function; say whether it makes a {', a '.join(Kind)}")
    return Subject(kind, found, resolve(failed) if failed else None)
