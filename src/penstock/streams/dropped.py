"""Signals that nobody can receive any more: reported to a hook, never swallowed, never raised.

A stream can fail after its subscriber has cancelled, a subscriber can raise (§2.13), two sources can fail at
the same time. The specification leaves such errors to the runtime environment; here they go to two hooks, for
errors and for elements. By default these log a WARNING; set your own with :func:`on_dropped`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.streams.schedulers.scheduler import SchedulerClosed, asks_main_thread_to_stop

__all__ = ["drop_elements", "drop_error", "on_dropped"]

_log = logging.getLogger("penstock.streams")


def _log_error(error: BaseException, where: str) -> None:
    _log.warning("dropped error from %s: %r", where, error, exc_info=error)


def _log_element(element: Any, where: str) -> None:
    _log.warning("dropped element from %s: %.200r", where, element)


_error_hook: Callable[[BaseException, str], object] = _log_error
_element_hook: Callable[[Any, str], object] = _log_element


@contextmanager
def on_dropped(
    *,
    error: Callable[[BaseException, str], object] | None = None,
    element: Callable[[Any, str], object] | None = None,
) -> Iterator[None]:
    """Send dropped errors and elements of the whole process to these functions while the block runs.

    Each function is called with the signal and a text that says where it was dropped. Put the block round the
    main function of a program, or into a test::

        with on_dropped(error=lambda error, where: seen.append(error)):
            ...
    """
    global _error_hook, _element_hook
    before = _error_hook, _element_hook
    _error_hook = error or _error_hook
    _element_hook = element or _element_hook
    try:
        yield
    finally:
        _error_hook, _element_hook = before


def drop_error(error: BaseException, where: str) -> None:
    """Report an error that no subscriber can receive.

    An error whose class sets ``only_for_readers`` is not reported: it only tells a reader that this side has
    ended the stream, and there is no reader.
    """
    if getattr(error, "only_for_readers", False):
        return
    if isinstance(error, SchedulerClosed) and not threading.main_thread().is_alive():
        return  # the interpreter is exiting, and the shared schedulers close one by one
    _call(_error_hook, error, where)


def drop_elements(elements: Iterable[Any], where: str) -> None:
    """Report elements that were waiting when their subscriber was lost."""
    waiting = list(elements)
    if len(waiting) == 1 or _element_hook is not _log_element:
        for element in waiting:
            _call(_element_hook, element, where)
    elif waiting:  # one line for all of them
        _log.warning("dropped %d elements from %s, the first of them %.200r", len(waiting), where, waiting[0])


def _call(hook: Callable[[Any, str], object], signal: Any, where: str) -> None:
    try:
        hook(signal, where)
    except BaseException as error:
        if asks_main_thread_to_stop(error):
            raise
        # The hook is the last resort: its own exception must not reach unrelated code.
        _log.exception("the hook for dropped signals failed on %.200r from %s", signal, where)
