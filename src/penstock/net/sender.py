"""Senders: Subscribers that write to a socket, and ask their source for as much as the socket takes.

:class:`Sender` is what they have in common: one source, elements from any thread, demand that waits while the
socket is full, and one end. :class:`StreamSender` is the policy for connections, and
``DatagramSender`` in :mod:`penstock.net.udp.sender` the one for datagrams.
"""

from __future__ import annotations

from _thread import get_ident
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock.net.errors import ConnectionAborted, ReceiveStopped, SendRefused
from penstock.net.receiver import Receiver, Turn
from penstock.net.transport import HIGH_WATER, EventLoop, Flush, Transport, call_on
from penstock.spec import Subscription, none_element, none_error, none_subscription
from penstock.streams.spi import Link, asks_main_thread_to_stop

__all__ = ["BUDGET", "MOST_ELEMENTS", "Done", "FlushRule", "Sender", "StreamSender"]

MOST_ELEMENTS: Final = 1024
"""The demand for elements never exceeds this."""
_MOST_CHUNKS: Final = 2
"""The same for what another socket receives, if that socket cannot be held back."""
BUDGET: Final = 128 * 1024
"""About this many bytes are asked for ahead."""
_JOINED: Final = 64 * 1024
"""A burst is written once it has this many bytes."""

FlushRule = Callable[[bytes], bool]
"""Says of an element whether it must not wait for the rest of its burst."""

Done = Callable[[BaseException | None], object]
"""Hears, once, how a send ended: with None when everything was handed to the kernel, or with the error."""


class Sender(ABC):
    """Sends the elements of one source, then tells ``done``.

    Elements may come from any thread; everything else happens on the event loop.
    """

    __slots__ = (
        "_done",
        "_elsewhere",
        "_finishing",
        "_loop",
        "_outstanding",
        "_scheduled",
        "_source_error",
        "_subscribed",
        "_subscription",
        "_target",
        "_thread",
    )

    def __init__(self, loop: EventLoop, done: Done, target: int) -> None:
        self._loop = loop
        self._thread = get_ident()
        self._done: Done | None = done
        self._subscription: Subscription | None = None
        self._subscribed = False
        self._outstanding = 0
        """Elements that were asked for and have not come."""
        self._target = target
        """The demand that a refill brings the outstanding elements up to."""
        self._elsewhere: deque[Any] = deque()
        """Signals that came on other threads."""
        self._scheduled = False
        """A refill is due in the next turn of the loop."""
        self._finishing = False
        """The source is at its end."""
        self._source_error: BaseException | None = None

    # ---------------------------------------------------------------- what a policy decides
    @abstractmethod
    def on_next(self, element: Any, /) -> None:
        """Send an element, or keep it until the socket takes it."""

    @abstractmethod
    def _refill(self) -> None:
        """Ask the source for more, if the socket can take more."""

    @abstractmethod
    def _finish(self) -> None:
        """The source is at its end: call ``_end`` once everything has been handed to the kernel."""

    # ---------------------------------------------------------------- Subscriber
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Ask for the first elements."""
        if subscription is None:
            raise none_subscription()
        if self._subscribed or self._done is None:
            subscription.cancel()  # §2.5
            return
        self._subscribed = True
        self._subscription = subscription
        self._on_loop(self._refill)

    def on_error(self, error: BaseException, /) -> None:
        """The source failed. What it gave before is sent, then the send fails with its error."""
        if error is None:
            raise none_error()
        self._source_ended(error)

    def on_complete(self) -> None:
        """The source is at its end. The send completes when everything has been handed to the kernel."""
        self._source_ended(None)

    # ---------------------------------------------------------------- what the owner of the socket calls
    def cancel(self) -> None:
        """Nobody waits for this send any more: cancel the source. What was written still goes out."""
        if get_ident() != self._thread:
            self._on_loop(self.cancel)
        elif self._done is not None:
            self._done = None
            self._stop(cancel=True)

    # ---------------------------------------------------------------- demand
    def _ask(self, subscription: Subscription, n: int) -> None:
        """Request ``n`` elements; a source that raises there breaks §3.16, and ends the send."""
        try:
            subscription.request(n)
        except BaseException as fault:
            self._end(fault, cancel=True)
            if asks_main_thread_to_stop(fault):
                raise

    # ---------------------------------------------------------------- other threads
    def _on_loop(self, call: Callable[[], object]) -> None:
        if get_ident() == self._thread:
            call()
        else:
            call_on(self._loop, call)

    def _from_elsewhere(self, signal: Any) -> None:
        if signal is None:
            raise none_element("send()")  # §2.13
        if isinstance(signal, bytearray | memoryview):
            signal = bytes(signal)  # now: by the time the loop gets to it, its owner may have changed it
        self._elsewhere.append(signal)
        if len(self._elsewhere) == 1:
            # The thread that adds the first signal wakes the loop, which then takes all of them.
            self._on_loop(self._take_elsewhere)

    def _take_elsewhere(self) -> None:
        arrived = self._elsewhere
        while arrived:
            # It stays in the queue until it is done with: as long as it is there, nobody has to wake the
            # loop.
            signal = arrived[0]
            if type(signal) is _SourceEnd:
                arrived.popleft()
                self._source_ended(signal.error)
            else:
                self.on_next(signal)
                arrived.popleft()

    # ---------------------------------------------------------------- the end
    def _source_ended(self, error: BaseException | None) -> None:
        self._subscription = None  # §2.4: from now on, even if the loop hears of it later
        if get_ident() != self._thread:
            self._from_elsewhere(_SourceEnd(error))
            return
        if self._done is None or self._finishing:
            return
        self._finishing = True
        self._source_error = error
        self._finish()

    def _end(self, error: BaseException | None, *, cancel: bool) -> None:
        done, self._done = self._done, None
        self._stop(cancel=cancel)
        if done is not None:
            done(error)

    def _stop(self, *, cancel: bool) -> None:
        """Release everything; ``cancel`` the source too, if it has not ended."""
        subscription, self._subscription = self._subscription, None
        if cancel and subscription is not None:
            subscription.cancel()


class _SourceEnd:
    """The end of a source, on its way from another thread."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class StreamSender(Sender):
    """Writes the elements of one source to one transport.

    Demand is counted in elements, as the standard has it, and steered by bytes, which is what memory and the
    peer's window are made of. It follows the mean size of the elements: about ``BUDGET`` bytes are asked for
    ahead, whether an element has ten bytes or a quarter of a million.

    Elements that a source emits within one ``request``, or out of one received chunk, are written as one. The
    next request then goes through the event loop, so that a source which never waits cannot keep the loop
    busy.

    Demand cannot be taken back, and a peer that has sent small chunks may go on with large ones. So while
    this socket is full, a connection that feeds it is held back. Its chunks stay on its own side, where they
    are bounded.
    """

    __slots__ = (
        "_asked",
        "_burst",
        "_burst_bytes",
        "_bytes",
        "_flush",
        "_flushing",
        "_held",
        "_low",
        "_since_full",
        "_sized_at",
        "_transport",
        "_turn",
        "_unsent",
        "_writable",
        "_write",
    )

    def __init__(
        self,
        transport: Transport,
        write: Callable[[bytes], None],
        writable: bool,
        flush: FlushRule | None,
        done: Done,
    ) -> None:
        super().__init__(transport.loop, done, target=2)
        self._transport = transport
        self._turn = Turn.of(transport.loop)
        self._write = write
        self._writable = writable
        self._flush = flush
        self._burst: list[bytes] | None = None
        self._burst_bytes = 0
        self._asked = 0
        """Elements that were asked for, in all."""
        self._low = 1
        """A refill is due when no more than this many elements are outstanding."""
        self._bytes = 0
        """Bytes given to the transport."""
        self._sized_at = 0
        """The same when the target was last set."""
        self._unsent = 0
        """Bytes that waited in the transport when it was last full."""
        self._since_full = 0
        """Bytes given to the transport by then."""
        self._flushing: Flush | None = None
        """Waits until everything has been handed to the kernel."""
        self._held: Link | None = None
        """The source that is held back because this socket is full."""

    # ---------------------------------------------------------------- elements
    def on_next(self, data: bytes, /) -> None:
        """Write an element, or keep it until the burst that it belongs to is over."""
        if get_ident() != self._thread:
            self._from_elsewhere(data)
            return
        if type(data) is not bytes:
            copied = self._as_bytes(data)
            if copied is None:
                return
            data = copied
        burst = self._burst
        if burst is None and self._turn.active:
            burst = self._burst = []
            self._turn.joining.append(self)
        if burst is None:
            self._bytes += len(data)
            self._outstanding -= 1
            self._write(data)
            if self._outstanding <= self._low and self._writable and not self._scheduled:
                # Not from here: a source that is in a loop of its own would never leave it.
                self._scheduled = True
                self._loop.call_soon(self._refill)
            return
        burst.append(data)
        self._burst_bytes = size = self._burst_bytes + len(data)
        if size >= _JOINED or (self._flush is not None and self._wants_flush(data)):
            self._write_burst()

    def _write_burst(self) -> None:
        burst = self._burst
        if not burst:
            return
        data = burst[0] if len(burst) == 1 else b"".join(burst)
        self._bytes += self._burst_bytes
        self._outstanding -= len(burst)
        burst.clear()
        self._burst_bytes = 0
        # Not writelines: on some interpreters it does not tell when the buffer is full (CVE-2024-12254).
        self._write(data)

    def end_burst(self) -> None:
        """The chunk that these elements came from has been handled."""
        self._write_burst()
        self._burst = None
        self._refill_soon()

    def _take_elsewhere(self) -> None:
        if self._burst is None:
            self._burst = []
            try:
                super()._take_elsewhere()
            finally:
                self._write_burst()
                self._burst = None
        else:
            super()._take_elsewhere()
        self._refill()

    def _wants_flush(self, data: bytes) -> bool:
        try:
            return self._flush is not None and bool(self._flush(data))
        except BaseException as fault:
            self._end(fault, cancel=True)
            if asks_main_thread_to_stop(fault):
                raise
            return False

    def _as_bytes(self, data: Any) -> bytes | None:
        if data is None:
            raise none_element("send()")
        if isinstance(data, bytes | bytearray | memoryview):
            # A copy: the transport may keep what it is given, and its owner may change it.
            return bytes(data)
        self._end(SendRefused.of(data), cancel=True)
        return None

    # ---------------------------------------------------------------- what the connection calls
    def wrote(self, size: int) -> None:
        """An element of this size was written before, and may not have left."""
        self._asked, self._bytes = 1, size

    def pause(self) -> None:
        """The transport is full."""
        self._writable = False
        self._unsent = self._transport.get_write_buffer_size()
        self._since_full = self._bytes
        self._hold_back()

    def resume(self) -> None:
        """The transport has room again; while finishing, it may be empty."""
        self._writable = True
        self._unsent = 0
        if self._flushing is not None:
            self._flushing.check()
        else:
            self._let_go()
            self._refill()

    @property
    def flushing(self) -> bool:
        """Whether the source is at its end, and the kernel has not taken everything."""
        return self._finishing and self._done is not None

    def ignore_end(self) -> None:
        """The connection is gone: from now on the end of the source is not the end of the send."""
        self._finishing = True

    def lost(self, why: str, error: BaseException | None = None) -> None:
        """The connection is gone. That is an error which says what had not left, never a completion."""
        if self._done is None:
            return
        elements = self._asked - self._outstanding
        unsent = self._unsent + self._bytes - self._since_full
        if self._writable:
            unsent = min(self._bytes, HIGH_WATER)
        aborted = ConnectionAborted(
            f"{why} while sending: {elements:,} elements with {self._bytes:,} bytes were written, and up to "
            f"{unsent:,} of these had not left",
            elements=elements,
            written=self._bytes,
            unsent=unsent,
        )
        aborted.__cause__ = error
        self._end(aborted, cancel=True)

    # ---------------------------------------------------------------- demand
    def _hold_back(self) -> None:
        """Stop the connection that feeds us, if everything between it and us only passes demand on.

        A stage that takes more than is asked of it, to drop it or to keep it, has to go on taking.
        """
        step = self._subscription
        while isinstance(step, Link) and step.passes_demand:
            step = step.upstream
        if isinstance(step, Link) and step.hold_back():
            self._held = step

    def _most_ahead(self) -> int:
        """The most elements to ask for ahead.

        What a socket receives is small at one time and a quarter of a megabyte at the next. If it passes a
        stage that takes more than is asked of it (one that drops what is too much, say), that socket cannot
        be held back, and everything that was asked for may still come when this one is full. Frames are as
        large as their decoder allows.
        """
        step = self._subscription
        can_be_held = True
        while isinstance(step, Link) and step.upstream is not None and not step.resizes:
            can_be_held &= step.passes_demand
            step = step.upstream
        return _MOST_CHUNKS if isinstance(step, Receiver) and not can_be_held else MOST_ELEMENTS

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.go_on()

    def _refill_soon(self) -> None:
        """In the next turn of the loop, so that the others on it have theirs."""
        if (
            self._outstanding <= self._low
            and self._writable
            and not self._scheduled
            and self._done is not None
        ):
            self._scheduled = True
            self._loop.call_soon(self._refill)

    def _refill(self) -> None:
        self._scheduled = False
        if self._outstanding > self._low or not self._writable or self._done is None or self._finishing:
            return
        subscription = self._subscription
        if subscription is None:
            return
        came = self._target - self._outstanding
        size = self._bytes - self._sized_at
        if came and size:
            # As many elements of the size just seen as fit the budget; but never many more at one go.
            self._target = max(1, min(BUDGET * came // size, self._target * 8, self._most_ahead()))
            self._low = self._target >> 1
            self._sized_at = self._bytes
        n = self._target - self._outstanding
        if n <= 0:
            return
        self._outstanding += n
        self._asked += n
        if self._burst is not None:
            self._ask(subscription, n)
            return
        self._burst = []
        try:
            self._ask(subscription, n)
        finally:
            self._write_burst()
            self._burst = None
        self._refill_soon()  # if all of it came at once

    # ---------------------------------------------------------------- the end
    def _finish(self) -> None:
        self._write_burst()
        if self._source_error is not None and not isinstance(self._source_error, ReceiveStopped):
            self._end(self._source_error, cancel=False)
            return
        self._flushing = self._transport.flush(self._flushed)
        self._flushing.check()

    def _flushed(self) -> None:
        self._end(self._source_error, cancel=False)

    def _stop(self, *, cancel: bool) -> None:
        flushing, self._flushing = self._flushing, None
        if flushing is not None:
            flushing.cancel()
        if cancel:
            self._write = _drop  # §2.8: elements may still come
        super()._stop(cancel=cancel)
        self._let_go()


def _drop(data: bytes) -> None:
    """Takes the elements of a send that is over."""
