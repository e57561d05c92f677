"""The wrappers around what crosses the border: Java's objects for Python, and Python's objects for Java.

They add nothing and hold nothing back. If a Publisher breaks a rule, the other side sees it; ``strict`` of
:mod:`penstock.spec` is the guard for hand-written code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from penstock.arguments import whole
from penstock.interop.jvm.conversion import java_element, java_error, null_pointer, python_element
from penstock.interop.jvm.machine import implements, java_method
from penstock.spec import UNBOUNDED, Processor, Publisher, Subscriber, Subscription, none_subscriber

if TYPE_CHECKING:
    from penstock.interop.jvm.interfaces import JavaInterfaces

__all__ = [
    "JavaClasses",
    "JavaProcessor",
    "JavaPublisher",
    "JavaSubscriber",
    "JavaSubscription",
    "java_classes",
]


class JavaSubscription:
    """A Subscription that Java made. ``cancel`` and the end of the stream release the Java object."""

    __slots__ = ("__weakref__", "_java")

    def __init__(self, java: Any) -> None:
        """Wrap the Java object."""
        self._java = java

    def request(self, n: int, /) -> None:
        """Ask Java for ``n`` more; more than a Java ``long`` can hold is unbounded (§3.17)."""
        java = self._java
        if java is None:
            return  # §3.6
        # Java cannot be asked for something that is not a whole number; a request for 0 is as illegal.
        java.request(max(min(whole(n) or 0, UNBOUNDED), -UNBOUNDED))

    def cancel(self) -> None:
        """Cancel the Java Subscription, once."""
        java, self._java = self._java, None
        if java is not None:
            java.cancel()

    def let_go(self) -> None:
        """Release the Java object without cancelling it: the stream has ended."""
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
        """Give Java a Subscription that requests from this one."""
        self.java.onSubscribe(self._interfaces.subscription(subscription))

    def on_next(self, element: Any, /) -> None:
        """Pass the element on to Java."""
        self.java.onNext(java_element(element))

    def on_error(self, error: BaseException, /) -> None:
        """Pass the error on, as the Java exception that stands for it."""
        self.java.onError(None if error is None else java_error(error))

    def on_complete(self) -> None:
        """Pass the end on to Java."""
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


class JavaClasses(NamedTuple):
    """The classes whose objects implement the Java interfaces."""

    subscription: type[Any]
    subscriber: type[Any]
    publisher: type[Any]
    processor: type[Any]


def java_classes(interfaces: JavaInterfaces) -> JavaClasses:
    """The four classes for one family of Java interfaces. Java need not run yet.

    They are made anew for each family because JPype fixes the interface of a class once and for all.
    """

    def implementing(interface: str, written: type[_Wrapper]) -> type[Any]:
        # JPype looks for the methods in the class itself, and does not see those of its parents.
        members = {name: getattr(written, name) for name in dir(written) if not name.startswith("_")}
        return implements(interfaces.name(interface))(
            type(written.__name__, (written,), members | {"interfaces": interfaces})
        )

    return JavaClasses(
        implementing("Subscription", OfSubscription),
        implementing("Subscriber", OfSubscriber),
        implementing("Publisher", OfPublisher),
        implementing("Processor", OfProcessor),
    )


class _Wrapper:
    """A Python object with a Java interface."""

    interfaces: ClassVar[JavaInterfaces]
    """The family that the other side speaks."""

    def __init__(self, python: Any) -> None:
        self.python = python

    @java_method
    def toString(self) -> str:
        return repr(self.python)


class OfSubscription(_Wrapper):
    """A Python Subscription for Java."""

    python: Subscription

    @java_method
    def request(self, n: Any) -> None:
        self.python.request(int(n))

    @java_method
    def cancel(self) -> None:
        self.python.cancel()


# TypeError is Python's null pointer exception only where null was given. Any other TypeError is a fault of
# its own, and must not look to Java like a Publisher or Subscriber that minds its nulls.


class OfSubscriber(_Wrapper):
    """A Python Subscriber for Java.

    It remembers its Subscription, to let it go at the end. Otherwise a Python object that keeps its
    Subscription, and a Java Subscription that keeps its Subscriber (the JDK's does), would hold each other
    for ever.
    """

    python: Subscriber[Any]

    def __init__(self, python: Subscriber[Any]) -> None:
        super().__init__(python)
        self._subscription: JavaSubscription | None = None

    @java_method
    def onSubscribe(self, subscription: Any) -> None:
        """Receive the Java Subscription."""
        if subscription is not None:
            subscription = JavaSubscription(subscription)
            if self._subscription is None:  # a second one is cancelled by the Subscriber (§2.5)
                self._subscription = subscription
        try:
            self.python.on_subscribe(subscription)
        except TypeError as error:
            if subscription is None:
                raise null_pointer(error) from None
            raise

    @java_method
    def onNext(self, element: Any) -> None:
        """Receive an element."""
        try:
            self.python.on_next(python_element(element))
        except TypeError as error:
            if element is None:
                raise null_pointer(error) from None
            raise

    @java_method
    def onError(self, error: Any) -> None:
        """Receive the failure."""
        try:
            self.python.on_error(error)
        except TypeError as fault:
            if error is None:
                raise null_pointer(fault) from None
            raise
        finally:
            if error is not None:
                self._let_go()

    @java_method
    def onComplete(self) -> None:
        """Receive the end."""
        try:
            self.python.on_complete()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.let_go()


class OfPublisher(_Wrapper):
    """A Python Publisher for Java."""

    python: Publisher[Any]

    @java_method
    def subscribe(self, subscriber: Any) -> None:
        """Serve a Java Subscriber."""
        # As Java passes null, against the types: the Publisher answers for itself.
        ours: Any = None if subscriber is None else JavaSubscriber(subscriber, self.interfaces)
        try:
            self.python.subscribe(ours)
        except TypeError as error:
            if subscriber is None:
                raise null_pointer(error) from None
            raise


class OfProcessor(OfSubscriber, OfPublisher):
    """A Python Processor for Java."""

    python: Processor[Any, Any]
