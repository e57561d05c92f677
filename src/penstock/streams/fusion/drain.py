"""The drain: owns a compiled loop and makes sure that it never runs twice at once.

Everything that may happen to a subscription (a request, a cancel, an element from another thread) leaves a
note and calls :meth:`Drain.drain`. The caller that gets the ownership token works until there is nothing left
to do; all the others return at once. So

* signals are serial (§1.3), whatever thread they come from;
* ``request`` inside ``on_next`` adds to a mailbox and returns, so the stack does not grow (§3.3);
* demand is summed by the owner alone, so no lock is taken for an element, nor a blocking one for a request.

No wake-up is lost, because a caller leaves its note *before* it tries the token, and the owner looks for
notes *after* it has given the token back.
"""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from time import monotonic
from typing import Any, ClassVar

from penstock.arguments import whole
from penstock.spec import UNBOUNDED, Subscriber, non_positive_request
from penstock.streams.errors import Place
from penstock.streams.events import StageState, listener_for_new_streams
from penstock.streams.fusion.codegen import SOURCE, TAIL, Head, Tail
from penstock.streams.fusion.compiler import run, shape_of, states_of
from penstock.streams.fusion.link import is_starving, last_passed
from penstock.streams.fusion.op import Labelled, Op, Outcome, Watchers
from penstock.streams.fusion.termination import Termination
from penstock.streams.home import NOWHERE, Home, home_here
from penstock.streams.stage_meter import Glimpse, meters_for_new_streams

__all__ = ["Drain"]

FAR = 1 << 29
"""How far a loop runs before it looks up: Python compares numbers of this size faster than larger ones."""
FRAMES = 8
"""Stack frames that an element, or a subscription, needs to get through one stage."""


class Drain(Termination):
    """A subscription whose elements come out of a compiled loop."""

    head: ClassVar[Head]
    can_flow: ClassVar[bool] = False
    """Whether an element that comes while there is demand needs nothing but the loop: see flow()."""
    __slots__ = (
        "__weakref__",
        "_bare",
        "_leading",
        "_owner",
        "_reported",
        "_starved",
        "_still_since",
        "at_end",
        "below",
        "context",
        "demand",
        "dirty",
        "paused",
        "refill_at",
        "taken",
    )

    def __init__(
        self,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place | None,
        *,
        trusted: bool = False,
    ) -> None:
        self.ops = ops
        self.downstream: Subscriber[Any] = downstream
        self._origin: str | Labelled = name
        self.place = place
        self.stop_at = 0
        """The loop stops when it has emitted this many; -1 means at once. The one word that it polls."""
        self.sated = True
        """The same for the upper segments of a chain that had to be cut: whether the demand is used up."""
        self.at_end = False  # whether the source is known to have no further element
        self.demand = 0  # the sum of all requests; only the owner adds to it
        self.emitted = 0
        self.taken = 0  # elements that the loop has taken out of its queue, if it has one
        self.refill_at = UNBOUNDED  # it calls refill() when it has taken this many
        self.mailbox: deque[int] = deque()
        self.halted = self.cancelled = self.closed = self.paused = self.released = False
        self.violation: BaseException | None = None
        self.dirty = True  # something other than demand has changed since the loop last ran
        self.flowing = False
        """The loop waits for an element, with demand for it and nothing else to look at: see flow()."""
        self.stopped = SOURCE  # the operator that ended the stream before its source did
        home = getattr(downstream, "home", None)
        self.home: Home = home if type(home) is Home else home_here()
        self._watchers: Watchers | None = None
        for op in ops:
            if op.watch is not None:
                self._watchers = Watchers(ops)
                break
        watched = self._watchers is not None
        self._shape = shape_of(
            ops, self.head, Tail.PUSH, watched=watched, trusted=trusted, paced=self.is_paced()
        )
        self.states = states_of(ops, self._shape)
        self.context: Context | None = None
        """The subscriber's context, for elements that come from other threads."""
        self.below: int = getattr(downstream, "below", 0) + FRAMES
        self._interrupt: BaseException | None = None
        """A Ctrl-C or exit on the main thread, raised to the caller after the last signal."""
        self._last: Subscriber[Any] | None = None  # it still has to receive the last signal
        self._loop: Any = None
        self._resume: Callable[[], object] | None = None
        self._send: Callable[[Any], object] | None = None  # takes an element: the loop, or the subscriber
        self._bare = False
        self._leading = self._shape.leads
        """Elements that go before those of the source (``start_with``) have not all been sent."""
        self._starved = self.head is not Head.ITERABLE and not self._leading
        self._owner = allocate_lock()
        self._owner.acquire()  # released by introduce(): nothing may run before on_subscribe
        self._listener = listener_for_new_streams()
        self._reported = 0
        self._still_since = 0.0

    # ---------------------------------------------------------------- what the subscriber calls
    def request(self, n: int, /) -> None:
        """Ask for ``n`` more elements (§3.8). Returns normally whatever ``n`` is (§3.16)."""
        if self.closed:
            return  # §3.6
        if type(n) is int and n > 0:
            self.mailbox.append(n)
        elif (number := whole(n)) is not None and number > 0:
            n = number
            self.mailbox.append(n)
        else:
            # The owner answers §3.9: another thread may be inside on_next just now (§1.3).
            self.violation = non_positive_request(n)
            self._stop()
        if self._watchers is not None and self.violation is None:
            self._watchers.requested(n, self.states)
        if not self._owner.locked():  # otherwise the owner looks into the mailbox after it has let go
            self.drain()

    def cancel(self) -> None:
        """Stop (§3.12); from any thread, any number of times (§3.5, §3.7), and never raises (§3.15)."""
        if not self.closed:
            self.cancelled = True
            self._stop()
            self.drain()
        if not self.released and self.home.loop is not None:
            self.home.unreleased.add(self)  # another thread is at work here, and lets go of upstream

    def abort(self, error: BaseException) -> None:
        """End with ``error``, as soon as the owner looks up."""
        if self.closed:
            return
        self.violation = error
        self._stop()
        self.drain()

    def pause(self) -> None:
        """Emit nothing more until :meth:`resume`; called by the subscriber inside ``on_next``."""
        self.paused = self.sated = True
        self.stop_at = 0
        if self.halted:
            self._stop()  # it came while we wrote

    def resume(self) -> None:
        """Go on with the open demand; may be called from any thread."""
        self.paused = False
        self.dirty = True
        self.drain()

    def is_starving(self) -> bool:
        """Whether somebody below waits for an element: there is demand, and nobody is at work here."""
        wants = self.demand > self.emitted and not self.paused and not self.closed
        return wants and not self._owner.locked() and is_starving(self.downstream)

    # ---------------------------------------------------------------- ownership
    def drain(self) -> None:
        """Do whatever there is to do, unless another thread is doing it."""
        while (self.mailbox or self.dirty or self.halted) and not self.closed:
            if not self._owner.acquire(False):
                return
            try:
                try:
                    wanted = self.turn() if self.context is None else self.context.run(self.turn)
                finally:
                    self._owner.release()
            except RecursionError as error:
                # This stack is too deep even for the last signal: another thread has a fresh one. It must
                # find the drain free, because nobody looks again after us.
                start_new_thread(self._rescue, (error,))
                return
            if wanted:
                self.ask(wanted)

    def push(self, element: Any) -> bool:
        """Send an element straight on, past the queue; False if it has to be queued behind others.

        Only for a drain that is ``flowing``. Below a queue without operators the element does not even enter
        the loop, which takes over the counts when it runs next.
        """
        send = self._send
        if send is None or not self._owner.acquire(False):
            return False
        sent = False
        try:
            try:
                if self.flowing and not self.dirty and self.lone and element is not None:
                    sent = True
                    send(element)
                    if self._bare:
                        self.emitted = self.taken = taken = self.taken + 1
                        if taken >= self.refill_at:
                            self.refill()
                    if self.emitted >= self.stop_at:
                        self.flowing = False  # while we own it: another thread may push when we let go
            except BaseException as error:
                if self._bare or not isinstance(error, StopIteration):
                    # Before any call: without stack for that, the dead loop must not look finished.
                    self.violation, self.halted = error, True
                self._failed_push(error)
            finally:
                self._owner.release()
        except RecursionError as error:
            start_new_thread(self._rescue, (error,))  # see drain()
            return True
        if not sent:
            self.drain()  # who came meanwhile, with an end or a cancel, has left it to us
        elif not self.flowing or self.dirty or self.mailbox:
            self.flowing = False
            self.dirty = True
            self.drain()
        return sent

    def _failed_push(self, error: BaseException) -> None:
        if not self._bare and isinstance(error, StopIteration):
            self._inside(self._complete)
            return
        self._inside(self._crash, error, TAIL if self._bare else None)

    def flow(self) -> None:
        """Send on an element that has just been queued: what drain() does, without a look at all the rest.

        Only for a drain that is ``flowing``. As soon as there is anything else to do, drain() does it. That
        is what ``dirty`` says, so nothing here may clear it: an end may have come from another thread.
        """
        if not self._owner.acquire(False):
            self.dirty = True
            self.drain()
            return
        try:
            try:
                if self.flowing and not self.dirty and self._resume:  # still, now that we own it
                    self._resume()
                    if self.emitted >= self.stop_at:
                        self.flowing = False  # see push()
                else:
                    self.dirty = True
            except StopIteration:
                self._inside(self._complete)
            except BaseException as error:
                self.violation, self.halted = error, True  # see turn()
                self._inside(self._crash, error)
            finally:
                self._owner.release()
        except RecursionError as error:
            start_new_thread(self._rescue, (error,))  # see drain()
            return
        if not self.flowing or self.dirty or self.mailbox:
            self.flowing = False
            self.dirty = True
            self.drain()

    def _inside(self, call: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the subscriber's context."""
        if self.context is None:
            call(*arguments)
        else:
            self.context.run(call, *arguments)

    def introduce(self) -> None:
        """Call ``on_subscribe`` (§1.9). Nothing is emitted before it has returned."""
        try:
            if self._watchers is not None and self.violation is None:
                self.violation = self._watchers.subscribed(self)
                self.halted = self.violation is not None
            if self._listener is not None:
                self._listener.subscribed(self)
                self._still_since = monotonic()
            for meter in meters_for_new_streams():
                meter.add(self)
            try:
                self.downstream.on_subscribe(self)
            except BaseException as error:
                self._subscriber_raised(error)
        finally:
            self._owner.release()
        self.drain()

    def turn(self) -> int:
        """Run the loop until it cannot go on. Returns what should now be asked of upstream.

        The caller asks, because a synchronous upstream answers at once: it must find the drain free, or its
        elements would pile up in our queue.
        """
        while not self.closed:
            if self.halted:
                self._halt()
                break
            if self.mailbox:
                self._collect()
                continue  # a cancel may have come between
            if not self.can_run():
                if self.switch():
                    continue
                if self._leading:
                    self._leading = not self._starved
                error = None if self._leading else self.due_error()
                if error is not None:
                    self._fail(error, SOURCE)
                    break
                wanted = self.wanted()
                self.flowing = (
                    self.can_flow
                    and self._starved
                    and self._loop is not None
                    and self.emitted < self.stop_at
                    and self._listener is None
                )
                return wanted
            self.dirty = False
            try:
                if self._loop is None:
                    self._start()
                self._starved = next(self._loop)
            except StopIteration:
                self._complete()
            except BaseException as error:
                # In case the stack is too deep for what follows: the dead loop must not look finished.
                self.violation, self.halted = error, True
                self._crash(error)
            else:
                if self.stop_at <= self.emitted < self.demand:
                    self.set_stop()
                    self.dirty = self.dirty or not self.sated
                if self._listener is not None:
                    self._report()
        return 0

    def _start(self) -> None:
        source, out = self.source(), self.outlet(last_passed(self).downstream)
        self._loop = run(
            self._shape, self.ops, self.states, self, source, out, self._origin, brief=self.is_brief()
        )
        if self.can_flow:
            run_in = self.context.run if self.context is not None else None
            self._resume = partial(run_in, next, self._loop) if run_in else self._loop.__next__
            if len(self._shape.loops) == 1:
                self._bare = not self.ops and self.head is Head.QUEUE
                send: Callable[..., object] = out if self._bare else self._loop.send
                self._send = partial(run_in, send) if run_in else send

    def _collect(self) -> None:
        box, total = self.mailbox, 0
        while box:
            total += box.popleft()
        demand = self.demand + total
        self.demand = demand if demand < UNBOUNDED else UNBOUNDED  # §3.17
        self.dirty = True
        self.set_stop()
        if self._listener is not None:
            if self.demand - total <= self.emitted:
                self._listener.waited(self, monotonic() - self._still_since)
            self._listener.requested(self, total)

    def set_stop(self) -> None:
        """Tell the loop how far to run."""
        stop, far = self.next_stop(), self.emitted + FAR
        self.stop_at = 0 if self.paused else stop if stop < far else far
        self.sated = self.stop_at <= self.emitted
        if self.halted:
            self._stop()  # it came while we wrote

    def _report(self, outcome: Outcome | None = None) -> None:
        fresh = self.emitted - self._reported
        if self._listener is None:
            return
        if fresh:
            self._reported = self.emitted
            self._listener.emitted(self, fresh)
            self._listener.queued(self, self.queued())
            self._still_since = monotonic()
        if outcome is not None:
            self._listener.terminated(self, outcome)

    # ---------------------------------------------------------------- what a kind of drain decides
    def source(self) -> Any:
        """What the head of the loop takes elements from."""
        raise AssertionError("each head has a source")

    def outlet(self, below: Subscriber[Any]) -> Any:
        """What the tail of the loop hands elements to."""
        return below.on_next

    def is_paced(self) -> bool:
        """Whether the loop lets others run on the event loop that waits for it."""
        return self.head is Head.ITERABLE and self.home is not NOWHERE and self.home.paced

    def is_brief(self) -> bool:
        """Whether it is known that only a few elements come."""
        return False

    def can_run(self) -> bool:
        """Whether resuming the loop would do anything."""
        return self.dirty

    def switch(self) -> bool:
        """Whether another upstream has followed the one that ended."""
        return False

    def due_error(self) -> BaseException | None:
        """The error of upstream, once all elements before it have been sent down."""
        return None

    def wanted(self) -> int:
        """How many elements to ask of upstream now."""
        return 0

    def ask(self, n: int) -> None:
        """Ask upstream for ``n`` elements."""

    def refill(self) -> None:
        """Called by the loop at ``refill_at``."""

    def next_stop(self) -> int:
        """How far the loop may run before it looks up again: as far as there is demand."""
        return self.demand

    def release(self) -> None:
        """Let go of upstream: cancel it, or close it, unless it ended by itself."""

    def state(self) -> StageState:
        """What this stage looks like now."""
        name = " ".join([self.name, *(op.label for op in self.ops)])
        return StageState(
            name, self.demand, self.emitted, self.queued(), self.capacity(), self.runs_on(), self.closed
        )

    def glimpse(self) -> Glimpse | None:
        """What this stage does now, seen from any thread; None if it is over."""
        if self.closed:
            return None
        loop = self._loop
        if loop is not None and loop.gi_running and (frame := loop.gi_frame) is not None:
            shape = self._shape
            owner = shape.loops[-1].owner.get(frame.f_lineno, SOURCE)
            if owner >= 0:
                return Glimpse(2, self.ops[shape.bases[-1] + owner].label)
            if owner == TAIL:
                return Glimpse(0)  # the stages below are at work
            if len(shape.loops) > 1:
                return Glimpse(2, " ".join(op.label for op in self.ops[: shape.bases[-1]]))
            return Glimpse(1)
        wants = (self.demand > self.emitted or self.mailbox) and not self.paused
        return Glimpse(1 if wants else 0)
