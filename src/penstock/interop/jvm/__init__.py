"""Streams across the border to Java, inside one process.

It needs ``pip install 'penstock-streams[jvm]'`` and a Java runtime.

Java has the four interfaces twice: in the JDK as ``java.util.concurrent.Flow``, and in a small library as
``org.reactivestreams``, which Reactor, RxJava, Akka and others speak. ``flow`` and ``reactive_streams`` turn
what is in Python into these; :func:`from_java` goes the other way, from either::

    from jpype import JClass
    from penstock.interop import jvm
    from penstock.streams import Flux

    jvm.start()                                             # or start("reactive-streams-1.0.4.jar", ...)

    with jvm.PythonExecutor() as executor:
        prices = JClass("java.util.concurrent.SubmissionPublisher")(executor, 256)
        Flux.from_publisher(jvm.from_java(prices)).map(float).subscribe(print)      # Java to Python
        Flux.range(3).subscribe(jvm.from_java(java_subscriber))                     # Python to Java
        java_client.send(jvm.flow.publisher(Flux.range(3)))                         # the same, asked by Java

Nothing is buffered here: a request on one side is a request on the other, a signal is a call.

**Elements.** Numbers, truth values and texts become their Java counterparts, ``bytes`` a ``byte[]``; any
other Python object travels inside a :class:`PythonObject` and comes back as the same object. A Java object
stays what it is; in Python a ``java.lang.Long`` also is an ``int``, and ``str(text)`` makes a Python text of
a Java one.

**Errors.** A Java ``Throwable`` is an exception in Python, the same object on both sides. Of a Python
exception Java gets the nearest of its own: see :func:`java_error`. ``TypeError`` for a ``None`` that the
specification forbids becomes a ``NullPointerException``.

**Two collectors.** Neither garbage collector sees a circle that runs through both languages. A subscription
that was cancelled, completed or failed is let go; one that is only forgotten stays. So end what you start.
"""

from penstock.interop.jvm.conversion import PythonObject, java_error
from penstock.interop.jvm.interfaces import JavaInterfaces, flow, from_java, reactive_streams
from penstock.interop.jvm.machine import PythonExecutor, start
from penstock.interop.jvm.wrappers import (
    JavaProcessor,
    JavaPublisher,
    JavaSubscriber,
    JavaSubscription,
)

__all__ = [
    "JavaInterfaces",
    "JavaProcessor",
    "JavaPublisher",
    "JavaSubscriber",
    "JavaSubscription",
    "PythonExecutor",
    "PythonObject",
    "flow",
    "from_java",
    "java_error",
    "reactive_streams",
    "start",
]
