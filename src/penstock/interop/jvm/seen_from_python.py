"""Objects of Java, with the methods that Python's interfaces have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.interop.jvm.elements import java_element
from penstock.interop.jvm.errors import java_error
from penstock.spec import UNBOUNDED, Subscriber, Subscription, none_subscriber

if TYPE_CHECKING:
    from penstock.interop.jvm.interfaces import JavaInterfaces

__all__ = ["JavaProcessor", "JavaPublisher", "JavaSubscriber", "JavaSubscription"]


class JavaSubscription:
    """A Subscription that Java made. After ``cancel``, or the end of the stream, it lets Java's object go."""

    __slots__ = ("__weakref__", "_java")

    def __init__(self, java: Any) -> None:
        """Stand for the Java object."""
        self._java = java

    def request(self, n: int, /) -> None:
        """Ask Java for ``n`` more; more than a Java ``long`` can hold is unbounded (§3.17)."""
        java = self._java
        if java is None:
            return  # §3.6
        # What is no whole number is no legal request either. Java cannot be asked for it; it can for nothing.
        whole = isinstance(n, int) and not isinstance(n, bool)
        java.request(max(min(n, UNBOUNDED), -UNBOUNDED) if whole else 0)

    def cancel(self) -> None:
        """Tell Java, once."""
        java, self._java = self._java, None
        if java is not None:
            java.cancel()

    def let_go(self) -> None:
        """Forget Java's object without a word to it: the stream has ended."""
        self._java = None


class _OfJava:
    __slots__ = ("__weakref__", "_interfaces", "java")

    def __init__(self, java: Any, interfaces: JavaInterfaces) -> None:
        self.java = java
        """The Java object itself."""
        self._interfaces = interfaces


class JavaSubscriber(_OfJava):
    """A Subscriber that Java made. Give it to any Publisher."""

    __slots__ = ()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Hand Java a Subscription that asks this one."""
        self.java.onSubscribe(self._interfaces.subscription(subscription))

    def on_next(self, element: Any, /) -> None:
        """Hand Java the element."""
        self.java.onNext(java_element(element))

    def on_error(self, error: BaseException, /) -> None:
        """Hand Java the error, or what stands for it there."""
        self.java.onError(None if error is None else java_error(error))

    def on_complete(self) -> None:
        """Tell Java of the end."""
        self.java.onComplete()


class JavaPublisher(_OfJava):
    """A Publisher that Java made: ``Flux.from_publisher(from_java(publisher))`` makes a Flux of it."""

    __slots__ = ()

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Let Java call the subscriber, on threads of its choice."""
        if subscriber is None:
            raise none_subscriber()
        self.java.subscribe(self._interfaces.subscriber(subscriber))


class JavaProcessor(JavaSubscriber, JavaPublisher):
    """A Processor that Java made: a Subscriber and a Publisher."""

    __slots__ = ()
