"""One operator in a stream: its kind, its arguments, where it was written, and what it watches.

Operators that watch (``do_on_complete``, ``on_error_map``, ``do_finally``, ``log``) are called for events of
a subscription, never for an element, so a watched stream runs the same compiled loop as any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.arguments import describe_all
from penstock.spec import Subscription
from penstock.streams.errors import Place, annotate, drop_error, here, set_context
from penstock.streams.events import Outcome
from penstock.streams.fusion.fragments import KINDS, Kind
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop

__all__ = ["Labelled", "Op", "Outcome", "Watch", "Watchers", "label_of", "operator"]


@dataclass(frozen=True, slots=True)
class Watch:
    """The functions that an operator wants called for the events of a subscription.

    They are called at most once for each event, and never for an element.
    """

    subscribed: Callable[[Subscription], object] | None = None
    requested: Callable[[int], object] | None = None
    completed: Callable[[], object] | None = None
    failed: Callable[[BaseException], BaseException | None] | None = None
    """May return another error to go on with."""
    cancelled: Callable[[], object] | None = None
    released: Callable[[], object] | None = None
    """The source is closed, for whatever reason; the last signal has not been sent yet."""
    finished: Callable[[Outcome], object] | None = None
    """Called last of all, however the stream ended."""


class Labelled(Protocol):
    """Something with a label that is worked out when somebody asks for it."""

    @property
    def label(self) -> str:
        """The call that made it, as a message shows it."""


def label_of(origin: str | Labelled) -> str:
    """The label, which may be at hand already."""
    return origin if isinstance(origin, str) else origin.label


class Op:
    """A synchronous operator of a stream. Do not change it: streams share it."""

    __slots__ = ("_name", "_shows", "args", "kind", "place", "watch")

    def __init__(
        self,
        kind: Kind,
        args: tuple[Any, ...],
        label: str,
        place: Place,
        watch: Watch | None = None,
        shows: tuple[Any, ...] | None = None,
    ) -> None:
        self.kind = kind
        self.args = args
        self._name = label
        self._shows = shows
        self.place = place
        self.watch = watch

    @property
    def label(self) -> str:
        """The call as ``explain()`` and messages show it."""
        return self._name if self._shows is None else f"{self._name}({describe_all(self._shows)})"


_new = object.__new__


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
    op = _new(Op)  # not by a call of the class: streams are put together for each request of a server
    op.kind = KINDS[kind]
    op.args = args
    op._name = label or kind
    op._shows = args if shows is None else shows
    op.place = here(3)  # three frames up is the caller of the fluent method, which called us
    op.watch = watch
    return op


class Watchers:
    """The watching operators of one subscription and what each has seen so far."""

    __slots__ = ("_faulty", "_ops", "_outcomes", "_watching")

    def __init__(self, ops: tuple[Op, ...]) -> None:
        self._ops = ops
        self._watching = [(index, op.watch) for index, op in enumerate(ops) if op.watch is not None]
        self._outcomes: dict[int, Outcome] = {}
        self._faulty: tuple[BaseException, int] | None = None

    def subscribed(self, subscription: Subscription) -> BaseException | None:
        """Top down, before ``on_subscribe``. An exception here becomes the stream's error."""
        for index, watch in self._watching:
            if watch.subscribed is not None:
                try:
                    watch.subscribed(subscription)
                except BaseException as error:
                    self._faulty = (error, index)
                    return error
        return None

    def requested(self, n: int, states: list[Any]) -> None:
        """Bottom up: each sees the demand of the operators below it."""
        at = len(self._ops)
        for index, watch in reversed(self._watching):
            while at > index + 1:
                at -= 1
                op = self._ops[at]
                n = op.kind.demand(n, op.args, states[at] if states else None) if states else n
            if watch.requested is not None and n > 0:
                self._quietly(watch.requested, f"do_on_request at {self._ops[index].place}", n)

    def completed(self, first: int, last: int) -> None:
        """The operators in ``[first, last)`` saw the end of their input. May raise, into the loop."""
        for index, watch in self._watching:
            if first <= index < last and index not in self._outcomes:
                self._outcomes[index] = Outcome.COMPLETE
                if watch.completed is not None:
                    try:
                        watch.completed()
                    except BaseException as error:
                        self._faulty = (error, index)
                        raise

    def blame(self, error: BaseException, index: int) -> int:
        """The operator that raised; a watcher has no line in the loop, so it is remembered here."""
        if self._faulty is not None and self._faulty[0] is error:
            return self._faulty[1]
        return index

    def failed(self, error: BaseException, origin: int) -> BaseException:
        """Top down, below ``origin``; each may replace the error for the next."""
        for index, watch in self._watching:
            if index > origin and index not in self._outcomes:
                self._outcomes[index] = Outcome.ERROR
                if watch.failed is not None:
                    try:
                        replaced = watch.failed(error)
                        error = error if replaced is None else replaced  # an error may count as false
                    except BaseException as fault:
                        if fault is not error:
                            set_context(fault, error)
                        annotate(fault, self._ops[index].label, self._ops[index].place)
                        error = fault
        return error

    def released(self) -> None:
        """The source is closed: top down, so that the resource opened last is closed first."""
        for index, watch in self._watching:
            if watch.released is not None:
                self._quietly(watch.released, f"the cleanup of {self._ops[index].label}")

    def over(self, outcome: Outcome) -> None:
        """The subscription is closed: an operator that has seen neither end nor error was cancelled."""
        for index, watch in reversed(self._watching):
            if index not in self._outcomes:
                self._outcomes[index] = Outcome.CANCEL
                if watch.cancelled is not None:
                    self._quietly(watch.cancelled, f"do_on_cancel at {self._ops[index].place}")

    def finish(self) -> None:
        """After the last signal: ``do_finally``, bottom up."""
        watching, self._watching = self._watching, []
        for index, watch in reversed(watching):
            if watch.finished is not None:
                outcome = self._outcomes.get(index, Outcome.CANCEL)
                self._quietly(watch.finished, f"do_finally at {self._ops[index].place}", outcome)

    @staticmethod
    def _quietly(call: Callable[..., object], where: str, *arguments: Any) -> None:
        try:
            call(*arguments)
        except BaseException as error:
            drop_error(error, where)
            if asks_main_thread_to_stop(error):
                raise
