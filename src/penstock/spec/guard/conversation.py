"""The guard itself: it stands between one Publisher and one Subscriber and lets legal signals through."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any, Generic, NoReturn, TypeVar

from penstock.arguments import whole
from penstock.spec.guard.reports import (
    Guard,
    Propagates,
    Report,
    beyond_demand,
    called_during_end,
    is_new,
    name_of,
    overlapping_requests,
    overlapping_signal,
    propagates,
    second_subscription,
    signal_after_end,
    signal_before_subscription,
    subscribe_raised,
    subscriber_raised,
)
from penstock.spec.guard.upstream import TryLock, Upstream
from penstock.spec.interfaces import Subscriber, Subscription
from penstock.spec.violations import (
    NoneViolation,
    RuleViolation,
    check_subscription,
    non_positive_request,
    none_element,
    none_error,
    not_an_error,
)

T = TypeVar("T")


class StrictSubscription(Guard):
    """The Subscription that a guarded Subscriber is given; it passes on what the rules allow."""

    __slots__ = ("_conversation",)

    def __init__(self, conversation: Conversation[Any], source: str) -> None:
        """Speak into ``conversation``; ``source`` is what the Publisher is called in messages."""
        self._conversation = conversation
        self._guarded = f"Subscription of {source}"

    def request(self, n: int, /) -> None:
        """Ask for ``n`` more elements (§3.8)."""
        self._conversation.ask(n)

    def cancel(self) -> None:
        """Ask for no more signals (§3.5)."""
        self._conversation.leave()


class Conversation(Guard, Generic[T]):
    """One Subscription from beginning to end: the Publisher sees it as its Subscriber.

    A conversation is *open* until exactly one of three things happens: the Publisher ends it, the Subscriber
    cancels, or the guard gives up because a rule was broken. The thread that holds the lock delivers the
    signals; signals that come meanwhile wait in the mailbox. Requests made inside a signal are passed on when
    the signal has returned (§3.3).

    With ``guards_subscriber`` the guard also checks how the Subscriber uses its Subscription, and passes an
    illegal request on to the Publisher, whose duty it is to answer (§3.9). Without it the guard
    answers in the Publisher's place.
    """

    __slots__ = (
        "__weakref__",
        "_asking",
        "_begun",
        "_delivered",
        "_ended",
        "_ending",
        "_greeted",
        "_guards_subscriber",
        "_left_behind",
        "_lock",
        "_mailbox",
        "_open",
        "_propagates",
        "_report",
        "_sink",
        "_source",
        "_subscriber",
        "_turn",
        "_upstream",
        "refusal",
    )

    def __init__(
        self,
        subscriber: Subscriber[T],
        report: Report,
        *,
        source: str,
        guards_subscriber: bool = False,
        propagates: Propagates = propagates,
    ) -> None:
        """Speak for ``subscriber``; ``source`` is what the Publisher is called in messages."""
        super().__init__(subscriber)
        self._subscriber: Subscriber[T] | None = subscriber
        self._report = report
        self._source = source
        self._sink = name_of(subscriber)
        self._guards_subscriber = guards_subscriber
        self._propagates = propagates
        self._lock = threading.Lock()
        self._turn = TryLock()
        self._asking = TryLock()
        self._mailbox: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._upstream = Upstream(source, report, self.fail, propagates)
        self._open = True
        self._begun = False  # the Publisher has called on_subscribe
        self._greeted = False  # the Subscriber has been given its Subscription
        self._ended = False  # the Publisher has called on_error or on_complete
        self._ending: int | None = None  # the thread that is inside on_error or on_complete
        self._delivered = 0
        self._left_behind = 0  # elements in the mailbox
        self.refusal: NoneViolation | None = None

    # What the Publisher calls.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Hand the Subscriber its Subscription; a second one is cancelled and reported (§2.5, §2.12)."""
        try:
            check_subscription(subscription)
        except NoneViolation as violation:
            self._refuse(violation)
        self._signal(self._begin, subscription)

    def on_next(self, element: T, /) -> None:
        """Deliver an element if it was asked for (§1.1)."""
        if element is None:
            self._refuse(none_element("on_next"))
        if self._open:
            self._signal(self._next, element)
        elif self._ended:
            self._report(signal_after_end(self._source, self._sink, "on_next"))

    def on_error(self, error: BaseException, /) -> None:
        """End the conversation with an error."""
        if error is None:
            self._refuse(none_error())
        if not isinstance(error, BaseException):
            self._refuse(not_an_error(error))
        self._signal(self._end, error)

    def on_complete(self) -> None:
        """End the conversation well."""
        self._signal(self._end, None)

    def subscribe_raised(self, error: BaseException) -> None:
        """Turn an exception that ``subscribe`` raised into ``on_error``, which it should have been (§1.9)."""
        # Either the guard itself raised it at a Publisher that passed None, and has reported it already; or
        # it comes from the Subscriber and only passes through ``subscribe``.
        if error is not self.refusal and is_new(error, self._propagates):
            self.fail(subscribe_raised(self._source, self._sink, error))

    # What the Subscriber calls, through its StrictSubscription.

    def ask(self, n: object) -> None:
        """Take a request of the Subscriber and pass it on, now or after the signal it was made in."""
        number = whole(n)
        if not self._open:
            self._called_too_late("request")
        elif number is None or number < 1:
            self._ask_illegally(n)
        elif not self._guards_subscriber:
            self._ask(number)
        else:
            first = self._asking.take()
            if not first and self._asking.is_anothers():
                self._report(overlapping_requests(self._sink))
            try:
                self._ask(number)
            finally:
                if first:
                    self._asking.give_back()

    def leave(self) -> None:
        """Take the Subscriber's cancellation and pass it on at once, whatever else is going on (§3.5)."""
        if self._close():
            # The Publisher may keep the guard for as long as it likes, but not the Subscriber (§3.13).
            self._subscriber = None
            self._upstream.cancel()
        else:
            self._called_too_late("cancel")

    def serves(self, subscriber: object) -> bool:
        """Tell whether this conversation is still going on with this very Subscriber."""
        return self._open and self._subscriber is subscriber

    # Giving up.

    def fail(self, violation: RuleViolation) -> None:
        """Report a violation, and if the conversation is open, end it on both sides."""
        gave_up = self._close()
        if gave_up:
            self._upstream.cancel()
        try:
            self._report(violation)
        finally:
            # The Subscriber gets its end even if the report function raises.
            if gave_up:
                self._mailbox.append((self._deliver_failure, violation))
                # Anonymous: this signal is not the Publisher's, so it cannot overlap with one of them (§1.3).
                self._work_off(anonymously=True)

    def _refuse(self, violation: NoneViolation) -> NoReturn:
        # §2.13: the caller gets the exception. The Subscriber has to learn of it as well: it would otherwise
        # wait for an element that cannot come.
        self.refusal = violation
        self.fail(violation)
        raise violation

    def _close(self) -> bool:
        with self._lock:
            was_open, self._open = self._open, False
        return was_open

    # One signal at a time.

    def _signal(self, deliver: Callable[[Any], None], argument: object) -> None:
        if not self._turn.take():
            self._leave_behind(deliver, argument)
            return
        try:
            if self._mailbox:  # what was left behind came first
                self._empty_mailbox()
            deliver(argument)
        finally:
            self._turn.give_back()
            if self._mailbox:
                self._work_off()
        if self._upstream.waiting:
            self._upstream.pass_on()

    def _leave_behind(self, deliver: Callable[[Any], None], argument: object) -> None:
        # Another thread is signalling, which breaks §1.3; or this one is, further up its stack, which does
        # not.
        if self._turn.is_anothers():
            self._report(overlapping_signal(self._source, self._sink))
        if deliver == self._next:
            with self._lock:
                self._left_behind += 1
                surplus = self._delivered + self._left_behind - self._upstream.requested
            if surplus > 0:  # the mailbox must not grow beyond demand
                self.fail(beyond_demand(self._source, self._sink, self._upstream.requested))
                return
        self._mailbox.append((deliver, argument))
        self._work_off()

    def _work_off(self, *, anonymously: bool = False) -> None:
        while self._mailbox and self._turn.take(anonymously=anonymously):
            try:
                self._empty_mailbox()
            finally:
                self._turn.give_back()
            self._upstream.pass_on()

    def _empty_mailbox(self) -> None:
        while self._mailbox:
            deliver, argument = self._mailbox.popleft()
            if deliver == self._next:
                with self._lock:
                    self._left_behind -= 1
            deliver(argument)

    # Delivering: only the holder of the turn comes here.

    def _begin(self, subscription: Subscription) -> None:
        if self._begun:
            self._report(second_subscription(self._source, self._sink))
            # The same Subscription given twice is not a second one, and must not be taken away (§2.5).
            if not self._upstream.holds(subscription):
                self._upstream.dismiss(subscription)
            return
        self._begun = True
        if self._upstream.attach(subscription):
            self._greet()

    def _greet(self) -> None:
        self._greeted = True
        subscriber = self._subscriber
        if subscriber is not None:
            try:
                subscriber.on_subscribe(StrictSubscription(self, self._source))
            except BaseException as error:
                self._subscriber_raised("on_subscribe", error)

    def _next(self, element: T) -> None:
        subscriber = self._subscriber
        if not self._open or subscriber is None:
            if self._ended:
                self._report(signal_after_end(self._source, self._sink, "on_next"))
            # Otherwise the Subscriber has left, and the element was on its way: legal (§1.8, §2.8).
        elif not self._greeted:
            self.fail(signal_before_subscription(self._source, self._sink, "on_next"))
        elif self._delivered >= self._upstream.requested:
            self.fail(beyond_demand(self._source, self._sink, self._delivered))
        else:
            self._delivered += 1
            try:
                subscriber.on_next(element)
            except BaseException as error:
                self._subscriber_raised("on_next", error)

    def _end(self, error: BaseException | None) -> None:
        signal = "on_complete" if error is None else "on_error"
        if self._ended:
            self._report(signal_after_end(self._source, self._sink, signal))
            return
        self._ended = True
        if not self._open:
            return
        if not self._greeted:
            violation = signal_before_subscription(self._source, self._sink, signal)
            violation.__cause__ = error
            self.fail(violation)
        elif self._close():
            self._upstream.forget()
            self._deliver_end(error)

    def _deliver_failure(self, violation: RuleViolation) -> None:
        if not self._greeted:
            self._greet()
        self._deliver_end(violation)

    def _deliver_end(self, error: BaseException | None) -> None:
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is None:
            return
        self._ending = get_ident()
        try:
            if error is None:
                subscriber.on_complete()
            else:
                subscriber.on_error(error)
        except BaseException as raised:
            self._subscriber_raised("on_complete" if error is None else "on_error", raised)
        finally:
            self._ending = None

    def _subscriber_raised(self, signal: str, error: BaseException) -> None:
        self._subscriber = None
        was_open = self._close()
        if is_new(error, self._propagates):
            self._report(subscriber_raised(self._sink, signal, error))
        if was_open:
            self._upstream.cancel()
        if self._propagates(error):
            raise error

    # Asking: any thread of the Subscriber comes here.

    def _ask(self, n: int) -> None:
        self._upstream.add(n)
        if not self._turn.is_mine():
            self._upstream.pass_on()

    def _ask_illegally(self, n: object) -> None:
        if self._guards_subscriber:
            self._report(non_positive_request(n))
            self._upstream.call_request(n)
        else:
            self.fail(non_positive_request(n))

    def _called_too_late(self, call: str) -> None:
        # A call that comes after the end, or crosses it, does nothing (§3.6, §3.7): only one from inside is
        # wrong.
        if self._guards_subscriber and self._ending == get_ident():
            self._report(called_during_end(self._sink, call))
