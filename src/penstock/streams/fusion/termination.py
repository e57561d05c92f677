"""How a stage ends: one last signal, and everything above is let go of.

Whatever ends a stage (its source, an operator, the subscriber, a cancel, a stack without room for another
call) comes here, on the thread that owns it, and is told to the subscriber at most once. What the subscriber
cannot be told goes to the hook for dropped errors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spec import RuleViolation, Subscriber
from penstock.streams.errors import Place, annotate, drop_error
from penstock.streams.events import Listener
from penstock.streams.fusion.codegen import SOURCE, TAIL
from penstock.streams.fusion.compiler import Shape, culprit, emitted_before
from penstock.streams.fusion.link import GONE, Link, last_passed
from penstock.streams.fusion.op import Labelled, Op, Outcome, Watchers, label_of
from penstock.streams.home import Home
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop

__all__ = ["Termination"]


class Termination(Link):
    """The part of a drain that ends it. The drain sets its fields."""

    __slots__ = (
        "_interrupt",
        "_last",
        "_listener",
        "_loop",
        "_origin",
        "_resume",
        "_send",
        "_shape",
        "_watchers",
        "cancelled",
        "closed",
        "downstream",
        "emitted",
        "flowing",
        "halted",
        "home",
        "mailbox",
        "ops",
        "place",
        "released",
        "sated",
        "states",
        "stop_at",
        "stopped",
        "violation",
    )
    ops: tuple[Op, ...]
    place: Place | None
    downstream: Subscriber[Any]
    cancelled: bool
    closed: bool
    released: bool
    halted: bool
    sated: bool
    flowing: bool
    stop_at: int
    emitted: int
    stopped: int
    violation: BaseException | None
    mailbox: deque[int]
    states: list[Any]
    _origin: str | Labelled
    _shape: Shape
    _watchers: Watchers | None
    _listener: Listener | None
    _interrupt: BaseException | None
    _last: Subscriber[Any] | None
    _loop: Any
    _resume: Callable[[], object] | None
    _send: Callable[[Any], object] | None
    if TYPE_CHECKING:
        home: Home  # not for those who build operators of their own

    @property
    def name(self) -> str:
        """The source of this stage, for messages."""
        return label_of(self._origin)

    # ---------------------------------------------------------------- what a drain does about it
    def cancel(self) -> None:
        """Stop (§3.12)."""
        raise AssertionError("a drain can be cancelled")

    def release(self) -> None:
        """Let go of upstream: cancel it, or close it, unless it ended by itself."""

    def _report(self, outcome: Outcome | None = None) -> None:
        """Tell the listener how many elements there were, and how it ended."""

    def _stop(self) -> None:
        """Make the loop give up control."""
        self.halted = self.sated = True
        self.flowing = False
        self.stop_at = -1

    # ---------------------------------------------------------------- how it ends
    def ended(self, first: int, last: int) -> None:
        """Called by the loop: the operators from ``first`` up to ``last`` have seen the end of the input."""
        if self._watchers is not None:
            self._watchers.completed(max(first, self.stopped + 1), last)

    def _complete(self) -> None:
        downstream = self._close(Outcome.COMPLETE)
        try:
            downstream.on_complete()
        except RecursionError:
            raise  # see drain()
        except BaseException as error:
            self._lost(error, f"on_complete of the subscriber of {self.name} (§2.13)")
        self._finish()

    def _fail(self, error: BaseException, index: int) -> None:
        if index == SOURCE:
            annotate(error, self.name, self.place)
        else:
            annotate(error, self.ops[index].label, self.ops[index].place)
        if self._watchers is not None:
            error = self._watchers.failed(error, index)
        downstream = self._close(Outcome.ERROR)
        try:
            downstream.on_error(error)
        except RecursionError:
            raise  # see drain()
        except BaseException as fault:
            drop_error(error, f"{self.name}, whose subscriber raised in on_error")
            self._lost(fault, f"on_error of the subscriber of {self.name} (§2.13)")
        self._finish()

    def _crash(self, error: BaseException, index: int | None = None) -> None:
        self._caught(error)
        if index is None:
            index = culprit(error, self._shape)
        if self._watchers is not None:
            index = self._watchers.blame(error, index)
        if index == TAIL:
            self._subscriber_raised(error)
        elif self.cancelled:
            self._close(Outcome.CANCEL)
            drop_error(error, f"{self.name} after it was cancelled")
            self._finish()
        else:
            self.emitted = emitted_before(error, self._shape, self)
            self._fail(error, index)

    def _subscriber_raised(self, error: BaseException) -> None:
        last = last_passed(self)
        if isinstance(error, RecursionError) and isinstance(getattr(last.downstream, "home", None), Home):
            if last is not self:
                last.abort(error)  # first, so that no stage between takes it for an error of ours
            self._fail(error, SOURCE)  # one of our own stages, which ran out of stack
            return
        # §2.13: as if it had cancelled; only the hook for dropped errors can be told.
        self._close(Outcome.CANCEL)
        if isinstance(last, Termination):
            last.cancel()
        annotate(error, "the subscriber of " + self.name, self.place)
        self._lost(error, f"the subscriber of {self.name}, which raised (§2.13)")
        self._finish()

    def _caught(self, error: BaseException) -> None:
        """Remember a Ctrl-C or exit from the user's code, to raise it once the stream has ended."""
        if asks_main_thread_to_stop(error):
            self._interrupt = error

    def _lost(self, error: BaseException, where: str) -> None:
        """Report an exception that cannot be a signal any more, unless the caller gets it."""
        self._caught(error)
        if self._interrupt is not error:
            drop_error(error, where)

    def _rescue(self, error: BaseException) -> None:
        """End with the RecursionError, on a thread with a fresh stack."""
        downstream, self._last = self._last, None
        if not self.closed:
            self.abort(error)
        elif downstream is not None:
            try:
                downstream.on_error(error)
            except BaseException as fault:
                drop_error(fault, f"on_error of the subscriber of {self.name} (§2.13)")

    def _halt(self) -> None:
        error = None if self.cancelled else self.violation
        if error is not None and not isinstance(error, RuleViolation):
            index = SOURCE if self._watchers is None else self._watchers.blame(error, SOURCE)
            self._fail(error, index)
            return
        downstream = self._close(Outcome.CANCEL)  # the stages above did nothing wrong
        if error is not None:
            try:
                downstream.on_error(error)
            except BaseException as fault:
                self._lost(fault, f"on_error of the subscriber of {self.name} (§2.13)")
        self._finish()

    def _close(self, outcome: Outcome) -> Subscriber[Any]:
        """Become inert (§1.6) and forget the subscriber (§3.13). Returns it for a last signal."""
        self._last = downstream = self.downstream  # first: there may be no stack for anything else
        self.closed = True
        self._stop()
        self.downstream = GONE
        loop = self._loop
        self._loop = self._send = self._resume = None
        if self._listener is not None:
            self._report(outcome)
        try:
            try:
                if loop is not None:
                    loop.close()
            finally:
                self.release()
        except RecursionError:
            raise  # see drain()
        except BaseException as error:
            self._lost(error, f"closing {self.name}")
        if self._watchers is not None:
            self._watchers.released()
            self._watchers.over(outcome)
        self.states = []
        self.mailbox.clear()
        self.released = True
        if self.home.unreleased.stages:
            self.home.unreleased.remove(self)
        return downstream

    def _finish(self) -> None:
        # The traceback of an error refers to the subscriber, as ``_last`` does (§3.13).
        self._last = self.violation = None
        if self._watchers is not None:
            self._watchers.finish()
        if self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            raise interrupt
