"""The records of a gateway on standard output: one thread receives them, another prints and requests them.

Demand follows the printing. When nobody reads the pipe, the printing stops, then the demand, then the
gateway. ``--rate`` limits the demand in the same way.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.aquifer import (
    AquiferError,
    AquiferPublisher,
    AquiferSubscription,
    GatewayUnreachable,
    GroupSubscription,
    LogReader,
    Record,
    Redelivery,
    SourceFailed,
    probe,
)
from penstock.cli.errors import CommandError
from penstock.cli.logs import CommandLog, tell
from penstock.cli.record_text import form_of
from penstock.cli.screen import was_output_closed
from penstock.cli.signals import Interrupted, Interruption
from penstock.cli.table import duration
from penstock.cli.tail import EPOCH, TailOptions
from penstock.codec_names import CODECS
from penstock.spec import Subscription

__all__ = ["run_tail"]

READ_AHEAD: Final = 8192
"""How many records may be requested and not yet printed."""
_TICK: Final = 0.05
"""Seconds between two requests under ``--rate``, unless the rate is lower than that."""
_PORTION: Final = 256
_LOOK: Final = 0.2
_STILL: Final = 1.0
"""Seconds without output after which the user is told what the command waits for."""
_PRINTING: Final = 20.0
"""Seconds that printing the last records may take; the gateway hears nothing from us meanwhile."""
_PARTING: Final = 0.2
"""Seconds in which a reader such as `head` leaves after the last line that it wanted."""
_SETTLING: Final = 1.0
"""Seconds in which the last acknowledgement has to arrive."""


class Inbox:
    """The Subscriber. Elements wait here for the printing thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.subscription: AquiferSubscription | GroupSubscription | None = None
        self.error: BaseException | None = None
        self.is_over = False
        self._wake = wake
        self._waiting: deque[Any] = deque()
        self._reader_sleeps = False
        self._dealt_with = threading.Event()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        assert isinstance(subscription, AquiferSubscription | GroupSubscription)
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
            # The subscription leaves after this call, and says how far it has come: wait for the printing.
            self._dealt_with.wait(_PRINTING)

    def release(self) -> None:
        """Let the subscription leave: everything is printed."""
        self._dealt_with.set()

    def take(self) -> list[Any]:
        """Return everything that waits."""
        waiting = self._waiting
        return [waiting.popleft() for _ in range(len(waiting))]

    def is_still(self) -> bool:
        """Return whether nothing waits; from then on, the next element wakes the printing thread."""
        self._reader_sleeps = True
        return not self._waiting and not self.is_over


class RequestPace:
    """Decides how many records to request, and when."""

    def __init__(self, rate: float | None, count: int | None) -> None:
        self.requested = 0
        self.rate = rate
        self.count = count
        self.read_ahead = READ_AHEAD
        self._last = time.monotonic()
        if rate is not None:
            self.read_ahead = max(1, min(READ_AHEAD, int(rate / 4)))
            # The first record at once.
            self._last -= 1 / rate

    def due(self, printed: int, now: float) -> int:
        """Return how many to request now."""
        unused = self.read_ahead - (self.requested - printed)
        if self.rate is None:
            # In portions, not for every record.
            due = unused if unused >= self.read_ahead // 4 else 0
        else:
            earned = int((now - self._last) * self.rate)
            due = min(earned, unused)
            # Unused demand is not saved up: a rate is not an average over the night.
            self._last += earned / self.rate
        if self.count is not None:
            due = min(due, self.count - self.requested)
        self.requested += max(due, 0)
        return max(due, 0)

    def pause(self) -> float:
        """Return for how many seconds there is nothing to request."""
        return _LOOK if self.rate is None else min(max(_TICK, 1 / self.rate), _LOOK)


class Output:
    """Standard output, written to without Python's buffer, in as few pieces as possible."""

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
        """Write it all; BrokenPipeError if the reader is gone, Interrupted if a signal arrives first."""
        view = memoryview(data)
        while view:
            piece = view
            if self._may_block:
                # If anything can be written without waiting, this much can.
                self._interruption.wait_to_write(self._descriptor)
                piece = view[: select.PIPE_BUF]
            view = view[os.write(self._descriptor, piece) :]

    def is_closed(self, within: float = 0.0) -> bool:
        """Return whether the reader is gone, or leaves within some seconds, without writing anything."""
        return self._poll is not None and bool(self._poll.poll(within * 1000))


def run_tail(options: TailOptions) -> int:
    """Print until the stream ends, enough is printed, or a signal arrives."""
    _check_group(options)
    _publisher(options, "bytes")  # First, so that a wrong command line is reported at once.
    if was_output_closed():
        return 0  # Nobody can read the output.
    log = CommandLog(options.log, "tail", level=logging.INFO, layer="penstock.aquifer")
    with Interruption() as interruption, log:
        codec = options.codec
        if codec is None:
            codec = _codec_there(options, interruption)
            if codec is None:
                return interruption.exit_code
        epoch: str | None = None
        if options.group is not None and isinstance(options.start, datetime):
            options, epoch = _with_start_found(options, options.start)
        inbox = Inbox(interruption.wake)
        _publisher(options, codec, epoch=epoch).subscribe(inbox)
        tail = _Tail(options, codec, inbox, interruption)
        try:
            tail.run()
        except BrokenPipeError:
            return 0  # A reader like `head` has read enough.
        except Interrupted:
            pass  # As with a signal at any other time; see below.
        finally:
            tail.leave()
        if interruption.signal is not None:
            _say(tail.summary())
            return interruption.exit_code
    if isinstance(inbox.error, SourceFailed):
        raise CommandError(f"the source of the gateway failed: {inbox.error}", 1)
    if inbox.error is not None:
        raise CommandError(str(inbox.error), 1)
    return 0


def _check_group(options: TailOptions) -> None:
    """Say which options do not go together with --group, and with each other."""
    if options.id is not None and options.optional:
        raise CommandError(
            "--id and --optional do not go together: the gateway remembers nothing for an optional reader"
        )
    if options.group is None:
        if options.partitions is not None:
            raise CommandError("--partitions is for a reader group: add --group NAME")
        return
    others = {
        "--id": options.id is not None,
        "--key": bool(options.keys),
        "--to": options.stop is not None,
        "--optional": options.optional,
        "--dialect plain": options.dialect == "plain",
    }
    for flag, is_given in others.items():
        if is_given:
            raise CommandError(
                f"--group and {flag} do not go together: a group shares all records of a stream"
            )


def _say(text: str, **fields: object) -> None:
    tell("tail", text, **fields)


def _codec_there(options: TailOptions, interruption: Interruption) -> str | None:
    """Ask the gateway what its values are, as soon as it answers; None if a signal arrives first."""
    curve, began = options.curve_client(), time.monotonic()
    told = reached = False
    while not interruption.wait(0):
        left = began + options.patience - time.monotonic()
        try:
            codec = str(probe(options.endpoint, max(min(left, _STILL), 0.1), curve)["codec"])
        except GatewayUnreachable as unreachable:
            reached = reached or unreachable.reached
            if left <= 0:
                raise CommandError(_without_answer(options, reached), 1) from None
            if not told and left > _STILL:
                told = True
                _say(
                    f"no gateway answers at {options.endpoint} yet; looking for it for "
                    f"{duration(options.patience)}",
                    endpoint=options.endpoint,
                )
        except AquiferError:
            return "bytes"  # It cannot say. If something is wrong with it, the subscription reports that.
        else:
            # Text and JSON are printed as they are stored.
            as_it_is = codec not in CODECS or (not options.json and codec in ("text", "json"))
            return "bytes" if as_it_is else codec
    return None


def _without_answer(options: TailOptions, reached: bool) -> str:
    if reached:
        remedy = (
            "check the port, and whether the gateway is healthy; an encrypted endpoint needs --curve and "
            "--server-key"
            if options.curve is None
            else "compare --server-key with the .pub file of the gateway, and name its --curve-control"
        )
        return (
            f"something listens at {options.endpoint}, but no gateway has answered for "
            f"{options.patience:g} s; {remedy}"
        )
    hint = (
        "and do both sides use keys or neither?"
        if options.curve is None
        else "with keys, and is --server-key its public key?"
    )
    return (
        f"no gateway answers at {options.endpoint} after {options.patience:g} s; is it running there, {hint}"
    )


def _with_start_found(options: TailOptions, instant: datetime) -> tuple[TailOptions, str]:
    """Return the options with the offset of a time, and the epoch of the log in which it was found.

    Other readers look for it by themselves. A new group begins at an offset that one member names.
    """
    timestamp = (instant - EPOCH) // timedelta(microseconds=1)
    try:
        with LogReader(options.endpoint, patience=options.patience, curve=options.curve_client()) as log:
            state = log.state()
            offset = log.offset_at(timestamp, state=state)
    except AquiferError as error:
        raise CommandError(str(error), 1) from None
    return dataclasses.replace(options, start=offset), state.epoch


def _with_offsets(options: TailOptions) -> bool:
    """Return whether records with offsets are needed: to print them, or to acknowledge what was printed."""
    return bool(options.json or options.id is not None or options.dialect != "plain")


def _publisher(
    options: TailOptions, codec: str, *, epoch: str | None = None, only_acknowledge: int | None = None
) -> AquiferPublisher:
    window = RequestPace(options.rate, None).read_ahead
    is_searched = options.group is not None and isinstance(options.start, datetime)
    start = None if is_searched else options.start
    try:
        return AquiferPublisher(
            options.endpoint,
            id=options.id,
            group=options.group,
            partitions=options.partitions,
            start=start if only_acknowledge is None else only_acknowledge,
            stop=options.stop if only_acknowledge is None else only_acknowledge,
            epoch=epoch,
            keys=options.keys or None,
            keep=not options.optional,
            lease=options.lease,
            codec=codec,
            records=_with_offsets(options),
            acknowledge=_acknowledge(options),
            redelivery=None if options.group is None else Redelivery(max_pending=READ_AHEAD),
            dialect=options.dialect,
            window=window,
            max_window=window if options.rate is not None else 262_144,
            patience=options.patience if only_acknowledge is None else _SETTLING,
            curve=options.curve_client(),
            on_gap=_missed if options.optional else None,
        )
    except ValueError as error:
        raise CommandError(str(error)) from None


def _acknowledge(options: TailOptions) -> str:
    if options.group is not None:
        return "each"  # The partitions of a group do not come in the order of their offsets.
    return "manual" if _with_offsets(options) else "auto"


def _missed(first: int, next: int) -> None:
    _say(f"the records {first:,} to {next - 1:,} were missed; continuing at {next:,}", first=first, next=next)


class _Tail:
    def __init__(self, options: TailOptions, codec: str, inbox: Inbox, interruption: Interruption) -> None:
        self._options = options
        self._inbox = inbox
        self._interruption = interruption
        self._pace = RequestPace(options.rate, options.count)
        self._output = Output(interruption)
        self._form = form_of(codec, as_json=options.json)
        self._is_told = not sys.stderr.isatty()
        """Whether the user knows that there is nothing to print yet; without a terminal nobody is told."""
        self._began = time.monotonic()
        self._printed = 0
        self._position: int | None = None
        """The offset after the last record that was printed, if it has one."""
        self._welcomes = 1
        self._partitions: tuple[int, ...] = ()
        """Those that this member of a group reads, as far as the user was told."""

    def run(self) -> None:
        """Print, and request as much as was printed."""
        inbox = self._inbox
        while True:
            self._ask()
            is_over = inbox.is_over  # First: what arrived before the end is taken below.
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
        """Cancel, and wait until the gateway knows."""
        subscription = self._inbox.subscription
        has_left = subscription is not None and subscription.join(0)
        self._inbox.release()
        if subscription is not None:
            subscription.cancel()
        ended = self._inbox.error is None or isinstance(self._inbox.error, SourceFailed)
        if has_left and ended and self._options.id is not None and self._position:
            # The printing took so long that the subscription has already left. An empty range that begins
            # after what was printed tells the gateway.
            settling = threading.Event()
            late = Inbox(settling.set)
            late.release()
            _publisher(self._options, "bytes", only_acknowledge=self._position).subscribe(late)
            settling.wait(2 * _SETTLING)
        # The subscription's thread unsubscribes; otherwise the gateway would wait for the lease to end.
        for thread in threading.enumerate():
            if thread.name in ("penstock-aquifer", "penstock-group"):
                thread.join(2.0)

    def summary(self) -> str:
        """Say what was done until the signal arrived."""
        resumes = ""
        name = self._options.id or self._options.group
        if name is not None:
            resumes = f"; {name} can continue there within {duration(self._options.lease)}"
        return f"interrupted: {self._printed:,} record{'s' * (self._printed != 1)} printed{resumes}"

    def _ask(self) -> None:
        due = self._pace.due(self._printed, time.monotonic())
        if due:
            assert self._inbox.subscription is not None
            self._inbox.subscription.request(due)

    def _print(self, records: Sequence[Any]) -> None:
        subscription = self._inbox.subscription
        assert subscription is not None
        # In small portions: one that a signal interrupts is neither counted nor acknowledged.
        for start in range(0, len(records), _PORTION):
            portion = records[start : start + _PORTION]
            self._output.write(self._form(portion))
            self._printed += len(portion)
            last = portion[-1]
            if isinstance(subscription, GroupSubscription):
                for record in portion:
                    subscription.ack(record.offset)
            elif isinstance(last, Record) and last.offset is not None:
                self._position = last.offset + 1
        if self._position is not None:
            assert isinstance(subscription, AquiferSubscription)
            # A gateway exits when a reader has everything, and `head` or --count may only want a look. So
            # without an id the last record is not acknowledged before the end, or before it is clear that it
            # is not the last one.
            subscription.acknowledge(self._position - (self._options.id is None))

    def _acknowledge_all(self) -> None:
        if self._position is not None and self._printed != self._pace.count:
            assert isinstance(self._inbox.subscription, AquiferSubscription)
            self._inbox.subscription.acknowledge(self._position)

    def _tell_of_waiting(self) -> None:
        if not self._is_told and time.monotonic() - self._began > _STILL:
            self._is_told = True
            if not self._printed:
                _say(f"waiting for records from {self._options.endpoint}; stop with Ctrl-C")

    def _tell_reconnects(self) -> None:
        subscription = self._inbox.subscription
        assert subscription is not None
        if isinstance(subscription, GroupSubscription):
            self._tell_partitions(subscription)
            return
        metrics = subscription.metrics()
        if metrics.subscriptions > self._welcomes:
            self._welcomes = metrics.subscriptions
            where = f" at offset {metrics.next:,}" if metrics.dialect == "extended" else ""
            endpoint = self._options.endpoint
            _say(f"reconnected to {endpoint}; continuing{where}", endpoint=endpoint)

    def _tell_partitions(self, subscription: GroupSubscription) -> None:
        read = subscription.partitions
        if read != self._partitions:
            self._partitions = read
            shown = ", ".join(map(str, read)) or "none at the moment"
            _say(f"partitions of {subscription.group} that this member reads: {shown}", partitions=list(read))
