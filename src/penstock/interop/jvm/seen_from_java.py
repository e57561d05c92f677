"""Objects of Python, with the methods that Java's interfaces have.

Java calls these. They add nothing and hold nothing back: what a Publisher does wrong, Java sees. A guard for
hand-written code is ``penstock.spec.strict``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.interop.jvm.elements import python_element
from penstock.interop.jvm.errors import null_pointer
from penstock.interop.jvm.machine import implements, java_method
from penstock.interop.jvm.seen_from_python import JavaSubscriber, JavaSubscription
from penstock.spec import Processor, Publisher, Subscriber, Subscription

if TYPE_CHECKING:
    from penstock.interop.jvm.interfaces import JavaInterfaces

__all__ = ["JavaClasses", "java_classes"]


class JavaClasses(NamedTuple):
    """The classes whose objects Java takes for its own."""

    subscription: type[Any]
    subscriber: type[Any]
    publisher: type[Any]
    processor: type[Any]


def java_classes(interfaces: JavaInterfaces) -> JavaClasses:
    """The four classes for one family of Java interfaces. Java need not run yet.

    They are made anew for each family because JPype fixes the interface of a class where it is written.
    """

    @implements(interfaces.name("Subscription"))
    class OfSubscription:
        def __init__(self, python: Subscription) -> None:
            self.python = python

        @java_method
        def request(self, n: Any) -> None:
            self.python.request(int(n))

        @java_method
        def cancel(self) -> None:
            self.python.cancel()

        @java_method
        def toString(self) -> str:
            return repr(self.python)

    @implements(interfaces.name("Subscriber"))
    class OfSubscriber:
        def __init__(self, python: Subscriber[Any]) -> None:
            self.python = python
            self._conversation = _Conversation()

        @java_method
        def onSubscribe(self, subscription: Any) -> None:
            on_subscribe(self.python, subscription, self._conversation)

        @java_method
        def onNext(self, element: Any) -> None:
            on_next(self.python, element)

        @java_method
        def onError(self, error: Any) -> None:
            on_error(self.python, error, self._conversation)

        @java_method
        def onComplete(self) -> None:
            on_complete(self.python, self._conversation)

        @java_method
        def toString(self) -> str:
            return repr(self.python)

    @implements(interfaces.name("Publisher"))
    class OfPublisher:
        def __init__(self, python: Publisher[Any]) -> None:
            self.python = python

        @java_method
        def subscribe(self, subscriber: Any) -> None:
            subscribe(self.python, subscriber, interfaces)

        @java_method
        def toString(self) -> str:
            return repr(self.python)

    @implements(interfaces.name("Processor"))
    class OfProcessor:
        def __init__(self, python: Processor[Any, Any]) -> None:
            self.python = python
            self._conversation = _Conversation()

        @java_method
        def onSubscribe(self, subscription: Any) -> None:
            on_subscribe(self.python, subscription, self._conversation)

        @java_method
        def onNext(self, element: Any) -> None:
            on_next(self.python, element)

        @java_method
        def onError(self, error: Any) -> None:
            on_error(self.python, error, self._conversation)

        @java_method
        def onComplete(self) -> None:
            on_complete(self.python, self._conversation)

        @java_method
        def subscribe(self, subscriber: Any) -> None:
            subscribe(self.python, subscriber, interfaces)

        @java_method
        def toString(self) -> str:
            return repr(self.python)

    return JavaClasses(OfSubscription, OfSubscriber, OfPublisher, OfProcessor)


class _Conversation:
    """Remembers the Subscription of a Subscriber, to let it go at the end.

    Otherwise a Python object that keeps its Subscription, and a Java Subscription that keeps its Subscriber
    (the JDK's does), would hold each other for ever.
    """

    __slots__ = ("_subscription",)

    def __init__(self) -> None:
        self._subscription: JavaSubscription | None = None

    def opened(self, subscription: JavaSubscription) -> None:
        if self._subscription is None:  # a second one is cancelled by the Subscriber (§2.5)
            self._subscription = subscription

    def ended(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.let_go()


# TypeError is Python's null pointer exception only where null was given. Any other TypeError is a fault of
# its own, and must not look to Java like a Publisher or Subscriber that minds its nulls.


def subscribe(publisher: Publisher[Any], subscriber: Any, interfaces: JavaInterfaces) -> None:
    """Java subscribes to a Publisher of ours."""
    try:
        # As Java passes null, against the types: the Publisher answers for itself.
        publisher.subscribe(None if subscriber is None else JavaSubscriber(subscriber, interfaces))  # type: ignore[arg-type]
    except TypeError as error:
        if subscriber is None:
            raise null_pointer(error) from None
        raise


def on_subscribe(subscriber: Subscriber[Any], subscription: Any, conversation: _Conversation) -> None:
    """Java introduces itself to a Subscriber of ours."""
    if subscription is not None:
        subscription = JavaSubscription(subscription)
        conversation.opened(subscription)
    try:
        subscriber.on_subscribe(subscription)
    except TypeError as error:
        if subscription is None:
            raise null_pointer(error) from None
        raise


def on_next(subscriber: Subscriber[Any], element: Any) -> None:
    """Java sends an element."""
    try:
        subscriber.on_next(python_element(element))
    except TypeError as error:
        if element is None:
            raise null_pointer(error) from None
        raise


def on_error(subscriber: Subscriber[Any], error: Any, conversation: _Conversation) -> None:
    """Java fails."""
    try:
        subscriber.on_error(error)
    except TypeError as fault:
        if error is None:
            raise null_pointer(fault) from None
        raise
    finally:
        if error is not None:
            conversation.ended()


def on_complete(subscriber: Subscriber[Any], conversation: _Conversation) -> None:
    """Java completes."""
    try:
        subscriber.on_complete()
    finally:
        conversation.ended()
