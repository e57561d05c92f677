"""The records of a gateway on standard output: taken by one thread, printed by another, asked for as printed.

Demand follows the printing. A pipe that nobody reads from stops the printing, then the asking, then the
gateway; so does ``--rate``, which asks for so many records at a time and no more.
"""

from __future__ import annotations

import argparse
import base64
import logging
import os
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from penstock.aquifer import AquiferPublisher, AquiferSubscription, Record
from penstock.cli.complaints import Complaint, LogOnScreen
from penstock.cli.connecting import curve_client
from penstock.cli.interruption import Interrupted, Interruption
from penstock.cli.outputs import say, was_output_closed
from penstock.cli.quantities import duration
from penstock.spec import Subscription

__all__ = ["run_tail"]

WINDOW: Final = 8192
"""How many records may be asked for and not printed."""
_TICK: Final = 0.05
"""Seconds between two requests under ``--rate``, if the rate gives something to ask for that often."""
_PORTION: Final = 256
_LOOK: Final = 0.2
_SETTLING: Final = 1.0
"""Seconds in which the last acknowledgement has to arrive."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Inbox:
    """The Subscriber: elements wait here for the printing thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.subscription: AquiferSubscription | None = None
        self.error: BaseException | None = None
        self.is_over = False
        self._wake = wake
        self._waiting: deque[Any] = deque()
        self._reader_sleeps = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        assert isinstance(subscription, AquiferSubscription)
        self.subscription = subscription

    def on_next(self, element: Any, /) -> None:
        self._waiting.append(element)
        if self._reader_sleeps:
            self._reader_sleeps = False
            self._wake()

    def on_error(self, error: BaseException, /) -> None:
        self.error = error
        self.on_complete()

    def on_complete(self) -> None:
        self.is_over = True
        self._wake()

    def take(self) -> list[Any]:
        """Everything that waits."""
        waiting = self._waiting
        return [waiting.popleft() for _ in range(len(waiting))]

    def is_still(self) -> bool:
        """Whether nothing waits; from then on the next element wakes the reader."""
        self._reader_sleeps = True
        return not self._waiting and not self.is_over


class Pace:
    """How many records may be asked for when."""

    def __init__(self, rate: float | None, count: int | None) -> None:
        self.requested = 0
        self.rate = rate
        self.count = count
        self.window = WINDOW
        self._last = time.monotonic()
        if rate is not None:
            self.window = max(1, min(WINDOW, int(rate / 4)))
            # The first one at once.
            self._last -= 1 / rate

    def due(self, printed: int, now: float) -> int:
        """How many to ask for now."""
        room = self.window - (self.requested - printed)
        if self.rate is None:
            # Not for every record: in portions.
            due = room if room >= self.window // 4 else 0
        else:
            earned = int((now - self._last) * self.rate)
            due = min(earned, room)
            # What could not be asked for is not saved up: a rate is no average over the night.
            self._last += earned / self.rate
        if self.count is not None:
            due = min(due, self.count - self.requested)
        self.requested += max(due, 0)
        return max(due, 0)

    def pause(self) -> float:
        """How many seconds there is nothing to ask for."""
        return _LOOK if self.rate is None else min(max(_TICK, 1 / self.rate), _LOOK)


class Output:
    """Standard output, written to without a buffer of Python's, in as few pieces as possible."""

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption
        self._descriptor = sys.stdout.fileno()
        mode = os.fstat(self._descriptor).st_mode
        self._may_block = sys.platform != "win32" and not stat.S_ISREG(mode)
        self._poll: Any = None
        if hasattr(select, "poll") and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            self._poll = select.poll()
            self._poll.register(self._descriptor, 0)

    def write(self, data: bytes) -> None:
        """Write it all; BrokenPipeError if nobody reads any more, Interrupted if a signal comes first."""
        view = memoryview(data)
        while view:
            piece = view
            if self._may_block:
                # So much can be written without waiting if anything can be written at all.
                self._interruption.wait_to_write(self._descriptor)
                piece = view[: select.PIPE_BUF]
            view = view[os.write(self._descriptor, piece) :]

    def is_closed(self) -> bool:
        """Whether the reader is gone; seen without writing, for a stream that is silent just now."""
        return self._poll is not None and bool(self._poll.poll(0))


def run_tail(arguments: argparse.Namespace) -> int:
    """Print until the stream ends, enough was printed, or a signal comes."""
    publisher = _publisher(arguments)
    if was_output_closed():
        return 0  # Nobody could read it.
    with Interruption() as interruption, LogOnScreen(_say, logging.INFO):
        inbox = Inbox(interruption.wake)
        publisher.subscribe(inbox)
        tail = _Tail(arguments, inbox, interruption)
        try:
            tail.run()
        except BrokenPipeError:
            return 0  # Somebody like `head` has read enough.
        except Interrupted:
            pass  # The same as a signal at any other time: see below.
        finally:
            tail.leave()
        if interruption.signal is not None:
            _say(tail.summary())
            return interruption.exit_code
    if inbox.error is not None:
        raise Complaint(str(inbox.error), 1)
    return 0


def _say(text: str) -> None:
    say(f"penstock tail: {text}")


def _publisher(arguments: argparse.Namespace, only_acknowledge: int | None = None) -> AquiferPublisher:
    window = Pace(arguments.rate, None).window
    try:
        return AquiferPublisher(
            arguments.endpoint,
            id=arguments.id,
            start=arguments.start if only_acknowledge is None else only_acknowledge,
            stop=arguments.stop if only_acknowledge is None else only_acknowledge,
            keep=not arguments.best_effort,
            lease=arguments.lease,
            codec=arguments.codec,
            # Offsets are needed to print them, and to say how far the printing has come.
            records=arguments.format == "json" or arguments.id is not None,
            acknowledge="auto" if arguments.id is None else "manual",
            dialect=arguments.dialect,
            window=window,
            max_window=window if arguments.rate is not None else 262_144,
            patience=arguments.patience if only_acknowledge is None else _SETTLING,
            curve=curve_client(arguments),
            on_gap=_missed if arguments.best_effort else None,
        )
    except ValueError as error:
        raise Complaint(str(error)) from None


def _missed(first: int, next: int) -> None:
    _say(f"the records {first:,} to {next - 1:,} were missed; going on at {next:,}")


class _Tail:
    def __init__(self, arguments: argparse.Namespace, inbox: Inbox, interruption: Interruption) -> None:
        self._arguments = arguments
        self._inbox = inbox
        self._interruption = interruption
        self._pace = Pace(arguments.rate, arguments.count)
        self._output = Output(interruption)
        self._form = _form(arguments.format, arguments.codec, arguments.id is not None)
        self._printed = 0
        self._acknowledged: int | None = None
        self._welcomes = 1

    def run(self) -> None:
        """Print, and ask for as much as was printed."""
        inbox = self._inbox
        while True:
            self._ask()
            is_over = inbox.is_over  # Read first: what came before the end is taken below.
            records = inbox.take()
            if records:
                self._print(records)
                if self._printed == self._pace.count:
                    return
            elif is_over:
                return
            elif inbox.is_still():
                self._tell_reconnects()
                if self._output.is_closed():
                    raise BrokenPipeError
                if self._interruption.wait(self._pace.pause()):
                    return

    def leave(self) -> None:
        """Cancel, and wait until the gateway has been told."""
        if self._inbox.subscription is not None:
            self._inbox.subscription.cancel()
        if self._inbox.is_over and self._inbox.error is None and self._acknowledged is not None:
            # At the end of a stream the subscription says goodbye before the last records are printed. An
            # empty range that begins behind them tells the gateway that they were.
            settling = threading.Event()
            _publisher(self._arguments, self._acknowledged).subscribe(Inbox(settling.set))
            settling.wait(2 * _SETTLING)
        # The subscription's thread says goodbye; without that the gateway would keep us for a while.
        for thread in threading.enumerate():
            if thread.name == "penstock-aquifer":
                thread.join(2.0)

    def summary(self) -> str:
        """What was done until the signal came."""
        kept = ""
        if self._arguments.id is not None:
            kept = (
                f"; the gateway keeps the place of {self._arguments.id} for {duration(self._arguments.lease)}"
            )
        return f"interrupted: {self._printed:,} record{'s' * (self._printed != 1)} printed{kept}"

    def _ask(self) -> None:
        due = self._pace.due(self._printed, time.monotonic())
        if due:
            assert self._inbox.subscription is not None
            self._inbox.subscription.request(due)

    def _print(self, records: Sequence[Any]) -> None:
        assert self._inbox.subscription is not None
        # In small portions: a signal in the middle of one leaves it uncounted and unacknowledged.
        for start in range(0, len(records), _PORTION):
            portion = records[start : start + _PORTION]
            self._output.write(self._form(portion))
            self._printed += len(portion)
            if self._arguments.id is not None:
                self._acknowledged = portion[-1].offset + 1
        if self._acknowledged is not None:
            self._inbox.subscription.acknowledge(self._acknowledged)

    def _tell_reconnects(self) -> None:
        assert self._inbox.subscription is not None
        metrics = self._inbox.subscription.metrics()
        if metrics.subscriptions > self._welcomes:
            self._welcomes = metrics.subscriptions
            where = f" at offset {metrics.next:,}" if metrics.dialect == "extended" else ""
            _say(f"connected again to {self._arguments.endpoint}; going on{where}")


# ---------------------------------------------------------------- from records to bytes
def _form(format: str, codec: str, records: bool) -> Callable[[Sequence[Any]], bytes]:
    encode = msgspec.json.Encoder().encode
    if format == "json":
        as_text = codec == "bytes"
        return lambda elements: b"".join(encode(_object(each, as_text)) + b"\n" for each in elements)
    raw: Callable[[Any], bytes] = _unchanged
    if codec == "text":
        raw = str.encode
    elif codec != "bytes":
        raw = encode
    if records:
        return lambda elements: b"".join(raw(record.value) + b"\n" for record in elements)
    if codec == "bytes":
        return lambda elements: b"\n".join(elements) + b"\n"
    return lambda elements: b"".join(raw(element) + b"\n" for element in elements)


def _unchanged(value: bytes) -> bytes:
    return value


def _object(element: Any, is_bytes: bool) -> dict[str, Any]:
    # A plain gateway has no offsets: its elements are values.
    record = element if isinstance(element, Record) else Record(element)
    shown: dict[str, Any] = {"offset": record.offset, "timestamp": _iso(record.timestamp)}
    shown |= {"key": None} if record.key is None else _readable("key", record.key)
    return shown | (_readable("value", record.value) if is_bytes else {"value": record.value})


def _readable(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _iso(microseconds: int | None) -> str | None:
    if microseconds is None:
        return None
    try:
        time = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None  # Somebody's own idea of a time, beyond the year 9999.
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
