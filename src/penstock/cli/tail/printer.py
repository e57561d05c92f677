"""The records of a gateway on standard output: taken by one thread, printed by another, asked for as printed.

Demand follows the printing. A pipe that nobody reads from stops the printing, then the asking, then the
gateway; so does ``--rate``, which asks for so many records at a time and no more.
"""

from __future__ import annotations

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

from penstock.aquifer import (
    AquiferError,
    AquiferPublisher,
    AquiferSubscription,
    GatewayUnreachable,
    Record,
    probe,
)
from penstock.cli.errors import CommandError, ScreenLog
from penstock.cli.screen import say, was_output_closed
from penstock.cli.signals import Interrupted, Interruption
from penstock.cli.table import duration
from penstock.cli.tail import CODECS, TailOptions
from penstock.spec import Subscription

__all__ = ["run_tail"]

WINDOW: Final = 8192
"""How many records may be asked for and not printed."""
_TICK: Final = 0.05
"""Seconds between two requests under ``--rate``, if the rate gives something to ask for that often."""
_PORTION: Final = 256
_LOOK: Final = 0.2
_STILL: Final = 1.0
"""Seconds without anything to see, after which a user is told what is being waited for."""
_PRINTING: Final = 20.0
"""Seconds that the last records may take to be printed; a gateway hears nothing of us meanwhile."""
_PARTING: Final = 0.2
"""Seconds in which a reader that has enough, such as `head`, leaves after it got the last it wanted."""
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
        self._dealt_with = threading.Event()

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
        if self.error is None:
            # The goodbye that follows says how far we have come: not before the last record is printed.
            self._dealt_with.wait(_PRINTING)

    def release(self) -> None:
        """Everything that will be printed has been: let the subscription say goodbye."""
        self._dealt_with.set()

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

    def is_closed(self, within: float = 0.0) -> bool:
        """Whether the reader is gone, or goes within some seconds; seen without writing."""
        return self._poll is not None and bool(self._poll.poll(within * 1000))


def run_tail(options: TailOptions) -> int:
    """Print until the stream ends, enough was printed, or a signal comes."""
    _publisher(options, "bytes")  # Whatever is wrong with the command line is told first.
    if was_output_closed():
        return 0  # Nobody could read it.
    with Interruption() as interruption, ScreenLog(_say, logging.INFO):
        codec = options.codec or _codec_there(options, interruption)
        if codec is None:
            return interruption.exit_code
        inbox = Inbox(interruption.wake)
        _publisher(options, codec).subscribe(inbox)
        tail = _Tail(options, codec, inbox, interruption)
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
        raise CommandError(str(inbox.error), 1)
    return 0


def _say(text: str) -> None:
    say(f"penstock tail: {text}")


def _codec_there(options: TailOptions, interruption: Interruption) -> str | None:
    """What the gateway says its values are, as soon as it is there; None if a signal comes first."""
    curve, began = options.curve_client(), time.monotonic()
    told = False
    while not interruption.wait(0):
        left = began + options.patience - time.monotonic()
        try:
            codec = str(probe(options.endpoint, max(min(left, _STILL), 0.1), curve)["codec"])
        except GatewayUnreachable:
            if left <= 0:
                raise CommandError(
                    f"no gateway answers at {options.endpoint} after {options.patience:g} s; is it "
                    "running there, and do both sides use keys or neither?",
                    1,
                ) from None
            if not told and left > _STILL:
                told = True
                _say(
                    f"no gateway answers at {options.endpoint} yet; looking for it for "
                    f"{duration(options.patience)}"
                )
        except AquiferError:
            return "bytes"  # A gateway that cannot say; what is wrong with it, the subscription will tell.
        else:
            # Text and JSON are printed as they are in the log.
            as_it_is = codec not in CODECS or (options.format == "raw" and codec in ("text", "json"))
            return "bytes" if as_it_is else codec
    return None


def _with_offsets(options: TailOptions) -> bool:
    """Whether a record is more than its value: to print that, and to say how far the printing has come."""
    return bool(options.format == "json" or options.id is not None or options.dialect != "plain")


def _publisher(options: TailOptions, codec: str, only_acknowledge: int | None = None) -> AquiferPublisher:
    window = Pace(options.rate, None).window
    try:
        return AquiferPublisher(
            options.endpoint,
            id=options.id,
            start=options.start if only_acknowledge is None else only_acknowledge,
            stop=options.stop if only_acknowledge is None else only_acknowledge,
            keep=not options.optional,
            lease=options.lease,
            codec=codec,
            records=_with_offsets(options),
            acknowledge="manual" if _with_offsets(options) else "auto",
            dialect=options.dialect,
            window=window,
            max_window=window if options.rate is not None else 262_144,
            patience=options.patience if only_acknowledge is None else _SETTLING,
            curve=options.curve_client(),
            on_gap=_missed if options.optional else None,
        )
    except ValueError as error:
        raise CommandError(str(error)) from None


def _missed(first: int, next: int) -> None:
    _say(f"the records {first:,} to {next - 1:,} were missed; going on at {next:,}")


class _Tail:
    def __init__(self, options: TailOptions, codec: str, inbox: Inbox, interruption: Interruption) -> None:
        self._options = options
        self._inbox = inbox
        self._interruption = interruption
        self._pace = Pace(options.rate, options.count)
        self._output = Output(interruption)
        self._form = _form(options.format, codec)
        self._is_told = not sys.stderr.isatty()
        """Whether the user knows that there is nothing to print yet; elsewhere nobody wants to know."""
        self._began = time.monotonic()
        self._printed = 0
        self._behind: int | None = None
        """The offset behind the last record that was printed, if it has one."""
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
                if self._output.is_closed(_PARTING):
                    raise BrokenPipeError
                self._acknowledge_all()
                return
            elif inbox.is_still():
                self._acknowledge_all()
                self._tell_reconnects()
                self._tell_of_waiting()
                if self._output.is_closed():
                    raise BrokenPipeError
                if self._interruption.wait(self._pace.pause()):
                    return

    def leave(self) -> None:
        """Cancel, and wait until the gateway has been told."""
        subscription = self._inbox.subscription
        has_left = subscription is not None and subscription.join(0)
        self._inbox.release()
        if subscription is not None:
            subscription.cancel()
        if has_left and self._inbox.error is None and self._options.id is not None and self._behind:
            # The printing took so long that the subscription has said goodbye before. An empty range that
            # begins behind what was printed tells the gateway of it.
            settling = threading.Event()
            late = Inbox(settling.set)
            late.release()
            _publisher(self._options, "bytes", self._behind).subscribe(late)
            settling.wait(2 * _SETTLING)
        # The subscription's thread says goodbye; without that the gateway would keep us for a while.
        for thread in threading.enumerate():
            if thread.name == "penstock-aquifer":
                thread.join(2.0)

    def summary(self) -> str:
        """What was done until the signal came."""
        kept = ""
        if self._options.id is not None:
            kept = f"; the gateway keeps the place of {self._options.id} for {duration(self._options.lease)}"
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
            last = portion[-1]
            if isinstance(last, Record) and last.offset is not None:
                self._behind = last.offset + 1
        if self._behind is not None:
            # A gateway leaves when somebody has everything. `head` or --count only has a look: without an id
            # the last record is not acknowledged before the end, or before it is known not to be the last.
            self._inbox.subscription.acknowledge(self._behind - (self._options.id is None))

    def _acknowledge_all(self) -> None:
        if self._behind is not None and self._printed != self._pace.count:
            assert self._inbox.subscription is not None
            self._inbox.subscription.acknowledge(self._behind)

    def _tell_of_waiting(self) -> None:
        if not self._is_told and time.monotonic() - self._began > _STILL:
            self._is_told = True
            if not self._printed:
                _say(f"waiting for records from {self._options.endpoint}; Ctrl-C ends it")

    def _tell_reconnects(self) -> None:
        assert self._inbox.subscription is not None
        metrics = self._inbox.subscription.metrics()
        if metrics.subscriptions > self._welcomes:
            self._welcomes = metrics.subscriptions
            where = f" at offset {metrics.next:,}" if metrics.dialect == "extended" else ""
            _say(f"connected again to {self._options.endpoint}; going on{where}")


# ---------------------------------------------------------------- from records to bytes
def _form(format: str, codec: str) -> Callable[[Sequence[Any]], bytes]:
    encode = msgspec.json.Encoder().encode
    if format == "json":
        as_text = codec == "bytes"
        return lambda elements: b"".join(encode(_object(each, as_text)) + b"\n" for each in elements)
    if codec == "bytes":
        return lambda elements: b"\n".join(_values(elements)) + b"\n"
    raw: Callable[[Any], bytes] = str.encode if codec == "text" else encode
    return lambda elements: b"".join(raw(value) + b"\n" for value in _values(elements))


def _values(elements: Sequence[Any]) -> Sequence[Any]:
    # A plain gateway has no offsets: its elements are values.
    return [record.value for record in elements] if isinstance(elements[0], Record) else elements


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
