"""The Java virtual machine of this process, and a Python thread for its tasks.

A process has one Java machine, and starts it once. Everything that the package needs of JPype is here, with
types: JPype itself has none.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from os import PathLike, fspath
from typing import Any, Self, TypeVar

from penstock.streams.spi import drop_error

__all__ = [
    "PythonExecutor",
    "has_interface",
    "implements",
    "is_java",
    "java_bytes",
    "java_class",
    "java_method",
    "start",
]


try:
    import jpype  # type: ignore[import-untyped]
except ImportError as missing:
    raise ImportError("penstock.interop.jvm needs JPype: pip install 'penstock-streams[jvm]'") from missing


C = TypeVar("C", bound=type[Any])
F = TypeVar("F", bound=Callable[..., Any])


def start(*class_path: str | PathLike[str], options: tuple[str, ...] = ()) -> None:
    """Start Java in this process, with these jars and folders on its class path.

    ``org.reactivestreams`` is a library and needs its jar here; ``java.util.concurrent.Flow`` is always
    there. ``options`` are the JVM's own (``"-Xmx512m"``). If Java runs already, a call without arguments does
    nothing. A process cannot start a second one, and must not fork once it has the first.

    If you start Java with ``jpype.startJVM``, you do not need this function.
    """
    if jpype.isJVMStarted():
        if class_path or options:
            raise RuntimeError(
                "Java runs in this process already, and neither its class path nor its options can change: "
                "give them to the first start()"
            )
        return
    jpype.startJVM(*options, classpath=[fspath(entry) for entry in class_path])


def java_class(name: str) -> Any:
    """A class or an interface of Java, by its full name; TypeError if it is not on the class path."""
    return jpype.JClass(name)


def implements(interface: str) -> Callable[[C], C]:
    """Decorate a class whose objects shall implement a Java interface. Java need not run yet."""

    def decorate(cls: C) -> C:
        proxy: C = jpype.JImplements(interface, deferred=True)(cls)
        return proxy

    return decorate


def java_method(function: F) -> F:
    """Decorate a method that Java calls; it has the name that it has in Java."""
    marked: F = jpype.JOverride(function)
    return marked


def is_java(candidate: object) -> bool:
    """Whether an object can be given to Java as it is: it came from there, or implements an interface."""
    return isinstance(candidate, jpype.JObject | jpype.JProxy)


def has_interface(candidate: object, name: str) -> bool:
    """Whether an object, of Java or decorated with :func:`implements`, has the interface of this name."""
    try:
        interface = jpype.JClass(name)
    except TypeError:
        return False  # its library is not on the class path, so nothing can have it
    if isinstance(candidate, interface):
        return True
    return any(issubclass(own, interface) for own in getattr(candidate, "__jpype_interfaces__", ()))


def java_bytes(data: bytes | bytearray) -> Any:
    """A Java ``byte[]`` with this content."""
    return jpype.JArray(jpype.JByte)(data)


@implements("java.util.concurrent.Executor")
class PythonExecutor:
    """A ``java.util.concurrent.Executor`` with one thread, which is Python's.

    Give it to whatever in Java calls Python often, for example ``SubmissionPublisher(executor, 256)``. On a
    thread of Java's own, Python's state for the thread is made and thrown away in every call, which makes a
    signal about five times as slow and leaves ``threading.local`` empty.

    ``close`` ends the thread when the tasks before it have run; used with ``with``, at the end of the block.
    """

    def __init__(self, name: str = "java") -> None:
        """Start the thread, called ``name``."""
        self._tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._closed = False
        # Without a reference to self, so that an executor that was only forgotten could be collected.
        self._thread = threading.Thread(target=_work, args=(self._tasks,), name=name, daemon=True)
        self._thread.start()

    @java_method
    def execute(self, task: Any) -> None:
        """Run a Java ``Runnable``; called by Java."""
        if self._closed:
            raise _rejection()
        self._tasks.put(task)

    def close(self) -> None:
        """Refuse new tasks, run those that wait, and end the thread. Idempotent."""
        if not self._closed:
            self._closed = True
            self._tasks.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        """Use it as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _rejection() -> BaseException:
    made: BaseException = java_class("java.util.concurrent.RejectedExecutionException")(
        "this executor is closed"
    )
    return made


def _work(tasks: queue.SimpleQueue[Any]) -> None:
    while (task := tasks.get()) is not None:
        try:
            task.run()
        except BaseException as error:  # The next task needs this thread.
            drop_error(error, "a task that Java gave to a PythonExecutor")
        del task
