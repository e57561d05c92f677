"""``using_when``: a resource that is opened and closed asynchronously.

A resource that has arrived is cleaned up exactly once, however the stream ends: in the stream's own course
after its completion or its error, beside it after a cancel.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.errors import drop_error, together
from penstock.streams.fusion import Op, Relay
from penstock.streams.fusion.fragments import NOTHING
from penstock.streams.operators.recovery import Following, FollowRule, FollowSource
from penstock.streams.operators.sources import FailedSource
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["Cleanups", "UsingWhenSource"]


class Cleanups:
    """What to run when a resource is not needed any more; the elements of these streams are ignored."""

    __slots__ = ("after_cancel", "after_completion", "after_error")

    def __init__(
        self,
        after_completion: Callable[[Any], Stream[Any]],
        after_error: Callable[[Any, BaseException], Stream[Any]],
        after_cancel: Callable[[Any], Stream[Any]],
    ) -> None:
        self.after_completion = after_completion
        self.after_error = after_error
        self.after_cancel = after_cancel


class UsingWhenSource(Source):
    """Waits for the resource, runs the stream over it, cleans up."""

    frames = 12

    def __init__(
        self,
        resource: Callable[[], Stream[Any]],
        to_stream: Callable[[Any], Stream[Any]],
        cleanups: Cleanups,
        *shows: Any,
    ) -> None:
        super().__init__("using_when", *shows)
        self._resource = resource
        self._to_stream = to_stream
        self._cleanups = cleanups

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        rule = _ResourceRule(self._cleanups, self.label)
        stage = Following(rule, ops, downstream, self.label, self.place)
        rule.opening = opening = _Opening(stage, rule, self._to_stream)
        stage.introduce()
        if stage.closed:
            return None
        try:
            return self._resource(), opening
        except BaseException as error:
            stage.on_error(error)
            if asks_main_thread_to_stop(error):
                raise
            return None


class _ResourceRule(FollowRule):
    """Holds the resource; whoever takes it out cleans it up."""

    outlives_elements = True
    __slots__ = ("_cleanups", "_held", "_label", "_left", "_mutex", "opening")
    opening: _Opening

    def __init__(self, cleanups: Cleanups, label: str) -> None:
        self._cleanups = cleanups
        self._label = label
        self._held: Any = NOTHING
        self._left = False
        self._mutex = allocate_lock()

    def arrived(self, resource: Any) -> bool:
        """Keep the resource; False if the subscriber has left, and it is cleaned up already."""
        with self._mutex:
            wanted = not self._left
            if wanted:
                self._held = resource
        if not wanted:
            self._clean_up_beside(resource)
        return wanted

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        """After the stream its cleanup; after that, or if there is no resource, the end."""
        resource = self._take()
        if resource is NOTHING:
            return None
        if error is None:
            return _undisturbed(self._cleanups.after_completion(resource), self._label)
        try:
            cleanup = self._cleanups.after_error(resource, error)
        except Exception as fault:
            raise together([error, fault], f"{self._label}, and its cleanup") from None
        return _failing_with(error, _undisturbed(cleanup, self._label), self._label)

    def cancelled(self) -> None:
        """The stage is closed, for whatever reason; a resource that is still here was not cleaned up."""
        with self._mutex:
            self._left = True
        self.opening.cancel()
        resource = self._take()
        if resource is not NOTHING:
            self._clean_up_beside(resource)

    def _take(self) -> Any:
        with self._mutex:
            resource, self._held = self._held, NOTHING
        return resource

    def _clean_up_beside(self, resource: Any) -> None:
        """Nobody waits for this, so its errors go to the hook for dropped errors."""
        where = f"the cleanup of {self._label} after a cancel"
        try:
            self._cleanups.after_cancel(resource)._connect(_Beside(self.opening, where))
        except BaseException as error:
            drop_error(error, where)
            if asks_main_thread_to_stop(error):
                raise


def _undisturbed(cleanup: Stream[Any], label: str) -> Stream[Any]:
    return cleanup._of(_CleanupSource(label, cleanup))


def _failing_with(error: BaseException, cleanup: Stream[Any], label: str) -> Stream[Any]:
    """Run the cleanup, then fail with ``error``, and with that of the cleanup if there is one."""
    return cleanup._of(FollowSource(label, cleanup, lambda: _FailRule(error, label)))


class _FailRule(FollowRule):
    __slots__ = ("_error", "_label")

    def __init__(self, error: BaseException, label: str) -> None:
        self._error: BaseException | None = error
        self._label = label

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        first, self._error = self._error, None
        if first is None:
            return None
        from penstock.streams.flux import Flux

        failures = [first] if error is None else [first, error]
        both = together(failures, f"{self._label}, and its cleanup")
        return Flux._of(FailedSource(both, self._label))

    def cancelled(self) -> None:
        """The subscriber may have left while the cleanup ran, and the error is on nobody's way."""
        error, self._error = self._error, None
        if error is not None:
            drop_error(error, f"{self._label}, whose subscriber left before the cleanup had ended")


class _CleanupSource(Source):
    """A cleanup that has begun. It ends this stream, and goes on if the subscriber leaves."""

    frames = 8

    def __init__(self, label: str, cleanup: Stream[Any]) -> None:
        super().__init__(label)
        self._cleanup = cleanup

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next:
        relay = Relay(ops, downstream, self.label, self.place)
        relay.introduce()
        return self._cleanup, _InCourse(relay)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._cleanup]


class _InCourse:
    """Runs a cleanup to its end, which goes down; an error that comes too late for that is reported."""

    __slots__ = ("_relay", "_subscribed", "below", "home")

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._subscribed = False
        self.home = relay.home.apart()
        self.below = relay.below

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self._subscribed:
            subscription.cancel()  # §2.5
            return
        self._subscribed = True
        subscription.request(UNBOUNDED)

    def on_next(self, element: Any, /) -> None: ...

    def on_error(self, error: BaseException, /) -> None:
        self._relay.on_error(error)

    def on_complete(self) -> None:
        self._relay.on_complete()


class _Opening:
    """Subscribes to the Mono that brings the resource."""

    __slots__ = (
        "_arrived",
        "_cancelled",
        "_done",
        "_rule",
        "_stage",
        "_subscription",
        "_to_stream",
        "below",
        "home",
    )

    def __init__(
        self, stage: Following, rule: _ResourceRule, to_stream: Callable[[Any], Stream[Any]]
    ) -> None:
        self._stage = stage
        self._rule = rule
        self._to_stream = to_stream
        self._subscription: Subscription | None = None
        self._arrived = self._done = self._cancelled = False
        self.home = stage.home
        self.below = stage.below

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self._subscription is not None:
            subscription.cancel()
            return
        self._subscription = subscription
        if self._cancelled:
            subscription.cancel()
            return
        subscription.request(1)

    def on_next(self, resource: Any, /) -> None:
        if self._arrived:
            return
        self._arrived = True
        if not self._rule.arrived(resource):
            return
        try:
            stream = self._to_stream(resource)
        except BaseException as error:
            self._stage._caught(error)
            self._stage.on_error(error)
            return
        stream._connect(self._stage)

    def on_error(self, error: BaseException, /) -> None:
        self._done = True
        if self._arrived:
            drop_error(error, f"the resource of {self._stage.name}, after it had arrived")
        else:
            self._stage.on_error(error)

    def on_complete(self) -> None:
        self._done = True
        if not self._arrived:
            self._stage.on_complete()

    def cancel(self) -> None:
        self._cancelled = True
        if self._subscription is not None and not self._done:
            self._subscription.cancel()


class _Beside:
    """Runs a cleanup to its end."""

    __slots__ = ("_where", "below", "home")

    def __init__(self, opening: _Opening, where: str) -> None:
        self._where = where
        self.home = opening.home.apart()
        self.below = 0

    def on_subscribe(self, subscription: Subscription, /) -> None:
        subscription.request(UNBOUNDED)

    def on_next(self, element: Any, /) -> None: ...

    def on_error(self, error: BaseException, /) -> None:
        drop_error(error, self._where)

    def on_complete(self) -> None: ...
