"""Marbles: a stream over time as a line of text.

One character is a frame of 10 ms. ``-`` is a frame in which nothing happens, a letter is that letter as a
string, a digit is that number, ``|`` completes, ``#`` fails, and ``(ab|)`` are several signals in one frame.
Spaces are ignored. ``1-2-|`` sends 1 at once, 2 after 20 ms, and completes after 40 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from penstock.spec import Subscriber
from penstock.streams import Flux
from penstock.streams.schedulers import Alarm, Scheduler, Timer, shared_timer
from penstock.streams.spi import Op, Relay, Source, flux_of
from penstock.testing.subscriber import COMPLETE, ERROR, NEXT, SeenSignal

__all__ = ["FRAME", "Marble", "MarbleError", "MarbleSignal", "marble"]

FRAME = 0.01
"""Seconds of one character."""


class MarbleError(Exception):
    """What ``#`` in a source stands for."""


class MarbleSignal(NamedTuple):
    """A signal of a marble, and the frame that it belongs to."""

    frame: float
    """Counted from 0. What happens between two frames has a fraction, and never matches."""
    name: str
    value: Any = None


@dataclass(frozen=True)
class Marble:
    """A parsed line."""

    signals: tuple[MarbleSignal, ...]
    frames: int
    """How many frames the line has."""

    @classmethod
    def parse(cls, text: str, values: Mapping[str, Any] | None = None) -> Marble:
        """Read a line; ``values`` says what a character stands for if not for itself.

        >>> [tuple(signal) for signal in Marble.parse("1-(A|)", {"A": [1, 2]}).signals]
        [(0, 'on_next', 1), (2, 'on_next', [1, 2]), (2, 'on_complete', None)]
        """
        known = values or {}
        signals: list[MarbleSignal] = []
        frame, opened = 0, None
        for position, character in enumerate(text):
            if character == " ":
                continue
            if signals and signals[-1].name != NEXT and character not in "-)":
                raise ValueError(f"{_at(text, position)}: a stream sends nothing after its end")
            if character == "(" and opened is None:
                opened = position
                continue
            if character == ")" and opened is not None:
                opened = None
            elif character not in "()-":
                signals.append(_signal(frame, character, known, _at(text, position)))
            elif character != "-" or opened is not None:
                raise ValueError(f"{_at(text, position)}: a group is for instance (ab|)")
            if opened is None:
                frame += 1
        if opened is not None:
            raise ValueError(f"{_at(text, opened)}: the group is not closed")
        return cls(tuple(signals), frame)

    @property
    def ends(self) -> bool:
        """Whether the line has an end of the stream."""
        return bool(self.signals) and self.signals[-1].name != NEXT


def _at(text: str, position: int) -> str:
    return f"marble {text!r}, at {text[position]!r} in position {position}"


def _signal(frame: int, character: str, values: Mapping[str, Any], where: str) -> MarbleSignal:
    if character == "|":
        return MarbleSignal(frame, COMPLETE)
    if character == "#":
        return MarbleSignal(frame, ERROR, values.get("#", MarbleError))
    if character in values:
        return MarbleSignal(frame, NEXT, values[character])
    if character.isdigit():
        return MarbleSignal(frame, NEXT, int(character))
    if character.isalpha():
        return MarbleSignal(frame, NEXT, character)
    raise ValueError(f"{where}: a signal is a letter, a digit, | or #; or give the character a value")


def as_marble(seen: SeenSignal, begin: float) -> MarbleSignal:
    """A signal that was received, in frames after ``begin``."""
    frames = (seen.time - begin) / FRAME
    whole = round(frames)
    return MarbleSignal(whole if abs(frames - whole) < 1e-6 else frames, seen.name, seen.value)


def same(expected: MarbleSignal, came: MarbleSignal) -> bool:
    """Whether a signal is the one that a marble asks for; any error is ``#`` unless it has a class."""
    if expected[:2] != came[:2]:
        return False
    if expected.name != ERROR:
        return bool(expected.value == came.value)
    return expected.value is MarbleError or isinstance(came.value, expected.value)


def drawn(signals: Iterable[MarbleSignal], frames: int, values: Mapping[str, Any]) -> str:
    """The line of these signals; an element that has no character becomes a letter that is explained."""
    names = _Names(values)
    by_frame: dict[int, str] = {}
    for signal in signals:
        mark = {COMPLETE: "|", ERROR: "#"}.get(signal.name) or names.of(signal.value)
        at = int(signal.frame)
        by_frame[at] = by_frame.get(at, "") + mark
    last = max([frames - 1, *by_frame])
    cells = (by_frame.get(frame, "-") for frame in range(last + 1))
    line = "".join(cell if len(cell) == 1 else f"({cell})" for cell in cells)
    return f"{line}{names.legend()}"


class _Names:
    """One character for each element."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._given = [(name, value) for name, value in values.items() if len(name) == 1 and name != "#"]
        self._new: list[tuple[str, Any]] = []

    def of(self, element: Any) -> str:
        for name, value in [*self._given, *self._new]:
            if _equal(value, element):
                return name
        if isinstance(element, int) and not isinstance(element, bool) and 0 <= element <= 9:
            return str(element)
        if isinstance(element, str) and len(element) == 1 and element.isalpha():
            return element
        taken = {name for name, _ in [*self._given, *self._new]}
        name = next((letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in taken), "?")
        self._new.append((name, element))
        return name

    def legend(self) -> str:
        said = ", ".join(f"{name} = {value!r:.80}" for name, value in self._new)
        return f"   where {said}" if said else ""


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def marble(
    text: str, values: Mapping[str, Any] | None = None, scheduler: Scheduler | None = None
) -> Flux[Any]:
    """A Flux that does what the line says; its first frame is the moment of the subscription.

    >>> from penstock.testing import verify
    >>> _ = verify(marble("1-2-|").map(lambda x: x * 2)).marble("2-4-|")

    Elements wait for demand. ``#`` fails with :class:`MarbleError`, or with the exception (or its class) that
    ``values`` has for it. Time is that of ``shared_timer``, unless there is another scheduler.
    """
    return flux_of(_MarbleSource(Marble.parse(text, values), text, scheduler))


class _MarbleSource(Source):
    """Each signal at its frame."""

    def __init__(self, marble: Marble, text: str, scheduler: Scheduler | None) -> None:
        super().__init__("marble", text)
        self._marble = marble
        self._scheduler = scheduler

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        relay = Relay(ops, downstream, self.label, self.place)
        relay.introduce()
        if not relay.closed:
            _Playing(relay, self._marble.signals).start(self._scheduler or shared_timer())

    def runs_on(self) -> str:
        return (self._scheduler or shared_timer()).name


class _Playing:
    """A timer for each signal; together the Subscription of the relay."""

    __slots__ = ("_cancelled", "_relay", "_signals", "_timers")

    def __init__(self, relay: Relay, signals: tuple[MarbleSignal, ...]) -> None:
        self._relay = relay
        self._signals = signals
        self._timers: list[Timer] = []
        self._cancelled = False

    def start(self, scheduler: Scheduler) -> None:
        # The timers come last, so that what they ring for goes down on the scheduler's thread.
        self._relay.on_subscribe(self)
        context = copy_context()
        try:
            for signal in self._signals:
                if self._cancelled:
                    break
                alarm = Alarm(context, partial(self._play, signal), self._relay.on_error)
                self._timers.append(scheduler.submit_after(signal.frame * FRAME, alarm))
        except Exception as refused:
            self._relay.on_error(refused)
            self.cancel()
        if self._cancelled:
            self.cancel()  # another thread did so meanwhile

    def _play(self, signal: MarbleSignal) -> None:
        if signal.name == NEXT:
            self._relay.on_next(signal.value)
        elif signal.name == COMPLETE:
            self._relay.on_complete()
        else:
            error = signal.value
            self._relay.on_error(error() if isinstance(error, type) else error)

    def request(self, n: int, /) -> None:
        """The line says when elements come; the relay keeps them until there is demand."""

    def cancel(self) -> None:
        self._cancelled = True
        for timer in tuple(self._timers):
            timer.cancel()
