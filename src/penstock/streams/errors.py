"""Errors of a stream: the place that they name, and the hook for those that nobody can receive.

The traceback of an error in a stream shows where the stream *ran*. More useful is where it was *written*, so
each operator remembers the file and line of the call that added it, and an error carries that as a note. This
costs a look at one frame; no stack is captured.

A stream can fail after its subscriber has cancelled, a subscriber can raise (§2.13), two sources can fail at
the same time. The specification leaves such errors to the runtime environment; here they go to two hooks, for
errors and for elements. By default these log a WARNING; set your own with :func:`on_dropped`.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

from penstock.streams.schedulers.scheduler import SchedulerClosed, asks_main_thread_to_stop

__all__ = [
    "KeptError",
    "Place",
    "add_note",
    "annotate",
    "drop_elements",
    "drop_error",
    "drop_raised",
    "here",
    "note_texts",
    "on_dropped",
    "set_cause",
    "set_context",
    "together",
]

_PACKAGE = str(Path(__file__).resolve().parents[1])
_OURS: dict[str, bool] = {}
"""Whether a file belongs to the package; the files of a program are few."""


class Place:
    """A line of the user's program; its number is worked out when somebody asks for it."""

    __slots__ = ("_instruction", "code")

    def __init__(self, code: CodeType, instruction: int) -> None:
        self.code = code
        self._instruction = instruction

    @property
    def line(self) -> int:
        """The number of the line."""
        for start, end, line in self.code.co_lines():
            if start <= self._instruction < end and line is not None:
                return line
        return self.code.co_firstlineno

    def __str__(self) -> str:
        return f"{self.code.co_filename}:{self.line} in {self.code.co_qualname}"


def here(depth: int = 1) -> Place:
    """The nearest caller outside this package, ``depth`` frames up or more."""
    # By number and not by f_back, which makes an object of each frame between.
    try:
        frame = sys._getframe(depth)
        while (ours := _OURS.get(frame.f_code.co_filename)) is not False:
            if ours is None:
                _OURS[frame.f_code.co_filename] = frame.f_code.co_filename.startswith(_PACKAGE)
                continue
            depth += 1
            frame = sys._getframe(depth)
    except ValueError:
        frame = sys._getframe(depth - 1)  # nobody else: a thread of ours
    return Place(frame.f_code, frame.f_lasti)


class KeptError:
    """An error for several subscribers, with the same traceback for each.

    Raising an error adds to its traceback, and raising it again would add to that.
    """

    __slots__ = ("_traceback", "error")

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self._traceback = error.__traceback__

    def give(self) -> BaseException:
        """The error for one more subscriber."""
        return BaseException.with_traceback(self.error, self._traceback)


def together(failures: Sequence[BaseException], message: str) -> BaseException:
    """One error for several failures: the failure itself if there is one, otherwise an ExceptionGroup."""
    return failures[0] if len(failures) == 1 else BaseExceptionGroup(message, failures)


def annotate(error: BaseException, operator: str, place: Place | None) -> None:
    """Add a note to ``error`` that names its operator and where that was written.

    The first operator that sees an error is its origin; the others leave it alone.
    """
    if place is None or any(note.startswith(_NOTE) for note in note_texts(error)):
        return
    add_note(error, f"{_NOTE} {operator}, assembled at {place}")


_NOTE = "in stream operator"


# An error must reach its subscriber whatever its class does. A frozen dataclass may be an exception: it
# refuses every assignment, also that of a note or a cause, and gets it as BaseException would do it. An
# exception of Java, on the other hand, has only a way of its own.
def note_texts(error: BaseException) -> list[str]:
    """The notes of an error; none if its class has something else in their place."""
    notes = getattr(error, "__notes__", None)
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error of any class, unless it has something else in the place of notes."""
    notes = getattr(error, "__notes__", None)
    if notes is None:
        _set(error, "__notes__", [note])
    elif isinstance(notes, list):
        notes.append(note)


def set_cause(error: BaseException, cause: BaseException) -> None:
    """Do what ``raise error from cause`` does, without raising it."""
    _set(error, "__cause__", cause)


def set_context(error: BaseException, context: BaseException) -> None:
    """Say that ``error`` was raised while ``context`` was handled."""
    _set(error, "__context__", context)


def _set(error: BaseException, name: str, value: object) -> None:
    try:
        setattr(error, name, value)
    except Exception:
        BaseException.__setattr__(error, name, value)


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


def drop_raised(error: BaseException, where: str) -> None:
    """Report what a subscriber raised (§2.13); a Ctrl-C or exit on the main thread is raised again.

    Whatever the class of the error is, nobody below can receive it, and our caller has done nothing wrong.
    """
    if asks_main_thread_to_stop(error):
        raise error
    drop_error(error, where)


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
