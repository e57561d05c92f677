"""One stream into several: what ``group_by``, the windows, ``partition`` and ``route`` have in common.

A :class:`Splitter` subscribes to the source and puts each element into the queue of a :class:`Branch`. Every
branch is a stream of its own with one subscriber and its own demand. What all of them have not taken yet is
bounded: the source is asked for more only as elements are taken.

Everything that happens (an element, demand, a reader that comes or leaves, a timer) leaves a message and
calls :meth:`Splitter.wake`. As with a :class:`~penstock.streams.fusion.Drain`, the caller that gets the token
works until there is nothing left to do, and the others return at once. So the user's functions are called one
at a time, in the order of the elements, and no lock is held while a signal is sent.

A branch that nobody reads must not stop the source in silence. If the program has let go of it, its elements
are left out, and the log says so unless the stream of branches was cancelled. If the program still holds it,
the log says which branch the source waits for.
"""

from __future__ import annotations

import logging
from _thread import allocate_lock, start_new_thread
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.errors import Place, annotate, drop_error
from penstock.streams.fusion import ExpectsLarge, QueueDrain, announce_large, is_starving
from penstock.streams.home import Home
from penstock.streams.operators.branch import Branch
from penstock.streams.operators.read_ahead import BYTES_AHEAD
from penstock.streams.operators.split_bound import SplitBound
from penstock.streams.schedulers import SchedulerClosed, shared_pool, shared_timer
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop

__all__ = ["Outlet", "Splitter"]

UNREAD_AFTER = 1.0
"""Seconds that the source stands still for a branch without a reader before the log says so."""
STANDSTILL = 1.0
"""Seconds that a bound in bytes may stop everything before it gives way."""

_log = logging.getLogger("penstock.streams")


class Outlet:
    """The Subscription of the stream of branches."""

    __slots__ = ("_splitter",)

    def __init__(self, splitter: Splitter) -> None:
        self._splitter = splitter

    def request(self, n: int, /) -> None:
        self._splitter.post(self._splitter.wants, n)

    def cancel(self) -> None:
        self._splitter.post(self._splitter.closed_below)


class Splitter(ExpectsLarge, ABC):
    """Subscribes to the source, and decides for each element which branch gets it."""

    waits_for_readers: bool = True
    """Whether a branch that nobody reads can stop the source for good."""
    large: int | None = None
    """How many elements to ask for at a time, if they can be large."""
    bounds_bytes: bool = True
    """Whether what waits in the branches is bounded in bytes, if elements can be large."""

    def __init__(
        self, name: str, place: Place, home: Home, below: int, prefetch: int, outer: QueueDrain | None
    ) -> None:
        self.name = name
        self.place = place
        self.home = home
        self.below = below
        self.outer = outer
        """Where new branches go; None once that has been closed, or if the branches are fixed."""
        self._cancelled_below = False
        self.branches: dict[Branch, None] = {}
        """Those that are open, and that somebody reads or may still read; the oldest first."""
        self.over = False
        self.upstream: Subscription | None = None
        self._prefetch = prefetch
        self._asked = 0
        self._arrived = 0
        self._waiting = 0
        """Elements in the queues of open branches."""
        self.inbox: deque[Any] = deque()
        """Elements that have come and were not put into a branch yet."""
        self._mailbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._done = False
        self._error: BaseException | None = None
        self._dirty = False
        self._token = allocate_lock()
        self._roused = False
        self._watching = False
        self._reported = False
        self._bound: SplitBound | None = None
        """What waits in the branches, in bytes; None if bytes are not counted."""
        self._bounds: list[SplitBound] = []
        """More than one if several threads announced large elements at the same moment; the first counts."""

    # ---------------------------------------------------------------- what the source calls
    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self.upstream is not None or self.over:
            subscription.cancel()  # §2.5
            return
        self.upstream = subscription
        if self.over:
            subscription.cancel()  # everybody left on another thread meanwhile
            return
        if self._bound is not None:
            self._bound.begin(subscription)
        self.wake()

    def expect_large(self, step: int) -> bool:
        """Count bytes. But a number that the user gives counts elements, however large they are."""
        self.large = step
        for branch in tuple(self.branches):
            if branch.reader is not None:
                announce_large(branch.reader, step)
        if self._bound is None and self.bounds_bytes:
            bound = SplitBound(step, self._waiting_elements)
            if self.upstream is not None:
                bound.begin(self.upstream)
                if not bound.can_hold():
                    return False  # it was asked for too many already
            made = self._bounds
            made.append(bound)
            self._bound = made[0]  # as in read_ahead_of()
        return self._bound is not None and self._bound.holds

    def is_starving(self) -> bool:
        """Whether somebody waits for an element of a branch, or for a branch."""
        if any(is_starving(branch.reader) for branch in tuple(self.branches) if branch.reader is not None):
            return True
        unread = any(branch.queue and not branch.claimed for branch in self._all_branches())
        outer = self.outer
        return unread and outer is not None and outer.is_starving()

    def on_next(self, element: Any, /) -> None:
        if self.over:
            return  # §2.8: may still come after a cancel
        self.inbox.append(element)
        self._arrived += 1  # after the append: who sees the number sees the element
        self.wake()
        bound = self._bound
        if bound is not None and (type(element) is not bytes or len(element) >= bound.small):
            if bound.came(element):
                self.wake()
            elif bound.stalled:
                self._watch_standstill(bound)

    def on_error(self, error: BaseException, /) -> None:
        if self.over or self._done:
            drop_error(error, f"the source of {self.name}, after its end")
            return
        self._error = error
        self.wake()

    def on_complete(self) -> None:
        self._done = True
        self.wake()

    # ---------------------------------------------------------------- one worker at a time
    def post(self, handler: Callable[..., None], *arguments: Any) -> None:
        """Have the owner call ``handler``."""
        self._mailbox.append((handler, arguments))
        self.wake()

    def post_from_cancel(self, handler: Callable[..., None], *arguments: Any) -> None:
        """The same, from a ``cancel``, which must return at once (§3.5).

        It may free demand for the other branches. A synchronous source would answer that inside the cancel,
        without end if the branch that was cancelled is the only one. So the source is asked elsewhere.
        """
        self._mailbox.append((handler, arguments))
        self.wake(self._ask_elsewhere)

    def _ask_elsewhere(self, upstream: Subscription, n: int) -> None:
        try:
            shared_pool().submit(lambda: upstream.request(n))
        except SchedulerClosed:
            return  # the interpreter is exiting, and the source with it

    def post_from_collector(self, handler: Callable[..., None], *arguments: Any) -> None:
        """The same, from a finalizer.

        That runs at any moment, perhaps while this thread holds a lock of the user's program, so it must not
        send signals. The thread that owns the token finds the message, or else a new thread does.
        """
        self._mailbox.append((handler, arguments))
        self._dirty = True
        if not self._token.locked() and not self._roused:
            self._roused = True
            try:
                start_new_thread(self._rouse, ())
            except RuntimeError:
                return  # the interpreter is exiting, and the source with it

    def _rouse(self) -> None:
        self._roused = False
        self.wake()

    def wake(self, ask: Callable[[Subscription, int], None] | None = None) -> None:
        """Do whatever there is to do, unless another thread is doing it."""
        self._dirty = True
        while self._dirty:
            if not self._token.acquire(False):
                return
            try:
                wanted = self._turn()
            finally:
                self._token.release()
            # Asked without the token: a synchronous source answers at once, and must find it free.
            if (bound := self._bound) is not None and bound.stalled:
                self._hold(bound, elsewhere=ask is not None)
            upstream = self.upstream
            if not wanted or upstream is None:
                continue
            if ask is None:
                upstream.request(wanted)
            else:
                ask(upstream, wanted)

    def _turn(self) -> int:
        try:
            while True:
                self._dirty = False  # before the looks: whatever comes after them is seen in another turn
                while self._mailbox:
                    handler, arguments = self._mailbox.popleft()
                    handler(*arguments)
                if self.over:
                    return 0
                if self.outer is None and not self.branches:
                    self._leave()
                    return 0
                if not self.inbox:
                    break
                if not self.place_one(self.inbox[0]):
                    if self._mailbox or (self.outer is None and not self.branches):
                        continue
                    break
                self.inbox.popleft()
        except BaseException as error:
            self.fail(error)
            if asks_main_thread_to_stop(error):
                raise
            return 0
        # The looks have this order because an element comes before the end.
        ended = self._done or self._error is not None
        if ended and not self.inbox:
            self.finish(self._error)
            return 0
        if ended or self.upstream is None or self._asked >= UNBOUNDED:
            return 0
        on_the_way = self._asked - self._arrived
        wanted = self.wanted(on_the_way)
        if wanted and self._bound is not None:
            wanted = self._bound.limit(wanted, on_the_way)
        if wanted:
            self._asked = UNBOUNDED if wanted >= UNBOUNDED else self._asked + wanted
        elif self.waits_for_readers:
            self._watch()
        return wanted

    # ---------------------------------------------------------------- what a kind of splitter decides
    @abstractmethod
    def place_one(self, element: Any) -> bool:
        """Put the element into its branch; False if it has to wait for demand. May raise."""

    def wanted(self, on_the_way: int) -> int:
        """How many elements to ask of the source now: as many as were taken, in batches."""
        if on_the_way > self._prefetch >> 2:
            return 0
        return max(0, self._prefetch - self._waiting - len(self.inbox) - on_the_way)

    def wants(self, n: int) -> None:
        """Somebody wants ``n`` more branches; nothing to do where they open without being asked for."""
        return

    def forgotten(self, branch: Branch) -> None:
        """The reader of a branch has cancelled, or there will never be one."""
        return

    # ---------------------------------------------------------------- messages; the owner calls these
    def joined(self, branch: Branch, reader: Subscriber[Any]) -> None:
        """A branch has got its reader."""
        branch.reader = reader
        reader.on_subscribe(branch)
        if branch.ended:
            branch.tell_end(reader)

    def took(self, branch: Branch, n: int) -> None:
        """A reader has taken ``n`` elements."""
        if self._bound is not None:
            self._bound.moves += 1
        if branch in self.branches:
            branch.taken += n
            self._waiting -= n

    def left(self, branch: Branch) -> None:
        """A branch has lost its reader, or will never have one."""
        if branch.gone:
            return
        branch.gone = True
        if branch.reader is None:
            branch.queue.clear()  # a reader clears it by itself, when its loop has stopped
        if branch in self.branches:
            self.close(branch)
            # After a cancel, branches that had not reached a reader yet are let go of by the operators below.
            if not branch.claimed and self.waits_for_readers and not self._cancelled_below:
                self._report(f"nobody reads {branch.label}, so its elements are left out")
            self.forgotten(branch)

    def closed_below(self) -> None:
        """No more branches are wanted; those that are open go on."""
        self.outer = None
        self._cancelled_below = True

    # ---------------------------------------------------------------- branches; the owner calls these
    def open(self, label: str) -> Branch:
        """A new branch."""
        branch = Branch(self, label)
        self.branches[branch] = None
        return branch

    def give(self, branch: Branch, element: Any) -> None:
        """Put an element into a branch, and count it if somebody may take it."""
        if not branch.gone:
            self._waiting += 1
        branch.give(element)

    def close(self, branch: Branch) -> None:
        """A branch does not hold the source back any more: what waits in it is its own."""
        del self.branches[branch]
        self._waiting -= branch.given - branch.taken
        if self._bound is not None:
            self._bound.closed = [
                each for each in (*self._bound.closed, branch) if each.queue and not each.gone
            ]

    # ---------------------------------------------------------------- the end; the owner calls these
    def finish(self, error: BaseException | None) -> None:
        """The source has ended: so do all branches, and the stream of branches."""
        self.over = True
        outer, self.outer = self.outer, None
        branches, self.branches = self.branches, {}
        if error is not None:
            annotate(error, self.name, self.place)
        for branch in branches:
            branch.end(error)
        if outer is None:
            pass
        elif error is None:
            outer.on_complete()
        else:
            outer.on_error(error)
        self._forget()

    def fail(self, error: BaseException) -> None:
        """A function of the user raised, or a bound was passed: cancel the source and fail."""
        upstream = self.upstream
        if upstream is not None and not self._done and self._error is None:
            upstream.cancel()
        if self.over:
            drop_error(error, f"{self.name}, after its end")
            return
        self.finish(error)

    def _leave(self) -> None:
        self.over = True
        upstream = self.upstream
        if upstream is not None and not self._done and self._error is None:
            upstream.cancel()
        if self._error is not None:
            drop_error(self._error, f"the source of {self.name}, after it was cancelled")
        self._forget()

    def _forget(self) -> None:
        """Let go of everything (§3.13); a late reader of a branch finds what waits in the branch."""
        self.upstream = None
        self._error = None
        self._bound, self._bounds = None, []
        self.inbox.clear()
        self.released()

    def released(self) -> None:
        """The splitter has ended, for whatever reason."""
        return

    # ---------------------------------------------------------------- bytes
    @property
    def counts_bytes(self) -> bool:
        """Whether what waits in the branches is bounded in bytes now."""
        return self._bound is not None

    def _all_branches(self) -> tuple[Branch, ...]:
        """Those that are open, and those that have ended, in which elements may wait."""
        bound = self._bound
        return (*self.branches, *(() if bound is None else bound.closed))

    def _waiting_elements(self) -> list[Any]:
        queues = [branch.queue for branch in self._all_branches() if not branch.gone]
        return [element for queue in (self.inbox, *queues) for element in tuple(queue)]

    def _hold(self, bound: SplitBound, *, elsewhere: bool) -> None:
        """The source is held: let it go on if it may, and otherwise look after it. Without the token."""
        if elsewhere:
            with suppress(SchedulerClosed):  # the interpreter is exiting, and the source with it
                shared_pool().submit(bound.took)
        else:
            bound.took()
        if bound.stalled:
            self._watch_standstill(bound)

    def _watch_standstill(self, bound: SplitBound) -> None:
        if not bound.is_watched:
            bound.is_watched = True
            seen = self._arrived + bound.moves
            shared_timer().submit_after(STANDSTILL, lambda: self.post(self._look_for_standstill, seen))

    def _look_for_standstill(self, seen: int) -> None:
        bound = self._bound
        if bound is None:
            return
        bound.is_watched = False
        if not bound.stalled:
            return
        if seen != self._arrived + bound.moves or not self.is_starving():
            self._watch_standstill(bound)
            return
        self._bound, self._bounds, self.bounds_bytes = None, [], False
        self._report(
            f"more than {BYTES_AHEAD >> 10} KiB wait in its parts, and a reader waits for what comes behind "
            "them; from now on the parts are bounded in elements only. Read the parts side by side "
            "(flat_map), or set prefetch to the number of elements that may wait"
        )
        with suppress(SchedulerClosed):  # as above
            shared_pool().submit(bound.lift)

    # ---------------------------------------------------------------- a branch that nobody reads
    def _unread(self) -> Branch | None:
        """A branch without a reader that holds elements, if the source waits."""
        if self.over or self._done or self._asked > self._arrived:
            return None
        return next((branch for branch in self.branches if branch.queue and not branch.claimed), None)

    def _watch(self) -> None:
        if not self._watching and not self._reported and self._unread() is not None:
            self._watching = True
            seen = self._arrived
            shared_timer().submit_after(UNREAD_AFTER, lambda: self.post(self._look_again, seen))

    def _look_again(self, seen: int) -> None:
        self._watching = False
        branch = self._unread()
        if branch is not None and seen == self._arrived:
            self._report(
                f"the source stands still, because {len(branch.queue)} elements wait for {branch.label} and "
                "nobody has subscribed to it; subscribe to every part (a flat_map needs a concurrency of at "
                "least their number), or let go of those that you do not need"
            )

    def _report(self, problem: str) -> None:
        if not self._reported:
            self._reported = True
            _log.warning("%s, assembled at %s: %s", self.name, self.place, problem)
