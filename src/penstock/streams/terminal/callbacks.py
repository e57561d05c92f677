"""``subscribe(on_next=…)``: a running stream that calls functions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from penstock.arguments import patience
from penstock.spec import none_element, none_error
from penstock.streams.errors import drop_error
from penstock.streams.events import StageState
from penstock.streams.explain import scan
from penstock.streams.operators.boundaries import replenish_at
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.terminal.readers import TerminalReader, refuse_to_block

__all__ = ["Running"]


class Running(TerminalReader):
    """A running stream, returned by ``subscribe(on_next=…)``; it can be cancelled and waited for."""

    __slots__ = (
        "__weakref__",
        "_batch",
        "_finished",
        "_on_complete",
        "_on_error",
        "_on_next",
        "_taken",
        "error",
    )

    def __init__(
        self,
        on_next: Callable[[Any], object] | None,
        on_error: Callable[[BaseException], object] | None,
        on_complete: Callable[[], object] | None,
        prefetch: int,
    ) -> None:
        self._on_next = on_next
        self._on_error = on_error
        self._on_complete = on_complete
        super().__init__(prefetch)
        self._batch = replenish_at(prefetch)
        self._taken = 0
        self._finished = threading.Event()
        self.error: BaseException | None = None
        """The error that the stream failed with; None if it has not failed."""

    # ---------------------------------------------------------------- for the user
    def cancel(self) -> None:
        """Stop the stream; any number of times, from any thread."""
        super().cancel()
        self._finished.set()

    @property
    def done(self) -> bool:
        """Whether the stream has completed, failed or been cancelled."""
        return self._finished.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the stream is done; False if ``timeout`` seconds were not enough.

        On the thread of an event loop it raises RuntimeError, because waiting would block the loop. Look at
        :attr:`done` there, or read the stream with ``async for`` instead.
        """
        limit = patience(timeout, "wait()")
        if limit != 0 and not self._finished.is_set():
            refuse_to_block("wait()", "async for")
            self._refuse_in_child()
        return self._finished.wait(limit)

    def scan(self) -> list[StageState]:
        """What each stage is doing now, from the subscriber up to the source."""
        return scan(self._subscription)

    # ---------------------------------------------------------------- for the publisher
    def on_next(self, element: Any, /) -> None:
        """Call the function. If it raises, the stream is cancelled and the error goes to ``on_error``."""
        if element is None:
            raise none_element("subscribe")
        if self._cancelled:
            return
        if self._on_next is not None:
            try:
                self._on_next(element)
            except BaseException as error:
                if self._subscription is not None:
                    self._subscription.cancel()
                self._cancelled = True
                self._failed(error)
                if asks_main_thread_to_stop(error):
                    raise
                return
        self._taken += 1
        if self._taken == self._batch and self._subscription is not None:
            self._taken = 0
            self._subscription.request(self._batch)

    def on_error(self, error: BaseException, /) -> None:
        """Call the function; without one, report the error as dropped."""
        if error is None:
            raise none_error()
        self._over = True
        if self._finished.is_set():
            drop_error(error, "a stream after its end")
            return
        self._failed(error)

    def on_complete(self) -> None:
        self._over = True
        try:
            if self._on_complete is not None and not self._cancelled:
                self._on_complete()
        except BaseException as error:
            drop_error(error, "the on_complete function of a subscription")
            if asks_main_thread_to_stop(error):
                raise
        finally:
            self._finished.set()

    def _failed(self, error: BaseException) -> None:
        self.error = error
        try:
            if self._on_error is not None:
                self._on_error(error)
            elif not asks_main_thread_to_stop(error):  # a Ctrl-C is raised where it happened
                drop_error(error, "a subscription without on_error")
        except BaseException as fault:
            drop_error(fault, "the on_error function of a subscription")
            if asks_main_thread_to_stop(fault):
                raise
        finally:
            self._finished.set()
