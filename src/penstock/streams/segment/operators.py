"""One operator in a stream: its kind, its arguments, and where it was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.spec import Subscription
from penstock.streams.assembly import Place, describe_all, here
from penstock.streams.segment.fragments import KINDS, Kind

__all__ = ["Op", "Outcome", "Watch", "operator"]


class Outcome(Enum):
    """How a stream, or its part above an operator, came to its end."""

    COMPLETE = "complete"
    ERROR = "error"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Watch:
    """What an operator wants to hear of a subscription besides its elements.

    Called at most once for each event, never for each element, so a stream that is watched runs the same
    compiled loop as one that is not.
    """

    subscribed: Callable[[Subscription], object] | None = None
    requested: Callable[[int], object] | None = None
    completed: Callable[[], object] | None = None
    failed: Callable[[BaseException], BaseException | None] | None = None
    """May return another error to go on with."""
    cancelled: Callable[[], object] | None = None
    released: Callable[[], object] | None = None
    """The source is closed, whatever the reason; the last signal has not been sent."""
    finished: Callable[[Outcome], object] | None = None
    """Last of all, whatever happened."""


@dataclass(frozen=True, slots=True)
class Op:
    """A synchronous operator of a stream."""

    kind: Kind
    args: tuple[Any, ...]
    label: str
    place: Place
    watch: Watch | None = None


def operator(
    kind: str,
    *args: Any,
    label: str | None = None,
    shows: tuple[Any, ...] | None = None,
    watch: Watch | None = None,
) -> Op:
    """Make an operator, written where the user's code called us.

    ``label`` is the fluent method's name where that differs from the kind, ``shows`` what ``explain()``
    puts between its brackets.
    """
    name = label or kind
    text = f"{name}({describe_all(args if shows is None else shows)})"
    return Op(KINDS[kind], args, text, here(), watch)
